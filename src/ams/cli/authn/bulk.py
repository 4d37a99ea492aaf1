"""Bulk import of bindings: reads CSV, compares with existing bindings, sends changes and reports each.

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
from ams.cli.exit_codes import file_named
from ams.client.errors import InvalidInput, NotFound, Refused
from ams.client.wire import Call, authn
from ams.core.distinguished_names import normalise_name
from ams.core.errors import BadDocument

REQUIRED_COLUMNS = ("name", "service_type", "host", "auth_identifier")
COLUMNS = (*REQUIRED_COLUMNS, "unique_key", "user", "auth_type", "issuer")
SAME_FIELDS = ("host", "auth_identifier", "unique_key", "auth_type", "issuer")
"""Fields of a binding with the same form in a file and in the API."""

Ask = Callable[[Call[Any]], Any]
UuidOf = Callable[[str], str]  # returns the uuid of an AMS user by name; raises a `ClientError`


class RecordOutcome(StrEnum):
    """Outcome of a record."""

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
    issuer: str | None = None  # None: any issuer

    @property
    def subject(self) -> tuple[str, str, str, str]:
        """Unique key of a binding (authn contract 7)."""
        return self.service_type, self.host, self.auth_type, self.auth_identifier


@dataclass(frozen=True, slots=True)
class RecordReport:
    """Report of a record, planned or done."""

    place: str
    name: str
    outcome: RecordOutcome
    text: str = ""


def refuse_record(place: str, name: str, reason: str) -> RecordReport:
    """Report an invalid record."""
    return RecordReport(place, name, RecordOutcome.REFUSED, reason)


def refused_by_service(place: str, name: str, error: Refused) -> RecordReport:
    """Report a record that the service refused; raise errors that would hit all others too."""
    if error.code in (401, 403) or error.retriable:
        raise error
    return refuse_record(place, name, error.message)


@dataclass(frozen=True, slots=True)
class PlannedBinding:
    """A binding and its planned change."""

    wanted: DeclaredBinding
    report: RecordReport  # its text: reason of a refusal, or changed fields
    changes: Mapping[str, str] = field(default_factory=dict)


def plan(
    wanted: Sequence[DeclaredBinding], service_types: Iterable[authn.ServiceType], bindings: Iterable[authn.Binding]
) -> list[PlannedBinding]:
    """Compare bindings with existing ones, by name; nothing is removed.

    Duplicates, by name or by subject and host, are all refused: the file does not say which one counts.
    """
    types = {each.name: each for each in service_types}
    names_of_types = {each.uuid: each.name for each in types.values()}
    there = {
        each.name: DeclaredBinding(
            place="",
            name=each.name,
            service_type=names_of_types.get(each.service_uuid, each.service_uuid),
            **{field: getattr(each, field) for field in SAME_FIELDS},
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
        refused = PlannedBinding(each, refuse_record(each.place, each.name, reason)) if reason else None
        planned.append(refused or _compare_binding(each, there.get(each.name)))
    return planned


def show(session: Session, reports: Sequence[RecordReport], *, applied: bool) -> None:
    """Print the reports, and counts by outcome."""
    counts = Counter(each.outcome for each in reports)
    summary = ", ".join(f"{counts[each]} {each}" for each in RecordOutcome if counts[each]) or "nothing to do"
    lines = table({"PLACE": "place", "NAME": "name", "OUTCOME": "outcome", "WHY": "text"}, reports)
    session.show({"lines": reports, "applied": applied}, f"{lines}\n{summary}")


def _wrong(wanted: DeclaredBinding, kind: authn.ServiceType | None, there: Mapping[str, DeclaredBinding]) -> str:
    if wanted.name not in there and not authn.is_name(wanted.name):
        return f"a name is {authn.NAME_RULE}"
    if kind is None:
        return f"there is no service type {wanted.service_type}"
    if wanted.host not in kind.hosts:
        return f"{wanted.host} is no host of {wanted.service_type}"
    if wanted.auth_type not in kind.auth_types:
        return f"{wanted.service_type} takes no {wanted.auth_type}"
    return ""


def _compare_binding(wanted: DeclaredBinding, there: DeclaredBinding | None) -> PlannedBinding:
    if there is None:
        return PlannedBinding(wanted, RecordReport(wanted.place, wanted.name, RecordOutcome.MADE))
    said = {name: getattr(wanted, name) for name in ("service_type", *SAME_FIELDS)}
    changes = {name: value for name, value in said.items() if value not in (None, getattr(there, name))}
    outcome = RecordOutcome.CHANGED if changes else RecordOutcome.SAME
    return PlannedBinding(wanted, RecordReport(wanted.place, wanted.name, outcome, ", ".join(changes)), changes)


def send_binding(planned: PlannedBinding, uuids: Mapping[str, str], ask: Ask) -> RecordReport:
    """Send a planned change and report it; raise errors that would hit all. `uuids`: of service types, by name."""
    wanted = planned.wanted
    try:
        if planned.report.outcome is RecordOutcome.MADE:
            said = {name: getattr(wanted, name) or "" for name in SAME_FIELDS}
            ask(authn.create_binding(wanted.name, uuids[wanted.service_type], **said))
        elif planned.report.outcome is RecordOutcome.CHANGED:
            changes = dict(planned.changes)
            if "service_type" in changes:
                changes["service_uuid"] = uuids[changes.pop("service_type")]
            ask(authn.update_binding(wanted.name, authn.BindingFields(**changes)))
    except Refused as error:
        return refused_by_service(wanted.place, wanted.name, error)
    return planned.report


def read_bindings(path: str, uuid_of: UuidOf) -> Iterator[DeclaredBinding | RecordReport]:
    """Yield the binding of each line, normalised, or its error. Raises `BadDocument` for a bad file or header."""
    known = functools.cache(uuid_of)
    try:
        with file_named(path, BadDocument), open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True, skipinitialspace=True)
            names = reader.fieldnames or ()
            for name in names:
                if name not in COLUMNS:
                    raise BadDocument(f"{path}:1: unknown column {name!r}; there are {', '.join(COLUMNS)}")
            for name in REQUIRED_COLUMNS:
                if name not in names:
                    raise BadDocument(f"{path}:1: the column {name} is missing")
            for row in reader:
                yield _read_row(f"{path}:{reader.line_num}", row, known)
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadDocument(f"{path} is not CSV in UTF-8: {getattr(error, 'reason', None) or error}") from None


def _read_row(place: str, row: Mapping[str | None, object], uuid_of: UuidOf) -> DeclaredBinding | RecordReport:
    said = {name: str(value or "").strip() for name, value in row.items() if name is not None}
    name = said["name"]
    if None in row:
        return refuse_record(place, name, "more values than columns: a subject with commas stands in quotation marks")
    empty = [column for column in REQUIRED_COLUMNS if not said[column]]
    if empty:
        return refuse_record(place, name, f"no {empty[0]}")
    user, unique_key = said.get("user", ""), said.get("unique_key", "")
    if bool(user) == bool(unique_key):
        return refuse_record(place, name, "give unique_key, or the user of AMS whose it is, one of them")
    try:
        subject, issuer = normalise_name(said["auth_identifier"]), said.get("issuer")
        issuer = normalise_name(issuer) if issuer else issuer
    except ValueError as error:
        return refuse_record(place, name, str(error))
    try:
        unique_key = unique_key or uuid_of(user)
    except NotFound:
        return refuse_record(place, name, f"AMS has no user {user}")
    except InvalidInput as error:
        return refuse_record(place, name, error.message)
    return DeclaredBinding(
        place=place, name=name, service_type=said["service_type"], host=said["host"], auth_identifier=subject,
        unique_key=unique_key, auth_type=said.get("auth_type") or authn.X509, issuer=issuer,
    )  # fmt: skip
