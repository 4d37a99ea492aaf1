"""Making a Delta table of a table of the format before, which had a manifest and a folder for each batch.

    ROOT/day=2024-03-05/batch-1f0c9a7e-000012/part-00000-...parquet
    ROOT/_manifest/snapshot-000000000064.json     what all commits up to that one came to
    ROOT/_manifest/commit-000000000065.json       one more
    ROOT/_work/                                   where folders are until they get their places

The rows are written to new files, read back, and compared row by row; then one commit makes them the table. The query
and the number of its last batch go with them, so the run goes on with its checkpoint. The old files stay until
`vacuum` takes them, so that until then the way back is to give `_manifest` its name again. A table that is made
elsewhere, such as on S3, leaves the old one as it is.
"""

import fnmatch
import json
import posixpath
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import pyarrow as pa

from ams.tables import log
from ams.tables.errors import WrongTable
from ams.tables.files import ENDING, NULL, File, opened, read, write
from ams.tables.location import Location
from ams.tables.snapshot import OLD_FORMAT, Snapshot, newest, no_table
from ams.tables.table import Change, Table, commit
from ams.tables.upkeep import FILE_BYTES, merged_name, together

CONVERTED = f"{OLD_FORMAT}.converted"
_WORK = "_work"
_ROWS = 10_000
"""That are compared at once."""
_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "double": pa.float64(),
    "binary": pa.binary(),
}
"""Of columns that no file has, by Spark's names."""


class Converted(NamedTuple):
    """What became of a table: the folders that there were, and what there is now."""

    batches: int
    files: int
    rows: int


@dataclass
class _Old:
    """What the manifest says: the last commit, and the folders there are, by partition."""

    last: dict[str, Any]
    folders: dict[str, list[dict[str, Any]]]


def convert(location: Location | str, file_bytes: int = FILE_BYTES, target: Location | str | None = None) -> Converted:
    """Make a Delta table of what lies in a folder, in place or at `target`; nothing may write there meanwhile.

    May be killed and called again. Raises `WrongTable`, and changes nothing, when there is no table of the format
    before, when it is not what its manifest says, when what was written is not the same row by row, or when there are
    rows at `target`.
    """
    location = Location.of(location)
    target = location if target is None else Location.of(target)
    old = _load(location)
    query, batch = str(old.last["query"]), int(old.last["batch"])
    files = {partition: _files(location, old, partition) for partition in sorted(old.folders)}
    schema = _schema(location, old.last, [file for each in files.values() for file in each])
    table = Table(target, schema, old.last["partition_by"])
    if target != location and target.names(OLD_FORMAT):
        raise WrongTable(no_table(target))
    log.recover(target)
    if target != location and table.exists():
        _check_empty(newest(target), query)
    new = [
        file
        for partition in files
        for some in together(files[partition], file_bytes)
        for file in _rewritten(location, table, some, max(int(folder["batch"]) for folder in old.folders[partition]))
    ]
    expected = sum(folder["rows"] for each in old.folders.values() for folder in each)
    if sum(file.rows for file in new) != expected:
        raise WrongTable(f"{location} does not hold the {expected} rows its manifest says; nothing changed")
    if _load(location).last != old.last:
        raise WrongTable(f"{location} was written to meanwhile; nothing changed; stop the run that writes it")
    table.make(query)
    target.sync("")
    target.sync_above()

    def change(snapshot: Snapshot) -> Change | None:
        if snapshot.query == query and snapshot.batch == batch:
            return None
        _check_empty(snapshot, query)
        return Change("convert", new, numbers={query: batch})

    commit(target, change)
    if target == location:
        location.move(OLD_FORMAT, CONVERTED)
        location.sync("")
    return Converted(sum(map(len, old.folders.values())), len(new), expected)


def _check_empty(snapshot: Snapshot, query: str) -> None:
    if snapshot.query != query or snapshot.batch >= 0 or snapshot.files:
        raise WrongTable(f"{snapshot.location} is a table already; nothing changed; name a place where there is none")


def _load(location: Location) -> _Old:
    names = location.names(OLD_FORMAT)
    try:
        commits, snapshots = (fnmatch.filter(names, pattern) for pattern in ("commit-*.json", "snapshot-*.json"))
        state = _Old({}, {})
        if snapshots:
            state = _Old(**json.loads(location.read(f"{OLD_FORMAT}/{max(snapshots)}")))
        for name in commits:
            found = json.loads(location.read(f"{OLD_FORMAT}/{name}"))
            if found["number"] > state.last.get("number", 0):
                _add(location, state, found)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise WrongTable(f"{location.path(OLD_FORMAT)} is no manifest of the version before") from None
    if not state.last:
        raise WrongTable(f"{location} is no table of the version before: it has no {OLD_FORMAT}")
    return state


