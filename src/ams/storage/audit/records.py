"""The append-only table of the audit log, its queries and triggers.

Rows never change. They may be deleted only if older than the newest row of the table of prunings, so each removal is
recorded. Triggers enforce this for all clients, except for users who may drop triggers (`docs/decisions/0022`).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.event import listens_for

from ams.core.clock import Milliseconds, publish_time
from ams.core.errors import InvalidInput
from ams.storage.audit.event import DONE, FAILED, LOGIN, REFUSED, AuditEvent, moment, sanitize
from ams.storage.database.database import Database, page_start, page_token
from ams.wire.service import Lines

DEFAULT_PAGE_SIZE = 100  # events
MAX_PAGE_SIZE = 1000  # events
MAX_ROWS_PER_PRUNING = 10_000  # per statement, because of its timeout
_TEXTS = ("resource", "actor", "address", "reason", "request")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Conditions for events; None and empty texts match all."""

    since: Milliseconds | None = None  # inclusive
    until: Milliseconds | None = None
    actor: str = ""
    action: str = ""  # prefix of the action: `topics:` matches all actions on topics
    address: str = ""
    result: str = ""


class AuditRecords:
    """Rows of the table. Calls raise `RegistryUnavailable` if the database does not answer."""

    def __init__(self, database: Database, table: sa.Table) -> None:
        self._database, self._table = database, table
        self._prunings = table.metadata.tables[f"{table.name}_prunings"]

    async def add(self, events: Sequence[AuditEvent]) -> None:
        """Add events atomically, except existing ones and those older than the last pruning."""
        rows = [_row(sanitize(event)) for event in events]

        def work(connection: sa.Connection) -> None:
            pruned = self._delete_portion(connection)
            new = [row for row in rows if row["at"] >= pruned]
            if new:
                dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
                adding = dialect.insert(self._table)  # lines may be added again after a crash
                connection.execute(adding.on_conflict_do_nothing(index_elements=[self._table.c.id]), new)

        if rows:
            await self._database.put(work)

    async def holds(self, event: AuditEvent) -> bool:
        """Return whether an event is in the table or was pruned from it."""
        query = sa.select(self._table.c.id).where(self._table.c.id == event.id)

        def work(connection: sa.Connection) -> bool:
            is_there = connection.scalar(query) is not None
            return is_there or moment(event.time) < self._delete_portion(connection)

        return await self._database.read(work)

    async def list(self, event_filter: EventFilter, size: int = 0, token: str = "") -> Lines:
        """Return a page of events, newest first. Size 0: default. Raises `InvalidInput` "Invalid page token"."""
        most = min(size if size > 0 else DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
        query = self._query(event_filter, token).limit(most + 1)
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        names = [name for name in AuditEvent.__struct_fields__ if name != "time"]
        lines = [
            AuditEvent(time=publish_time(row.at), **{name: getattr(row, name) for name in names}) for row in rows[:most]
        ]
        if len(rows) <= most:
            return Lines(lines)
        return Lines(lines, page_token(rows[most].at, rows[most].number))

    async def prune(self, until: Milliseconds, now: Milliseconds) -> int:
        """Delete rows older than `until`, record it in the table of prunings, and return the number of rows."""
        table, prunings = self._table, self._prunings
        old = sa.select(table.c.number).where(table.c.at < until)

        def begin(connection: sa.Connection) -> bool:
            is_any = connection.scalar(old.limit(1)) is not None
            if is_any:
                connection.execute(sa.insert(prunings).values(at=now, until=until))
            return is_any

        removal = sa.delete(table).where(table.c.number.in_(old.limit(MAX_ROWS_PER_PRUNING)))
        total = 0
        if await self._database.put(begin):
            while gone := await self._database.put(lambda connection: connection.execute(removal).rowcount):
                total += gone
        return total

    def _delete_portion(self, connection: sa.Connection) -> int:
        return connection.scalar(sa.select(sa.func.max(self._prunings.c.until))) or 0

    def _query(self, event_filter: EventFilter, token: str) -> sa.Select[Any]:
        table = self._table.c
        conditions: list[sa.ColumnElement[bool]] = []
        if event_filter.since is not None:
            conditions.append(table.at >= event_filter.since)
        if event_filter.until is not None:
            conditions.append(table.at < event_filter.until)
        if event_filter.action:
            # Not LIKE, which ignores letter case on SQLite.
            conditions.append(sa.func.substr(table.action, 1, len(event_filter.action)) == event_filter.action)
        said = {name: getattr(event_filter, name) for name in ("actor", "address", "result")}
        conditions += [table[name] == value for name, value in said.items() if value]
        if token:
            at, number = page_start(token, 2)
            conditions.append(table.at <= at)  # the part that the index can answer
            conditions.append(sa.or_(table.at < at, sa.and_(table.at == at, table.number <= min(number, 2**31 - 1))))
        return sa.select(self._table).where(*conditions).order_by(table.at.desc(), table.number.desc())


def _row(event: AuditEvent) -> dict[str, Any]:
    row = msgspec.structs.asdict(event)
    row["at"] = moment(row.pop("time"))
    for name in _TEXTS:  # PostgreSQL texts cannot hold NUL
        row[name] = row[name].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return row


_REFUSAL = "rows of the audit log stay as they are"
_KEPT = "old.at >= coalesce((SELECT max(until) FROM {name}_prunings), 0)"
_SQLITE = (
    f"CREATE TRIGGER {{name}}_unchanged BEFORE UPDATE ON {{name}} BEGIN SELECT raise(ABORT, '{_REFUSAL}'); END",
    f"CREATE TRIGGER {{name}}_kept BEFORE DELETE ON {{name}} WHEN {_KEPT} BEGIN SELECT raise(ABORT, '{_REFUSAL}'); END",
    # REPLACE deletes rows without firing the other two triggers; adding an existing event adds nothing.
    "CREATE TRIGGER {name}_once BEFORE INSERT ON {name}"
    " WHEN EXISTS (SELECT 1 FROM {name} WHERE id = new.id OR number = new.number) BEGIN SELECT raise(IGNORE); END",
)
_POSTGRESQL = (
    f"CREATE FUNCTION {{name}}_stays() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    f" IF TG_OP = 'DELETE' AND NOT ({_KEPT}) THEN RETURN old; END IF;"
    f" RAISE EXCEPTION '{_REFUSAL}'; END $$",
    "CREATE TRIGGER {name}_stays BEFORE UPDATE OR DELETE ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_stays()",
    "CREATE TRIGGER {name}_not_emptied BEFORE TRUNCATE ON {name} EXECUTE FUNCTION {name}_stays()",
)


def audit_table(metadata: sa.MetaData, name: str) -> sa.Table:
    """Make the tables of events and of prunings, with triggers that refuse changes."""
    sa.Table(
        f"{name}_prunings",
        metadata,
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.BigInteger, nullable=False, comment="milliseconds since the epoch"),
        sa.Column("until", sa.BigInteger, nullable=False, comment="milliseconds since the epoch: what is older may go"),
    )
    table = sa.Table(
        name,
        metadata,
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        sa.Column("at", sa.BigInteger, nullable=False, comment="milliseconds since the epoch"),
        *(sa.Column(text, sa.Text, nullable=False) for text in ("service", "action", "resource", "actor", "address")),
        sa.Column("code", sa.Integer, nullable=False),
        *(sa.Column(text, sa.Text, nullable=False) for text in ("result", "reason", "request")),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Index(f"{name}_by_at", "at"),
        sa.Index(f"{name}_by_actor", "actor"),
    )

    @listens_for(table, "after_create")
    def refuse_changes(_: sa.Table, connection: sa.Connection, **__: object) -> None:
        for statement in _POSTGRESQL if connection.dialect.name == "postgresql" else _SQLITE:
            connection.exec_driver_sql(statement.format(name=name))

    return table


