"""Tables that batches are added to, each exactly once however often it is tried."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ams.pipeline.errors import WrongTable
from ams.pipeline.tables.commits import Commits, Shape
from ams.pipeline.tables.files import files_of
from ams.pipeline.tables.manifest import Folder, Partition, State, values

_PATIENCE_SECONDS = 5.0
_CROWDED = 200
"""Folders of a partition from which on it is merged."""
_ROW_GROUP_BYTES = 32 * 2**20
"""Of Parquet: what a task keeps in memory of the file it writes."""


class Written(NamedTuple):
    """A batch that is in a table."""

    query: str
    batch: int
    partitions: tuple[str, ...]
    """Folders below the root, such as `day=2024-03-05`; `.` of a table without partitions."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table in a folder: `append` adds a batch, exactly once; `read` returns all rows.

    Every row lies in a folder of its batch, below those of its partition. Written by one streaming query, and by one
    run at a time.
    """

    spark: SparkSession
    root: str
    schema: StructType
    partition_by: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    """Columns of which the manifest shall know the least and the greatest value in each folder."""
    order: tuple[str, ...] = ()
    """Columns by which the rows of a file are sorted."""
    earlier: tuple[StructType, ...] = ()
    """Columns the table may have had before: those of `schema`, without some that may be null."""

    def append(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Add a batch of a streaming query, unless it is there. One call for a batch: unite what belongs to it first.

        Raises `WrongTable`, and changes nothing, if the table was written by another query, whose batches have the same
        numbers; if it knows later batches, so that the checkpoint is older than the table; or if it has other columns.
        Partitions of very many batches are merged, so that runs that go on for months can still read them.
        """
        rows = batch.select(*self.schema.names)
        if self.order:
            rows = rows.sortWithinPartitions(*self.partition_by, *self.order)
        state = self._commits().append(self._shape(), query_id, batch_id, lambda path: self._write(rows, path))
        crowded = [partition for partition, folders in state.folders.items() if len(folders) > _CROWDED]
        if self.partition_by and crowded:
            self.merge(crowded)

    def read(self, partitions: Iterable[Partition] | None = None) -> DataFrame:
        """Return all rows, or those of some partitions; for the run that writes the table, between two batches."""
        return self._frame(self._state(), partitions)

    def exists(self) -> bool:
        """Whether there ever was a batch of it."""
        return self._state().last is not None

    def folders(self) -> list[Folder]:
        """Return what the manifest says of each folder, partition by partition."""
        return list(self._state().all())

    def written(self) -> list[Written]:
        """Return which batches brought rows of which partitions, oldest first; of merged ones only the newest."""
        state = self._state()
        found: dict[int, list[str]] = {}
        for folder in state.all():
            found.setdefault(folder.batch, []).append(folder.partition)
        query = state.last.query if state.last else ""
        return [Written(query, batch, tuple(found[batch])) for batch in sorted(found)]

    def partitions_since(self, batch: int) -> list[Partition]:
        """Return the partitions that batches after number `batch` brought rows of; of -1 all."""
        found = self._state().folders
        return [values(each) for each in sorted(found) if any(folder.batch > batch for folder in found[each])]

    def merge(self, partitions: Sequence[str], *, file_bytes: int = 256 * 2**20) -> None:
        """Put few large files in the place of the many of some partitions (`Folder.partition`), with the same rows.

        Readers of the manifest see the one or the other. Readers of the bare files may, for the moment between two
        renames, miss a partition; after a kill just there it is back when the next run begins. Raises `WrongTable`
        when a partition does not hold what the manifest says, and for a table without partitions.
        """
        if not self.partition_by:
            raise WrongTable(f"{self.root} has no partitions, so nothing in it can be merged")
        commits = self._commits()
        state = commits.recover()
        old = [folder for partition in partitions for folder in state.folders[partition]]
        rows_per_file = max(1, file_bytes * sum(each.rows for each in old) // max(1, sum(each.bytes for each in old)))
        rows = self._frame(state, map(values, partitions)).repartition(*self.partition_by)
        rows = rows.sortWithinPartitions(*self.partition_by, *self.order)
        commits.merge(state, self._shape(), partitions, lambda path: self._write(rows, path, rows_per_file))

    def _commits(self) -> Commits:
        return Commits(files_of(self.spark, self.root), self.root)

    def _shape(self) -> Shape:
        earlier = tuple(each.simpleString() for each in self.earlier)
        return Shape(self.schema.simpleString(), self.partition_by, self.ranges, earlier)

    def _state(self) -> State:
        return self._commits().recover()

    def _write(self, rows: DataFrame, path: str, rows_per_file: int = 0) -> None:
        rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # else old INT96
        options = {"compression": "zstd", "parquet.block.size": str(_ROW_GROUP_BYTES)}
        rows.write.options(**options, maxRecordsPerFile=str(rows_per_file)).partitionBy(*self.partition_by).parquet(
            path
        )

    def _frame(self, state: State, partitions: Iterable[Partition] | None) -> DataFrame:
        wanted = None if partitions is None else {frozenset(each.items()) for each in partitions}
        folders = [each for each in state.all() if wanted is None or frozenset(each.values.items()) in wanted]
        return frame(self.spark, self.root, self.schema, folders)


def reading(spark: SparkSession, root: str, schema: StructType, *earlier: StructType) -> list[Folder]:
    """Return the folders of a table that another run may be writing just now; `frame` makes rows of them.

    Raises `WrongTable` where there is no table, where it has neither the columns of `schema` nor earlier ones
    (`Table.earlier`), and when the run that wrote it was killed in the middle of a commit and did not start again.
    """
    commits = Commits(files_of(spark, root), root)
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        state = commits.manifest.load()
        if state.last is None:
            raise WrongTable(f"{root} is no table: it has no manifest")
        if commits.is_settled(state):
            break
        if time.monotonic() > until:
            raise WrongTable(f"{root} was left in the middle of a commit; start the run that writes it once more")
        time.sleep(0.05)
    if state.last.columns not in [each.simpleString() for each in (schema, *earlier)]:
        raise WrongTable(f"{root} has other columns: {state.last.columns}")
    return list(state.all())


def frame(spark: SparkSession, root: str, schema: StructType, folders: Sequence[Folder]) -> DataFrame:
    """Return the rows of some folders of a table."""
    if not folders:
        return spark.createDataFrame([], schema)
    paths = [f"{root}/{each.path}" for each in folders]
    return spark.read.schema(schema).option("basePath", root).parquet(*paths).select(*schema.names)
