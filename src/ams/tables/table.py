"""A table: its versions with their rows, and commits that add each batch exactly once, however often it is retried.

A change is computed from the newest version and committed on exactly that version (optimistic concurrency).
"""

import bisect
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from ams.tables import StoreFailed, WrongTable, log
from ams.tables import files as parquet
from ams.tables.files import File, Partition
from ams.tables.location import Location

QUERY = "ams.query"  # property of a table: the streaming query whose batches it takes
KEPT_ROWS = timedelta(days=30)  # how long versions of a table that takes batches are kept
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
        """Read all rows, or those of some files, in constant memory. Raises `WrongTable` for a file gone or damaged."""
        return parquet.read(self.location, self.files if files is None else files, self.schema, columns)


def exists(location: Location | str) -> bool:
    """Return whether there is a table."""
    location = Location.of(location)
    with location.asking():
        return bool(DeltaTable.is_deltatable(location.root, location.options))


def open_table(location: Location | str, at: int | datetime | None = None) -> TableVersion:
    """Return the newest version of a table, or that of a number or time. Raises `WrongTable`."""
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


def _version_at(location: Location, at: datetime) -> int | None:
    """Return the newest version up to a time, by the commits' own times: delta-rs uses file times. None: no table."""
    found = log.versions(location)
    if not found:
        return None
    place = bisect.bisect_right(found, at, key=lambda each: log.time_of(log.commit_info(location, each)))
    if place == 0:
        raise WrongTable(f"{location} has no version of {at.isoformat()} (any longer)")
    return found[place - 1]


def _why(location: Location, version: int | None, error: Exception) -> str:
    there = log.versions(location)
    if not there:
        return f"{location} is no table: it has no {log.FOLDER}"
    if version is not None and version not in there:
        return f"{location} has no version {version} (any longer)"
    if log.is_half_written(location):
        return f"{location} was left half written by a loss of power; start the run that writes it once more"
    return f"{location} cannot be read: " + str(error).partition("\n")[0]


def _file(row: dict[str, Any], partition_by: Sequence[str]) -> File:
    values = row.get("partition") or {}
    partition = {name: parquet.text(values[name]) for name in partition_by}
    told = [{name: value for name, value in (row[each] or {}).items() if value is not None} for each in _STATISTICS]
    return File(unquote(row["path"]), row["size_bytes"], row["num_records"], partition, *told)


_TRIES = 20
_UNANSWERED_TRIES = 5
_PAUSE_SECONDS = 0.2  # before the first retry without an answer; doubles each time


class TableChange(NamedTuple):
    """The files that a commit adds and removes."""

    what: str  # for the history: `append`, `merge`
    add: Sequence[File] = ()
    remove: Sequence[File] = ()
    numbers: Mapping[str, int] = {}  # by name: the query's batch number, and others stored with it
    is_other_rows: bool = True  # False for a merge, which keeps the rows


Change = Callable[[TableVersion], TableChange | None]


def commit(location: Location, change: Change, fit: Callable[[TableVersion], bool] = lambda _: False) -> bool:
    """Commit the change that `change` returns for the newest version, to stable storage; False if it returns None.

    Retries when another writer was faster or `fit` changed the table. An object store may lose the answer to a commit,
    so each commit there has a mark to look for. Raises `WrongTable` after too many conflicts, and `StoreFailed` if the
    store does not answer: the commit may exist then.
    """
    mark = str(uuid.uuid4()) if location.is_store else None
    unanswered = 0
    for _ in range(_TRIES):
        snapshot = open_table(location)
        log.sync(location, snapshot.version)  # its writer may have been killed before the sync
        found = change(snapshot)
        if found is None:
            return False
        try:
            if fit(snapshot):
                continue
            _write(snapshot, found, mark)
            version = snapshot.version + 1
        except (CommitFailedError, StoreFailed) as error:
            lost, made = error, log.version_with_mark(location, snapshot.version, mark) if mark else None
            if made is None:
                if isinstance(error, StoreFailed):
                    unanswered += 1
                    if unanswered == _UNANSWERED_TRIES:
                        raise
                    time.sleep(_PAUSE_SECONDS * 2**unanswered)
                continue
            version = made
        log.sync(location, version)
        if version % log.CHECKPOINT_EVERY == 0:
            log.checkpoint(location, version)
        return True
    raise WrongTable(f"{location} is changed by others all the time; nothing was stored") from lost


def _write(snapshot: TableVersion, change: TableChange, mark: str | None) -> None:
    check_files(snapshot.location, change.add)
    now, is_other = round(time.time() * 1000), change.is_other_rows
    added = (AddAction(each.path, each.size, each.partition, now, is_other, each.stats) for each in change.add)
    removed = (RemoveAction(each.path, is_other, now, each.size, each.partition) for each in change.remove)
    actions: list[AddAction | RemoveAction] = [*added, *removed]
    said = log.properties(change.what, len(actions) + len(change.numbers), change.numbers, mark)
    delta, by = snapshot.delta, list(snapshot.partition_by)
    with snapshot.location.asking():
        delta._table.create_write_transaction(actions, "append", by, delta.schema(), None, said, log.HOOKS)


def check_files(location: Location, files: Iterable[File]) -> None:
    """Raise `WrongTable` unless all files exist with the right size: delta-rs does not check."""
    for file in files:
        found = location.size(file.path)
        if found != file.size:
            what = "is not there" if found is None else f"has {found} bytes instead of {file.size}"
            raise WrongTable(f"{location.path(file.path)} {what}; nothing was stored")


