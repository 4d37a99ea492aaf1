"""The database on PostgreSQL: transactions in threads, waiting for an unavailable server, changes of other nodes.

Writes are serializable: they have the same result as one after the other, as on SQLite, and one of two conflicting
writes is retried. Calls wait for a lost server (`Patience`). A commit without an answer is looked up, not repeated:
each transaction writes a unique mark to a table. When the transaction is surely no longer running, the mark tells
whether it was committed. The transaction id alone is not enough: a promoted standby may not know the transaction, and
may assign its id again.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

import psycopg
from psycopg import errors
from sqlalchemy import Connection, Engine, create_engine, delete, event, func, insert, select, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from ams.core.backoff import Backoff, Pauses
from ams.core.errors import OUTCOME_UNKNOWN, RegistryUnavailable, Unusable
from ams.core.names import new_uuid
from ams.storage import postgresql
from ams.storage.database.invalidation import Invalidation, Invalidations
from ams.storage.database.schema import DatabaseSchema, Work, broken_rule, driver_error, in_thread, logger, unavailable
from ams.storage.postgresql import CALL_SECONDS, ThreadConnection, is_passing, keeps_connection, limit_time, reason

T = TypeVar("T")

READERS, WRITERS, PUTTERS = 4, 2, 2
"""Threads, with a connection each. More concurrent writers cause more conflicts."""
BACKOFF = Backoff(0.001, 0.1, jitter=(0.5, 1.0))  # seconds before a retry in the thread
RETRY_BACKOFF = Backoff(0.005, 0.2, jitter=(0.0, 1.0))  # seconds before a retry on the event loop
WRITES_BETWEEN_PRUNINGS = 1_000  # old marks are deleted once per so many writes
READING_SECONDS = 60.0  # idle timeout of a read-only transaction: a busy node may take seconds for a long list
LARGE_SECONDS = 60.0  # timeout of a statement in a large write: a project may have hundreds of thousands of rows
MAX_ALONE_CHECKS = 10

_AUTOCOMMIT = ""
_BEGIN_READ = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
    f" SET LOCAL idle_in_transaction_session_timeout = {READING_SECONDS * 1000:.0f}"
)
_BEGIN_WRITE = "BEGIN ISOLATION LEVEL SERIALIZABLE"
_BEGIN_IN_TURN = "BEGIN"  # not serializable: after waiting for the lock it must see the previous holder's changes
_LOCK_TABLES = text(f"SELECT pg_advisory_xact_lock({0x616D735F72656769})")  # "ams_regi" in ASCII
# The server ends a transaction that idles for a second with this lock, as others wait for it.
_TURN = text("SELECT set_config('idle_in_transaction_session_timeout', '1000', true), pg_advisory_xact_lock(:turn)")
_TRY_ALONE = text("SELECT pg_try_advisory_xact_lock(:serving)")
_NOTIFY = text("SELECT pg_notify(:channel, :payload)")
_TRANSACTION_ID = text("SELECT CAST(pg_current_xact_id() AS text)")
_TRANSACTION_STATE = text("SELECT pg_xact_status(CAST(CAST(:number AS text) AS xid8))")
_NO_LIMITS = text(
    "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true),"
    " set_config('idle_in_transaction_session_timeout', '0', true)"
)
_SET_TIMEOUT = text("SELECT set_config('statement_timeout', :milliseconds, true)")

_LOCKED_BY_OTHERS = RuntimeError("a node makes or migrates tables, or an import or export is at work")


class CommitAttempt(NamedTuple, Generic[T]):
    """A transaction whose commit was sent."""

    mark: str
    number: str
    result: T  # of its work


class Write(Generic[T]):
    """State of a write over all its attempts; it is committed at most once."""

    def __init__(self, work: Work[T], forgets: Sequence[Invalidation], *, large: bool) -> None:
        self.work, self.forgets, self.large = work, forgets, large
        self.asked: CommitAttempt[T] | None = None  # attempt that may be committed
        self.refused = False  # an attempt violated a constraint
        self.running = False  # an attempt is running; it continues if the caller is cancelled


class PostgresStore:
    """Runs work against a server, or against the primary of several."""

    def __init__(self, url: str, schema: DatabaseSchema, password: str, invalidations: Invalidations) -> None:
        self._schema = schema
        try:
            self._to = to = postgresql.conninfo(url, password)
        except ValueError as error:
            raise Unusable(f"{schema.what} is {error}") from None
        self._engine = engine_to(to, READERS + WRITERS + PUTTERS)
        self._patience = Patience()
        self._listener = Listener(to, schema, invalidations)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="registry-reader")
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="registry-writer")
        self._putters = ThreadPoolExecutor(PUTTERS, thread_name_prefix="registry-putter")
        self._writes = 0
        # Longer than the outcome of any transaction can be unknown.
        is_old = schema.outcomes.c.made_at < func.now() - text("interval '1 hour'")
        self._pruning = delete(schema.outcomes).where(is_old)

    async def run_long(self, work: Work[T], *, waits: bool) -> T:
        """Run work as `Database.run_long` does; without `waits` it waits for the lock for `LOCK_SECONDS`."""
        try:
            await postgresql.require_sessions(self._to)
        except psycopg.Error as error:
            raise RegistryUnavailable from error

        def after_others(connection: Connection) -> T:
            if connection.scalar(text("SHOW server_encoding")) != "UTF8":
                raise Unusable(f"the {self._schema.what}'s database must have the encoding UTF8")
            if not waits:
                try:
                    connection.execute(_LOCK_TABLES)  # the lock is reentrant
                except DBAPIError as error:
                    if not isinstance(error.orig, errors.LockNotAvailable):
                        raise
                    raise RegistryUnavailable from _LOCKED_BY_OTHERS
            with more_time(connection):
                connection.execute(_LOCK_TABLES)
                return work(connection)

        try:
            return await in_thread(self._writers, self._execute, after_others, _BEGIN_IN_TURN)
        except TransientFailure as passing:
            raise RegistryUnavailable from passing.__cause__  # the caller logs it

    async def read(self, work: Work[T]) -> T:
        return await self._in_pool(self._readers, self._execute, work, _BEGIN_READ)

    async def put(self, work: Work[T], *, grows: bool = False, turn: int | None = None) -> T:
        if turn is None:
            return await self._in_pool(self._putters, self._execute, work, _AUTOCOMMIT)

        def after_others(connection: Connection) -> T:
            connection.execute(_TURN, {"turn": turn})
            return work(connection)

        return await self._in_pool(self._putters, self._execute, after_others, _BEGIN_IN_TURN)

    async def write(self, work: Work[T], forgets: Sequence[Invalidation], *, large: bool, grows: bool) -> T:
        """Run work, commit it once, and invalidate caches of other nodes. Ignores `grows`: the disk is the server's."""
        write = Write(work, forgets, large=large)
        try:
            return await self._in_pool(self._writers, self._commit, write)
        except RegistryUnavailable as error:
            if not write.running and write.asked is None:
                raise
            raise RegistryUnavailable(OUTCOME_UNKNOWN) from error

    async def alone(self, work: Work[T]) -> T:
        served = {"serving": self._schema.serving}
        await self._listener.close()
        for _ in range(MAX_ALONE_CHECKS):  # the server notices closed connections, also ours, with a delay
            if await self.put(lambda connection: connection.scalar(_TRY_ALONE, served)):
                break
            await asyncio.sleep(0.1)

        def require_alone(connection: Connection) -> T:
            if not connection.scalar(_TRY_ALONE, served):
                raise Unusable(f"other services use this {self._schema.what}; stop them first")
            return work(connection)

        return await self.write(require_alone, (), large=True, grows=False)

    async def require_room(self) -> None:
        """Do nothing: the disk is the server's."""

    async def listen(self) -> None:
        self._listener.start()

    async def close(self) -> None:
        await self._listener.close()
        await asyncio.to_thread(self._close)  # one call, which completes even if the caller is cancelled

    async def _in_pool(self, pool: ThreadPoolExecutor, function: Callable[..., T], *given: object) -> T:
        return await self._patience.keep_trying(lambda asks: in_thread(pool, self._attempt, asks, function, *given))

    # The methods below run in threads.

    def _close(self) -> None:
        for pool in (self._readers, self._writers, self._putters):
            pool.shutdown()
        self._engine.dispose()

    def _attempt(self, asks: bool, function: Callable[..., T], *given: object) -> T:
        """Make an attempt, and retry after conflicts, unless the database is unavailable."""
        away = self._patience.away
        if away is not None and not asks:
            raise TransientFailure(away=True, since=away.since, made=False) from away.__cause__
        began, pauses = time.monotonic(), Pauses(BACKOFF)
        while True:
            try:
                return function(*given)
            except TransientFailure as passing:
                self._patience.note(passing)
                if passing.away:
                    raise
                if time.monotonic() - began > CALL_SECONDS:
                    raise TransientFailure(away=False, since=began) from passing.__cause__
            time.sleep(pauses.next())

    def _execute(self, work: Work[T], begin: str) -> T:
        with _translate_errors(self._schema), self._connect(begin) as connection, connection.begin():
            return work(connection)

    def _commit(self, write: Write[T]) -> T:
        write.running = True
        try:
            return self._commit_once(write)
        finally:
            write.running = False

    def _commit_once(self, write: Write[T]) -> T:
        before = write.asked
        if before is not None and self._execute(lambda connection: self._is_committed(connection, before), _AUTOCOMMIT):
            return before.result
        write.asked = None
        with (
            _translate_errors(self._schema, write),
            self._connect(_BEGIN_WRITE) as connection,
            connection.begin() as transaction,
        ):
            with more_time(connection, LARGE_SECONDS) if write.large else contextlib.nullcontext():
                result = write.work(connection)
            for forget in write.forgets:
                connection.execute(_NOTIFY, {"channel": self._schema.channel, "payload": forget.text()})
            # The mark is the last statement: without it no commit was sent.
            asked = CommitAttempt(new_uuid(), connection.execute(_TRANSACTION_ID).scalar_one(), result)
            connection.execute(insert(self._schema.outcomes).values(id=asked.mark))
            write.asked = asked
            transaction.commit()
        self._writes += 1
        if self._writes % WRITES_BETWEEN_PRUNINGS == 0:
            with contextlib.suppress(TransientFailure, RegistryUnavailable):
                self._execute(lambda connection: connection.execute(self._pruning), _AUTOCOMMIT)
        return result

    def _connect(self, begin: str) -> Connection:
        return self._engine.connect().execution_options(begin=begin)

    def _is_committed(self, connection: Connection, asked: CommitAttempt[T]) -> bool:
        """Return whether an attempt was committed. Raises `TransientFailure` while it is still running."""
        try:
            if connection.scalar(_TRANSACTION_STATE, {"number": asked.number}) == "in progress":
                raise TransientFailure(away=False, since=time.monotonic())
        except DBAPIError as error:
            if not isinstance(error.orig, errors.InvalidParameterValue):  # a transaction id in the future
                raise
        outcomes = self._schema.outcomes
        return connection.scalar(select(outcomes.c.id).where(outcomes.c.id == asked.mark)) is not None


