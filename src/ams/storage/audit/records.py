"""The table of the audit log: adding to it, asking it, and pruning it through the one door it has."""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, and_, delete, func, insert, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.storage.audit.event import AuditEvent, fitting
from ams.storage.audit.table import prunings_of
from ams.storage.database.database import Database

USUAL_SIZE = 100
"""Events of a page when nobody says how many."""
MOST = 1000
"""Most events of a page: an audit log is never asked for as a whole."""
PORTION = 10_000
"""Rows pruned by one statement: there may be more old ones than one has the time for."""
_TOKEN = re.compile(rb"([0-9]{1,18})\.([0-9]{1,18})")
_FIELDS = ("id", "at", "service", "action", "resource", "actor", "address", "code", "result", "reason", "request",
           "times")  # fmt: skip
_TEXTS = frozenset({"resource", "actor", "address", "reason", "request"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which events are asked for; None and empty texts say nothing."""

    since: Milliseconds | None = None
    """From then on, that moment included."""
    until: Milliseconds | None = None
    """Before that moment."""
    actor: str = ""
    action: str = ""
    """What the action begins with: `topics:` for all that happens to topics."""
    address: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True)
class Events:
    """A page of events, newest first."""

    items: Sequence[AuditEvent]
    next_token: str
    """Asks for the next page; empty on the last one."""


class AuditRecords:
    """What is in the table. Its calls raise `RegistryUnavailable` when the database cannot answer."""

    def __init__(self, database: Database, table: Table) -> None:
        self._database = database
        self._table = table
        self._prunings = prunings_of(table)

    async def add(self, events: Sequence[AuditEvent]) -> None:
        """Add events, all or none; those that are there already, or are older than what was pruned, are passed by."""
        rows = [_row(fitting(event)) for event in events]

        def work(connection: Connection) -> None:
            pruned = self._pruned(connection)
            new = [row for row in rows if row["at"] >= pruned]
            if new:
                connection.execute(_insertion(connection, self._table), new)

        if rows:
            await self._database.put(work)

    async def holds(self, events: Sequence[AuditEvent]) -> set[str]:
        """Return the ids of those events that are in the table, or were pruned from it."""

        def work(connection: Connection) -> set[str]:
            ids = self._table.c.id
            found = set(connection.scalars(select(ids).where(ids.in_([event.id for event in events]))))
            pruned = self._pruned(connection)
            return found | {event.id for event in events if event.at < pruned}

        return await self._database.read(work)

    async def list(self, wanted: Wanted, size: int = 0, token: str = "") -> Events:
        """Return a page of events, newest first; a size of 0 or less is `USUAL_SIZE`, one over `MOST` is that.

        Raises `InvalidInput` "Invalid page token".
        """
        most = min(size if size > 0 else USUAL_SIZE, MOST)
        query = self._query(wanted, _start(token) if token else None).limit(most + 1)
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        events = [_event(row) for row in rows[:most]]
        return Events(events, _token(rows[most]) if len(rows) > most else "")

    async def prune(self, until: Milliseconds, now: Milliseconds) -> int:
        """Delete what is older than `until`, and keep in the table of prunings that it was; return how many rows."""
        table, prunings = self._table, self._prunings
        old = select(table.c.number).where(table.c.at < until)

        def begin(connection: Connection) -> bool:
            is_any = connection.scalar(old.limit(1)) is not None
            if is_any:
                connection.execute(insert(prunings).values(at=now, until=until))
            return is_any

        def portion(connection: Connection) -> int:
            return connection.execute(delete(table).where(table.c.number.in_(old.limit(PORTION)))).rowcount

        total = 0
        if await self._database.put(begin):
            while gone := await self._database.put(portion):
                total += gone
        return total

    def _pruned(self, connection: Connection) -> int:
        return connection.scalar(select(func.max(self._prunings.c.until))) or 0

    def _query(self, wanted: Wanted, start: tuple[int, int] | None) -> Select[Any]:
        table = self._table.c
        conditions: list[ColumnElement[bool]] = []
        if wanted.since is not None:
            conditions.append(table.at >= wanted.since)
        if wanted.until is not None:
            conditions.append(table.at < wanted.until)
        if wanted.action:
            # Not LIKE, which knows no letter case on SQLite.
            conditions.append(func.substr(table.action, 1, len(wanted.action)) == wanted.action)
        said = {name: getattr(wanted, name) for name in ("actor", "address", "result")}
        conditions += [table[name] == value for name, value in said.items() if value]
        if start is not None:
            at, number = start
            conditions.append(table.at <= at)  # alone it is what the index can be asked for
            conditions.append(or_(table.at < at, and_(table.at == at, table.number <= number)))
        return select(self._table).where(*conditions).order_by(table.at.desc(), table.number.desc())


def _insertion(connection: Connection, table: Table) -> Any:
    """Return an INSERT that passes by what is there: lines are brought in again after a crash."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table).on_conflict_do_nothing(index_elements=[table.c.id])


def _row(event: AuditEvent) -> dict[str, Any]:
    """Return an event as a row; PostgreSQL keeps no text with a zero in it, and nobody needs to see one."""
    return {name: _stored(name, getattr(event, name)) for name in _FIELDS}


def _stored(name: str, value: object) -> object:
    return str(value).replace("\0", "\N{REPLACEMENT CHARACTER}") if name in _TEXTS else value


def _event(row: Row[Any]) -> AuditEvent:
    return AuditEvent(**{name: getattr(row, name) for name in _FIELDS})


def _token(row: Row[Any]) -> str:
    return base64.b64encode(b"%d.%d" % (row.at, row.number)).decode("ascii")


def _start(token: str) -> tuple[int, int]:
    try:
        said = _TOKEN.fullmatch(base64.b64decode(token, validate=True))
    except (binascii.Error, ValueError):
        said = None
    if said is None:
        raise InvalidInput("Invalid page token")
    return int(said[1]), min(int(said[2]), 2**31 - 1)
