"""Tables that batches are added to, each exactly once however often it is tried."""

import bisect
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from ams.tables import files as parquet
from ams.tables import log
from ams.tables.errors import WrongTable
from ams.tables.files import File, NewFile, Partition, Writer
from ams.tables.location import Location

OLD_FORMAT = "_manifest"
"""Folder in the tables of versions before Delta."""
_QUERY = "ams.query"
"""Property of a table: the streaming query whose batches it takes."""
_TRIES = 20
_READER, _WRITER = 1, 2
"""Versions of Delta's protocol that are known here: without any of the features that came later."""


@dataclass(frozen=True)
class Snapshot:
    """A table as one of its versions has it."""

    location: Location
    delta: DeltaTable

    @property
    def version(self) -> int:
        """Counts the commits from 0."""
        return self.delta.version()

    @cached_property
    def time(self) -> datetime:
        """When it was committed, by the clock of who did; in UTC."""
        return _committed(self.location, self.version)

    @cached_property
    def schema(self) -> pa.Schema:
        """All columns, those of the partition included."""
        return pa.schema(self.delta.schema())

    @cached_property
    def partition_by(self) -> tuple[str, ...]:
        """The columns that make up the partition."""
        return tuple(self.delta.metadata().partition_columns)

    @cached_property
    def query(self) -> str | None:
        """The streaming query whose batches it takes; None of a table whose rows are replaced."""
        return self.delta.metadata().configuration.get(_QUERY)

    @cached_property
    def batch(self) -> int:
        """The last batch that is in it, -1 before the first."""
        found = self.delta._table.transaction_version(self.query) if self.query else None
        return -1 if found is None else found

    @cached_property
    def files(self) -> list[File]:
        """Its files, sorted by partition and path."""
        rows = pa.table(self.delta.get_add_actions(flatten=False)).to_pylist()
        found = [_file(row, self.partition_by) for row in rows]
        return sorted(found, key=lambda file: ([value or "" for value in file.partition.values()], file.path))

    def select(
        self, partitions: Iterable[Partition] | None = None, where: Callable[[File], bool] | None = None
    ) -> list[File]:
        """Return the files of some partitions, of these those that `where` holds of.

        Raises `WrongTable` for a partition that does not name all columns the table has its partitions by.
        """
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
        """Read all rows, or those of some files, in flat memory."""
        return parquet.read(self.location, self.files if files is None else files, self.schema, columns)


def open_table(location: Location | str, at: int | datetime | None = None) -> Snapshot:
    """Return the newest version of a table, that of a number, or the one that was the newest at a time.

    Raises `WrongTable` for what is no table, has no such version any longer, is damaged, or needs readers that know
    more than those here.
    """
    location = Location.of(location)
    if location.names(OLD_FORMAT):  # also while it is converted
        raise WrongTable(_no_table(location))
    return _opened(location, _version_at(location, at) if isinstance(at, datetime) else at)


def _opened(location: Location, version: int | None = None) -> Snapshot:
    try:
        delta = DeltaTable(location.root, version, location.options)
    except DeltaError as error:
        raise WrongTable(_why(location, version, error)) from error
    _check_protocol(location, delta)
    return Snapshot(location, delta)


class Change(NamedTuple):
    """What a commit changes."""

    what: str
    """For the history: `append`, `merge`."""
    add: Sequence[NewFile] = ()
    remove: Sequence[File] = ()
    number: tuple[str, int] | None = None
    """A query, and the number of its batch."""
    is_other_rows: bool = True
    """Whether the rows are others afterwards; not so of a merge."""


