"""The tables that the jobs left beside the page, and how programs read them."""

from pathlib import Path

from ams.pipeline.report.page import Rows, Section
from ams.tables.snapshot import open_table

_LOG = "_delta_log"
_TEXT = (
    "Delta tables in {}, which any program for Delta tables reads. In the examples PATH is that folder and the name of "
    "a table; an earlier version is read by its number or by a time."
)
_READING = (
    ("deltalake", 'DeltaTable("PATH").to_pyarrow_table()', 'DeltaTable("PATH", version=1)'),
    ("Polars", 'polars.scan_delta("PATH").collect()', 'polars.scan_delta("PATH", version=1)'),
    (
        "DuckDB",
        'rows = DeltaTable("PATH").to_pyarrow_dataset(); duckdb.sql("SELECT * FROM rows")',
        'rows = DeltaTable("PATH", version=1).to_pyarrow_dataset()',
    ),
    ("DuckDB, with its extension delta", "SELECT * FROM delta_scan('PATH')", "-"),
    ("Spark, with ams", 'rows_of(spark, "PATH")', 'rows_of(spark, "PATH", 1)'),
)


def found(folder: Path) -> list[str]:
    """Return the tables in the folder of the demo, by their paths below it."""
    return sorted(str(each.parent.relative_to(folder)) for each in folder.rglob(_LOG))


def section(folder: Path) -> Section:
    """Return a section that names each table, and says how to read it."""
    rows = []
    for name in found(folder):
        table = open_table(str(folder / name))
        rows.append((name.partition("/")[0], name, sum(file.rows for file in table.files), table.version))
    return Section(
        "Tables",
        _TEXT.format(folder),
        [
            Rows(("Job", "Table", "Rows", "Version"), rows, "What the jobs left."),
            Rows(("Program", "All rows", "As they were"), _READING, "How to read a table."),
        ],
    )
