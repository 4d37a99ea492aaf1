"""Connections to PostgreSQL for threads, for changes made by other nodes, and waiting for a database that is away.

No connection waits long for a silent server, and each takes every text. One connection listens for the changes of other
nodes; it is probed all the time. Notifications sent before the answer to a probe have arrived with it, so from the
sending of an answered probe the caches are used for a second, and no longer. A connection that is lost, or that
transports nothing, thus ends the use of caches; the registry is then read each time until it is back.

A call that met trouble has `CALL_SECONDS` in all. As soon as one meets a database that is away, only one call at a
time tries it; when that one gets an answer, the others go on. So a database that is away costs no threads, however
many calls wait; once it has been away for `CALL_SECONDS` they do not wait any more. Where it works, a call waits for
its turn as long as that takes.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import psycopg
import structlog
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg.types.string import StrDumperUnknown
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import ExceptionContext

from ams.core.backoff import Backoff, Pauses
from ams.core.errors import RegistryUnavailable
from ams.storage.database.invalidation import Invalidation, Invalidations
from ams.storage.database.schema import Schema, driver_error, unavailable
from ams.storage.postgresql import (
    CALL_SECONDS,
    STATEMENT_SECONDS,
    connect,
    is_passing,
    keeps_connection,
    limited,
    reason,
)

T = TypeVar("T")

logger = structlog.get_logger("ams.registry")

LOCK_SECONDS = 2.0  # how long a statement may wait for a row another transaction holds
IDLE_SECONDS = 5.0  # how long a transaction may do nothing: a node that was stopped must not hold up the others
READING_SECONDS = 60.0  # of a transaction that only reads: a long list takes a busy node seconds
SILENCE_SECONDS = STATEMENT_SECONDS + 0.5  # then the server is given up

_SESSION = """
SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),
    set_config('idle_in_transaction_session_timeout', %s, false),
    CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
        THEN set_config('synchronous_commit', 'on', false) END
"""
_LIMITS = tuple(f"{seconds * 1000:.0f}" for seconds in (STATEMENT_SECONDS, LOCK_SECONDS, IDLE_SECONDS))
_NO_LIMITS = text(
    "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true),"
    " set_config('idle_in_transaction_session_timeout', '0', true)"
)
_MORE_TIME = text("SELECT set_config('statement_timeout', :milliseconds, true)")


class Watched(psycopg.Connection[TupleRow]):
    """A connection that is given up when the server is silent."""

    silence: float = SILENCE_SECONDS

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for an answer; raise `OperationalError` when there is none in time, and be closed."""
        try:
            return super().wait(gen, interval, min(self.silence, math.inf if timeout is None else timeout))
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.close()
            raise


def connected(to: str) -> Watched:
    """Connect in autocommit: callers begin transactions where they need one. Raises `psycopg.Error`."""
    connection = Watched.connect(to, autocommit=True)
    try:
        connection.adapters.register_dumper(str, _TextDumper)
        for kind in ("text", "varchar"):
            connection.adapters.register_loader(kind, _TextReader)
        connection.execute(_SESSION, _LIMITS)
    except BaseException:
        connection.close()
        raise
    return connection


def engine_to(to: str, connections: int) -> Engine:
    """Return an engine of so many connections at most; transactions begin with the options of the connection."""
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: connected(to),
        hide_parameters=True,
        pool_size=connections,
        max_overflow=0,
        use_native_hstore=False,
    )

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        if begin := connection.get_execution_options().get("begin"):
            connection.exec_driver_sql(begin)

    @event.listens_for(engine, "handle_error")
    def give_up_connection(context: ExceptionContext) -> None:
        """Give up connections that are of no use any more, also when they lead to what is a standby by now."""
        error = driver_error(context.original_exception)
        if is_passing(error) and not keeps_connection(error):
            context.is_disconnect = True

    return engine


@contextlib.contextmanager
def more_time(connection: Connection, seconds: float = math.inf) -> Iterator[None]:
    """Let each statement of the rest of a transaction take so long; by default without any limit, of waits too."""
    watched = connection.connection.driver_connection
    assert isinstance(watched, Watched)
    watched.silence = seconds + 0.5
    try:
        if seconds == math.inf:
            connection.execute(_NO_LIMITS)
        else:
            connection.execute(_MORE_TIME, {"milliseconds": f"{seconds * 1000:.0f}"})
        yield
    finally:
        watched.silence = SILENCE_SECONDS


ESCAPE = "\x1a"
"""PostgreSQL takes no NUL, which clients may send. It is written as `ESCAPE 0`, and `ESCAPE` as `ESCAPE 1`."""


class _TextDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        if "\x00" in obj or ESCAPE in obj:
            obj = obj.replace(ESCAPE, ESCAPE + "1").replace("\x00", ESCAPE + "0")
        return super().dump(obj)


class _TextReader(Loader):
    def load(self, data: Buffer) -> str:
        kept = bytes(data).decode()
        return kept.replace(ESCAPE + "0", "\x00").replace(ESCAPE + "1", ESCAPE) if ESCAPE in kept else kept


