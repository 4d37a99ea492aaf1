"""Maintenance of tables: merge small files, vacuum, restore a version, history, check."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import unquote

from ams.tables import WrongTable, log
from ams.tables import files as parquet
from ams.tables.files import File, Partition
from ams.tables.location import Location
from ams.tables.table import TableChange, TableVersion, commit, open_table

FILE_BYTES = 256 * 2**20
_TOGETHER_BYTES = 2**30  # merged before each commit
_MAX_PARTITION_FILES = 200  # a partition with more is worth merging at any time


def merge(
    location: Location | str,
    partitions: Iterable[Partition] | None = None,
    file_bytes: int = FILE_BYTES,
    order: str | None = None,
) -> int:
    """Merge small files of some partitions into files of about `file_bytes`; return how many files were replaced.

    Files of half that size and more stay. Files are joined in the order of their minimum of column `order`, which keeps
    sorted rows sorted. Raises `WrongTable` if a file does not hold the rows that the log says, or disappears meanwhile.
    """
    location = Location.of(location)
    snapshot = open_table(location)
    gone, added, removed = 0, list[File](), list[File]()
    for some in _worth_merging(snapshot.select(partitions), file_bytes, order):
        added += _merge_files(snapshot, some)
        removed += some
        if sum(file.size for file in removed) >= _TOGETHER_BYTES:
            gone += _exchange(location, added, removed)
            added, removed = [], []
    return gone + (_exchange(location, added, removed) if removed else 0)


def together(files: Iterable[File], file_bytes: int) -> Iterator[list[File]]:
    """Group consecutive files of one partition, each group up to about `file_bytes`."""
    found: list[File] = []
    for file in files:
        if found and sum(each.size for each in found) + file.size > file_bytes:
            yield found
            found = []
        found.append(file)
    if found:
        yield found


def crowded_partitions(files: Iterable[File]) -> list[Partition]:
    """Return the partitions with more than `_MAX_PARTITION_FILES` files."""
    counted = Counter(tuple(file.partition.items()) for file in files)
    return [dict(key) for key, count in counted.items() if count > _MAX_PARTITION_FILES]


def vacuum(location: Location | str, *, dry_run: bool = True) -> list[str]:
    """Remove files that no kept version needs, and old commits; return the relative paths of the files.

    Files younger than the table's retention (30 days, results 400) stay: a batch or a reader may need them.
    """
    location = Location.of(location)
    snapshot = open_table(location)
    with location.asking():
        listed = snapshot.delta.vacuum(dry_run=True, full=True)
    found = sorted(path for path in listed if path.endswith(parquet.ENDING))
    if not dry_run:
        for path in found:
            location.remove(path)
        with location.asking():
            snapshot.delta.cleanup_metadata()
    return found


def restore(location: Location | str, at: int | datetime) -> TableVersion:
    """Restore the rows of an earlier version by a new commit; return the new version.

    Newer columns stay, and the number of the last batch: rows added since that version do not come again. Raises
    `WrongTable`, and changes nothing, if vacuum removed a file of that version.
    """
    location = Location.of(location)
    old = open_table(location, at).files

    def change(snapshot: TableVersion) -> TableChange | None:
        now = {file.path for file in snapshot.files}
        lacking = [file for file in old if file.path not in now]
        kept = {file.path for file in old}
        extra = [file for file in snapshot.files if file.path not in kept]
        return TableChange("restore", lacking, extra) if lacking or extra else None

    commit(location, change)
    return open_table(location)


class HistoryEntry(NamedTuple):
    """A commit in the history."""

    version: int
    time: datetime
    what: str  # `append`, `merge`; other programs use their own words
    batch: int | None  # in other programs' tables, any number of the commit
    files: int
    rows: int
    removed: int


def history(location: Location | str, limit: int | None = None) -> Iterator[HistoryEntry]:
    """Yield the kept commits, newest first."""
    location = Location.of(location)
    query = open_table(location).query
    for version in sorted(log.versions(location), reverse=True)[:limit]:
        actions = log.actions(location, version)
        info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
        numbers = {each["txn"]["appId"]: each["txn"]["version"] for each in actions if "txn" in each}
        what = info.get("ams", {}).get("does") or str(info.get("operation", "")).lower()
        batch = numbers.get(query) if query else next(iter(numbers.values()), None)
        added = [each["add"] for each in actions if "add" in each]
        rows, removed = sum(map(log.rows_of, added)), sum("remove" in each for each in actions)
        yield HistoryEntry(version, log.time_of(info), what, batch, len(added), rows, removed)


@dataclass
class TableReport:
    """Result of `check`."""

    files: int = 0
    rows: int = 0
    size: int = 0
    wrong: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # no commit names them; `vacuum` removes old ones


def check(location: Location | str) -> TableReport:
    """Read every file whole and compare its rows and size with the log."""
    location = Location.of(location)
    snapshot = open_table(location)
    report = TableReport()
    for file in snapshot.files:
        report.files, report.rows, report.size = report.files + 1, report.rows + file.rows, report.size + file.size
        try:
            rows, size = parquet.read_through(location, file.path)
        except WrongTable as error:
            report.wrong.append(error.message)
            continue
        if (rows, size) != (file.rows, file.size):
            said = f"the log says {file.rows} in {file.size}"
            report.wrong.append(f"{location.path(file.path)} has {rows} rows in {size} bytes, and {said}")
    known = {file.path for file in snapshot.files}
    for version in log.versions(location):
        for action in log.actions(location, version):
            known |= {unquote(action[kind]["path"]) for kind in ("add", "remove") if kind in action}
    report.unknown = sorted(set(location.files(parquet.ENDING)) - known)
    return report


def _worth_merging(files: Sequence[File], file_bytes: int, order: str | None) -> Iterator[list[File]]:
    def place(file: File) -> tuple[Any, ...]:
        least = file.least.get(order) if order else None
        return (least is None, 0 if least is None else least, -1 if file.batch is None else file.batch, file.path)

    small = (file for file in files if file.size * 2 < file_bytes)
    for _, found in groupby(small, lambda file: file.partition):  # a version's files are sorted by partition
        yield from (some for some in together(sorted(found, key=place), file_bytes) if len(some) > 1)


def _merge_files(snapshot: TableVersion, files: Sequence[File]) -> list[File]:
    newest = max((file.batch for file in files if file.batch is not None), default=None)
    name = "merged" if newest is None else f"merged-{newest:06d}"
    rows = snapshot.batches(files=files)
    found = parquet.write(snapshot.location, snapshot.schema, snapshot.partition_by, name, rows)
    if sum(file.rows for file in found) != sum(file.rows for file in files):
        raise WrongTable(f"{snapshot.location}: {files[0].path} and others do not hold the rows that the log says")
    return found


def _exchange(location: Location, added: Sequence[File], removed: Sequence[File]) -> int:
    def change(snapshot: TableVersion) -> TableChange:
        here = {file.path for file in snapshot.files}
        if not all(file.path in here for file in removed):
            raise WrongTable(f"{location} was changed while its files were merged; nothing of that was stored")
        return TableChange("merge", added, removed, is_other_rows=False)

    commit(location, change)
    return len(removed)
