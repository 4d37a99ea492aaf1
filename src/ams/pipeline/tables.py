"""Folders of Parquet that batches are written to exactly once, and results that replace each other whole.

Everything is done through Hadoop's file systems, so that a path may be of any of them whose rename is one step
(`file:`, `hdfs:`). Names that begin with an underscore are invisible to readers of Parquet.

    ROOT/day=2024-03-05/batch-1f0c9a7e-000012/part-00000-...parquet     a Table: what one batch brought of one day
    ROOT/day=2024-03-05/data.parquet                                    a Result: one file, replaced by renaming
    ROOT/_manifest/batch-1f0c9a7e-000012.json                           a batch that is whole
    ROOT/_work/...                                                      what is being written
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ams.pipeline.errors import WrongTable

MANIFEST, WORK = "_manifest", "_work"


class Written(msgspec.Struct, frozen=True):
    """A batch in the manifest of a table."""

    query: str
    batch: int
    partitions: tuple[str, ...]
    """Folders below the root, such as `day=2024-03-05`; `.` of a table without partitions."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that batches are added to, each exactly once however often it is tried."""

    spark: SparkSession
    root: str
    schema: StructType
    partition_by: tuple[str, ...] = ()

    def append(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Add a batch of a streaming query, unless it is there.

        Raises `WrongTable` if another query wrote the table: its batches have the same numbers.
        """
        files = Files(self.spark)
        mine = f"batch-{query_id[:8]}-{batch_id:06d}"
        self._claim(files, query_id)
        if files.exists(f"{self.root}/{MANIFEST}/{mine}.json"):
            return
        work = f"{self.root}/{WORK}/{mine}"
        batch.select(*self.schema.names).write.mode("overwrite").partitionBy(*self.partition_by).parquet(work)
        partitions = tuple(files.leaves(work, len(self.partition_by)))
        for partition in partitions:
            files.move_once(f"{work}/{partition}", f"{self.root}/{partition}/{mine}")
        files.write(f"{self.root}/{MANIFEST}/{mine}.json", msgspec.json.encode(Written(query_id, batch_id, partitions)))
        files.delete(work)

    def read(self) -> DataFrame:
        """Return all rows."""
        reader = self.spark.read.schema(self.schema).option("basePath", self.root)
        if not Files(self.spark).exists(f"{self.root}/{MANIFEST}"):
            return self.spark.createDataFrame([], self.schema)
        return reader.option("recursiveFileLookup", "false").parquet(self.root).select(*self.schema.names)

    def written(self) -> list[Written]:
        """Return the batches of the manifest, oldest first."""
        files = Files(self.spark)
        names = sorted(name for name in files.names(f"{self.root}/{MANIFEST}") if name.startswith("batch-"))
        return [msgspec.json.decode(files.read(f"{self.root}/{MANIFEST}/{name}"), type=Written) for name in names]

    def _claim(self, files: "Files", query_id: str) -> None:
        owner = f"{self.root}/{MANIFEST}/query"
        if not files.exists(owner):
            files.write(owner, query_id.encode())
        elif files.read(owner).decode() != query_id:
            raise WrongTable(
                f"{self.root} was written from another checkpoint; give another folder, or that checkpoint"
            )


@dataclass(frozen=True, slots=True)
class Result:
    """A table whose partitions are replaced whole, each one file."""

    spark: SparkSession
    root: str
    schema: StructType
    partition_by: tuple[str, ...] = ()

    def replace(self, rows: DataFrame) -> None:
        """Put `rows` in the place of all rows of the partitions they belong to; other partitions stay."""
        files = Files(self.spark)
        work = f"{self.root}/{WORK}/replace"
        rows.select(*self.schema.names).coalesce(1).write.mode("overwrite").partitionBy(*self.partition_by).parquet(
            work
        )
        for partition in files.leaves(work, len(self.partition_by)):
            [part] = [name for name in files.names(f"{work}/{partition}") if name.endswith(".parquet")]
            files.replace(f"{work}/{partition}/{part}", f"{self.root}/{partition}/data.parquet")
        files.delete(work)

    def read(self) -> DataFrame:
        """Return all rows."""
        if not any(not name.startswith("_") for name in Files(self.spark).names(self.root)):
            return self.spark.createDataFrame([], self.schema)
        return self.spark.read.schema(self.schema).parquet(self.root).select(*self.schema.names)


class Files:
    """The few things done with files, on any file system Hadoop knows."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._fs = jvm.org.apache.hadoop.fs
        self._configuration = spark._jsc.hadoopConfiguration()
        self._options = jvm.org.apache.hadoop.fs.Options
        self._gateway: Any = spark.sparkContext._gateway

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return bool(self._system(path).exists(self._path(path)))

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, of an absent one none."""
        if not self.exists(folder):
            return []
        return [each.getPath().getName() for each in self._system(folder).listStatus(self._path(folder))]

    def leaves(self, folder: str, depth: int) -> Iterable[str]:
        """Return the paths below `folder` of the folders at a depth."""
        if depth == 0:
            return ["."]
        return [
            f"{name}/{below}".removesuffix("/.")
            for name in sorted(self.names(folder))
            if "=" in name
            for below in self.leaves(f"{folder}/{name}", depth - 1)
        ]

    def move_once(self, source: str, target: str) -> None:
        """Give a folder its place; when there is one already, it is the same of an earlier try."""
        if self.exists(target):
            return
        system = self._system(target)
        system.mkdirs(self._path(target).getParent())
        self._rename(source, target, overwrite=False)

    def replace(self, source: str, target: str) -> None:
        """Put a file in the place of another in one step."""
        self._system(target).mkdirs(self._path(target).getParent())
        self._rename(source, target, overwrite=True)

    def write(self, path: str, content: bytes) -> None:
        """Write a file whole or not at all."""
        beside = f"{path}._new"
        stream = self._system(path).create(self._path(beside), True)
        stream.write(bytearray(content))
        stream.hsync()
        stream.close()
        self._rename(beside, path, overwrite=True)

    def read(self, path: str) -> bytes:
        """Return what a small file holds."""
        stream = self._system(path).open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def delete(self, folder: str) -> None:
        """Remove a folder with all in it."""
        self._system(folder).delete(self._path(folder), True)

    def _rename(self, source: str, target: str, *, overwrite: bool) -> None:
        kind = self._options.Rename
        flags = self._gateway.new_array(kind, 1)
        flags[0] = kind.OVERWRITE if overwrite else kind.NONE
        context = self._fs.FileContext.getFileContext(self._path(target).toUri(), self._configuration)
        context.rename(self._path(source), self._path(target), flags)

    def _path(self, path: str) -> Any:
        return self._fs.Path(path)

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._configuration)
