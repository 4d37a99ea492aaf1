"""Delta tables as DataFrames: tasks read and write files, the driver commits.

`ams.tables` stores each batch exactly once. A Spark task may run twice, by retry or speculation. Only the files of
winning attempts are returned to the driver and committed; a vacuum removes the others.

pyarrow reads the files of a snapshot. So disks, object stores and old versions are read alike, and Spark needs no jars.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ams.tables import table, upkeep
from ams.tables.files import File, Partition, batch_name, read
from ams.tables.location import Location
from ams.tables.table import KEPT_ROWS, exists, open_table

KEPT_RESULTS = timedelta(days=400)  # how long versions of results are kept: more than a year

_TASK_BYTES = 64 * 2**20  # minimum bytes of files per task

_FILES = "files binary"


@dataclass(frozen=True, slots=True)
class Table:
    """A Delta table, written by one streaming query and one run at a time."""

    spark: SparkSession
    root: str
    schema: StructType
    partition_by: tuple[str, ...] = ()
    order: str | None = None
    keep: timedelta = KEPT_ROWS

    def append(self, batch: DataFrame, batch_id: int, query_id: str) -> int:
        """Add a batch of a streaming query, unless the table has it; return how many rows were added.

        Call it once per batch. Raises `WrongTable` as `ams.tables.table.Table.append`. Partitions of very many files
        are merged.
        """
        written = self._write_files(batch, batch_name(query_id, batch_id))
        is_new = self._table().append(query_id, batch_id, written)
        if crowded_partitions := upkeep.crowded_partitions(self.files()):
            self.merge(crowded_partitions)
        return sum(file.rows for file in written) if is_new else 0

    def replace(self, rows: DataFrame, partitions: Iterable[Partition] = ()) -> None:
        """Replace the partitions of `rows` and `partitions` by `rows`; an unpartitioned table whole."""
        written = self._write_files(rows.coalesce(1), "result")
        self._table().replace(written, list(partitions) if self.partition_by else None)

    def read(self, partitions: Iterable[Partition] | None = None, columns: Sequence[str] | None = None) -> DataFrame:
        """Return all current rows, or those of some partitions; all columns, or some."""
        schema = self.schema if columns is None else StructType([self.schema[name] for name in columns])
        files = self._table().snapshot().select(partitions) if self.exists() else ()
        return frame(self.spark, Location.of(self.root), files, schema)

    def exists(self) -> bool:
        """Return whether the table exists."""
        return self._table().exists()

    def files(self) -> Sequence[File]:
        """Return its files, ordered by partition."""
        return self._table().snapshot().files if self.exists() else ()

    def batch(self) -> int:
        """Return the number of the last batch; -1 if there is none."""
        return self._table().snapshot().batch if self.exists() else -1

    def partitions_since(self, batch: int) -> list[Partition]:
        """Return the partitions that got rows from batches after `batch`; for -1 all."""
        new = (each for each in self.files() if each.batch is None or each.batch > batch)
        return list({tuple(each.partition.items()): each.partition for each in new}.values())

    def merge(self, partitions: Iterable[Partition], *, file_bytes: int = upkeep.FILE_BYTES) -> int:
        """Merge the files of some partitions; return how many files were replaced."""
        return upkeep.merge(Location.of(self.root), partitions, file_bytes, self.order)

    def _table(self) -> table.Table:
        return table.Table(Location.of(self.root), _arrow(self.schema), self.partition_by, self.keep)

    def _write_files(self, rows: DataFrame, name: str) -> list[File]:
        rows = rows.select(*self.schema.names)
        sorted_by = [*self.partition_by, *([self.order] if self.order else [])]
        if sorted_by:
            rows = rows.sortWithinPartitions(*sorted_by)
        here = self._table()

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"files": [pickle.dumps(here.write(name, batches))]})

        told = rows.mapInArrow(write, _FILES).collect()
        return [file for row in told for file in pickle.loads(row.files)]  # noqa: S301  # our own tasks wrote it


def frame(spark: SparkSession, location: Location, files: Sequence[File], schema: StructType) -> DataFrame:
    """Return the rows of some files; missing columns are null."""
    if not files:
        return spark.createDataFrame([], schema)
    tasks = min(len(files), max(spark.sparkContext.defaultParallelism, sum(each.size for each in files) // _TASK_BYTES))
    dealt = sorted(files, key=lambda file: -file.size)  # gives tasks about equal bytes
    parts = [(pickle.dumps(dealt[task::tasks]),) for task in range(tasks)]
    arrow = _arrow(schema)

    def read_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield from read(location, pickle.loads(part), arrow)  # noqa: S301  # the driver wrote it

    shared = spark.createDataFrame(spark.sparkContext.parallelize(parts, tasks), _FILES)
    return shared.mapInArrow(read_parts, schema)


def rows_of(spark: SparkSession, path: Path | str, at: int | datetime | None = None) -> DataFrame:
    """Return all rows of a table's newest version, or of one by number or time. Raises `WrongTable`."""
    found = open_table(Location.of(path), at)
    return frame(spark, found.location, found.files, from_arrow_schema(found.schema))


def count(path: Path) -> int:
    """Return the number of rows; 0 if there is no table."""
    return sum(file.rows for file in open_table(str(path)).files) if exists(str(path)) else 0


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")