@contextlib.contextmanager
def _translate_errors(schema: DatabaseSchema, write: Write[T] | None = None) -> Iterator[None]:
    """Translate the driver's errors into ours, or into `TransientFailure` if a retry may succeed.

    A violated constraint is reported at the second attempt: the first may have met a row committed after its snapshot.
    """
    began = time.monotonic()
    try:
        yield
    except DBAPIError as error:
        cause = driver_error(error)
        if is_passing(cause):
            raise TransientFailure(away=not keeps_connection(cause), since=began) from error
        if not isinstance(error, IntegrityError):
            raise unavailable(error) from error
        if write is not None and not write.refused:
            write.refused = True
            raise TransientFailure(away=False, since=began) from error
        is_foreign, name = isinstance(cause, errors.ForeignKeyViolation), cause.diag.constraint_name or ""
        raise broken_rule(error, schema, foreign=is_foreign, constraint=name) from error
    except SQLAlchemyError as error:
        raise unavailable(error) from error


def engine_to(to: str, connections: int) -> Engine:
    """Return an engine with at most `connections`; the execution option `begin` of a connection starts transactions."""
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: postgresql.connect_thread(to),
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
        """Discard unusable connections, also those to a server that became a standby."""
        error = driver_error(context.original_exception)
        if is_passing(error) and not keeps_connection(error):
            context.is_disconnect = True

    return engine


