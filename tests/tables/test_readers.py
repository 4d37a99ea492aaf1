"""Foreign readers of Delta tables read our tables, also with odd partitions and columns added later."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ams.tables import log
from ams.tables.files import batch_name
from ams.tables.table import Table

FIRST_SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC")), ("raw", pa.binary()),
        ("day", pa.date32()), ("topic", pa.string()),
    ]
)  # fmt: skip
LATER_SCHEMA = FIRST_SCHEMA.append(pa.field("key", pa.string()))
ODD_TOPICS = [
    "plain", "a b", "100%", "k=v", "a/b", "žluť", "", None, "a%20b", "x:y", "q?z#f", "tab\t", "'q\"", "+", "\\", "..",
    "*",
]  # fmt: skip
READERS = {
    "deltalake, its own engine": lambda root: pa.table(DeltaTable(root).scan()).to_pylist(),
    "deltalake, by pyarrow": lambda root: DeltaTable(root).to_pyarrow_dataset().to_table().to_pylist(),
    "Polars": lambda root: pl.scan_delta(root).collect().to_dicts(),
    "DuckDB": lambda root: duckdb_rows(DeltaTable(root).to_pyarrow_dataset()),
}


def duckdb_rows(dataset: Any) -> list[dict[str, Any]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    found = connection.register("rows", dataset).execute("SELECT * FROM rows")
    return [dict(zip([each[0] for each in found.description], row, strict=True)) for row in found.fetchall()]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Make a table with a checkpoint, a column added later, and replaced rows."""
    monkeypatch.setattr(log, "CHECKPOINT_EVERY", 2)
    at, day = datetime(2024, 3, 5, 1, 2, 3, 456789, tzinfo=UTC), date(2024, 3, 5)
    made = []
    for batch, schema in enumerate((FIRST_SCHEMA, LATER_SCHEMA, LATER_SCHEMA)):
        table = Table(str(tmp_path), schema, ("day", "topic"))
        some = [
            {"n": batch * 100 + n, "at": at, "raw": b"\x00\xff", "day": day, "topic": topic, "key": "k"}
            for n, topic in enumerate(ODD_TOPICS)
        ]
        written = table.write(batch_name("query", batch), [pa.RecordBatch.from_pylist(some, schema)])
        table.append("query", batch, written)
        made += [{**row, "key": row["key"] if batch else None, "topic": row["topic"] or None} for row in some]
    return made


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_finds_all_rows(tmp_path: Path, rows: list[dict[str, Any]], reader: str) -> None:
    assert sorted(READERS[reader](str(tmp_path)), key=lambda row: row["n"]) == rows


@pytest.mark.parametrize("topic", [each for each in ODD_TOPICS if each])
def test_readers_choose_by_an_odd_partition(tmp_path: Path, rows: list[dict[str, Any]], topic: str) -> None:
    wanted = sorted(row["n"] for row in rows if row["topic"] == topic)
    dataset = DeltaTable(str(tmp_path)).to_pyarrow_dataset()

    by_polars = pl.scan_delta(str(tmp_path)).filter(pl.col("topic") == topic).collect()["n"].to_list()
    by_duckdb = duckdb.connect().register("t", dataset).execute("SELECT n FROM t WHERE topic = ?", [topic]).fetchall()

    assert sorted(by_polars) == sorted(n for (n,) in by_duckdb) == wanted


def test_readers_skip_files_by_their_ranges(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    assert len(DeltaTable(str(tmp_path)).file_uris(file_pruning_predicate="n >= 203")) < len(ODD_TOPICS) - 2
    assert pl.scan_delta(str(tmp_path)).filter(pl.col("n") == 205).collect()["n"].to_list() == [205]
