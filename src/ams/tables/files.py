"""Parquet files of a table: writing them partition by partition, and reading them row group by row group."""

import json
import re
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from itertools import chain, groupby
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ams.tables import StoreFailed, WrongTable
from ams.tables.location import Location

Batches = Iterable[pa.RecordBatch]
Partition = Mapping[str, str | None]
"""Values of the partition columns as Delta writes them: text, dates as 2024-03-05; None for null and ``""``."""

ROW_GROUP_BYTES = 32 * 2**20  # memory of all columns while a file is written or read
ENDING = ".parquet"
NULL = "__HIVE_DEFAULT_PARTITION__"
_MAX_FOLDER_BYTES = 200  # of a folder's name, which only helps people: the log has the partition
_MAX_STATS_CHARACTERS = 32  # longer texts are left out of the statistics
_BATCH = re.compile(r"(?:batch|merged)-(\d+)-")


@dataclass(frozen=True, slots=True)
class File:
    """A Parquet file that is part of a table, or will be after its commit."""

    path: str  # below the table's root
    size: int
    rows: int
    partition: dict[str, str | None]
    least: dict[str, Any]
    greatest: dict[str, Any]
    nulls: dict[str, int]

    @property
    def stats(self) -> str:
        """Statistics for the Delta log, as JSON."""
        least, greatest = _stats_values(self.least), _stats_values(self.greatest)
        return json.dumps({"numRecords": self.rows, "minValues": least, "maxValues": greatest, "nullCount": self.nulls})

    @property
    def batch(self) -> int | None:
        """Number of its batch; of a merged file the newest. None if the name has none."""
        found = _BATCH.match(self.path.rpartition("/")[2])
        return int(found[1]) if found else None


def batch_name(query: str, batch: int) -> str:
    """Return the name prefix of a batch's files.

    >>> batch_name("1f0c9a7e-5b1e-4f6e-9d3e-2c7a5d1b8e90", 12)
    'batch-000012-1f0c9a7e'
    """
    return f"batch-{batch:06d}-{re.sub('[^A-Za-z0-9]', '', query)[:8]}"


def write(location: Location, schema: pa.Schema, partition_by: Sequence[str], name: str, rows: Batches) -> list[File]:
    """Write rows, with all columns of the schema, to new files on stable storage. Returns the files.

    The files join the table only when appended; a failed attempt leaves files for `vacuum`. One file is open at a time:
    rows sorted by partition give fewer files.
    """
    fitting = (batch.select(schema.names).cast(schema) for batch in rows)
    parts = (part for batch in fitting for part in _by_partition(batch, partition_by))
    stored = pa.schema([field for field in schema if field.name not in partition_by])
    files = [
        _write_file(location, partition, name, stored, (part for _, part in group))
        for partition, group in groupby(parts, itemgetter(0))
    ]
    # All folders up to the table's root: another attempt may have made one and not synced it.
    above = {folder for file in files for folder in PurePosixPath(file.path).parents}
    location.sync(*(str(folder) if folder.name else "" for folder in sorted(above, reverse=True)))
    return files


def _write_file(location: Location, partition: Partition, name: str, schema: pa.Schema, rows: Batches) -> File:
    folder = "/".join(f"{column}={_escape_for_path(value)}" for column, value in partition.items())
    path = f"{folder}/{name}-{uuid.uuid4()}{ENDING}".lstrip("/")
    footers: list[Any] = []
    with location.asking():
        location.make(folder)
        parquet = pq.ParquetWriter(
            path, schema, location.filesystem, compression="zstd", write_page_checksum=True, metadata_collector=footers
        )
    try:
        _write_row_groups(location, parquet, rows)
        with location.asking():
            parquet.close()
    except BaseException:
        with suppress(OSError, StoreFailed):  # `vacuum` removes the rest; the caller gets the first error
            parquet.close()
            location.remove(path)
        raise
    location.sync(path)
    size = location.size(path)
    assert size is not None
    return File(path, size, footers[0].num_rows, dict(partition), *_statistics(footers[0]))


def _write_row_groups(location: Location, parquet: pq.ParquetWriter, batches: Batches) -> None:
    waiting, size = list[pa.RecordBatch](), 0
    for rows in chain(batches, (None,)):
        if rows is not None:
            waiting.append(rows)
            size += rows.nbytes
        if waiting and (rows is None or size >= ROW_GROUP_BYTES):
            table = pa.Table.from_batches(waiting)
            rows_of_a_group = table.num_rows * ROW_GROUP_BYTES // max(1, size)
            with location.asking():
                parquet.write_table(table, max(1, min(table.num_rows, rows_of_a_group)))
            waiting, size, table = [], 0, None


