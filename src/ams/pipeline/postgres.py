"""Idempotent writes of batches and results to tables in PostgreSQL.

Each Spark task writes in one transaction: a killed task leaves nothing, and a retry writes the same rows. Rows of one
key are in one task, which writes them in key order, so two attempts cannot deadlock.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Composed, Identifier
from psycopg.types.json import Jsonb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ams.core.backoff import Backoff, Pauses
from ams.pipeline.errors import PipelineError, WrongOption, WrongTable
from ams.storage.postgresql import conninfo, is_passing, reason

VARIABLE = "AMS_PIPELINE_DATABASE"
PATIENCE_SECONDS = 60.0  # total wait for an unreachable database before a task fails; Spark retries the task
_BACKOFF = Backoff(0.2, 5.0)  # seconds between two tries to connect
_REFUSALS = ("password", "does not exist", "pg_hba.conf", "permission denied", "is not permitted to log in")
_ERROR_CHARACTERS = 200

Session = psycopg.Connection[TupleRow]
Rows = Iterator[pa.RecordBatch]
Write = Callable[[Session, Rows], int]  # writes a task's rows in one transaction, returns their number; picklable


def address(option: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the connection string of the database that the option `database` or the environment names.

    It may hold a password: never log or store it. Raises `WrongOption`, also for a password in the option.
    """
    given = option or environ.get(VARIABLE, "")
    if not given:
        raise WrongOption("database", f"say postgresql://USER@HOST:PORT/DATABASE, or set {VARIABLE}")
    try:
        complete = conninfo(given)
    except ValueError as error:
        raise WrongOption("database", str(error)) from error
    if option and "password" in conninfo_to_dict(option):
        raise WrongOption("database", f"leave the password out: use PGPASSWORD, a password file, or {VARIABLE}")
    return complete


@contextlib.contextmanager
def open_session(to: str, patience: float = PATIENCE_SECONDS) -> Iterator[Session]:
    """Connect to a database; wait up to `patience` seconds if it is unreachable. Raises `PipelineError`."""
    give_up, pauses = time.monotonic() + patience, Pauses(_BACKOFF)
    connection = None
    while connection is None:
        try:
            connection = psycopg.connect(to, prepare_threshold=None)  # a pooler may be in between
        except psycopg.OperationalError as error:
            refused = any(part in str(error) for part in _REFUSALS) and "starting up" not in str(error)
            pause = pauses.next()
            if refused or time.monotonic() + pause > give_up:
                raise PipelineError(f"the database cannot be used: {_in_short(error)}") from error
            time.sleep(pause)
    with contextlib.closing(connection):
        yield connection


def write(frame: DataFrame, to: str, by: Sequence[str], each: Write) -> int:
    """Write rows with `each`, rows of the same `by` in one task; return their number. Raises `PipelineError`."""
    parts = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or "2")

    def write_part(rows: Rows) -> Rows:
        with open_session(to) as connection, map_errors("the database"), connection.transaction():
            written = each(connection, rows)
        yield pa.RecordBatch.from_pydict({"written": [written]}, schema=pa.schema([("written", pa.int64())]))

    counts = frame.repartition(parts, *by).mapInArrow(write_part, "written bigint")
    return int(counts.agg(F.coalesce(F.sum("written"), F.lit(0))).first()[0])  # type: ignore[index]  # always one row


@contextlib.contextmanager
def map_errors(table: str) -> Iterator[None]:
    """Turn the driver's errors into `PipelineError` if they are temporary, else `WrongTable`."""
    try:
        yield
    except psycopg.Error as error:
        if is_passing(error):
            raise PipelineError(f"the database went away: {_in_short(error)}") from error
        raise WrongTable(f"{table} cannot be written: {_in_short(error)}") from error


def upsert(frame: DataFrame, to: str, table: str, key: Sequence[str]) -> int:
    """Insert rows into a table, or update rows of the same `key`; return how many changed.

    The frame has one row per key. `table` is `name` or `schema.name`. Raises `WrongTable` if the table does not fit,
    and `PipelineError` if the database stays unreachable.
    """
    columns = list(frame.columns)
    with open_session(to) as connection:
        check_table(connection, table, columns, key)

    def put(connection: Session, rows: Rows) -> int:
        shape, merge = _statements(table, columns, key)
        with map_errors(f"table {table}"), connection.cursor() as cursor:
            load(cursor, shape, columns, rows)
            return cursor.execute(merge).rowcount

    return write(frame, to, key, put)


def _statements(table: str, columns: Sequence[str], key: Sequence[str]) -> tuple[Composed, Composed]:
    def join_names(names: Sequence[str], of: str = "") -> Composed:
        return SQL(", ").join(Identifier(of, name) if of else Identifier(name) for name in names)

    rest = [name for name in columns if name not in key]
    merge = "INSERT INTO {table} AS kept ({columns}) SELECT {columns} FROM incoming ORDER BY {key} "
    merge += "ON CONFLICT ({key}) DO "
    merge += "UPDATE SET ({rest}) = ROW({new}) WHERE ({old}) IS DISTINCT FROM ({new})" if rest else "NOTHING"
    words = {
        "table": identifier(table),
        "columns": join_names(columns),
        "key": join_names(key),
        "rest": join_names(rest),
        "old": join_names(rest, "kept"),
        "new": join_names(rest, "excluded"),
    }
    return SQL("SELECT {columns} FROM {table}").format(**words), SQL(merge).format(**words)


def check_table(connection: Session, table: str, columns: Sequence[str], key: Sequence[str]) -> None:
    """Raise `WrongTable` unless a table has these columns, and a primary key or unique index of exactly `key`."""
    words = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
    there = {name for (name,) in connection.execute(words, (identifier(table).as_string(),))}
    if not there:
        raise WrongTable(f"there is no table {table} in the database, or it is not ours to see")
    missing = [column for column in columns if column not in there]
    if missing:
        raise WrongTable(f"table {table} has no column {', '.join(missing)}")
    words = """
        SELECT (SELECT array_agg(attname::text) FROM pg_attribute
                WHERE attrelid = indrelid AND attnum = ANY((indkey::int2[])[0:indnkeyatts - 1]))
        FROM pg_index
        WHERE indrelid = to_regclass(%s) AND indisunique AND indpred IS NULL AND indexprs IS NULL
    """
    if set(key) not in [set(names) for (names,) in connection.execute(words, (identifier(table).as_string(),))]:
        of = ", ".join(key)
        raise WrongTable(f"table {table} has no primary key or unique index of ({of}), so rows would be doubled")


def load(cursor: psycopg.Cursor[TupleRow], shape: SQL | Composed, columns: Sequence[str], rows: Rows) -> None:
    """Copy rows into a temporary table `incoming`, with the columns and types of the query `shape`."""
    names = SQL(", ").join(map(Identifier, columns))
    cursor.execute(SQL("CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS {} WITH NO DATA").format(shape))
    with cursor.copy(SQL("COPY incoming ({}) FROM STDIN").format(names)) as copy:
        for batch in rows:
            for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                copy.write_row([Jsonb(value) if isinstance(value, dict) else value for value in row])


def identifier(table: str) -> Identifier:
    """Return the quoted name of a table, given as `name` or `schema.name`."""
    return Identifier(*table.split("."))


def _in_short(error: BaseException) -> str:
    diagnosis = getattr(error, "diag", None)
    said = (diagnosis and diagnosis.message_primary) or reason(error)
    return str(said)[:_ERROR_CHARACTERS]
