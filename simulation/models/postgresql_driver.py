"""The connections of psycopg that AMS uses, to a model of a server.

A `Line` leads to one session: directly for tests (`DirectLine`), through a simulated network in a world. `install`
redirects psycopg's connections to modelled hosts, by name.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, Self
from unittest import mock

import psycopg
from psycopg import errors
from psycopg.adapt import AdaptersMap, PyFormat
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format, TransactionStatus

from ams.storage import postgresql
from ams.storage.postgresql import ESCAPE, ThreadConnection
from simulation.models.postgresql import Blocked, Given, Result, Server, Session

Work = Callable[[], Result]
WAIT_SECONDS = 0.002  # interval of retries of a statement that waits for another session
LOST_TEXT = "server closed the connection unexpectedly"
_TEXT_OID = 25
_SETUP_STATEMENTS = ("select pg_catalog.version()", "select current_schema()", "show ")
"""Prefixes of SQLAlchemy's first statements. It holds a lock meanwhile, so no thread may wait."""


class Line(Protocol):
    """A connection's line to its session."""

    session: Session

    def ask(self, work: Work, seconds: float) -> Result:
        """Run work at the server, from a thread. Raises `psycopg.Error`."""

    async def ask_async(self, work: Work) -> Result:
        """Run work at the server, from an event loop. Raises `psycopg.Error`."""

    def take_notifications(self) -> list[tuple[str, str]]:
        """Return the notifications that have arrived."""

    async def wait_for_notifications(self, seconds: float) -> None:
        """Wait for a notification, at most this many seconds. Raises `psycopg.Error` if the connection is lost."""

    def close(self) -> None:
        """End the session; calls under way fail."""

    @property
    def is_lost(self) -> bool:
        """True once the connection is lost."""


class Host(Protocol):
    """A host that accepts connections."""

    def connect(self, database: str) -> Line:
        """Connect from a thread. Raises `psycopg.OperationalError`."""

    async def connect_async(self, database: str) -> Line:
        """Connect from an event loop. Raises `psycopg.OperationalError`."""


def wait_limit(session: Session) -> float:
    """Return the lock timeout of a statement, in seconds."""
    limits = [int(session.settings[name]) for name in ("lock_timeout", "statement_timeout")]
    return min([each / 1000 for each in limits if each], default=float("inf"))


def not_in_time(session: Session) -> psycopg.Error:
    """Cancel a statement that waited too long; return its error."""
    session.fail()
    return errors.LockNotAvailable("canceling statement due to lock timeout")


class DirectHost:
    """A server without a network in between, in real time."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.lock = threading.RLock()

    def connect(self, database: str) -> "DirectLine":
        with self.lock:
            return DirectLine(self, self.server.connect(database))

    async def connect_async(self, database: str) -> "DirectLine":
        return self.connect(database)


class DirectLine:
    """A line without a network."""

    def __init__(self, host: DirectHost, session: Session) -> None:
        self._host, self.session = host, session

    def ask(self, work: Work, seconds: float) -> Result:
        until = time.monotonic() + wait_limit(self.session)
        while True:
            with self._host.lock, contextlib.suppress(Blocked):
                return work()
            self._give_up_after(until)
            time.sleep(WAIT_SECONDS)

    async def ask_async(self, work: Work) -> Result:
        until = time.monotonic() + wait_limit(self.session)
        while True:
            with self._host.lock, contextlib.suppress(Blocked):
                return work()
            self._give_up_after(until)
            await asyncio.sleep(WAIT_SECONDS)

    def _give_up_after(self, until: float) -> None:
        if time.monotonic() > until:
            with self._host.lock:
                raise not_in_time(self.session)

    def take_notifications(self) -> list[tuple[str, str]]:
        with self._host.lock:
            heard, self.session.heard = self.session.heard, []
            return heard

    async def wait_for_notifications(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.session.heard and time.monotonic() < until:
            if self.is_lost:
                raise errors.AdminShutdown(LOST_TEXT)
            await asyncio.sleep(WAIT_SECONDS)

    def close(self) -> None:
        with self._host.lock:
            self.session.end()

    @property
    def is_lost(self) -> bool:
        return self.session.is_over


# Interface of psycopg


class ModelCursor:
    """A cursor: the last result."""

    def __init__(self, connection: "ModelThreadConnection | ModelConnection") -> None:
        self._connection = connection
        self._result = Result()

    def take(self, result: Result) -> Self:
        """Keep a result."""
        self._result = result
        self._rows = iter(result.rows)
        return self

    @property
    def rowcount(self) -> int:
        return self._result.count

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        columns = self._result.columns
        return [(name, None, None, None, None, None, None) for name in columns] if columns else None

    def close(self) -> None:
        """Do nothing: all rows are in memory."""


class ThreadCursor(ModelCursor):
    """SQLAlchemy's cursor."""

    _connection: "ModelThreadConnection"
    arraysize = 1

    def execute(self, sql: str, given: Given = None, **_: object) -> Self:
        return self.take(self._connection.run(sql, given))

    def executemany(self, sql: str, many: Iterable[Given]) -> None:
        count = 0
        for given in many:
            count += self.execute(sql, given).rowcount
        self._result.count = count

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        return [row for _, row in zip(range(size), self._rows, strict=False)]


class AsyncCursor(ModelCursor):
    """Cursor of an asynchronous connection."""

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    async def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)


