"""The database on PostgreSQL: transactions in threads, waiting for a server that is away, changes of other nodes.

Writes are serializable: the database sees to it that they end as if each had run alone, as on SQLite, and has one of
two that are in each other's way run again. A server that is lost is waited for (`Patience`), and a commit that was
not answered is looked up rather than done twice: each transaction leaves a mark of its own in a table. Once the
transaction is surely not under way any more, the mark is there or it is not. Its number alone would not do: a standby
that took over may never have heard of the transaction and give its number to another.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

import psycopg
from sqlalchemy import Connection, Engine, create_engine, delete, event, func, insert, select, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from ams.core.backoff import Backoff, Pauses
from ams.core.errors import OUTCOME_UNKNOWN, RegistryUnavailable, Unusable
from ams.core.names import new_uuid
from ams.storage import postgresql
from ams.storage.database.invalidation import Invalidation, Invalidations
from ams.storage.database.schema import Schema, Work, broken_rule, driver_error, in_thread, logger, unavailable
from ams.storage.postgresql import (
    CALL_SECONDS,
    SILENCE_SECONDS,
    ThreadConnection,
    connect_thread,
    conninfo,
    is_passing,
    keeps_connection,
    limited,
    reason,
)

T = TypeVar("T")

READERS, WRITERS, PUTTERS = 4, 2, 2
"""Threads, with a connection each. The more writers work at once, the more are in each other's way."""
BACKOFF = Backoff(0.001, 0.1, jitter=(0.5, 1.0))  # seconds before an attempt is made again
RETRY_BACKOFF = Backoff(0.005, 0.2, jitter=(0.0, 1.0))  # seconds; calls in each other's way get out of it
WRITES_BETWEEN_PRUNINGS = 1_000  # after so many writes the marks of those of long ago are removed
READING_SECONDS = 60.0  # of a transaction that only reads: a long list takes a busy node seconds
LARGE_SECONDS = 60.0  # of a statement of a large write: a project goes with hundreds of thousands of rows
ASKED_ALONE = 10  # how often it is asked whether other nodes have gone

_AUTOCOMMIT = ""
_READ = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
    f" SET LOCAL idle_in_transaction_session_timeout = {READING_SECONDS * 1000:.0f}"
)
_WRITE = "BEGIN ISOLATION LEVEL SERIALIZABLE"
_IN_TURN = "BEGIN"  # not serializable: having waited for its turn it must see what the one before did

_MY_TURN = text(f"SELECT pg_advisory_xact_lock({0x616D735F72656769})")  # "ams_regi" in ASCII
# A transaction that is idle in its turn is ended within a second: others wait for theirs.
_TURN = text("SELECT set_config('idle_in_transaction_session_timeout', '1000', true), pg_advisory_xact_lock(:turn)")
_ALONE = text("SELECT pg_try_advisory_xact_lock(:serving)")
_ENCODING = text("SELECT current_setting('server_encoding')")
_NOTIFY = text("SELECT pg_notify(:channel, :payload)")
_NUMBER = text("SELECT CAST(pg_current_xact_id() AS text)")
_STATE = text("SELECT pg_xact_status(CAST(CAST(:number AS text) AS xid8))")
_NO_LIMITS = text(
    "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true),"
    " set_config('idle_in_transaction_session_timeout', '0', true)"
)
_MORE_TIME = text("SELECT set_config('statement_timeout', :milliseconds, true)")

# SQLSTATEs.
_NOT_IN_TIME = "55P03"  # a lock was not to be had in time
_FOREIGN = "23503"  # what a row refers to is not there
_NEVER_HEARD_OF = "22023"  # the number of a transaction is of one that is to come
_OTHERS_TURN = RuntimeError("a node makes or migrates tables, or an import or export is at work")


class CommitAttempt(NamedTuple, Generic[T]):
    """A transaction that was asked to commit."""

    mark: str
    number: str
    result: T  # what its work returned


class Write(Generic[T]):
    """A write that is done once, over all attempts at it."""

    def __init__(self, work: Work[T], forgets: Sequence[Invalidation], *, large: bool = False) -> None:
        self.work, self.forgets, self.large = work, forgets, large
        self.asked: CommitAttempt[T] | None = None  # the attempt that may have been committed
        self.refused = False  # whether an attempt broke a rule
        self.running = False  # an attempt is being made: it goes on when no caller waits any more


