"""Tables whose partitions are replaced whole."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ams.pipeline.tables.commits import WORK
from ams.pipeline.tables.files import Storage, below, files_of, folders_at

_FILE = "data.parquet"


@dataclass(frozen=True, slots=True)
class Result:
    """A table of which each partition is one file, and is replaced in one step; so readers see the old or the new."""

    spark: SparkSession
    root: str
    schema: StructType
    partition_by: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    """Columns by which the rows of a partition are sorted."""

    def replace(self, rows: DataFrame, partitions: Iterable[str] = ()) -> None:
        """Put `rows` in the place of all rows of the partitions they belong to; other partitions stay.

        Of `partitions` (folders such as `day=2024-03-05`) those that `rows` has nothing of go. Without partitions all
        rows are replaced, also by none. A kill in the middle leaves some partitions old and
        some new, each of them whole; the next call replaces them all.
        """
        files = files_of(self.spark, self.root)
        for left in files.names(f"{self.root}/{WORK}"):
            files.delete(f"{self.root}/{WORK}/{left}")
        work = f"{self.root}/{WORK}/{uuid.uuid4().hex}"
        self._write(rows, work)
        files.sync(work)
        filled = folders_at(files, work, len(self.partition_by))
        for partition in filled:
            self._put(files, below(work, partition), f"{below(self.root, partition)}/{_FILE}")
        for partition in sorted(set(partitions) - set(filled)):
            files.delete(f"{self.root}/{partition}")
        files.delete(work)

    def read(self) -> DataFrame:
        """Return all rows."""
        files = files_of(self.spark, self.root)
        if all(name.startswith("_") for name in files.names(self.root)):
            return self.spark.createDataFrame([], self.schema)
        return self.spark.read.schema(self.schema).parquet(self.root).select(*self.schema.names)

    def _write(self, rows: DataFrame, path: str) -> None:
        rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # else old INT96
        one = rows.select(*self.schema.names).coalesce(1)
        if self.order:
            one = one.sortWithinPartitions(*self.partition_by, *self.order)
        one.write.partitionBy(*self.partition_by).parquet(path)

    def _put(self, files: Storage, written: str, place: str) -> None:
        for part in (name for name in files.names(written) if name.endswith(".parquet")):
            files.replace(f"{written}/{part}", place)