def read(
    location: Location, files: Iterable[File], schema: pa.Schema, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read files in order, in constant memory; missing columns are null. Raises `WrongTable` if a file is gone."""
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    for file in files:
        with open_file(location, file.path) as parquet:
            stored = [name for name in wanted.names if name in parquet.schema_arrow.names]
            for group in range(parquet.num_row_groups):  # otherwise pyarrow prefetches the whole file
                for rows in parquet.iter_batches(row_groups=[group], columns=stored):
                    yield _complete(rows, wanted, file.partition)


def read_through(location: Location, path: str) -> tuple[int, int | None]:
    """Read a whole file in constant memory; return its rows and size. Raises `WrongTable` if gone or damaged."""
    with open_file(location, path) as parquet:
        for group in range(parquet.num_row_groups):
            for _ in parquet.iter_batches(row_groups=[group]):
                pass
        return parquet.metadata.num_rows, location.size(path)


@contextmanager
def open_file(location: Location, path: str) -> Iterator[pq.ParquetFile]:
    """Open a file for reading; raises `WrongTable` when it is gone or damaged."""
    place = location.path(path)
    try:
        with (
            location.filesystem.open_input_file(path) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as parquet,
        ):
            yield parquet
    except FileNotFoundError:
        raise WrongTable(f"{place} is gone: no reader may be older than what vacuum keeps") from None
    except (pa.ArrowException, OSError) as error:
        raise WrongTable(f"{place} cannot be read: {error}") from error


def _complete(rows: pa.RecordBatch, wanted: pa.Schema, partition: Partition) -> pa.RecordBatch:
    def column(field: pa.Field) -> pa.Array:
        if field.name in rows.schema.names:
            return rows.column(field.name).cast(field.type)
        value = partition.get(field.name)
        if value is None:
            return pa.nulls(rows.num_rows, field.type)
        return pa.repeat(pa.scalar(value).cast(field.type), rows.num_rows)

    return pa.RecordBatch.from_arrays([column(field) for field in wanted], schema=wanted)


def _by_partition(rows: pa.RecordBatch, partition_by: Sequence[str]) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    stored = rows.drop_columns(list(partition_by))
    runs = [pc.run_end_encode(rows.column(name)).run_ends.to_pylist() for name in partition_by]
    start = 0
    for end in sorted({end for each in runs for end in each} or {rows.num_rows}):
        if end > start:
            partition = {name: text(rows.column(name)[start].as_py()) for name in partition_by}
            yield partition, stored.slice(start, end - start)
        start = end


def text(value: Any) -> str | None:
    """Return the value of a partition column as Delta writes it."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int) or (isinstance(value, date) and not isinstance(value, datetime)):
        return str(value)
    raise WrongTable(f"partitions are by texts, numbers without fractions, days and flags, not by {value!r}")


def _escape_for_path(value: str | None) -> str:
    name = NULL if value is None else urllib.parse.quote(value, safe="").replace(".", "%2E").replace("~", "%7E")
    return name[:_MAX_FOLDER_BYTES]


def _statistics(footer: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    least, greatest, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    for number in range(footer.num_columns):
        name = footer.schema.column(number).path
        chunks = [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)]
        if "." in name or not all(chunks) or not all(each.has_null_count for each in chunks):
            continue
        nulls[name] = sum(each.null_count for each in chunks)
        filled = [each for each in chunks if each.num_values]
        if not filled or not all(each.has_min_max for each in filled):
            continue
        with suppress(OverflowError, ValueError):  # a time outside Python's range
            lowest, highest = min(each.min for each in filled), max(each.max for each in filled)
            if _has_total_order(lowest) and _has_total_order(highest):
                least[name], greatest[name] = lowest, highest
    return least, greatest, nulls


def _has_total_order(value: Any) -> bool:
    """Return whether all readers order the value alike; floats may be NaN."""
    return (isinstance(value, int | date) and not isinstance(value, bool)) or (
        isinstance(value, str) and len(value) <= _MAX_STATS_CHARACTERS
    )


def _stats_values(bounds: Mapping[str, Any]) -> dict[str, Any]:
    def stats_value(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        return value.isoformat() if isinstance(value, date) else value

    # other programs may write bounds of any type
    return {name: stats_value(value) for name, value in bounds.items() if _has_total_order(value)}
