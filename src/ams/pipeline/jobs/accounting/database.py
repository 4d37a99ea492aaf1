"""Results in PostgreSQL: a table for each, whose months are replaced whole, as the files are.

Groups come and go when records come late (a machine that ran is now completed), so a month's rows are deleted and
written in one transaction: readers see the old month or the new one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from ams.pipeline.jobs.accounting import columns
from ams.pipeline.postgres import Rows, address, connected, identifier, load, told, write

if TYPE_CHECKING:
    from ams.pipeline.postgres import Session

TABLES: Final[Mapping[str, StructType]] = {
    name: schema for name, schema in columns.RESULTS.items() if name != "machines"
}
"""The results that go there, each into the table `accounting_` and its name, with the same columns."""

TYPES: Final = {"string": "text", "bigint": "bigint", "timestamp": "timestamptz", "decimal(10,3)": "numeric(10, 3)"}
"""Types of PostgreSQL by those of Spark; arrays and structs are kept as `jsonb`."""


def prepared(database: str) -> str:
    """Make the tables and columns that are missing, and return the connection string.

    Raises `WrongOption` for a URL that cannot be read and `PipelineError` for a database that cannot be used.
    """
    from psycopg.sql import SQL, Identifier

    to = address(database)
    with connected(to) as connection, told("the tables of accounting"), connection.transaction():
        for name, schema in TABLES.items():
            table, index = Identifier(f"accounting_{name}"), Identifier(f"accounting_{name}_month")
            connection.execute(SQL("CREATE TABLE IF NOT EXISTS {} ()").format(table))
            there = {each.name for each in connection.execute(SQL("TABLE {} LIMIT 0").format(table)).description or ()}
            for field in (each for each in schema if each.name not in there):
                column, kind = Identifier(field.name), SQL(TYPES.get(field.dataType.simpleString(), "jsonb"))
                connection.execute(SQL("ALTER TABLE {} ADD COLUMN {} {}").format(table, column, kind))
            connection.execute(SQL("CREATE INDEX IF NOT EXISTS {} ON {} (month, site)").format(index, table))
    return to


def replace(frame: DataFrame, to: str, name: str) -> int:
    """Put the rows of a result in the place of those of the same months; return how many there are now."""
    table, names = f"accounting_{name}", TABLES[name].names
    nested = [each.name for each in TABLES[name] if isinstance(each.dataType, ArrayType | StructType)]

    def put(connection: "Session", rows: Rows) -> int:
        from psycopg.sql import SQL, Identifier

        into = {"table": identifier(table), "columns": SQL(", ").join(map(Identifier, names))}
        with told(f"table {table}"), connection.cursor() as cursor:
            load(cursor, SQL("SELECT {columns} FROM {table}").format(**into), names, rows)
            cursor.execute(SQL("DELETE FROM {table} WHERE month IN (SELECT month FROM incoming)").format(**into))
            cursor.execute(SQL("INSERT INTO {table} ({columns}) SELECT {columns} FROM incoming").format(**into))
            return cursor.rowcount

    return write(frame.select(*names).withColumns({each: F.to_json(each) for each in nested}), to, ["month"], put)
