"""Measurements of the last day: a row per hour and topic, subscription or project.

For display, not for accounting: unwritten minutes may be lost, and an unreadable file is replaced. Not in backups.
"""

import asyncio
import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects.postgresql import insert

from ams.core.errors import Unavailable
from ams.storage.database.database import Database
from ams.storage.free_space import UNLIMITED, FreeSpace
from ams.storage.registry.tables import history

_TABLE = "CREATE TABLE IF NOT EXISTS history (of TEXT, began INTEGER, data BLOB, PRIMARY KEY (of, began)) WITHOUT ROWID"

T = TypeVar("T")


class HistoryRow(NamedTuple):
    """Measurements from a minute to the end of its hour or of the process."""

    of: str  # identity of a topic, subscription or project, or `SERVICE`
    began: int  # the minute, since 1970
    data: bytes  # in the format of `ams.service.history`


class FileHistory:
    """Rows in their own SQLite file, without syncs; not written on a full disk (`space`). Raises `Unavailable`."""

    write_minutes = 5  # interval of writes: readers on other nodes see only written rows

    def __init__(self, path: str, space: FreeSpace = UNLIMITED) -> None:
        """Open the file; replace it if it is unreadable."""
        self._space = space
        self._one = threading.Lock()
        try:
            self._connection = _open_file(path)
        except sqlite3.DatabaseError:
            for each in (path, f"{path}-wal", f"{path}-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(each)
            self._connection = _open_file(path)

    async def read(self, of: Collection[str], first: int) -> Sequence[HistoryRow]:
        """Return the rows of `of` that began at the minute `first` or later."""
        query = "SELECT of, began, data FROM history WHERE of IN (SELECT value FROM json_each(?)) AND began >= ?"
        given = (json.dumps(list(of)), first)
        return await self._run_in_thread(lambda: [HistoryRow(*row) for row in self._connection.execute(query, given)])

    async def write(self, rows: Sequence[HistoryRow], oldest: int) -> None:
        """Insert or replace rows, and delete all that began before `oldest`."""

        def work() -> str | None:
            refusal = self._space.growth_refusal()
            with self._connection:
                self._connection.execute("DELETE FROM history WHERE began < ?", (oldest,))
                if refusal is None:
                    self._connection.executemany("INSERT OR REPLACE INTO history VALUES (?, ?, ?)", rows)
            return refusal

        refusal = await self._run_in_thread(work)
        if refusal is not None:
            raise Unavailable(f"The history cannot be written: {refusal}")

    async def close(self) -> None:
        await self._run_in_thread(self._connection.close)

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        def alone() -> T:
            with self._one:
                return work()

        try:
            return await asyncio.to_thread(alone)
        except sqlite3.Error as error:
            raise Unavailable(f"The history cannot be used: {error}") from error


def _open_file(path: str) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # readable by the owner only
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(_TABLE)
    return connection


class SharedHistory:
    """The same in the registry's PostgreSQL, shared by all nodes."""

    write_minutes = 1

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, of: Collection[str], first: int) -> Sequence[HistoryRow]:
        is_asked = history.c.of.in_(list(of)) & (history.c.began >= first)
        query = select(history.c.of, history.c.began, history.c.data).where(is_asked)
        return await self._database.rows(query, lambda row: HistoryRow(row.of, row.began, bytes(row.data)))

    async def write(self, rows: Sequence[HistoryRow], oldest: int) -> None:
        adding = insert(history)
        place = [history.c.of, history.c.began]
        adding = adding.on_conflict_do_update(index_elements=place, set_={"data": adding.excluded.data})

        def work(connection: Connection) -> None:
            if rows:
                connection.execute(adding, [row._asdict() for row in rows])
            connection.execute(delete(history).where(history.c.began < oldest))

        await self._database.write(work, grows=False)

    async def close(self) -> None:
        """Do nothing: the database is the registry's."""


HistoryStore = FileHistory | SharedHistory
