"""Many bindings at once: read from CSV, compared with what there is before any is sent, and reported one by one.

CSV has a line of column names, then a binding a line (docs/reference/cli.md).
"""

import csv
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ams.cli.command import Session, table
from ams.client.errors import InvalidInput, NotFound, Refused
from ams.client.wire import Call, authn
from ams.core.distinguished_names import normalised
from ams.core.errors import BadDocument

NEEDED = ("name", "service_type", "host", "auth_identifier")
COLUMNS = (*NEEDED, "unique_key", "user", "auth_type", "issuer")

Ask = Callable[[Call[Any]], Any]
UuidOf = Callable[[str], str]  # returns the uuid of an AMS user by name; raises a `ClientError`


class Outcome(StrEnum):
    """What becomes of a record."""

    MADE = "made"
    CHANGED = "changed"
    SAME = "as it is"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredBinding:
    """A binding as a file declares it; `place` is its position in the file."""

    place: str
    name: str
    service_type: str
    host: str
    auth_identifier: str
    unique_key: str
    auth_type: str = authn.X509
    issuer: str | None = None  # none: any issuer; new bindings then have none

    @property
    def subject(self) -> tuple[str, str, str, str]:
        """What may be bound once (authn contract 7)."""
        return self.service_type, self.host, self.auth_type, self.auth_identifier


@dataclass(frozen=True, slots=True)
class Report:
    """What becomes, or became, of a record."""

    place: str
    name: str
    outcome: Outcome
    text: str = ""


def refused(place: str, name: str, reason: str) -> Report:
    """Report a record that cannot be."""
    return Report(place, name, Outcome.REFUSED, reason)


def refused_by_service(place: str, name: str, error: Refused) -> Report:
    """Report a record that the service refused; raise the error when it would refuse all others for the same reason."""
    if error.code in (401, 403) or error.retriable:
        raise error
    return refused(place, name, error.message)


@dataclass(frozen=True, slots=True)
class Planned:
    """A binding and what is to be done with it."""

    wanted: DeclaredBinding
    outcome: Outcome
    text: str = ""  # why it is refused; of a change, what becomes other
    changes: Mapping[str, str] = field(default_factory=dict)

    @property
    def report(self) -> Report:
        """The plan as it is reported."""
        return Report(self.wanted.place, self.wanted.name, self.outcome, self.text)


def plan(
    wanted: Sequence[DeclaredBinding], service_types: Iterable[authn.ServiceType], bindings: Iterable[authn.Binding]
) -> list[Planned]:
    """Compare bindings with those there are, by name; nothing is removed.

    Of several with one name, or one subject on one host, none is taken: the file does not say which it means.
    """
    types = {each.name: each for each in service_types}
    names_of_types = {each.uuid: each.name for each in types.values()}
    there = {
        each.name: DeclaredBinding(
            place="",
            name=each.name,
            service_type=names_of_types.get(each.service_uuid, each.service_uuid),
            host=each.host,
            auth_identifier=each.auth_identifier,
            unique_key=each.unique_key,
            auth_type=each.auth_type,
            issuer=each.issuer,
        )
        for each in bindings
    }
    bound = {each.subject: each.name for each in there.values()}
    names, subjects = Counter(each.name for each in wanted), Counter(each.subject for each in wanted)
    planned = []
    for each in wanted:
        reason = _wrong(each, types.get(each.service_type), there)
        if not reason and names[each.name] > 1:
            reason = f"{names[each.name]} bindings of the file have this name"
        if not reason and subjects[each.subject] > 1:
            reason = f"{subjects[each.subject]} bindings of the file have this subject on this host"
        holder = bound.get(each.subject, each.name)
        if not reason and holder != each.name:
            reason = f"the subject is bound there already, by {holder}"
        planned.append(Planned(each, Outcome.REFUSED, reason) if reason else _compared(each, there.get(each.name)))
    return planned


def carry_out(planned: Sequence[Planned], uuids: Mapping[str, str], ask: Ask) -> list[Report]:
    """Send what is to be done, `uuids` being those of service types by name, and report what became of it.

    One that the service refuses does not end it; no service, or a wrong key, does: raises that `ClientError`.
    """
    return [_sent(each, uuids, ask) for each in planned]


def show(session: Session, reports: Sequence[Report], *, applied: bool) -> None:
    """Write what becomes of each record, and how many there are of each kind."""
    counts = Counter(each.outcome for each in reports)
    summary = ", ".join(f"{counts[each]} {each}" for each in Outcome if counts[each]) or "nothing to do"
    lines = table({"PLACE": "place", "NAME": "name", "OUTCOME": "outcome", "WHY": "text"}, reports)
    session.show({"lines": reports, "applied": applied}, f"{lines}\n{summary}")