@contextlib.contextmanager
def more_time(connection: Connection, seconds: float = math.inf) -> Iterator[None]:
    """Raise the statement timeout for the rest of a transaction; by default remove it and the lock timeout."""
    link = connection.connection.driver_connection
    assert isinstance(link, ThreadConnection)
    link.silence = seconds + 0.5
    try:
        if seconds == math.inf:
            connection.execute(_NO_LIMITS)
        else:
            connection.execute(_SET_TIMEOUT, {"milliseconds": f"{seconds * 1000:.0f}"})
        yield
    finally:
        link.silence = postgresql.SILENCE_SECONDS


class TransientFailure(Exception):
    """An attempt failed and a retry may succeed; the cause says why."""

    def __init__(self, *, away: bool, since: float, made: bool = True) -> None:
        super().__init__("the database is away" if away else "others are in the way")
        self.made = made  # False: skipped, because another attempt found the database unavailable
        self.away = away  # True: the database did not answer; False: a conflict
        self.since = since  # start of the attempt (`time.monotonic`)


class Patience:
    """Retries transient failures for `CALL_SECONDS` per call, with a circuit breaker.

    While the database is unavailable, only one call at a time tries it; the others continue when it gets an answer. So
    waiting calls occupy no threads. After `CALL_SECONDS` of unavailability calls fail at once. While the database
    works, calls wait for a free thread without limit.
    """

    def __init__(self, seconds: float = CALL_SECONDS) -> None:
        self._seconds = seconds
        self._probe_lock = asyncio.Lock()
        self.away: TransientFailure | None = None  # first failure since the database is unavailable

    def note(self, failure: TransientFailure) -> None:
        """Note a failure, so that calls that wait for a thread do not try in vain. Thread safe."""
        if failure.made:
            self.away = (self.away or failure) if failure.away else None

    async def keep_trying(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """Retry `attempt` until it raises no `TransientFailure`; raise `RegistryUnavailable` on timeout.

        Its argument is True for the one attempt that probes an unavailable database.
        """
        began = time.monotonic()
        failure = self.away
        if failure is None:
            try:
                return await self._make_attempt(attempt, asks=False)
            except TransientFailure as error:
                failure = error
        elif began - failure.since > self._seconds:
            # Probe a database that is unavailable for long, unless another call does; do not wait.
            if not self._probe_lock.locked():
                async with self._probe_lock:
                    with contextlib.suppress(TransientFailure):
                        return await self._make_attempt(attempt, asks=True)
            raise RegistryUnavailable from failure.__cause__  # earlier calls logged it
        try:
            async with asyncio.timeout(max(began, failure.since) + self._seconds - time.monotonic()):
                pauses = Pauses(RETRY_BACKOFF)
                while True:
                    await asyncio.sleep(pauses.next())
                    with contextlib.suppress(TransientFailure):
                        return await self._in_turn(attempt)
        except TimeoutError:
            failure = self.away or failure
            raise unavailable(failure.__cause__ or failure) from failure.__cause__

    async def _in_turn(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        if self.away is not None:
            async with self._probe_lock:
                if self.away is not None:
                    return await self._make_attempt(attempt, asks=True)
        return await self._make_attempt(attempt, asks=False)

    async def _make_attempt(self, attempt: Callable[[bool], Awaitable[T]], *, asks: bool) -> T:
        """Make an attempt and note its result: a database that answers, even with an error, is available."""
        try:
            value = await attempt(asks)
        except TransientFailure as error:
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
TRUST_SECONDS = 1.0  # caches may be used for so long after sending an answered probe
LISTENING_SILENCE_SECONDS = 2.0  # timeout of a probe, after which the connection is replaced


class Listener:
    """Applies cache invalidations of other nodes.

    It probes its connection periodically. Notifications sent before the answer to a probe arrive before it, so caches
    may be used for `TRUST_SECONDS` from sending an answered probe. A lost or silent connection disables the caches, and
    each read goes to the database until the connection is back.
    """

    def __init__(self, to: str, schema: DatabaseSchema, invalidations: Invalidations) -> None:
        self._to, self._schema, self._invalidations = to, schema, invalidations
        self._listening: asyncio.Task[None] | None = None
        self._pauses = Pauses(postgresql.RECONNECT_BACKOFF)
        invalidations.validity.until = -math.inf

    def start(self) -> None:
        """Start to listen; caches are disabled until it is connected."""
        self._listening = asyncio.create_task(self._keep_listening())

    async def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _keep_listening(self) -> None:
        said = ""
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError) as error:
                if reason(error) != said:
                    said = reason(error)
                    logger.warning("registry.not_listening", reason=said)
            except Exception:  # a defect must not stop the listener
                logger.exception("registry.not_listening")
            await asyncio.sleep(self._pauses.next())

    async def _begin(self, connection: postgresql.Connection) -> None:
        await connection.execute("SELECT pg_advisory_lock_shared(%s)", (self._schema.serving,))
        await connection.execute(f"LISTEN {self._schema.channel}")

    async def _listen(self) -> None:
        connection = await postgresql.connect(self._to, self._begin)
        try:
            self._invalidations.forget_all()  # earlier notifications were missed
            logger.info("registry.listening")
            self._pauses.reset()
            while True:
                sent = time.monotonic()
                with limit_time(connection, LISTENING_SILENCE_SECONDS):
                    await connection.execute("SELECT 1")
                self._invalidations.validity.until = sent + TRUST_SECONDS
                # Notifications received with the answer are applied now, before any other task runs.
                async for said in connection.notifies(timeout=PROBE_SECONDS):
                    forget = Invalidation.read(said.payload)
                    if forget is None:
                        self._invalidations.forget_all()
                    else:
                        self._invalidations.apply([forget])
        finally:
            self._invalidations.validity.until = -math.inf
            await connection.close()