def _add(location: Location, state: _Old, found: dict[str, Any]) -> None:
    number = state.last.get("number", 0) + 1
    if found["number"] != number:
        raise WrongTable(f"the manifest of {location} lacks commit {number}")
    for partition in found.get("merged", ()):
        state.folders.pop(partition, None)
    for folder in found["folders"]:
        state.folders.setdefault(posixpath.dirname(folder["path"]) or ".", []).append(folder)
    state.last = found


def _files(location: Location, old: _Old, partition: str) -> list[File]:
    """Return the files of a partition, those of the oldest batch first; their sizes are those of the disk."""
    pairs = (each.partition("=") for each in partition.split("/") if "=" in each)
    values = {name: None if text == NULL else urllib.parse.unquote(text) for name, _, text in pairs}
    found = []
    for folder in old.folders[partition]:
        place = _place(location, old.last, partition, folder)
        paths = [f"{place}/{name}" for name in location.names(place) if name.endswith(ENDING)]
        if len(paths) != folder["files"]:
            raise WrongTable(f"{location.path(folder['path'])} has {len(paths)} files instead of {folder['files']}")
        found += [File(path, location.size(path) or 0, 0, values, {}, {}, {}) for path in paths]
    return found


def _place(location: Location, last: dict[str, Any], partition: str, folder: dict[str, Any]) -> str:
    """Return where a folder is: after a kill those of the last commit may not have their places yet."""
    rows = posixpath.normpath(f"{_WORK}/{last['work']}/rows/{partition}")
    places = (folder["path"], f"{_WORK}/{last['work']}/new/{folder['path']}", rows)
    return str(next((each for each in places if location.names(each)), folder["path"]))


def _schema(location: Location, last: dict[str, Any], files: Sequence[File]) -> pa.Schema:
    """Return the columns the manifest names, with the types the files have; all may be null, as Spark wrote them.

    One that no file has, and whose type cannot be told here, is left out: the next batch of the run adds it.
    """
    columns = dict(_columns(last["columns"]))
    found: dict[str, pa.DataType] = {}
    for file in reversed(files):
        if found.keys() >= columns.keys() - set(last["partition_by"]):
            break
        with opened(location, file.path) as parquet:
            found = {field.name: field.type for field in parquet.schema_arrow} | found
    types = {name: found.get(name, _TYPES.get(text)) for name, text in columns.items()}
    return pa.schema([(name, type_) for name, type_ in types.items() if type_ is not None])


def _columns(text: str) -> Iterator[tuple[str, str]]:
    """Cut what Spark calls a table's columns.

    >>> list(_columns("struct<n:bigint,m:map<string,string>>"))
    [('n', 'bigint'), ('m', 'map<string,string>')]
    """
    depth, start = 0, len("struct<")
    for place, each in enumerate(text):
        depth += (each in "<(") - (each in ">)")
        if (depth == 1 and each == ",") or (depth == 0 and each == ">"):
            name, _, type_ = text[start:place].partition(":")
            yield name, type_
            start = place + 1


def _rewritten(location: Location, table: Table, files: Sequence[File], last: int) -> list[File]:
    """Write the rows of some files to new ones, and see that they are the same."""

    def rows() -> Iterator[pa.RecordBatch]:
        return read(location, files, table.schema)

    found = write(table.location, table.schema, table.partition_by, merged_name(last), rows())
    written = read(table.location, found, table.schema)
    if not all(one == other for one, other in zip_longest(_parts(rows()), _parts(written))):
        raise WrongTable(f"{location.path(files[0].path)} was not copied row by row; nothing changed")
    return found


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Cut rows into parts of one size, whatever they come in, and make them such that what is alike is equal."""
    rows: pa.Table | None = None
    for batch in batches:
        more = pa.Table.from_batches([batch])
        rows = more if rows is None else pa.concat_tables([rows, more])
        while rows.num_rows >= _ROWS:
            yield _comparable(rows.slice(0, _ROWS))
            rows = rows.slice(_ROWS)
    if rows is not None and rows.num_rows:
        yield _comparable(rows)


def _comparable(rows: pa.Table) -> pa.Table:
    """Let what is no number be equal to itself."""
    rows = rows.combine_chunks()
    for place, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            bits = pa.int64() if field.type.bit_width == 64 else pa.int32()
            rows = rows.set_column(place, field.name, [chunk.view(bits) for chunk in rows.column(place).chunks])
    return rows
