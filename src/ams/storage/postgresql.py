"""PostgreSQL: how to connect, how long to wait, and which errors pass; the same for registry, cursors and pipeline.

So a lost primary looks the same from everywhere: noticed within seconds, and behind us within `CALL_SECONDS`. The
driver is loaded at its first use: without PostgreSQL it is not needed.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ams.core.errors import Unusable

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    Connection = AsyncConnection[TupleRow]

CALL_SECONDS = 8.0  # how long a call waits for PostgreSQL to come back, in all: clients give up at 10
CONNECT_SECONDS = 2  # for one server, before the next one of the list is asked; the driver takes no less
STATEMENT_SECONDS = 3.0  # ours take milliseconds: a server that is silent for so long is stopped or cut off

_DEFAULTS = {
    "application_name": "ams",
    "connect_timeout": str(CONNECT_SECONDS),
    "gssencmode": "disable",
    "target_session_attrs": "read-write",  # of several servers the one that is the primary now
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "3000",
}

_PASSING_STATES = frozenset(
    {
        "25P03",  # idle_in_transaction_session_timeout: this process stood still
        "25006",  # read_only_sql_transaction: the primary became a standby under us
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
        "53300",  # too_many_connections
        "55P03",  # lock_not_available
        "57014",  # query_canceled: it took longer than `STATEMENT_SECONDS`
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
_NO_TRANSACTIONS = "statement pooling"  # PgBouncer, asked for a transaction with pool_mode = statement
_LOOKS = 5  # a pooler hands out the session that was used last, as a rule; others may take it in between

_SESSION = """
SELECT set_config('statement_timeout', %s, false),
    CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
        THEN set_config('synchronous_commit', 'on', false) END
"""


def conninfo(url: str, password: str = "") -> str:
    """Return the connection string of a `postgresql://` URL. Raises `ValueError`, which holds nothing of the URL."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        given = {name: value for name, value in conninfo_to_dict(url).items() if value is not None}
        return make_conninfo("", **_DEFAULTS | given | ({"password": password} if password else {}))
    except ProgrammingError as error:
        raise ValueError("not a PostgreSQL URL: postgresql://USER@HOST:PORT/DATABASE") from error


async def connect(to: str) -> "Connection":
    """Connect once, in autocommit; each statement is cut off after `STATEMENT_SECONDS`. Raises `psycopg.Error`.

    Commits are answered when they are on disk, also that of a synchronous standby, whatever the server is set to.
    """
    from psycopg import AsyncConnection

    connection = await AsyncConnection.connect(to, autocommit=True)
    try:
        with limited(connection, CONNECT_SECONDS):
            await connection.execute(_SESSION, (str(round(STATEMENT_SECONDS * 1000)),))
    except BaseException:
        await connection.close()
        raise
    return connection


async def require_sessions(to: str) -> None:
    """Raise `Unusable` for a pooler that gives each transaction another session; or `psycopg.Error`.

    Settings, channels and a lock belong to sessions; without them a commit could be answered before it is on disk.
    """
    from psycopg import AsyncConnection
    from psycopg.errors import ProtocolViolation

    async with await AsyncConnection.connect(to, autocommit=True, prepare_threshold=None) as one:
        with limited(one, CONNECT_SECONDS):
            before = await _session(one)
        if before == one.info.backend_pid:  # as it was told at the beginning: nobody stands in between
            return
        async with await AsyncConnection.connect(to, autocommit=True, prepare_threshold=None) as other:
            for _ in range(_LOOKS):
                try:
                    with limited(one, CONNECT_SECONDS), limited(other, CONNECT_SECONDS):
                        async with other.transaction():
                            others, now = await _session(other), await _session(one)
                except ProtocolViolation as error:
                    if _NO_TRANSACTIONS not in str(error):  # PgBouncer says most things under this state
                        raise
                    raise Unusable(POOLED) from error
                if others == before or now != before:
                    raise Unusable(POOLED)


async def _session(connection: "Connection") -> int:
    """Return the process that serves a connection just now."""
    row = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
    return int(row[0]) if row else 0


@contextlib.contextmanager
def limited(connection: "Connection", seconds: float) -> Iterator[None]:
    """End a connection that takes longer. Nothing is cancelled: a cancelled commit could be reported as done."""
    timer = asyncio.get_running_loop().call_later(seconds, abort, connection)
    try:
        yield
    finally:
        timer.cancel()


def abort(connection: "Connection") -> None:
    """End a connection at once, in any state, also when the server does not respond."""
    if connection.closed:
        return
    with socket.socket(fileno=os.dup(connection.fileno())) as own, contextlib.suppress(OSError):
        own.shutdown(socket.SHUT_RDWR)


def is_passing(error: BaseException | None) -> bool:
    """Tell if the same may well work in a moment, here or elsewhere; the statement may have been done all the same."""
    from psycopg import InterfaceError, OperationalError

    state = getattr(error, "sqlstate", None)
    if state is None:
        return isinstance(error, (OperationalError, InterfaceError))
    return state in _PASSING_STATES or state.startswith("08")  # connection exceptions


def keeps_connection(error: BaseException) -> bool:
    """Return whether a connection is as good as before after an error that passes, and nothing was done."""
    return getattr(error, "sqlstate", None) in _KEEPS_CONNECTION


def reason(error: BaseException | None) -> str:
    """Return the first line of the driver's message; it never holds a password."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