class Table:
    """A table of a streaming query's batches (`append`), or one of rows that replace each other (`replace`)."""

    def __init__(
        self,
        location: Location | str,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        keep: timedelta = timedelta(days=30),
    ) -> None:
        """Describe it; `keep` is how long earlier versions can be read, set when the table is made."""
        self.location = Location.of(location)
        self.schema = schema
        self.partition_by = tuple(partition_by)
        self.keep = keep
        self._is_ready = False

    def exists(self) -> bool:
        """Whether there is a version of it."""
        return DeltaTable.is_deltatable(self.location.root, self.location.options)

    def snapshot(self, at: int | datetime | None = None) -> Snapshot:
        """Return a version of it; see `open_table`."""
        return open_table(self.location, at)

    def writer(self, name: str) -> Writer:
        """Return a writer of new files."""
        return Writer(self.location, self.schema, self.partition_by, name)

    def append(self, query: str, batch: int, files: Sequence[NewFile]) -> bool:
        """Add a batch of a streaming query; False if it is there. When this returns no loss of power takes it back.

        Raises `WrongTable`, and changes nothing, if the table belongs to another query, whose batches have the same
        numbers; if it knows later batches, so that the checkpoint is older than the table; if it has other columns; or
        if a file is not there.
        """

        def change(snapshot: Snapshot) -> Change | None:
            self._check_batch(snapshot, query, batch)
            return None if batch == snapshot.batch else Change("append", files, number=(query, batch))

        self._make_ready(files, query)
        return commit(self.location, change, self._fitted)

    def replace(self, files: Sequence[NewFile], partitions: Iterable[Partition] | None = None) -> None:
        """Put files in the place of all rows; or of those of `partitions` and of the partitions the files belong to.

        Readers see all of it or nothing. Raises `WrongTable`, and changes nothing, if the table takes batches, has
        other columns, or a file is not there.
        """
        old = None if partitions is None else [*partitions, *(file.partition for file in files)]

        def change(snapshot: Snapshot) -> Change:
            if snapshot.query:
                raise WrongTable(f"{self.location} takes batches of a query; its rows are not replaced")
            return Change("replace", files, snapshot.select(old))

        self._make_ready(files, None)
        commit(self.location, change, self._fitted)

    def recover(self) -> list[str]:
        """Remove what a loss of power left half written in the log, and return it in words.

        Only for the run that writes the table. `append` and `replace` do it too, the first time.
        """
        return log.recover(self.location)

    def _make_ready(self, files: Sequence[NewFile], query: str | None) -> None:
        if self._is_ready:
            return
        if self.location.names(OLD_FORMAT):
            raise WrongTable(_no_table(self.location))
        self.recover()
        if not self.exists():
            _check_files(self.location, files)
            self.make(query)
        self.location.sync("")  # also when it was there: whoever made it may have been killed before
        self.location.sync_above()
        self._is_ready = True

    def make(self, query: str | None) -> None:
        """Make the table, without rows; `append` and `replace` do by themselves.

        Args:
            query: the streaming query whose batches it takes; None when its rows are replaced.
        """
        schema = Schema.from_arrow(self.schema)
        if "timestamp_ntz" in schema.to_json():
            raise WrongTable(f"{self.location}: times without a zone are no columns of a table that all readers know")
        self.location.make()
        days = f"interval {max(1, round(self.keep / timedelta(days=1)))} days"
        kept = {"delta.logRetentionDuration": days, "delta.deletedFileRetentionDuration": days}
        try:
            DeltaTable.create(
                self.location.root,
                schema,
                partition_by=list(self.partition_by),
                configuration={**kept, **({_QUERY: query} if query else {})},
                storage_options=self.location.options,
                commit_properties=log.properties("create", 2),
                post_commithook_properties=log.HOOKS,
                raise_if_key_not_exists=False,
            )
        except DeltaError:
            if not self.exists():
                raise

    def _check_batch(self, snapshot: Snapshot, query: str, batch: int) -> None:
        if snapshot.query != query:
            raise WrongTable(
                f"{self.location} was written from another checkpoint; give another folder, or that checkpoint"
            )
        if batch < snapshot.batch:
            raise WrongTable(
                f"{self.location} knows batch {snapshot.batch} already, and this is batch {batch}: the checkpoint is "
                "older than the table; give another folder, or the newer checkpoint"
            )

    def _fitted(self, snapshot: Snapshot) -> bool:
        """Add the columns the table lacks, by a commit of its own; False if there was nothing to add."""
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
            snapshot.delta.alter.add_columns(
                lacking, commit_properties=log.properties("add columns", 1), post_commithook_properties=log.HOOKS
            )
        return bool(lacking)


