"""Small tables of days and numbers."""

from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path

import pyarrow as pa

from ams.tables.files import File, batch_name
from ams.tables.table import Table, open_table

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("day", pa.date32())])
QUERY = "1f0c9a7e-0000-0000-0000-000000000000"
MONDAY, TUESDAY = date(2024, 3, 4), date(2024, 3, 5)
Rows = Iterable[tuple[int, date | None]]


def table(root: Path | str) -> Table:
    return Table(str(root), SCHEMA, ("day",))


def write(table: Table, rows: Rows, name: str = "rows") -> list[File]:
    found = sorted(rows, key=lambda row: str(row[1]))
    made = pa.RecordBatch.from_pylist([{"n": n, "day": day} for n, day in found], SCHEMA)
    return table.write(name, [made] if found else [])


def append(table: Table, batch: int, rows: Rows, query: str = QUERY) -> bool:
    return table.append(query, batch, write(table, rows, batch_name(query, batch)))


def append_batches(root: Path | str, count: int, *days: date) -> None:
    for number in range(count):
        append(table(root), number, [(number, day) for day in days or (MONDAY,)])


def contents(root: Path | str) -> Counter[tuple[int, date | None]]:
    return Counter((row["n"], row["day"]) for rows in open_table(str(root)).batches() for row in rows.to_pylist())