class _Texts:
    """Converts texts by the connection's dumpers and loaders: PostgreSQL accepts no NUL."""

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)

    def to_server(self, given: Given) -> Given:
        if isinstance(given, Mapping):
            return {name: self._dump(value) for name, value in given.items()}
        return None if given is None else [self._dump(value) for value in given]

    def read(self, result: Result) -> Result:
        result.rows = [tuple(self._load(value) for value in row) for row in result.rows]
        return result

    def _dump(self, value: Any) -> Any:
        if not isinstance(value, str) or ("\x00" not in value and ESCAPE not in value):
            return value
        return bytes(self.adapters.get_dumper(str, PyFormat.AUTO)(str, None).dump(value) or b"").decode()

    def _load(self, value: Any) -> Any:
        if not isinstance(value, str) or ESCAPE not in value:
            return value
        loader = self.adapters.get_loader(_TEXT_OID, Format.TEXT)
        assert loader is not None
        return loader(_TEXT_OID, None).load(value.encode())


class _Info:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.backend_pid = session.pid

    @property
    def transaction_status(self) -> TransactionStatus:
        return TransactionStatus.INTRANS if self._session.is_in_transaction else TransactionStatus.IDLE


class ModelThreadConnection(ThreadConnection):
    """A connection of a thread."""

    def __init__(self, line: Line) -> None:
        self._line, self._texts = line, _Texts()
        self.pgconn = None  # type: ignore[assignment]
        self._info = _Info(line.session)
        self._is_closed = False

    def __del__(self, *_: object) -> None:
        """No warning, unlike psycopg's."""

    @property
    def adapters(self) -> AdaptersMap:
        return self._texts.adapters

    @property
    def info(self) -> Any:
        return self._info

    @property
    def closed(self) -> bool:
        return self._is_closed or self._line.is_lost

    @property
    def broken(self) -> bool:
        return self._line.is_lost

    def add_notice_handler(self, callback: object) -> None:
        """Do nothing: there are no notices."""

    def cursor(self, *_: object, **__: object) -> Any:
        return ThreadCursor(self)

    def execute(self, query: Any, params: Any = None, **_: object) -> Any:
        return ThreadCursor(self).execute(query, params)

    def run(self, sql: str, given: Given = None) -> Result:
        """Run statements. Raises `psycopg.Error`."""
        if self.closed:
            raise psycopg.OperationalError("the connection is closed")
        session, values = self._line.session, self._texts.to_server(given)

        def work() -> Result:
            return session.run(sql, values)

        if sql.startswith(_SETUP_STATEMENTS):
            return work()
        try:
            return self._texts.read(self._line.ask(work, self.silence))
        except psycopg.OperationalError as error:
            if error.sqlstate is None:
                self.close()
            raise

    def commit(self) -> None:
        if self._line.session.is_in_transaction:
            self.run("COMMIT")

    def rollback(self) -> None:
        if not self.closed and self._line.session.is_in_transaction:
            self.run("ROLLBACK")

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._line.close()


class ModelConnection:
    """A connection of an event loop."""

    def __init__(self, line: Line) -> None:
        self._line, self._texts = line, _Texts()
        self.info = _Info(line.session)
        self._is_closed = False
        self._turn = asyncio.Lock()

    @property
    def closed(self) -> bool:
        return self._is_closed or self._line.is_lost

    async def execute(self, sql: str, given: Given = None, **_: object) -> AsyncCursor:
        async with self._turn:
            if self.closed:
                raise psycopg.OperationalError("the connection is closed")
            values = self._texts.to_server(given)
            result = await self._line.ask_async(lambda: self._line.session.run(sql, values))
            return AsyncCursor(self).take(self._texts.read(result))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self.execute("BEGIN")
        try:
            yield
        except BaseException:
            await self.execute("ROLLBACK")
            raise
        await self.execute("COMMIT")

    async def notifies(self, *, timeout: float) -> AsyncIterator[psycopg.Notify]:
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while True:
            for channel, payload in self._line.take_notifications():
                yield psycopg.Notify(channel, payload, 0)
            left = until - loop.time()
            if left <= 0:
                return
            await self._line.wait_for_notifications(left)

    def abort(self) -> None:
        """End at once."""
        self._line.close()

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._line.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@contextlib.contextmanager
def install(hosts: Mapping[str, Host]) -> Iterator[None]:
    """Redirect psycopg's connections to these hosts, by name; others stay as before."""
    connect_thread, connect_async, abort = ThreadConnection.connect, psycopg.AsyncConnection.connect, postgresql.abort

    def place(to: str) -> tuple[Host | None, str]:
        found = conninfo_to_dict(to)
        return hosts.get(str(found.get("host", ""))), str(found.get("dbname", ""))

    def thread(to: str = "", **given: Any) -> Any:
        host, database = place(to)
        return connect_thread(to, **given) if host is None else ModelThreadConnection(host.connect(database))

    async def loop(to: str = "", **given: Any) -> Any:
        host, database = place(to)
        if host is None:
            return await connect_async(to, **given)
        return ModelConnection(await host.connect_async(database))

    def end(connection: Any) -> None:
        connection.abort() if isinstance(connection, ModelConnection) else abort(connection)

    with (
        mock.patch.object(ThreadConnection, "connect", thread),
        mock.patch.object(psycopg.AsyncConnection, "connect", loop),
        mock.patch.object(postgresql, "abort", end),
    ):
        yield