def commit(
    location: Location,
    change: Callable[[Snapshot], Change | None],
    fit: Callable[[Snapshot], bool] = lambda _: False,
) -> bool:
    """Commit what `change` finds to do in the newest version, on just that version; False when it finds nothing.

    When another writer was faster, or `fit` has changed the table, both look again at what is there then. It is on
    stable storage when this returns. Raises `WrongTable` when others are faster all the time.
    """
    lost: CommitFailedError | None = None
    for _ in range(_TRIES):
        snapshot = _opened(location)
        log.sync(location, snapshot.version)  # whoever wrote it may have been killed before
        found = change(snapshot)
        if found is None:
            return False
        try:
            if fit(snapshot):
                continue
            _write(snapshot, found)
        except CommitFailedError as error:
            lost = error
            continue
        version = snapshot.version + 1
        log.sync(location, version)
        if version % log.CHECKPOINT_EVERY == 0:
            log.checkpoint(location, version)
        return True
    raise WrongTable(f"{location} is changed by others all the time; nothing was stored") from lost


def _write(snapshot: Snapshot, change: Change) -> None:
    _check_files(snapshot.location, change.add)
    now = round(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, file.partition, now, change.is_other_rows, file.stats) for file in change.add
    ]
    actions += [
        RemoveAction(
            file.path,
            data_change=change.is_other_rows,
            deletion_timestamp=now,
            size=file.size,
            partition_values=file.partition,
        )
        for file in change.remove
    ]
    snapshot.delta._table.create_write_transaction(
        actions,
        "append",
        list(snapshot.partition_by),
        snapshot.delta.schema(),
        None,
        log.properties(change.what, len(actions) + (change.number is not None), change.number),
        log.HOOKS,
    )


def _check_files(location: Location, files: Iterable[NewFile]) -> None:
    """Raise `WrongTable` unless all files are there and have the sizes they say: delta-rs takes any."""
    for file in files:
        found = location.size(file.path)
        if found != file.size:
            what = "is not there" if found is None else f"has {found} bytes instead of {file.size}"
            raise WrongTable(f"{location.path(file.path)} {what}; nothing was stored")


def _check_protocol(location: Location, delta: DeltaTable) -> None:
    protocol = delta.protocol()
    features = sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
    if delta.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.append("columnMapping")  # older tables have it without saying so in their protocol
    if protocol.min_reader_version > _READER or protocol.min_writer_version > _WRITER or features:
        what = ", ".join(features) or f"version {protocol.min_reader_version} and {protocol.min_writer_version}"
        raise WrongTable(f"{location} was made by another program: it needs of its readers and writers {what}")


def _version_at(location: Location, at: datetime) -> int:
    """Return the newest version up to a time. By what commits say: delta-rs goes by the times of the files."""
    found = log.versions(location)
    if not found:
        raise WrongTable(_no_table(location))
    place = bisect.bisect_right(found, at, key=lambda version: _committed(location, version))
    if place == 0:
        raise WrongTable(f"{location} has no version of {at.isoformat()} (any longer)")
    return found[place - 1]


def _committed(location: Location, version: int) -> datetime:
    return log.time_of(log.commit_info(location, version))


def _no_table(location: Location) -> str:
    if location.names(OLD_FORMAT):
        return f"{location} is a table of an earlier version; `ams pipeline table convert` makes a Delta table of it"
    return f"{location} is no table: it has no {log.FOLDER}"


def _why(location: Location, version: int | None, error: Exception) -> str:
    """Return why a table could not be opened."""
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
    return File(
        parquet.decoded(row["path"]),
        row["size_bytes"],
        row["num_records"],
        {name: parquet.text(values[name]) for name in partition_by},
        {name: value for name, value in (row["min"] or {}).items() if value is not None},
        {name: value for name, value in (row["max"] or {}).items() if value is not None},
    )


def _plain(type_: Any) -> Any:
    """Return a type without what is said of nulls below it."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items() if key not in _ABOUT_NULLS}
        return [plain(each) for each in value] if isinstance(value, list) else value

    return plain(json.loads(type_.to_json()))


_ABOUT_NULLS = {"nullable", "valueContainsNull", "containsNull", "metadata"}