class Table:
    """A table that takes the batches of one streaming query (`append`), or whose rows are replaced (`replace`)."""

    def __init__(
        self, location: Location | str, schema: pa.Schema, partition_by: Sequence[str] = (), keep: timedelta = KEPT_ROWS
    ) -> None:
        """Make no table yet. `keep`: how long old versions stay readable, set when the table is made."""
        self.location = Location.of(location)
        self.schema = schema
        self.partition_by = tuple(partition_by)
        self.keep = keep
        self._is_ready = False

    def exists(self) -> bool:
        """Return whether the table exists."""
        return exists(self.location)

    def snapshot(self, at: int | datetime | None = None) -> TableVersion:
        """Return a version; see `open_table`."""
        return open_table(self.location, at)

    def write(self, name: str, batches: Iterable[pa.RecordBatch]) -> list[File]:
        """Write rows to new files for `append` or `replace`."""
        return parquet.write(self.location, self.schema, self.partition_by, name, batches)

    def append(self, query: str, batch: int, files: Sequence[File], numbers: Mapping[str, int] = {}) -> bool:
        """Add a batch of a streaming query, to stable storage; False if the table has it already.

        `numbers` are stored in the same commit (`TableVersion.number`) and survive merges, checkpoints and restores.
        Raises `WrongTable`, and changes nothing, if the table belongs to another query, has later batches or other
        columns, or a file is missing.
        """
        kept = {query: batch, **numbers}

        def change(snapshot: TableVersion) -> TableChange | None:
            if snapshot.query != query:
                way_on = "give another folder, or that checkpoint"
                raise WrongTable(f"{self.location} was written from another checkpoint; {way_on}")
            if batch < snapshot.batch:
                way_on = "the checkpoint is older than the table; give another folder, or the newer checkpoint"
                batches = f"batch {snapshot.batch} already, and this is batch {batch}"
                raise WrongTable(f"{self.location} knows {batches}: {way_on}")
            return None if batch == snapshot.batch else TableChange("append", files, numbers=kept)

        self._make_ready(files, query)
        return commit(self.location, change, self._add_missing_columns)

    def replace(self, files: Sequence[File], partitions: Iterable[Partition] | None = None) -> None:
        """Replace all rows, or those of `partitions` and of the files' own. Raises `WrongTable` as `append`."""
        old = None if partitions is None else [*partitions, *(file.partition for file in files)]

        def change(snapshot: TableVersion) -> TableChange:
            if snapshot.query:
                raise WrongTable(f"{self.location} takes batches of a query; its rows are not replaced")
            return TableChange("replace", files, snapshot.select(old))

        self._make_ready(files, None)
        commit(self.location, change, self._add_missing_columns)

    def _make_ready(self, files: Sequence[File], query: str | None) -> None:
        if self._is_ready:
            return
        log.recover(self.location)
        if not self.exists():
            check_files(self.location, files)
            self.make(query)
        self.location.sync("")  # even if it existed: its maker may have been killed before the sync
        self.location.sync_above()
        self._is_ready = True

    def make(self, query: str | None) -> None:
        """Make an empty table, for the batches of a query or, with None, for rows that are replaced."""
        schema = Schema.from_arrow(self.schema)
        if "timestamp_ntz" in schema.to_json():
            raise WrongTable(f"{self.location}: times without a zone are no columns of a table that all readers know")
        self.location.make()
        days = f"interval {max(1, round(self.keep / timedelta(days=1)))} days"
        kept = {"delta.logRetentionDuration": days, "delta.deletedFileRetentionDuration": days}
        try:
            with self.location.asking():
                DeltaTable.create(
                    self.location.root, schema, partition_by=list(self.partition_by),
                    configuration={**kept, **({QUERY: query} if query else {})}, storage_options=self.location.options,
                    commit_properties=log.properties("create", 2), post_commithook_properties=log.HOOKS,
                    raise_if_key_not_exists=False,
                )  # fmt: skip
        except (DeltaError, StoreFailed):  # it existed, or was made and the answer was lost
            if not self.exists():
                raise

    def _add_missing_columns(self, snapshot: TableVersion) -> bool:
        here = {field.name: field for field in snapshot.delta.schema().fields}
        wanted = {field.name: field for field in Schema.from_arrow(self.schema).fields}
        others = [
            name
            for name, field in here.items()
            if name not in wanted
            or _plain(field.type) != _plain(wanted[name].type)
            or (wanted[name].nullable and not field.nullable)
        ]
        lacking = [field for name, field in wanted.items() if name not in here]
        others += [field.name for field in lacking if not field.nullable]
        if others or snapshot.partition_by != self.partition_by:
            what = f"in {', '.join(sorted(others))}" if others else f"partitions by {', '.join(snapshot.partition_by)}"
            raise WrongTable(f"{self.location} has other columns than are written now, {what}; give another folder")
        if lacking:
            said = log.properties("add columns", 1)
            with self.location.asking():
                snapshot.delta.alter.add_columns(lacking, commit_properties=said, post_commithook_properties=log.HOOKS)
        return bool(lacking)


def _plain(type_: Any) -> str:
    return _ABOUT_NULLS.sub("", type_.to_json())


_ABOUT_NULLS = re.compile(r'"(nullable|valueContainsNull|containsNull|metadata)": ?(true|false|\{[^{}]*\}),?')
