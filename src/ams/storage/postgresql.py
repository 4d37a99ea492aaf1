"""PostgreSQL connections, timeouts and transient errors, for registry, cursors and pipeline.

A lost primary is noticed within seconds, and no call waits for it longer than `CALL_SECONDS`. Three kinds of
connections:

- `connect`: for the event loop, to listen for changes and for `ReconnectingConnection`;
- `ReconnectingConnection`: for cursors; it reconnects by itself while calls wait;
- `connect_thread`: for threads, in SQLAlchemy's pool of the registry.

Imports the driver, so import it only where PostgreSQL is used.
"""

import asyncio
import contextlib
import math
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import psycopg
import structlog
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg.types.string import StrDumperUnknown

from ams.core.backoff import Backoff, Pauses
from ams.core.errors import OUTCOME_UNKNOWN, CursorsUnavailable, Unusable

T = TypeVar("T")
Connection = psycopg.AsyncConnection[TupleRow]
Statements = Callable[[Connection, float], Awaitable[T]]  # work on a connection, with its timeout in seconds

CALL_SECONDS = 8.0  # total time that a call waits for PostgreSQL: clients time out at 10
CONNECT_SECONDS = 2  # per server of the list; the driver's minimum
STATEMENT_SECONDS = 3.0  # ours take milliseconds: a server silent for so long is stopped or unreachable
LOCK_SECONDS = 2.0  # lock timeout of a statement
IDLE_SECONDS = 5.0  # timeout of an idle transaction: a stopped node must not block the others
SILENCE_SECONDS = STATEMENT_SECONDS + 0.5  # after it a thread closes the connection
MIN_STATEMENT_SECONDS = 0.5  # with less left no statement is sent: its timeout would close the connection
RECONNECT_BACKOFF = Backoff(0.1, 1.0)  # seconds between two attempts to connect

_DEFAULTS = {
    "application_name": "ams",
    "connect_timeout": str(CONNECT_SECONDS),
    "gssencmode": "disable",
    "target_session_attrs": "read-write",  # the current primary of several servers
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "3000",
}

_PASSING_STATES = frozenset(
    {
        "25P03",  # idle_in_transaction_session_timeout: this process was stopped
        "25006",  # read_only_sql_transaction: the primary became a standby
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
        "53300",  # too_many_connections
        "55P03",  # lock_not_available
        "57014",  # query_canceled: `STATEMENT_SECONDS` passed
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now: starting, stopping or recovering
        "57P05",  # idle_session_timeout
    }
)
_KEEPS_CONNECTION = frozenset({"40001", "40P01", "55P03", "57014"})

POOLED = (
    "PostgreSQL is reached through a pooler that gives each transaction another session, as PgBouncer with pool_mode ="
    " transaction or statement: connect to PostgreSQL itself, or set pool_mode = session"
)
_NO_TRANSACTIONS = "statement pooling"  # in PgBouncer's error for a transaction with pool_mode = statement
_SESSION_PROBES = 5  # a pooler usually reuses the last session, but another client may take it in between

_SESSION = """
SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),
    set_config('idle_in_transaction_session_timeout', %s, false),
    CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
        THEN set_config('synchronous_commit', 'on', false) END
"""
_LIMITS = tuple(f"{seconds * 1000:.0f}" for seconds in (STATEMENT_SECONDS, LOCK_SECONDS, IDLE_SECONDS))


def conninfo(url: str, password: str = "") -> str:
    """Return the connection string for a `postgresql://` URL. Raises `ValueError` without any part of the URL."""
    try:
        given = {name: value for name, value in conninfo_to_dict(url).items() if value is not None}
        return make_conninfo("", **_DEFAULTS | given | ({"password": password} if password else {}))
    except psycopg.ProgrammingError as error:
        raise ValueError("not a PostgreSQL URL: postgresql://USER@HOST:PORT/DATABASE") from error


