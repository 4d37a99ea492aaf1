"""What Parquet files say of themselves at their ends: how many rows they have, and between which values."""

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ams.pipeline.tables.files import Storage
from ams.pipeline.tables.manifest import Folder

_MAGIC = b"PAR1"
_TAIL = 64 * 1024
"""Bytes read at first; most footers are shorter."""


def described(files: Storage, place: str, path: str, batch: int, columns: Sequence[str]) -> Folder:
    """Return what the files in `place` hold, as the folder `path` of a table; with the ranges of some columns."""
    names = [name for name in files.names(place) if name.endswith(".parquet")]
    footers = [footer(files, f"{place}/{name}") for name in names]
    return Folder(
        path,
        batch,
        rows=sum(each.num_rows for each in footers),
        files=len(names),
        bytes=sum(files.size(f"{place}/{name}") for name in names),
        ranges={column: found for column in columns if (found := _range(footers, column))},
    )


def footer(files: Storage, path: str) -> Any:
    """Return the metadata of a file."""
    tail = files.tail(path, _TAIL)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail):
        tail = files.tail(path, length)
    return pq.read_metadata(pa.BufferReader(_MAGIC + tail[-length:]))


def _range(footers: Sequence[Any], column: str) -> tuple[Any, Any] | None:
    found = [each for footer in footers for each in _statistics(footer, column)]
    if not found or not all(each is not None and each.has_min_max for each in found):
        return None
    return _plain(min(each.min for each in found)), _plain(max(each.max for each in found))


def _statistics(footer: Any, column: str) -> Iterator[Any]:
    for group in range(footer.num_row_groups):
        described = footer.row_group(group)
        for number in range(described.num_columns):
            if described.column(number).path_in_schema == column:
                yield described.column(number).statistics


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return value
