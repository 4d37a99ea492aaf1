"""The database: connections, transactions, threads, and what differs between SQLite and PostgreSQL.

Work is a function of a connection; it runs in a thread as one transaction. Writes go through one thread, one after the
other, as SQLite wants it; reads run beside them. A driver's exceptions never leave this file.
"""

import asyncio
import contextvars
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import structlog
from sqlalchemy import URL, Connection, Engine, Index, UniqueConstraint, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from ams.errors import AlreadyExists, AmsError, NotFound, RegistryUnavailable, Unusable
from ams.files import make_private
from ams.registry.tables import METADATA, TAKEN

T = TypeVar("T")
Work = Callable[[Connection], T]

READERS = 2
"""Threads for reads: hot paths are answered by the cache, so few are enough."""

logger = structlog.get_logger("ams.registry")


def sqlite_url(path: str) -> str:
    """Return the URL of a SQLite database file; any path will do."""
    return URL.create("sqlite", database=path).render_as_string()


def _nothing() -> None:
    return None


def reason(error: BaseException | None) -> str:
    """Return what the driver said, in one line and without any values."""
    return str(_driver_error(error))


class Database:
    """Runs work against the database at a URL.

    `on_full` is asked for room when the disk is full and answers whether it made some; the work is then tried once
    more.
    """

    def __init__(self, url: str, on_full: Callable[[], bool] = lambda: False) -> None:
        self._engine = _engine(url)
        self._on_full = on_full
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="registry-writer")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="registry-reader")

    async def read(self, work: Work[T]) -> T:
        """Run work that changes nothing; it sees one state of the database. Raises `RegistryUnavailable`."""
        run = contextvars.copy_context().run  # so that what is logged there names the request
        return await asyncio.get_running_loop().run_in_executor(self._readers, run, self._attempt, work, "BEGIN")

    async def write(self, work: Work[T], then: Callable[[], None] = _nothing) -> T:
        """Run work and commit it; all of it is stored durably, or nothing.

        `then` is called in the event loop before anyone sees the outcome, also when the caller has left meanwhile: it
        is where caches forget. Raises `AlreadyExists` for a name that is taken, `NotFound` for a project that is
        gone, `RegistryUnavailable`, and whatever the work raises.
        """
        loop = asyncio.get_running_loop()
        run = contextvars.copy_context().run
        future = loop.run_in_executor(self._writer, run, self._attempt_with_room, work)
        future.add_done_callback(lambda _: then())
        return await asyncio.shield(future)

    async def close(self) -> None:
        """Finish what was accepted and close all connections."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.shutdown()
        self._writer.shutdown()
        self._engine.dispose()

    # In the threads.

    def _attempt_with_room(self, work: Work[T]) -> T:
        try:
            return self._attempt(work, "BEGIN IMMEDIATE")
        except RegistryUnavailable as error:
            if not _is_full(error.__cause__) or not self._on_full():
                raise
        logger.warning("registry.given_room")
        return self._attempt(work, "BEGIN IMMEDIATE")

    def _attempt(self, work: Work[T], begin: str) -> T:
        try:
            with self._engine.connect().execution_options(begin=begin) as connection, connection.begin():
                return work(connection)
        except IntegrityError as error:
            raise _broken_rule(error) from error
        except (SQLAlchemyError, sqlite3.Error) as error:
            logger.error("registry.failed", reason=reason(error))
            raise RegistryUnavailable from error


def _engine(url: str) -> Engine:
    engine = create_engine(url, hide_parameters=True, pool_size=READERS + 1)
    if engine.dialect.name == "sqlite":
        _make_private(make_url(url).database or "")
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _make_private(path: str) -> None:
    """Make the file before SQLite does; its journals inherit the mode."""
    try:
        make_private(path)
    except OSError as error:
        raise Unusable(f"{path} cannot be opened: {error.strerror}") from error


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions are begun by `_begin_sqlite`, not guessed by the driver
    try:
        connection.execute("PRAGMA busy_timeout = 5000")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.DatabaseError:
        connection.close()
        raise


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


def _broken_rule(error: IntegrityError) -> AmsError:
    """Say what a refused row means to a client."""
    text = str(error.orig)
    if text.startswith("FOREIGN KEY"):
        return NotFound("project doesn't exist")
    taken = TAKEN.get(_UNIQUE.get(text.removeprefix("UNIQUE constraint failed: "), ""))
    if taken is None:
        logger.error("registry.failed", reason=text)
        return RegistryUnavailable()
    return AlreadyExists(taken)


def _unique_columns() -> dict[str, str]:
    """Map what SQLite says of a broken unique constraint or index, its columns, to the name of that."""
    return {
        ", ".join(f"{table.name}.{column.name}" for column in rule.columns): str(rule.name)
        for table in METADATA.tables.values()
        for rule in (*table.constraints, *table.indexes)
        if isinstance(rule, UniqueConstraint) or (isinstance(rule, Index) and rule.unique)
    }


_UNIQUE = _unique_columns()


def _driver_error(error: BaseException | None) -> Any:
    return error.orig if isinstance(error, DBAPIError) else error


def _is_full(error: BaseException | None) -> bool:
    return getattr(_driver_error(error), "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