PROBE_SECONDS = 0.3  # between two probes
TRUST_SECONDS = 1.0  # how long an answered probe is good for
LISTENING_SILENCE_SECONDS = 2.0  # after this a connection is given up and made anew
CONNECT_BACKOFF = Backoff(0.1, 2.0)  # seconds between two tries to connect


class Listener:
    """Applies what other nodes say is to be forgotten."""

    def __init__(self, to: str, schema: Schema, invalidations: Invalidations) -> None:
        self._to, self._schema, self._invalidations = to, schema, invalidations
        self._listening: asyncio.Task[None] | None = None
        self._pauses = Pauses(CONNECT_BACKOFF)
        invalidations.distrust()

    def start(self) -> None:
        """Begin; until it is connected, caches are not used."""
        self._listening = asyncio.create_task(self._keep_listening())

    async def close(self) -> None:
        """Hear no more."""
        if self._listening is None:
            return
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening
        self._listening = None

    async def _keep_listening(self) -> None:
        said = ""
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError) as error:
                if reason(error) != said:
                    said = reason(error)
                    logger.warning("registry.not_listening", reason=said)
            except Exception:  # a defect must not end the listening for good
                logger.exception("registry.not_listening")
            await asyncio.sleep(self._pauses.next())

    async def _listen(self) -> None:
        connection = await connect(self._to)
        try:
            with limited(connection, LISTENING_SILENCE_SECONDS):
                await connection.execute("SELECT pg_advisory_lock_shared(%s)", (self._schema.serving,))
                await connection.execute(f"LISTEN {self._schema.channel}")
            self._invalidations.forget_all()  # what was said before is not known
            logger.info("registry.listening")
            self._pauses.reset()
            while True:
                sent = time.monotonic()
                with limited(connection, LISTENING_SILENCE_SECONDS):
                    await connection.execute("SELECT 1")
                self._invalidations.trust(sent + TRUST_SECONDS)
                # Notifications that came in with the answer are applied now, before anything else runs.
                async for said in connection.notifies(timeout=PROBE_SECONDS):
                    forget = Invalidation.read(said.payload)
                    if forget is None:
                        self._invalidations.forget_all()
                    else:
                        self._invalidations.apply([forget])
        finally:
            self._invalidations.distrust()
            await connection.close()


RETRY_BACKOFF = Backoff(0.005, 0.2, jitter=(0.0, 1.0))  # seconds; calls in each other's way get out of it


class Passing(Exception):
    """Raised by an attempt that may well succeed in a moment; its cause says why."""

    def __init__(self, *, away: bool, since: float, made: bool = True) -> None:
        super().__init__("the database is away" if away else "others are in the way")
        self.made = made  # False: it was left off, because another had met a database that is away
        self.away = away  # whether the database did not answer, rather than that others were in the way
        self.since = since  # when the attempt began to be made: a moment of `time.monotonic`


class Patience:
    """Tries again what fails for a moment."""

    def __init__(self, seconds: float = CALL_SECONDS) -> None:
        self._seconds = seconds
        self._one_asks = asyncio.Lock()
        self.away: Passing | None = None  # the first sign that the database is away

    def note(self, failure: Passing) -> None:
        """Note what a failure shows; from any thread, so that those who wait for one do not fail in the same way."""
        if failure.made:
            self.away = (self.away or failure) if failure.away else None

    async def keep_trying(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """Return the result of `attempt` once it raises no `Passing`; raise `RegistryUnavailable` when time is over.

        Its argument says whether it is the attempt for all, which is made although the database is away.
        """
        began = time.monotonic()
        failure = self.away
        if failure is None:
            try:
                return await self._made(attempt, asks=False)
            except Passing as error:
                failure = error
        elif began - failure.since > self._seconds:
            # Try a database that has been away for long, unless another call does; do not wait.
            if not self._one_asks.locked():
                async with self._one_asks:
                    with contextlib.suppress(Passing):
                        return await self._made(attempt, asks=True)
            raise RegistryUnavailable from failure.__cause__  # not logged: calls that waited before did it
        try:
            async with asyncio.timeout(max(began, failure.since) + self._seconds - time.monotonic()):
                pauses = Pauses(RETRY_BACKOFF)
                while True:
                    await asyncio.sleep(pauses.next())
                    with contextlib.suppress(Passing):
                        return await self._in_turn(attempt)
        except TimeoutError:
            failure = self.away or failure
            raise unavailable(failure.__cause__ or failure) from failure.__cause__

    async def _in_turn(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        if self.away is not None:
            async with self._one_asks:
                if self.away is not None:
                    return await self._made(attempt, asks=True)
        return await self._made(attempt, asks=False)

    async def _made(self, attempt: Callable[[bool], Awaitable[T]], *, asks: bool) -> T:
        """Make an attempt, and note its result: a database that responds, also with an error, is not away."""
        try:
            value = await attempt(asks)
        except Passing as error:
            self.note(error)
            raise
        except RegistryUnavailable:
            raise
        except Exception:
            self.away = None
            raise
        self.away = None
        return value
