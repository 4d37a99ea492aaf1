"""`ams authn import` and `ams migrate authn`: imports a database of the reference into a running certificate service.

Both use the API, so that all data is validated, encrypted and audited. Service types, auth methods and bindings get new
uuids and dates; references between them are kept.

The first reads what `mongoexport` wrote (authn contract 12): files with documents of any collection, one per line or as
one array; the fields tell the collection. The other reads MongoDB itself, after AMS has moved.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import typer

from ams.cli.arguments import Texts, argument, option
from ams.cli.authn import bulk
from ams.cli.authn.bulk import Ask, RecordOutcome, RecordReport, refuse_record, refused_by_service
from ams.cli.authn.session import AuthnSession
from ams.cli.command import OptionSet
from ams.cli.exit_codes import Exit, Usage, file_named
from ams.cli.extras import require_extras
from ams.cli.output import columns, fields, note, printable
from ams.client.errors import Refused
from ams.client.wire import authn
from ams.core.distinguished_names import normalise_name
from ams.core.errors import BadDocument, InvalidInput

OIDC = "oidc"  # the reference accepted it without implementing it (15, A14)
KINDS = ("service_types", "auth_methods", "bindings")  # collections, referred ones first
OLD_IDENTIFIER = "dn"  # old name of `auth_identifier` in bindings, until 2019; those lack `auth_type` too
NOT_COMPARED = "is there; secrets are not compared"

MAX_BYTES = 1 << 30
AMS = "ams"  # the type of service types whose users are those of an AMS


@dataclass(frozen=True, slots=True, kw_only=True)
class OldServiceType:
    """A document of `service_types`."""

    place: str
    uuid: str
    name: str
    hosts: tuple[str, ...]
    auth_types: tuple[str, ...]
    auth_method: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OldAuthMethod:
    """A document of `auth_methods`."""

    place: str
    service_uuid: str
    host: str
    port: int
    access_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldBinding(bulk.DeclaredBinding):
    """A document of `bindings`.

    `service_type` is the uuid of one there, `unique_key` its `uniquekey`, which logins use (authn contract 12).
    """

    asked_for: str = ""  # user id from an update that never took effect (15, A1)


@dataclass(slots=True)
class OldDatabase:
    """Content of the files."""

    service_types: list[OldServiceType] = field(default_factory=list)
    auth_methods: list[OldAuthMethod] = field(default_factory=list)
    bindings: list[OldBinding] = field(default_factory=list)
    passed_over: int = 0  # documents of `bindings_missing_ip_san`, which no route reads (15, A13)


def read_reference(paths: Iterable[str]) -> OldDatabase:
    """Read files. Raises `BadDocument`, with file and document, for other data."""
    found = OldDatabase()
    for path in paths:
        for place, document in _documents(path):
            if "binding_uuid" in document:
                found.passed_over += 1
            elif "auth_identifier" in document or OLD_IDENTIFIER in document:
                found.bindings.append(_binding(place, document))
            elif "hosts" in document:
                found.service_types.append(_service_type(place, document))
            elif "port" in document:
                found.auth_methods.append(_auth_method(place, document))
            else:
                raise BadDocument(f"{place} is of none of the collections service_types, auth_methods and bindings")
    return found


def reference_of(collections: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[OldDatabase, list[RecordReport]]:
    """Convert MongoDB collections; also return reports of unreadable documents."""
    found, unreadable = OldDatabase(), list[RecordReport]()
    readers: Sequence[Callable[[str, Mapping[str, Any]], object]] = (_service_type, _auth_method, _binding)
    for kind, read in zip(KINDS, readers, strict=True):
        for number, document in enumerate(collections.get(kind, ()), 1):
            place = f"{kind}#{number}"
            try:
                getattr(found, kind).append(read(place, document))
            except BadDocument as error:
                reason = str(error).removeprefix(f"{place}: ")
                unreadable.append(refuse_record(place, str(document.get("name", "")), reason))
    return found, unreadable


def mend_name(name: str) -> str:
    """Replace characters that new names may not have (15, A7)."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)