class PostgresStore:
    """Runs work against a server, or against whichever of several takes writes."""

    def __init__(self, url: str, schema: Schema, password: str, invalidations: Invalidations) -> None:
        self._schema = schema
        try:
            self._to = to = conninfo(url, password)
        except ValueError as error:
            raise Unusable(f"{schema.what} is {error}") from None
        self._engine = engine_to(to, READERS + WRITERS + PUTTERS)
        self._patience = Patience()
        self._listener = Listener(to, schema, invalidations)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="registry-reader")
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="registry-writer")
        self._putters = ThreadPoolExecutor(PUTTERS, thread_name_prefix="registry-putter")
        self._writes = 0
        # No transaction is in doubt so long.
        is_old = schema.outcomes.c.made_at < func.now() - text("interval '1 hour'")
        self._pruning = delete(schema.outcomes).where(is_old)

    async def prepare(self, work: Work[T], *, waits: bool = False) -> T:
        """Run the work that makes or migrates the tables, once: one node at a time, however long it takes.

        Raises `RegistryUnavailable`; unless it `waits`, also when others are at it for longer than `LOCK_SECONDS`.
        """
        try:
            await postgresql.require_sessions(self._to)
        except psycopg.Error as error:
            raise RegistryUnavailable from error

        def after_others(connection: Connection) -> T:
            if connection.scalar(_ENCODING) != "UTF8":
                raise Unusable(f"the {self._schema.what}'s database must have the encoding UTF8")
            if not waits:
                try:
                    connection.execute(_MY_TURN)  # it may be taken again by the transaction that has it
                except DBAPIError as error:
                    if driver_error(error).sqlstate != _NOT_IN_TIME:
                        raise
                    raise RegistryUnavailable from _OTHERS_TURN
            with more_time(connection):
                connection.execute(_MY_TURN)
                return work(connection)

        try:
            return await in_thread(self._writers, self._run, after_others, _IN_TURN)
        except Passing as passing:
            raise RegistryUnavailable from passing.__cause__  # not logged: who starts says what it waits for

    async def read(self, work: Work[T]) -> T:
        return await self._patiently(self._readers, self._run, work, _READ)

    async def put(self, work: Work[T], *, grows: bool = False) -> T:
        return await self._patiently(self._putters, self._run, work, _AUTOCOMMIT)

    async def in_turn(self, work: Work[T], turn: int) -> T:
        def after_others(connection: Connection) -> T:
            connection.execute(_TURN, {"turn": turn})
            return work(connection)

        return await self._patiently(self._putters, self._run, after_others, _IN_TURN)

    async def write(
        self, work: Work[T], forgets: Sequence[Invalidation], *, large: bool = False, grows: bool = True
    ) -> T:
        """Run work and commit it, once, and invalidate caches of other nodes. The server's disk is not looked at."""
        write = Write(work, forgets, large=large)
        try:
            return await self._patiently(self._writers, self._commit, write)
        except RegistryUnavailable as error:
            if not write.running and write.asked is None:
                raise
            raise RegistryUnavailable(OUTCOME_UNKNOWN) from error

    async def alone(self, work: Work[T]) -> T:
        served = {"serving": self._schema.serving}
        await self._listener.close()
        for _ in range(ASKED_ALONE):  # whose connection is closed, ours too, is noticed in a moment
            if await self.put(lambda connection: connection.scalar(_ALONE, served)):
                break
            await asyncio.sleep(0.1)

        def checked(connection: Connection) -> T:
            if not connection.scalar(_ALONE, served):
                raise Unusable(f"other services use this {self._schema.what}; stop them first")
            return work(connection)

        return await self.write(checked, (), large=True)

    async def require_room(self) -> None:
        """Refuse nothing: the disk of the server is not looked at from here."""

    async def listen(self) -> None:
        self._listener.start()

    async def close(self) -> None:
        await self._listener.close()
        await asyncio.to_thread(self._close)  # one call: it ends also when who waits for it is cancelled

    async def _patiently(self, pool: ThreadPoolExecutor, function: Callable[..., T], *given: object) -> T:
        return await self._patience.keep_trying(lambda asks: in_thread(pool, self._attempt, asks, function, *given))

    # In the threads.

    def _close(self) -> None:
        for pool in (self._readers, self._writers, self._putters):
            pool.shutdown()
        self._engine.dispose()

    def _attempt(self, asks: bool, function: Callable[..., T], *given: object) -> T:
        """Make an attempt, and again here when others are in the way, unless the database is away by now."""
        away = self._patience.away
        if away is not None and not asks:
            raise Passing(away=True, since=away.since, made=False) from away.__cause__
        began, pauses = time.monotonic(), Pauses(BACKOFF)
        while True:
            try:
                return function(*given)
            except Passing as passing:
                self._patience.note(passing)
                if passing.away:
                    raise
                if time.monotonic() - began > CALL_SECONDS:
                    raise Passing(away=False, since=began) from passing.__cause__
            time.sleep(pauses.next())

    def _run(self, work: Work[T], begin: str) -> T:
        with _meanings(self._schema), self._connected(begin) as connection, connection.begin():
            return work(connection)

    def _commit(self, write: Write[T]) -> T:
        write.running = True
        try:
            return self._commit_once(write)
        finally:
            write.running = False

    def _commit_once(self, write: Write[T]) -> T:
        before = write.asked
        if before is not None and self._run(lambda connection: self._is_committed(connection, before), _AUTOCOMMIT):
            return before.result
        write.asked = None
        with _meanings(self._schema, write), self._connected(_WRITE) as connection, connection.begin() as transaction:
            with more_time(connection, LARGE_SECONDS) if write.large else contextlib.nullcontext():
                result = write.work(connection)
            for forget in write.forgets:
                connection.execute(_NOTIFY, {"channel": self._schema.channel, "payload": forget.text()})
            # The mark is the last thing the transaction does. Before it is stored, no commit was asked for.
            asked = CommitAttempt(new_uuid(), connection.execute(_NUMBER).scalar_one(), result)
            connection.execute(insert(self._schema.outcomes).values(id=asked.mark))
            write.asked = asked
            transaction.commit()
        self._writes += 1
        if self._writes % WRITES_BETWEEN_PRUNINGS == 0:
            with contextlib.suppress(Passing, RegistryUnavailable):
                self._run(lambda connection: connection.execute(self._pruning), _AUTOCOMMIT)
        return result

    def _connected(self, begin: str) -> Connection:
        return self._engine.connect().execution_options(begin=begin)

    def _is_committed(self, connection: Connection, asked: CommitAttempt[T]) -> bool:
        """Say whether an attempt that was asked to commit did; raise `Passing` while that is open."""
        try:
            is_under_way = connection.scalar(_STATE, {"number": asked.number}) == "in progress"
        except DBAPIError as error:
            if driver_error(error).sqlstate != _NEVER_HEARD_OF:
                raise
            is_under_way = False
        if is_under_way:
            raise Passing(away=False, since=time.monotonic())
        outcomes = self._schema.outcomes
        return connection.scalar(select(outcomes.c.id).where(outcomes.c.id == asked.mark)) is not None


