"""Connections to PostgreSQL for threads: none waits long for a server that is silent, and each takes every text."""

import contextlib
import math
from collections.abc import Iterator
from typing import TypeVar

import psycopg
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg.types.string import StrDumperUnknown
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import ExceptionContext

from ams.storage.database.schema import driver_error
from ams.storage.postgresql import STATEMENT_SECONDS, is_passing, keeps_connection

T = TypeVar("T")

LOCK_SECONDS = 2.0
"""How long a statement may wait for a row another transaction holds."""
IDLE_SECONDS = 5.0
"""How long a transaction may do nothing: a node that was stopped must not hold up the others."""
READING_SECONDS = 60.0
"""The same for a transaction that only reads, which blocks no other: a long list takes a busy node seconds."""
SILENCE_SECONDS = STATEMENT_SECONDS + 0.5
"""After this the server is not asked again: it has not even said that a statement took too long."""

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
        take_any_text(connection)
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
    event.listen(engine, "begin", _begin)
    event.listen(engine, "handle_error", _note_loss)
    return engine


@contextlib.contextmanager
def without_limits(connection: Connection) -> Iterator[None]:
    """Let the rest of a transaction take as long as it takes."""
    with _silent_for(connection, math.inf):
        connection.execute(_NO_LIMITS)
        yield


@contextlib.contextmanager
def more_time(connection: Connection, seconds: float) -> Iterator[None]:
    """Let each statement of the rest of a transaction take so long."""
    with _silent_for(connection, seconds + 0.5):
        connection.execute(_MORE_TIME, {"milliseconds": f"{seconds * 1000:.0f}"})
        yield


@contextlib.contextmanager
def _silent_for(connection: Connection, seconds: float) -> Iterator[None]:
    watched = connection.connection.driver_connection
    assert isinstance(watched, Watched)
    watched.silence = seconds
    try:
        yield
    finally:
        watched.silence = SILENCE_SECONDS


def _begin(connection: Connection) -> None:
    begin = connection.get_execution_options().get("begin")
    if begin:
        connection.exec_driver_sql(begin)


def _note_loss(context: ExceptionContext) -> None:
    """Have connections given up that are of no use any more, also when they lead to what is a standby by now."""
    error = driver_error(context.original_exception)
    if is_passing(error) and not keeps_connection(error):
        context.is_disconnect = True


ESCAPE = "\x1a"
"""PostgreSQL takes no NUL; clients may send one, and SQLite keeps it. It is written as `ESCAPE 0`, and `ESCAPE` (a
control character of the same kind) as `ESCAPE 1`. Equal texts stay equal and different ones different, so the database
compares and finds them as before."""
_ESCAPE_BYTE = ESCAPE.encode()


def escaped(text: str) -> str:
    """Write a text as the database keeps it."""
    return text.replace(ESCAPE, ESCAPE + "1").replace("\x00", ESCAPE + "0")


def unescaped(text: str) -> str:
    """Read a text the database kept."""
    return text.replace(ESCAPE + "0", "\x00").replace(ESCAPE + "1", ESCAPE)


class TextDumper(StrDumperUnknown):
    """Writes the texts of statements."""

    def dump(self, obj: str) -> Buffer | None:
        """Write one text."""
        return super().dump(escaped(obj) if "\x00" in obj or ESCAPE in obj else obj)


class TextReader(Loader):
    """Reads the texts of rows."""

    def load(self, data: Buffer) -> str:
        """Read one text."""
        kept = bytes(data)
        return unescaped(kept.decode()) if _ESCAPE_BYTE in kept else kept.decode()


def take_any_text(connection: psycopg.Connection[TupleRow]) -> None:
    """Have a connection take every text."""
    connection.adapters.register_dumper(str, TextDumper)
    for kind in ("text", "varchar"):
        connection.adapters.register_loader(kind, TextReader)