def _documents(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        with file_named(path, BadDocument), open(path, encoding="utf-8-sig") as file:
            text = file.read(MAX_BYTES)
    except UnicodeDecodeError:
        raise BadDocument(f"{path} is not text in UTF-8") from None
    decoder, index, number = json.JSONDecoder(), 0, 0
    while True:
        while index < len(text) and text[index] in " \t\r\n,":
            index += 1
        if index == len(text):
            return
        try:
            value, index = decoder.raw_decode(text, index)
        except (ValueError, RecursionError):
            line = text.count("\n", 0, index) + 1
            raise BadDocument(f"{path}:{line}: not JSON as mongoexport writes it") from None
        for document in value if isinstance(value, list) else [value]:
            number += 1
            if not isinstance(document, dict):
                raise BadDocument(f"{path}#{number} is no document")
            yield f"{path}#{number}", document


def _service_type(place: str, document: Mapping[str, Any]) -> OldServiceType:
    return OldServiceType(
        place=place, uuid=_text(place, document, "uuid"), name=_text(place, document, "name"),
        hosts=_texts(place, document, "hosts"), auth_types=_texts(place, document, "auth_types"),
        auth_method=_text(place, document, "auth_method"), type=_text(place, document, "type"),
    )  # fmt: skip


def _auth_method(place: str, document: Mapping[str, Any]) -> OldAuthMethod:
    headers = document.get("headers") or {}
    if not isinstance(headers, dict) or not all(isinstance(each, str) for each in headers.values()):
        raise BadDocument(f"{place}: headers are names with texts")
    return OldAuthMethod(
        place=place, service_uuid=_text(place, document, "service_uuid"), host=_text(place, document, "host"),
        port=_number(place, document.get("port")),
        access_key=_text(place, document, "access_key") if document.get("access_key") else "", headers=headers,
    )  # fmt: skip


def _binding(place: str, document: Mapping[str, Any]) -> OldBinding:
    effective, asked_for, identifier = (document.get(name) for name in ("uniquekey", "unique_key", "auth_identifier"))
    if not isinstance(effective, str):
        raise BadDocument(f"{place}: no text uniquekey")
    return OldBinding(
        place=place, name=_text(place, document, "name"), service_type=_text(place, document, "service_uuid"),
        host=_text(place, document, "host"),
        auth_identifier=_text(place, document, OLD_IDENTIFIER if identifier is None else "auth_identifier"),
        auth_type=_text(place, document, "auth_type") if document.get("auth_type") else authn.X509,
        unique_key=effective, asked_for=asked_for if isinstance(asked_for, str) and asked_for != effective else "",
    )  # fmt: skip


def _text(place: str, document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        # Not quoted: it may be a secret.
        raise BadDocument(f"{place}: no text {name}")
    return value


def _texts(place: str, document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = document.get(name)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadDocument(f"{place}: {name} is no list of texts")
    return tuple(value)


def _number(place: str, value: object) -> int:
    """Return a number; extended JSON may wrap it in an object."""
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$number"):
        value = next(iter(value.values()))
    text = str(value).removesuffix(".0")
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise BadDocument(f"{place}: port is no number")
    return int(text)


def import_(
    session: AuthnSession,
    files: Annotated[list[str], argument("FILE...", "Written by mongoexport.")],
    dry_run: Annotated[bool, option("Check and compare, change nothing.", "--dry-run")] = False,
    mend_names: Annotated[
        bool, option("Write - for what a name may not hold, instead of refusing it.", "--mend-names")
    ] = False,
) -> None:
    """Bring service types, auth methods and bindings of the reference's certificate service into this one.

    What is there already under the same name stays as it is. Each record is reported; the exit code is 1 when one was
    refused. Imported again, there is nothing to do.
    """
    reports, notes = bring_in(read_reference(files), session.call, dry_run=dry_run, mend_names=mend_names)
    bulk.show(session, reports, applied=not dry_run)
    for line in notes:
        note(f"ams: {printable(line)}")
    count = sum(each.outcome is RecordOutcome.REFUSED for each in reports)
    if count:
        raise InvalidInput(f"{count} of {len(reports)} records were refused")


def bring_in(
    old: OldDatabase, ask: Ask, *, dry_run: bool, mend_names: bool = False
) -> tuple[list[RecordReport], Sequence[str]]:
    """Import everything; return a report of each record, and notes. Raises errors that would hit all."""
    importing = _Import(old, ask, dry_run=dry_run, mend_names=mend_names)
    reports = [*importing.service_types(), *importing.auth_methods(), *importing.bindings()]
    if old.passed_over:
        importing.notes.append(f"{old.passed_over} notes on missing IP names are not needed here")
    return reports, importing.notes


class _Import:
    """One import: service types first, then records that refer to them."""

    def __init__(self, old: OldDatabase, ask: Ask, *, dry_run: bool, mend_names: bool) -> None:
        self._old = old
        self._ask = ask
        self._dry_run = dry_run
        self._mend_names = mend_names
        self._types = {each.name: each for each in ask(authn.list_service_types()).service_types}
        self._names: dict[str, str] = {}
        """New names of service types by old uuids."""
        self.notes: list[str] = []

    def service_types(self) -> list[RecordReport]:
        names = Counter(self._name(each.name) for each in self._old.service_types)
        return [self._service_type(each, names) for each in self._old.service_types]

    def _service_type(self, old: OldServiceType, names: Mapping[str, int]) -> RecordReport:
        name = self._name(old.name)
        if names[name] > 1:
            return refuse_record(old.place, name, f"{names[name]} service types have this name")
        self._names[old.uuid] = name
        there = self._types.get(name)
        if there:
            pairs = {
                "hosts": (set(old.hosts), set(there.hosts)),
                "auth_types": (set(old.auth_types) - {OIDC}, set(there.auth_types)),
                "auth_method": (old.auth_method, there.auth_method),
                "type": (old.type, there.type),
            }
            differing = [field for field, (one, other) in pairs.items() if one != other]
            text = f"is there with other {', '.join(differing)}" if differing else ""
            report = RecordReport(old.place, name, RecordOutcome.SAME, text)
        else:
            report = self._create_service_type(old, name)
        found = self._types.get(name)
        if found and found.uuid and found.uuid != old.uuid:
            self.notes.append(f"service type {name} was {old.uuid} and is {found.uuid}: scripts may name it by that")
        return report

    def _create_service_type(self, old: OldServiceType, name: str) -> RecordReport:
        if not authn.is_name(name):
            return refuse_record(old.place, name, f"a name is {authn.NAME_RULE}")
        auth_types = [each for each in old.auth_types if each != OIDC]
        if not auth_types:
            return refuse_record(old.place, name, f"it has logins by {OIDC} only, which never worked")
        if OIDC in old.auth_types:
            self.notes.append(f"service type {name}: logins by {OIDC} never worked there and are left out")
        logins: dict[str, Any] = {"auth_types": auth_types, "auth_method": old.auth_method}
        call = authn.create_service_type(name, old.hosts, kind=old.type, **logins)
        # Like the service's answer: later records are checked against it, also in a dry run.
        made = authn.ServiceType(name=name, hosts=list(old.hosts), type=old.type, uuid="", **logins)
        try:
            self._types[name] = made if self._dry_run else self._ask(call)
        except Refused as error:
            return refused_by_service(old.place, name, error)
        return RecordReport(old.place, name, RecordOutcome.MADE)

    def auth_methods(self) -> list[RecordReport]:
        there = {(each.service_uuid, each.host) for each in self._ask(authn.list_auth_methods()).auth_methods}
        places = Counter((each.service_uuid, each.host) for each in self._old.auth_methods)
        return [self._auth_method(each, there, places[each.service_uuid, each.host]) for each in self._old.auth_methods]

    def _auth_method(self, old: OldAuthMethod, there: set[tuple[str, str]], times: int) -> RecordReport:
        service_type = self._types.get(self._names.get(old.service_uuid, ""))
        name = f"{service_type.name if service_type else old.service_uuid}/{old.host}"
        if service_type is None:
            return refuse_record(old.place, name, "its service type is not there")
        if not 0 < old.port < 65536:
            return refuse_record(old.place, name, f"a port is from 1 to 65535, and not {old.port}")
        if times > 1:
            return refuse_record(old.place, name, f"{times} auth methods are of this host")
        if (service_type.uuid, old.host) in there:
            return RecordReport(old.place, name, RecordOutcome.SAME, NOT_COMPARED)
        if old.host not in service_type.hosts:
            return refuse_record(old.place, name, f"{old.host} is no host of {service_type.name}")
        call = authn.create_auth_method(
            service_type.name, old.host, old.port, access_key=old.access_key, headers=old.headers
        )
        try:
            if not self._dry_run:
                self._ask(call)
        except Refused as error:
            return refused_by_service(old.place, name, error)
        return RecordReport(old.place, name, RecordOutcome.MADE)

    def bindings(self) -> list[RecordReport]:
        old = {each.place: each for each in self._old.bindings}
        types = self._names
        wanted = [
            replace(each, name=self._name(each.name), service_type=types.get(each.service_type, each.service_type))
            for each in old.values()
        ]
        planned = bulk.plan(wanted, self._types.values(), self._ask(authn.list_bindings()).bindings)
        # No change: old data must not undo an administrator's later changes.
        uuids = {each.name: each.uuid for each in self._types.values()}
        reports = []
        for each in planned:
            report = each.report
            if report.outcome is RecordOutcome.CHANGED:
                report = refuse_record(report.place, report.name, f"is there with other {report.text}")
            elif not self._dry_run:
                report = bulk.send_binding(each, uuids, self._ask)
            reports.append(_with_remarks(report, old[report.place]))
        return reports

    def _name(self, name: str) -> str:
        return mend_name(name) if self._mend_names and not authn.is_name(name) else name


def _with_remarks(report: RecordReport, old: OldBinding) -> RecordReport:
    remarks = [report.text] if report.text else []
    if old.asked_for:
        remarks.append(f"user {old.asked_for} was asked for and never took effect; {old.unique_key} is kept")
    try:
        is_normal = normalise_name(old.auth_identifier) == old.auth_identifier
    except ValueError:
        is_normal = False
    if not is_normal:
        remarks.append("its subject is not in normal form: no certificate matches it")
    return replace(report, text="; ".join(remarks))


MongoDB = Annotated[
    str,
    option(
        "Where its MongoDB is, or a folder that mongodump made.",
        metavar="URI",
        envvar="AMS_MIGRATE_MONGODB",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class OldDatabases(OptionSet):
    """Databases of the reference's certificate service and of its AMS."""

    mongodb: MongoDB = field(repr=False)  # it may hold a password
    database: Annotated[str, option("Its database there (mongo_db of its settings).")] = "argo_auth"
    ams_database: Annotated[str, option("That of AMS (store_db of its settings).")] = "argo_msg"
    ams_mongodb: Annotated[
        str, option("Where that is; absent: in the same MongoDB.", metavar="URI", show_default=False)
    ] = field(default="", repr=False)
    ams_host: Annotated[
        Texts, option("A host of the AMS that has moved, repeatable; absent: all hosts of type ams.")
    ] = None

    def read(self) -> tuple[OldDatabase, list[RecordReport], Mapping[str, str]]:
        """Return the old database, reports of unreadable documents, and user names by old uuids."""
        require_extras("migrate")
        from ams.migrate.conversion import user_names
        from ams.migrate.sources import read_collections

        old, unreadable = reference_of(read_collections(self.mongodb, self.database, KINDS))
        users = read_collections(self.ams_mongodb or self.mongodb, self.ams_database, ("users",))["users"]
        if not old.service_types or not users:
            which = self.ams_database if old.service_types else self.database
            raise Usage(f"nothing of the reference is in {which}: --database and --ams-database name its databases")
        return old, unreadable, user_names(users)


def migrate_authn(
    session: AuthnSession,
    databases: OldDatabases,
    *,
    dry_run: Annotated[bool, option("Say what becomes of it, change nothing.", "--dry-run")] = False,
    strict: Annotated[
        bool, option("End with an error, and change nothing, if anything does not go over as it is.", "--strict")
    ] = False,
) -> None:
    """Bring what the reference's certificate service holds into this one, after users have moved.

    Bindings follow users who have a new uuid; those of users who are gone are left out. Run again, there is nothing to
    do, and what was changed here since stays.
    """
    old, left_out, names = databases.read()
    following = _Following(old, databases.ams_host, names, session.users())
    old.bindings = [each for each in map(following.follow_user, old.bindings) if each is not None]
    left_out += following.left_out
    planned, notes = bring_in(old, session.call, dry_run=True, mend_names=True)
    stops = strict and any(map(_is_odd, [*left_out, *map(following.add_remarks, planned)]))
    done = planned
    if not dry_run and not stops:
        done, notes = bring_in(old, session.call, dry_run=False, mend_names=True)
    _tell(session, [*left_out, *map(following.add_remarks, done)], applied=done is not planned)
    for line in notes:
        note(f"ams: {printable(line)}")
    if stops:
        raise typer.Exit(Exit.REFUSED)
    expected = {each.place for each in planned if each.outcome is RecordOutcome.REFUSED}
    unexpected = [each for each in done if each.outcome is RecordOutcome.REFUSED and each.place not in expected]
    if unexpected:
        raise InvalidInput(f"the service refused {len(unexpected)} records")


class _Following:
    """Maps bindings to their new users, and notes changed names."""

    def __init__(
        self, old: OldDatabase, hosts: Collection[str] | None, names: Mapping[str, str], uuids: Mapping[str, str]
    ) -> None:
        self._of_ams = {each.uuid for each in old.service_types if each.type == AMS}
        self._hosts = hosts
        self._names = names
        self._uuids = uuids
        self._known = set(uuids.values())
        self._old_names = {each.place: each.name for each in old.service_types}
        self._old_names |= {each.place: each.name for each in old.bindings}
        self._remarks: dict[str, str] = {}
        self.left_out: list[RecordReport] = []

    def follow_user(self, old: OldBinding) -> OldBinding | None:
        is_here = self._hosts is None or old.host in self._hosts
        if old.service_type not in self._of_ams or not is_here or old.unique_key in self._known:
            return old
        name = self._names.get(old.unique_key)
        if name is None:
            self.left_out.append(refuse_record(old.place, old.name, f"its user {old.unique_key} is gone"))
            return None
        now = self._uuids.get(name)
        if now is None:
            reason = f"its user {name} is not in the new AMS: move that first"
            self.left_out.append(refuse_record(old.place, old.name, reason))
            return None
        self._remarks[old.place] = f"user {name} has the new uuid {now}"
        return replace(old, unique_key=now)

    def add_remarks(self, report: RecordReport) -> RecordReport:
        was = self._old_names.get(report.place, report.name)
        renamed = f"was called {was!r}" if was != report.name else ""
        remarks = [each for each in (report.text, renamed, self._remarks.get(report.place)) if each]
        return replace(report, text="; ".join(remarks))


def _is_odd(report: RecordReport) -> bool:
    return report.outcome is RecordOutcome.REFUSED or report.text not in ("", NOT_COMPARED)


def _tell(session: AuthnSession, found: Sequence[RecordReport], *, applied: bool) -> None:
    odd = [each for each in found if _is_odd(each)]
    kinds = Counter(each.place.partition("#")[0] for each in found)
    outcomes = Counter(each.outcome for each in found)
    counts = {kind: kinds[kind] for kind in KINDS}
    became = {("left out" if each is RecordOutcome.REFUSED else str(each)): outcomes[each] for each in RecordOutcome}
    shown = {**counts, **{name: count for name, count in became.items() if count}, "not as it was": len(odd)}
    text = fields({name.replace("_", " "): f"{count:,}" for name, count in shown.items()})
    said = [f"is left out: {each.text}" if each.outcome is RecordOutcome.REFUSED else each.text for each in odd]
    details = [{"place": each.place, "name": each.name, "done": text} for each, text in zip(odd, said, strict=True)]
    if odd:
        rows = [tuple(each.values()) for each in details]
        text = f"{text}\n\n{columns(('WHERE', 'WHICH', 'WHAT BECOMES OF IT'), rows)}"
    session.show({"counts": counts, "outcomes": became, "details": details, "applied": applied}, text)
