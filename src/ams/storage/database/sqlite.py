"""Tables in a SQLite file: one process has it for itself.

Writes go through one thread, one after the other, as SQLite requires; reads run beside them.
"""

import asyncio
import contextvars
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog
from sqlalchemy import Connection, Engine, Index, UniqueConstraint, create_engine, event, make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from ams.core.errors import OUTCOME_UNKNOWN, AmsError, RegistryUnavailable, Unusable
from ams.storage.database.invalidation import Invalidation
from ams.storage.database.schema import Schema, Work, broken_rule, driver_error, unavailable
from ams.storage.files import FreeSpace, make_private
from ams.storage.sqlite import OVERWRITE, Commits, keep_files

T = TypeVar("T")

FULL = "Backend Error"  # the error of what would grow while the disk has little space left: that of the log
ROOM_IN_FILE = 4 * 2**20
"""Bytes of free pages in the file with which it need not grow: more than any request brings."""
READERS = 2  # threads for reads: hot paths are answered by the cache, so few are enough

logger = structlog.get_logger("ams.registry")


class SqliteStore:
    """Runs work in threads against a file. On a full disk, it is tried once more with the reserve of `space`."""

    def __init__(self, url: str, schema: Schema, space: FreeSpace) -> None:
        self._schema = schema
        self._unique = _unique_columns(schema)
        self._engine = _engine(url)
        self._space = space
        self._refusal: str | None = None
        self._commits = Commits()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="registry-writer")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="registry-reader")

    async def prepare(self, work: Work[T], *, waits: bool = False) -> T:
        """Run the work that makes or migrates the tables."""
        return await self.put(work)

    async def read(self, work: Work[T]) -> T:
        """Run work that changes nothing, on one state of the database."""
        run = contextvars.copy_context().run  # so that what is logged there names the request
        return await asyncio.get_running_loop().run_in_executor(self._readers, run, self._attempt, work, "BEGIN")

    async def write(
        self, work: Work[T], forgets: Sequence[Invalidation], *, large: bool = False, grows: bool = True
    ) -> T:
        """Run work and commit it. No other process has this file open, so no other cache has to be invalidated."""
        return await self._in_writer(self._attempt_growth if grows else self._attempt_write, work)

    async def put(self, work: Work[T]) -> T:
        """Run work and commit it."""
        return await self._in_writer(self._attempt_write, work)

    async def in_turn(self, work: Work[T], turn: int) -> T:
        """Run work and commit it: all that is written here has its turn."""
        return await self.put(work)

    async def alone(self, work: Work[T]) -> T:
        """Run work and commit it: no other process has this file open."""
        return await self.put(work)

    async def require_room(self) -> None:
        """Raise `RegistryUnavailable` while what grows is refused."""
        await asyncio.get_running_loop().run_in_executor(self._readers, self._require_room)

    async def listen(self) -> None:
        """Receive the changes of other processes: there are none."""

    async def _in_writer(self, attempt: Callable[[Work[T]], T], work: Work[T]) -> T:
        run = contextvars.copy_context().run
        return await asyncio.get_running_loop().run_in_executor(self._writer, run, attempt, work)

    async def close(self) -> None:
        """Finish what was accepted and close all connections."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.shutdown()
        self._writer.shutdown()
        self._engine.dispose()

    # In the threads.

    def _attempt_growth(self, work: Work[T]) -> T:
        """Run work that makes the file larger, unless the disk has too little space left."""
        self._require_room()
        return self._attempt_write(work)

    def _require_room(self) -> None:
        refusal = self._space.growth_refusal()
        if refusal is not None and self._attempt(_free_bytes, "BEGIN") >= ROOM_IN_FILE:
            refusal = None
        if refusal != self._refusal:
            self._refusal = refusal
            logger.error("registry.refusing", reason=refusal) if refusal else logger.info("registry.resumed")
        if refusal is not None:
            raise RegistryUnavailable(FULL)

    def _attempt_write(self, work: Work[T]) -> T:
        try:
            result = self._attempt_with_room(work)
        except RegistryUnavailable as error:
            if self._commits.is_undone(driver_error(error.__cause__), self._overwrite):
                raise
            logger.error("registry.outcome_unknown")
            raise RegistryUnavailable(OUTCOME_UNKNOWN) from error.__cause__
        self._commits.succeeded()
        return result

    def _attempt_with_room(self, work: Work[T]) -> T:
        try:
            return self._attempt(work, "BEGIN IMMEDIATE")
        except RegistryUnavailable as error:
            if not _is_full(error.__cause__) or not self._space.release_reserve():
                raise
        logger.warning("registry.given_room")
        return self._attempt(work, "BEGIN IMMEDIATE")

    def _overwrite(self) -> None:
        try:
            with self._engine.connect().execution_options(begin="BEGIN IMMEDIATE") as connection, connection.begin():
                connection.exec_driver_sql(OVERWRITE)
        except SQLAlchemyError as error:
            raise sqlite3.OperationalError from error

    def _attempt(self, work: Work[T], begin: str) -> T:
        try:
            with self._engine.connect().execution_options(begin=begin) as connection, connection.begin():
                return work(connection)
        except IntegrityError as error:
            raise self._meaning(error) from error
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise unavailable(error) from error

    def _meaning(self, error: IntegrityError) -> AmsError:
        """Say what a refused row means to a client: SQLite names no constraint, but its columns."""
        text = str(error.orig)
        constraint = self._unique.get(text.removeprefix("UNIQUE constraint failed: "), "")
        return broken_rule(error, self._schema, foreign=text.startswith("FOREIGN KEY"), constraint=constraint)


def _engine(url: str) -> Engine:
    engine = create_engine(url, hide_parameters=True, pool_size=READERS + 1)
    path = make_url(url).database or ""
    _make_private(path)
    event.listen(engine, "connect", lambda connection, _: _prepare(connection, path))
    event.listen(engine, "begin", _begin)
    return engine


def _make_private(path: str) -> None:
    """Make the file before SQLite does; its journals inherit the mode."""
    try:
        make_private(path)
    except OSError as error:
        raise Unusable(f"{path} cannot be opened: {error.strerror}") from error


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    connection.isolation_level = None  # transactions are begun by `_begin`, not guessed by the driver
    try:
        connection.execute("PRAGMA busy_timeout = 5000")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        keep_files(connection, path)
    except sqlite3.DatabaseError:
        connection.close()
        raise


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


def _unique_columns(schema: Schema) -> dict[str, str]:
    """Map what SQLite says of a broken unique constraint or index, its columns, to the name of that."""
    return {
        ", ".join(f"{table.name}.{column.name}" for column in rule.columns): str(rule.name)
        for table in schema.tables.tables.values()
        for rule in (*table.constraints, *table.indexes)
        if isinstance(rule, UniqueConstraint) or (isinstance(rule, Index) and rule.unique)
    }


def _free_bytes(connection: Connection) -> int:
    """Return how much of the file is free: what was deleted leaves pages that are used again."""
    pages, size = (connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("freelist_count", "page_size"))
    return int(pages or 0) * int(size or 0)


def _is_full(error: BaseException | None) -> bool:
    return getattr(driver_error(error), "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