def _wrong(
    wanted: DeclaredBinding, service_type: authn.ServiceType | None, there: Mapping[str, DeclaredBinding]
) -> str:
    if wanted.name not in there and not authn.is_name(wanted.name):
        return f"a name is {authn.NAME_RULE}"
    if service_type is None:
        return f"there is no service type {wanted.service_type}"
    if wanted.host not in service_type.hosts:
        return f"{wanted.host} is no host of {wanted.service_type}"
    if wanted.auth_type not in service_type.auth_types:
        return f"{wanted.service_type} takes no {wanted.auth_type}"
    return ""


_FIELDS = ("service_type", "host", "auth_identifier", "unique_key", "auth_type", "issuer")


def _compared(wanted: DeclaredBinding, there: DeclaredBinding | None) -> Planned:
    if there is None:
        return Planned(wanted, Outcome.MADE)
    said = {name: getattr(wanted, name) for name in _FIELDS if getattr(wanted, name) is not None}
    changes = {name: value for name, value in said.items() if value != getattr(there, name)}
    if not changes:
        return Planned(wanted, Outcome.SAME)
    return Planned(wanted, Outcome.CHANGED, ", ".join(changes), changes)


def _sent(planned: Planned, uuids: Mapping[str, str], ask: Ask) -> Report:
    wanted = planned.wanted
    try:
        if planned.outcome is Outcome.MADE:
            ask(
                authn.create_binding(
                    wanted.name,
                    uuids[wanted.service_type],
                    wanted.host,
                    wanted.auth_identifier,
                    wanted.unique_key,
                    auth_type=wanted.auth_type,
                    issuer=wanted.issuer or "",
                )
            )
        elif planned.outcome is Outcome.CHANGED:
            changes = dict(planned.changes)
            if "service_type" in changes:
                changes["service_uuid"] = uuids[changes.pop("service_type")]
            ask(authn.update_binding(wanted.name, authn.BindingFields(**changes)))
    except Refused as error:
        return refused_by_service(wanted.place, wanted.name, error)
    return planned.report


def read_bindings(path: str, uuid_of: UuidOf) -> Iterator[DeclaredBinding | Report]:
    """Yield what each line says; raise `BadDocument` when the file, or its first line, cannot be read at all.

    Subjects and issuers may be spelled in any way, and come out in normal form.
    """
    known = functools.cache(uuid_of)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True, skipinitialspace=True)
            names = reader.fieldnames or ()
            for name in names:
                if name not in COLUMNS:
                    raise BadDocument(f"{path}:1: unknown column {name!r}; there are {', '.join(COLUMNS)}")
            for name in NEEDED:
                if name not in names:
                    raise BadDocument(f"{path}:1: the column {name} is missing")
            for row in reader:
                yield _read(f"{path}:{reader.line_num}", row, known)
    except OSError as error:
        raise BadDocument(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadDocument(f"{path} is not CSV in UTF-8: {getattr(error, 'reason', None) or error}") from None


def _read(place: str, row: Mapping[str | None, object], uuid_of: UuidOf) -> DeclaredBinding | Report:
    said = {name: str(value or "").strip() for name, value in row.items() if name is not None}
    name = said["name"]
    if None in row:
        return refused(place, name, "more values than columns: a subject with commas stands in quotation marks")
    empty = [column for column in NEEDED if not said[column]]
    if empty:
        return refused(place, name, f"no {empty[0]}")
    user, unique_key = said.get("user", ""), said.get("unique_key", "")
    if bool(user) == bool(unique_key):
        return refused(place, name, "give unique_key, or the user of AMS whose it is, one of them")
    try:
        subject, issuer = normalised(said["auth_identifier"]), said.get("issuer")
        issuer = normalised(issuer) if issuer else issuer
    except ValueError as error:
        return refused(place, name, str(error))
    try:
        unique_key = unique_key or uuid_of(user)
    except NotFound:
        return refused(place, name, f"AMS has no user {user}")
    except InvalidInput as error:
        return refused(place, name, error.message)
    return DeclaredBinding(
        place=place,
        name=name,
        service_type=said["service_type"],
        host=said["host"],
        auth_identifier=subject,
        unique_key=unique_key,
        auth_type=said.get("auth_type") or authn.X509,
        issuer=issuer,
    )
