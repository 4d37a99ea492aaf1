"""Measurements of topics, subscriptions and projects in the last day: a row for each of them and each hour.

For eyes, not for accounts: a row may be lost with the minutes that were not written yet, and a file that cannot be read
is made anew. It is in no backup.
"""

import asyncio
import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects.postgresql import insert

from ams.core.errors import Unavailable
from ams.storage.database.database import Database
from ams.storage.free_space import UNLIMITED, FreeSpace
from ams.storage.registry.tables import history

_TABLE = "CREATE TABLE IF NOT EXISTS history (of TEXT, began INTEGER, data BLOB, PRIMARY KEY (of, began)) WITHOUT ROWID"

T = TypeVar("T")


class Row(NamedTuple):
    """Measurements of one thing from a minute to the end of its hour, or to the end of the process."""

    of: str  # the identity of a topic, a subscription or a project, or `SERVICE` of the service
    began: int  # the minute, since 1970
    data: bytes  # as `ams.service.history` writes it


class HistoryStore(Protocol):
    """Keeps rows. Raises `Unavailable` when it cannot."""

    write_minutes: int  # how often to write rows: readers on other nodes see only written ones

    async def read(self, of: Collection[str], first: int) -> Sequence[Row]:
        """Return the rows of some things that began at the minute `first` or later."""

    async def write(self, rows: Sequence[Row], oldest: int) -> None:
        """Write rows in the place of those of the same minute, and remove all that began before `oldest`."""

    async def close(self) -> None:
        """Let go of files."""


class FileHistory:
    """Keeps rows in a SQLite file of their own, so that nothing else waits for them. Nothing is synced.

    While `space` refuses growth, rows are not written: acknowledgements need the rest of the disk.
    """

    write_minutes = 5

    def __init__(self, path: str, space: FreeSpace = UNLIMITED) -> None:
        """Open the file, or make it anew if it cannot be read."""
        self._space = space
        self._one = threading.Lock()
        try:
            self._connection = _opened(path)
        except sqlite3.DatabaseError:
            for each in (path, f"{path}-wal", f"{path}-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(each)
            self._connection = _opened(path)

    async def read(self, of: Collection[str], first: int) -> Sequence[Row]:
        query = "SELECT of, began, data FROM history WHERE of IN (SELECT value FROM json_each(?)) AND began >= ?"
        given = (json.dumps(list(of)), first)
        return await self._run(lambda: [Row(*row) for row in self._connection.execute(query, given)])

    async def write(self, rows: Sequence[Row], oldest: int) -> None:
        def work() -> str | None:
            refusal = self._space.growth_refusal()
            with self._connection:
                self._connection.execute("DELETE FROM history WHERE began < ?", (oldest,))
                if refusal is None:
                    self._connection.executemany("INSERT OR REPLACE INTO history VALUES (?, ?, ?)", rows)
            return refusal

        refusal = await self._run(work)
        if refusal is not None:
            raise Unavailable(f"The history cannot be written: {refusal}")

    async def close(self) -> None:
        await self._run(self._connection.close)

    async def _run(self, work: Callable[[], T]) -> T:
        def alone() -> T:
            with self._one:
                return work()

        try:
            return await asyncio.to_thread(alone)
        except sqlite3.Error as error:
            raise Unavailable(f"The history cannot be used: {error}") from error


def _opened(path: str) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # for nobody else to read
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(_TABLE)
    return connection


class SharedHistory:
    """Keeps rows in the registry's PostgreSQL, for all nodes."""

    write_minutes = 1

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, of: Collection[str], first: int) -> Sequence[Row]:
        is_asked = history.c.of.in_(list(of)) & (history.c.began >= first)
        query = select(history.c.of, history.c.began, history.c.data).where(is_asked)
        return await self._database.rows(query, lambda row: Row(row.of, row.began, bytes(row.data)))

    async def write(self, rows: Sequence[Row], oldest: int) -> None:
        adding = insert(history)
        place = [history.c.of, history.c.began]
        adding = adding.on_conflict_do_update(index_elements=place, set_={"data": adding.excluded.data})

        def work(connection: Connection) -> None:
            if rows:
                connection.execute(adding, [row._asdict() for row in rows])
            connection.execute(delete(history).where(history.c.began < oldest))

        await self._database.write(work, grows=False)

    async def close(self) -> None:
        """Nothing: the database is the registry's."""
