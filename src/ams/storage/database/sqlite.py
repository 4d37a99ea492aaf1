"""SQLite databases, each used by one process.

One thread writes, as SQLite requires; other threads read in parallel.

A failed commit must not reappear after a restart. In WAL mode a commit appends its pages to the file `-wal` and syncs
it. If the sync fails, SQLite rolls back only in memory: the pages stay in the file with valid checksums, and the next
process treats the commit as done (https://www.sqlite.org/walformat.html, 4). So an empty commit overwrites these pages.
Once it is synced, a restart finds the old state.
"""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import Connection, Engine, Index, UniqueConstraint, create_engine, event, make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from ams.core.errors import OUTCOME_UNKNOWN, RegistryUnavailable, Unusable
from ams.storage.database.invalidation import Invalidation
from ams.storage.database.schema import DatabaseSchema, Work, broken_rule, driver_error, in_thread, logger, unavailable
from ams.storage.files import Disk, make_private
from ams.storage.free_space import FreeSpace

T = TypeVar("T")

DISK_FULL_ERROR = "Backend Error"  # same text as that of the log
ROOM_IN_FILE = 4 * 2**20  # with so many bytes in free pages the file need not grow: more than any request needs
READERS = 2  # threads; few, as caches serve the hot paths

EMPTY_COMMIT = "PRAGMA user_version = 0"  # writes a page without changing anything: the version is always 0

# Errors after which the file cannot hold a complete failed commit.
_ERRORS_WITHOUT_COMMIT = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_FULL,  # the end of the commit is missing
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
    }
)


class Commits:
    """Tracks whether a restart would find the state that this process sees. For one writer at a time."""

    def __init__(self) -> None:
        self._in_doubt = False

    def note_commit(self) -> None:
        """Note a successful commit: it has overwritten any failed one."""
        self._in_doubt = False

    def is_undone(self, error: BaseException | None, overwrite: Callable[[], object]) -> bool:
        """Return whether a restart surely does not find a failed commit; `overwrite` commits `EMPTY_COMMIT`."""
        code = getattr(error, "sqlite_errorcode", None)
        has_written = code is not None and code & 0xFF not in _ERRORS_WITHOUT_COMMIT  # low byte: kind of error
        if not self._in_doubt and not has_written:
            return True
        self._in_doubt = True
        with contextlib.suppress(sqlite3.Error):
            overwrite()
            self._in_doubt = False
        return not self._in_doubt


class SqliteStore:
    """Runs work in threads against a file. On a full disk it releases the reserve of `space` and retries once."""

    def __init__(self, url: str, schema: DatabaseSchema, space: FreeSpace) -> None:
        self._schema, self._space = schema, space
        self._engine = _engine(url)
        # SQLite names the columns of a violated constraint, not the constraint.
        self._unique = {
            ", ".join(f"{table.name}.{column.name}" for column in rule.columns): str(rule.name)
            for table in schema.tables.tables.values()
            for rule in (*table.constraints, *table.indexes)
            if isinstance(rule, UniqueConstraint) or (isinstance(rule, Index) and rule.unique)
        }
        self._refusal: str | None = None
        self._commits = Commits()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="registry-writer")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="registry-reader")

    async def read(self, work: Work[T]) -> T:
        return await in_thread(self._readers, self._attempt, work, "BEGIN")

    # One thread writes: any work there is alone.

    async def put(self, work: Work[T], *, grows: bool = False, turn: int | None = None) -> T:
        return await in_thread(self._writer, self._attempt_write, work, grows)

    async def write(self, work: Work[T], forgets: Sequence[Invalidation], *, large: bool, grows: bool) -> T:
        return await self.put(work, grows=grows)

    async def run_long(self, work: Work[T], *, waits: bool) -> T:
        return await self.put(work)

    async def alone(self, work: Work[T]) -> T:
        return await self.put(work)

    async def require_room(self) -> None:
        await in_thread(self._readers, self._require_room)

    async def listen(self) -> None:
        """Do nothing: no other process writes."""

    async def close(self) -> None:
        await asyncio.to_thread(self._close)  # one call, which completes even if the caller is cancelled

    # The methods below run in threads.

    def _close(self) -> None:
        self._readers.shutdown()
        self._writer.shutdown()
        self._engine.dispose()

    def _require_room(self) -> None:
        refusal = self._space.growth_refusal()
        if refusal is not None and self._attempt(_free_bytes, "BEGIN") >= ROOM_IN_FILE:
            refusal = None
        if refusal != self._refusal:
            self._refusal = refusal
            logger.error("registry.refusing", reason=refusal) if refusal else logger.info("registry.resumed")
        if refusal is not None:
            raise RegistryUnavailable(DISK_FULL_ERROR)

    def _attempt_write(self, work: Work[T], grows: bool) -> T:
        """Raise `RegistryUnavailable`; with the text `OUTCOME_UNKNOWN` the work may have been committed."""
        if grows:
            self._require_room()
        try:
            result = self._attempt_with_room(work)
        except RegistryUnavailable as error:
            if self._commits.is_undone(driver_error(error.__cause__), self._overwrite):
                if _is_full(error):
                    raise RegistryUnavailable(DISK_FULL_ERROR) from error.__cause__
                raise
            logger.error("registry.outcome_unknown")
            raise RegistryUnavailable(OUTCOME_UNKNOWN) from error.__cause__
        self._commits.note_commit()
        return result

    def _attempt_with_room(self, work: Work[T]) -> T:
        try:
            return self._attempt(work, "BEGIN IMMEDIATE")
        except RegistryUnavailable as error:
            if not _is_full(error) or not self._space.release_reserve():
                raise
        logger.warning("registry.given_room")
        return self._attempt(work, "BEGIN IMMEDIATE")

    def _overwrite(self) -> None:
        try:
            with self._engine.connect().execution_options(begin="BEGIN IMMEDIATE") as connection, connection.begin():
                connection.exec_driver_sql(EMPTY_COMMIT)
        except SQLAlchemyError as error:
            raise sqlite3.OperationalError from error

    def _attempt(self, work: Work[T], begin: str) -> T:
        try:
            with self._engine.connect().execution_options(begin=begin) as connection, connection.begin():
                return work(connection)
        except IntegrityError as error:
            said = str(error.orig)
            constraint = self._unique.get(said.removeprefix("UNIQUE constraint failed: "), "")
            foreign = said.startswith("FOREIGN KEY")
            raise broken_rule(error, self._schema, foreign=foreign, constraint=constraint) from error
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise unavailable(error) from error


def _engine(url: str) -> Engine:
    engine = create_engine(url, hide_parameters=True, pool_size=READERS + 1)
    path = make_url(url).database or ""
    try:
        make_private(path)  # before SQLite creates it; journals inherit the mode
    except OSError as error:
        raise Unusable(f"{path} cannot be opened: {error.strerror}") from error

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # transactions begin explicitly below
        try:
            connection.execute("PRAGMA busy_timeout = 5000")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # the first read creates the WAL
            Disk().sync_folder(os.path.dirname(path) or ".")  # SQLite ignores errors of its own sync
        except OSError as error:
            connection.close()
            raise sqlite3.OperationalError(f"its folder cannot be synced: {error.strerror}") from error
        except sqlite3.DatabaseError:
            connection.close()
            raise

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def _is_full(error: RegistryUnavailable) -> bool:
    return getattr(driver_error(error.__cause__), "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def _free_bytes(connection: Connection) -> int:
    pages, size = (connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("freelist_count", "page_size"))
    return int(pages or 0) * int(size or 0)
