"""The tables of the cursor store, made by the first node that opens it.

They are apart from the registry's, though in the same database: SQLite has them in a file of their own, and nothing in
the registry refers to them.
"""

from typing import TYPE_CHECKING

import psycopg

from ams.core.errors import Unusable
from ams.storage import postgresql

if TYPE_CHECKING:
    from ams.storage.postgresql import Connection

FORMAT = 1
"""The format of the tables that this version makes and reads."""
_LOCK = 0x616D735F63757273
"""Key of the lock under which the tables are made: "ams_curs" in ASCII."""

_TABLES = """
CREATE TABLE cursors (
    subscription text COLLATE "C" PRIMARY KEY,
    topic uuid NOT NULL,
    "offset" bigint NOT NULL,
    generation bigint NOT NULL,
    handed bigint[] NOT NULL,  -- end, time, end, time, ...: the database's milliseconds since the epoch
    lost bigint NOT NULL,
    version bigint NOT NULL
) WITH (
    -- Rows change all the time and no index does. With room in its page, a new row takes the place of older ones and
    -- the table stays as small as it is.
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
CREATE TABLE cursor_store (
    number integer PRIMARY KEY CHECK (number = 1),
    format integer NOT NULL,
    lost bigint NOT NULL  -- messages lost that no cursor tells of any more
) WITH (fillfactor = 10);
"""


async def prepare(connection: "Connection") -> None:
    """Make the tables unless they are there. Raises `Unusable` when that cannot be, or for a newer format."""
    try:
        if not await _is_there(connection):
            await _make(connection)
        found = await (await connection.execute("SELECT format FROM cursor_store")).fetchone()
    except psycopg.ProgrammingError as error:
        raise Unusable(f"the cursors' tables cannot be made in this database ({postgresql.reason(error)})") from error
    if found is None or found[0] > FORMAT:
        raise Unusable("the cursors' tables were written by a newer version; install that one")


async def _is_there(connection: "Connection") -> bool:
    # A look into the catalogue, as a name resolved (to_regclass) may be answered from before the wait for the lock.
    words = "SELECT FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'cursor_store'"
    return (await connection.execute(words)).rowcount == 1


async def _make(connection: "Connection") -> None:
    """Make the tables; of several nodes that start at once the first does."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not await _is_there(connection):
            await connection.execute(_TABLES)
            await connection.execute("INSERT INTO cursor_store VALUES (1, %s, 0)", (FORMAT,))
