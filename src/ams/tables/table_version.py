"""Versions of a table, and their rows."""

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ams.tables import WrongTable, log
from ams.tables import files as parquet
from ams.tables.files import File, Partition
from ams.tables.location import Location

QUERY = "ams.query"  # property of a table: the streaming query whose batches it takes
_STATISTICS = ("min", "max", "null_count")
_READER, _WRITER = 1, 2  # supported versions of Delta's protocol, without later features


@dataclass(frozen=True)
class TableVersion:
    """One version of a table."""

    location: Location
    delta: DeltaTable

    @property
    def version(self) -> int:
        """Number of the commit, from 0."""
        return self.delta.version()

    @cached_property
    def time(self) -> datetime:
        """Time of the commit, UTC, by the writer's clock."""
        return _commit_time(self.location, self.version)

    @cached_property
    def schema(self) -> pa.Schema:
        """All columns, including partition columns."""
        return pa.schema(self.delta.schema())

    @cached_property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return tuple(self.delta.metadata().partition_columns)

    @cached_property
    def query(self) -> str | None:
        """The streaming query that appends to it; None for a table whose rows are replaced."""
        return self.delta.metadata().configuration.get(QUERY)

    @cached_property
    def batch(self) -> int:
        """Number of the last batch, -1 before the first."""
        found = self.number(self.query) if self.query else None
        return -1 if found is None else found

    def number(self, name: str) -> int | None:
        """Return the last number stored under a name with a batch (`Table.append`); None if there is none."""
        found: int | None = self.delta._table.transaction_version(name)
        return found

    @cached_property
    def files(self) -> list[File]:
        """Its files, sorted by partition and path."""
        rows = pa.table(self.delta.get_add_actions(flatten=False)).to_pylist()
        found = [_file(row, self.partition_by) for row in rows]
        return sorted(found, key=lambda file: ([value or "" for value in file.partition.values()], file.path))

    def select(
        self, partitions: Iterable[Partition] | None = None, where: Callable[[File], bool] | None = None
    ) -> list[File]:
        """Return the files of some partitions for which `where` is true. Raises `WrongTable` for unknown columns."""
        wanted = None if partitions is None else {self._key(each) for each in partitions}
        found = (file for file in self.files if wanted is None or self._key(file.partition) in wanted)
        return [file for file in found if where is None or where(file)]

    def _key(self, partition: Partition) -> tuple[str | None, ...]:
        if partition.keys() != set(self.partition_by):
            raise WrongTable(f"{self.location} has partitions by {self.partition_by}, not by {tuple(partition)}")
        return tuple(partition[name] or None for name in self.partition_by)

    def batches(
        self, columns: Sequence[str] | None = None, files: Iterable[File] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read all rows, or those of some files, in constant memory.

        Raises `WrongTable` if a file is gone or damaged.
        """
        return parquet.read(self.location, self.files if files is None else files, self.schema, columns)


def exists(location: Location | str) -> bool:
    """Return whether there is a table."""
    location = Location.of(location)
    with location.asking():
        return bool(DeltaTable.is_deltatable(location.root, location.options))


def open_table(location: Location | str, at: int | datetime | None = None) -> TableVersion:
    """Return the newest version of a table, that of a number, or the one that was the newest at a time.

    Raises `WrongTable` if there is no table or version, or the table is damaged or needs a newer reader.
    """
    location = Location.of(location)
    version = _version_at(location, at) if isinstance(at, datetime) else at
    try:
        with location.asking():
            delta = DeltaTable(location.root, version, location.options)
    except DeltaError as error:
        raise WrongTable(_why(location, version, error)) from error
    protocol = delta.protocol()
    features = sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
    if delta.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.append("columnMapping")  # older tables use it without naming it in their protocol
    if protocol.min_reader_version > _READER or protocol.min_writer_version > _WRITER or features:
        what = ", ".join(features) or f"version {protocol.min_reader_version} and {protocol.min_writer_version}"
        raise WrongTable(f"{location} was made by another program: it needs of its readers and writers {what}")
    return TableVersion(location, delta)


def _version_at(location: Location, at: datetime) -> int:
    """Return the newest version up to a time, by the commits' own times: delta-rs uses file times."""
    found = log.versions(location)
    if not found:
        raise WrongTable(_no_table(location))
    place = bisect.bisect_right(found, at, key=lambda version: _commit_time(location, version))
    if place == 0:
        raise WrongTable(f"{location} has no version of {at.isoformat()} (any longer)")
    return found[place - 1]


def _commit_time(location: Location, version: int) -> datetime:
    return log.time_of(log.commit_info(location, version))


def _no_table(location: Location) -> str:
    return f"{location} is no table: it has no {log.FOLDER}"


def _why(location: Location, version: int | None, error: Exception) -> str:
    there = log.versions(location)
    if not there:
        return _no_table(location)
    if version is not None and version not in there:
        return f"{location} has no version {version} (any longer)"
    if log.is_half_written(location):
        return f"{location} was left half written by a loss of power; start the run that writes it once more"
    reason = str(error).partition("\n")[0]
    return f"{location} cannot be read: {reason}"


def _file(row: dict[str, Any], partition_by: Sequence[str]) -> File:
    values = row.get("partition") or {}
    told = [{name: value for name, value in (row[each] or {}).items() if value is not None} for each in _STATISTICS]
    return File(
        unquote(row["path"]),
        row["size_bytes"],
        row["num_records"],
        {name: parquet.text(values[name]) for name in partition_by},
        *told,
    )