def event_filter(parameter: Callable[[str], str | None], actions: Collection[str] = ()) -> EventFilter:
    """Parse filters, given by name; `actions` are the valid ones besides logins (empty: any). Raises `InvalidInput`."""
    said = {name: parameter(name) or "" for name in ("actor", "action", "address", "result")}
    if said["result"] not in ("", DONE, REFUSED, FAILED):
        raise InvalidInput(f"Invalid result: it is one of {DONE}, {REFUSED} and {FAILED}")
    if actions and not any(each.startswith(said["action"]) for each in (*actions, LOGIN)):
        known = "the audit log has changes and failed logins, and no action of those begins so"
        raise InvalidInput(f"Invalid action: {known}")
    since, until = (_moment(name, parameter(name)) for name in ("since", "until"))
    return EventFilter(since=since, until=until, **said)


def matches(asked: EventFilter, event: AuditEvent) -> bool:
    """Return whether an event matches a filter."""
    return (
        (asked.since is None or moment(event.time) >= asked.since)
        and (asked.until is None or moment(event.time) < asked.until)
        and event.action.startswith(asked.action)
        and asked.actor in ("", event.actor)
        and asked.address in ("", event.address)
        and asked.result in ("", event.result)
    )


def _moment(name: str, text: str | None) -> Milliseconds | None:
    if not text:
        return None
    try:
        return moment(text)
    except (ValueError, OverflowError):
        known = "a date such as 2030-05-01, or a time such as 2030-05-01T12:00:00Z"
        raise InvalidInput(f"Invalid {name}: it is {known}") from None