@contextlib.contextmanager
def _meanings(schema: Schema, write: Write[T] | None = None) -> Iterator[None]:
    """Turn errors of the driver into ours, or into `Passing` when another attempt may do.

    A violated constraint counts at the second attempt: the first may have met a row that came after its own begin.
    """
    began = time.monotonic()
    try:
        yield
    except DBAPIError as error:
        cause = driver_error(error)
        if is_passing(cause):
            raise Passing(away=not keeps_connection(cause), since=began) from error
        if not isinstance(error, IntegrityError):
            raise unavailable(error) from error
        if write is not None and not write.refused:
            write.refused = True
            raise Passing(away=False, since=began) from error
        name = cause.diag.constraint_name or ""
        raise broken_rule(error, schema, foreign=cause.sqlstate == _FOREIGN, constraint=name) from error
    except SQLAlchemyError as error:
        raise unavailable(error) from error


def engine_to(to: str, connections: int) -> Engine:
    """Return an engine of so many connections at most; transactions begin with the options of the connection."""
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: connect_thread(to),
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
    link = connection.connection.driver_connection
    assert isinstance(link, ThreadConnection)
    link.silence = seconds + 0.5
    try:
        if seconds == math.inf:
            connection.execute(_NO_LIMITS)
        else:
            connection.execute(_MORE_TIME, {"milliseconds": f"{seconds * 1000:.0f}"})
        yield
    finally:
        link.silence = SILENCE_SECONDS


class Passing(Exception):
    """Raised by an attempt that may well succeed in a moment; its cause says why."""

    def __init__(self, *, away: bool, since: float, made: bool = True) -> None:
        super().__init__("the database is away" if away else "others are in the way")
        self.made = made  # False: it was left off, because another had met a database that is away
        self.away = away  # whether the database did not answer, rather than that others were in the way
        self.since = since  # when the attempt began to be made: a moment of `time.monotonic`


class Patience:
    """Tries again what fails for a moment: a call that met trouble has `CALL_SECONDS` in all.

    As soon as one meets a database that is away, only one call at a time tries it; when that one gets an answer, the
    others go on. So a database that is away costs no threads, however many calls wait; once it has been away for
    `CALL_SECONDS` they do not wait any more. Where it works, a call waits for its turn as long as that takes.
    """

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


PROBE_SECONDS = 0.3  # between two probes
TRUST_SECONDS = 1.0  # how long an answered probe is good for
LISTENING_SILENCE_SECONDS = 2.0  # after this a connection is given up and made anew


class Listener:
    """Applies what other nodes say is to be forgotten.

    Its connection is probed all the time. Notifications sent before the answer to a probe have arrived with it, so from
    the sending of an answered probe the caches are used for a second, and no longer. A connection that is lost, or that
    transports nothing, thus ends the use of caches; the registry is then read each time until it is back.
    """

    def __init__(self, to: str, schema: Schema, invalidations: Invalidations) -> None:
        self._to, self._schema, self._invalidations = to, schema, invalidations
        self._listening: asyncio.Task[None] | None = None
        self._pauses = Pauses(postgresql.RECONNECT_BACKOFF)
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

    async def _begin(self, connection: postgresql.Connection) -> None:
        await connection.execute("SELECT pg_advisory_lock_shared(%s)", (self._schema.serving,))
        await connection.execute(f"LISTEN {self._schema.channel}")

    async def _listen(self) -> None:
        connection = await postgresql.connect(self._to, self._begin)
        try:
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
