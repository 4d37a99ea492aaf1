"""`ams migrate authn`: the certificate service of the reference, from its MongoDB, after AMS itself has moved."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import typer

from ams.cli.arguments import option
from ams.cli.authn.bulk import RecordOutcome, RecordReport, refuse_record
from ams.cli.authn.importer import KINDS, NOT_COMPARED, OldBinding, OldDatabase, bring_in, reference_of
from ams.cli.authn.session import AuthnSession
from ams.cli.command import OptionSet
from ams.cli.exit_codes import Exit, Usage
from ams.cli.extras import require_extras
from ams.cli.output import columns, fields, note, printable
from ams.core.errors import InvalidInput

AMS = "ams"  # the type of service types whose users are those of an AMS

MongoDB = Annotated[
    str,
    option(
        "Where its MongoDB is, or a folder that mongodump made.",
        "--mongodb",
        metavar="URI",
        envvar="AMS_MIGRATE_MONGODB",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class OldDatabases(OptionSet):
    """Databases of the reference's certificate service and of its AMS."""

    mongodb: MongoDB = field(repr=False)  # it may hold a password
    database: Annotated[str, option("Its database there (mongo_db of its settings).", "--database")] = "argo_auth"
    ams_database: Annotated[str, option("That of AMS (store_db of its settings).", "--ams-database")] = "argo_msg"
    ams_mongodb: Annotated[
        str, option("Where that is; absent: in the same MongoDB.", "--ams-mongodb", metavar="URI", show_default=False)
    ] = field(default="", repr=False)
    ams_host: Annotated[
        list[str] | None,
        option("A host of the AMS that has moved, repeatable; absent: all hosts of type ams.", "--ams-host"),
    ] = None

    def read(self) -> tuple[OldDatabase, list[RecordReport], Mapping[str, str]]:
        """Return the old database, reports of unreadable documents, and user names by old uuids."""
        require_extras("migrate")
        from ams.migrate.conversion import user_names
        from ams.migrate.documents import read_collections

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
        if old.service_uuid not in self._of_ams or not is_here or old.unique_key in self._known:
            return old
        name = self._names.get(old.unique_key)
        if name is None:
            self.left_out.append(refuse_record(old.place, old.name, f"its user {old.unique_key} is gone"))
            return None
        now = self._uuids.get(name)
        if now is None:
            self.left_out.append(
                refuse_record(old.place, old.name, f"its user {name} is not in the new AMS: move that first")
            )
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
    if odd:
        rows = [(each.place, printable(each.name), printable(_outcome_text(each))) for each in odd]
        text = f"{text}\n\n{columns(('WHERE', 'WHICH', 'WHAT BECOMES OF IT'), rows)}"
    details = [{"place": each.place, "name": each.name, "done": _outcome_text(each)} for each in odd]
    session.show({"counts": counts, "outcomes": became, "details": details, "applied": applied}, text)


def _outcome_text(report: RecordReport) -> str:
    return f"is left out: {report.text}" if report.outcome is RecordOutcome.REFUSED else report.text