async def connect(to: str, greet: Callable[[Connection], Awaitable[object]] | None = None) -> Connection:
    """Connect once, in autocommit mode, and run `greet` first. Raises `psycopg.Error`.

    Statements time out after `STATEMENT_SECONDS`. Commits are synchronous, also on a synchronous standby, regardless of
    the server's configuration.
    """
    connection = await psycopg.AsyncConnection.connect(to, autocommit=True)
    try:
        with limit_time(connection, CONNECT_SECONDS):
            await connection.execute(_SESSION, _LIMITS)
            if greet is not None:
                await greet(connection)
    except BaseException:
        await connection.close()
        raise
    return connection


def connect_thread(to: str) -> "ThreadConnection":
    """Connect as `connect` does, for a thread. Callers begin transactions. Raises `psycopg.Error`."""
    connection = ThreadConnection.connect(to, autocommit=True)
    try:
        connection.adapters.register_dumper(str, _TextDumper)
        for kind in ("text", "varchar"):
            connection.adapters.register_loader(kind, _TextReader)
        connection.execute(_SESSION, _LIMITS)
    except BaseException:
        connection.close()
        raise
    return connection


class ThreadConnection(psycopg.Connection[TupleRow]):
    """A connection that closes after `SILENCE_SECONDS` without an answer, and accepts texts with NUL."""

    silence: float = SILENCE_SECONDS

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for an answer; on timeout close the connection and raise `OperationalError`."""
        try:
            return super().wait(gen, interval, min(self.silence, math.inf if timeout is None else timeout))
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.close()
            raise


ESCAPE = "\x1a"
"""PostgreSQL texts cannot hold NUL, which clients may send. It is stored as `ESCAPE 0`, and `ESCAPE` as `ESCAPE 1`."""


class _TextDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        if "\x00" in obj or ESCAPE in obj:
            obj = obj.replace(ESCAPE, ESCAPE + "1").replace("\x00", ESCAPE + "0")
        return super().dump(obj)


class _TextReader(Loader):
    def load(self, data: Buffer) -> str:
        kept = bytes(data).decode()
        return kept.replace(ESCAPE + "0", "\x00").replace(ESCAPE + "1", ESCAPE) if ESCAPE in kept else kept


logger = structlog.get_logger("ams.cursors")


class Interrupted(Exception):
    """The connection was lost, or the database requires a retry: the outcome is unknown."""


class ReconnectingConnection:
    """Connection of the cursors: runs statements one at a time and reconnects by itself.

    Calls wait for the new connection until `CALL_SECONDS` after the loss. Later calls fail at once.
    """

    def __init__(self, conninfo: str, greet: Callable[[Connection], Awaitable[None]]) -> None:
        """Make an unconnected connection; `greet` runs first on each new connection."""
        self._conninfo, self._greet = conninfo, greet
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._connecting: asyncio.Task[Connection] | None = None  # done: its result is the connection
        self._lost_since = 0.0
        self._cause: BaseException | None = None

    async def run(self, work: Statements[T], give_up: float) -> T:
        """Run work until `give_up` (loop time). Raises `Interrupted` to retry, or `CursorsUnavailable`."""
        async with self._turn:
            connection = await self._wait_for_connection(give_up)
            began = self._loop.time()
            seconds = min(STATEMENT_SECONDS, give_up - began)
            if seconds < MIN_STATEMENT_SECONDS:
                raise CursorsUnavailable from self._cause
            try:
                with limit_time(connection, seconds):
                    return await work(connection, seconds)
            except psycopg.Error as error:
                if not is_passing(error):
                    logger.error("cursors.refused", reason=reason(error))
                    raise CursorsUnavailable from error
                self._cause = error
                if not keeps_connection(error):
                    logger.warning("cursors.connection_lost", reason=reason(error))
                    await connection.close()
                    self._begin_connecting(began)
                raise Interrupted from error

    async def insist(self, work: Statements[T], *, changes: bool = False) -> T:
        """Run idempotent work with retries for `CALL_SECONDS`; with `changes`, errors say if it may be done."""
        give_up = self._loop.time() + CALL_SECONDS
        unsure = False
        while True:
            try:
                return await self.run(work, give_up)
            except Interrupted:
                unsure = changes
            except CursorsUnavailable as error:
                if not unsure:
                    raise
                raise CursorsUnavailable(OUTCOME_UNKNOWN) from error

    async def close(self) -> None:
        """Close the connection."""
        if self._connecting is not None:
            self._connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await self._connecting).close()

    def _begin_connecting(self, since: float) -> "asyncio.Task[Connection]":
        self._lost_since = since
        self._connecting = asyncio.create_task(self._connect(), name="ams-cursors-connect")
        return self._connecting

    async def _wait_for_connection(self, give_up: float) -> Connection:
        """Raise `CursorsUnavailable` at `give_up`, or `CALL_SECONDS` after the loss if that is earlier."""
        connecting = self._connecting or self._begin_connecting(self._loop.time())
        if not connecting.done():
            seconds = min(give_up, self._lost_since + CALL_SECONDS) - self._loop.time()
            await asyncio.wait((connecting,), timeout=max(seconds, 0))
            if not connecting.done():
                raise CursorsUnavailable from self._cause
        try:
            return connecting.result()
        except Exception:  # a defect: the next call reconnects
            self._connecting = None
            raise

    async def _connect(self) -> Connection:
        pauses, said = Pauses(RECONNECT_BACKOFF), False
        while True:
            try:
                connection = await connect(self._conninfo, self._greet)
            except psycopg.Error as error:
                self._cause = error
                if not said:
                    logger.warning("cursors.not_connected", reason=reason(error))
                    said = True
                await asyncio.sleep(pauses.next())
            else:
                if said:
                    logger.info("cursors.connected")
                return connection


async def require_sessions(to: str) -> None:
    """Raise `Unusable` if a pooler changes the session between transactions. Raises `psycopg.Error`.

    Settings, channels and locks belong to sessions. Without them a commit could be answered before it is on disk.
    """
    async with await psycopg.AsyncConnection.connect(to, autocommit=True, prepare_threshold=None) as one:
        with limit_time(one, CONNECT_SECONDS):
            before = await _server_process(one)
        if before == one.info.backend_pid:  # as reported when connecting: no pooler
            return
        async with await psycopg.AsyncConnection.connect(to, autocommit=True, prepare_threshold=None) as other:
            for _ in range(_SESSION_PROBES):
                try:
                    with limit_time(one, CONNECT_SECONDS), limit_time(other, CONNECT_SECONDS):
                        async with other.transaction():
                            others, now = await _server_process(other), await _server_process(one)
                except psycopg.errors.ProtocolViolation as error:
                    if _NO_TRANSACTIONS not in str(error):  # PgBouncer says most things under this state
                        raise
                    raise Unusable(POOLED) from error
                if others == before or now != before:
                    raise Unusable(POOLED)


async def _server_process(connection: Connection) -> int:
    row = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
    return int(row[0]) if row else 0


@contextlib.contextmanager
def limit_time(connection: Connection, seconds: float) -> Iterator[None]:
    """Abort the connection on timeout. No cancel request: a cancelled commit could be reported as done."""
    timer = asyncio.get_running_loop().call_later(seconds, abort, connection)
    try:
        yield
    finally:
        timer.cancel()


def abort(connection: Connection) -> None:
    """Close a connection at once, in any state, even if the server does not respond."""
    if connection.closed:
        return
    with socket.socket(fileno=os.dup(connection.fileno())) as own, contextlib.suppress(OSError):
        own.shutdown(socket.SHUT_RDWR)


def is_passing(error: BaseException | None) -> bool:
    """Return whether an error is transient: a retry may succeed. The statement may have been executed."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return state in _PASSING_STATES or state.startswith("08")  # connection exceptions


def keeps_connection(error: BaseException) -> bool:
    """Return whether the connection stays usable after a transient error, and nothing was executed."""
    return getattr(error, "sqlstate", None) in _KEEPS_CONNECTION


def reason(error: BaseException | None) -> str:
    """Return the first line of the driver's message; it never contains a password."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
