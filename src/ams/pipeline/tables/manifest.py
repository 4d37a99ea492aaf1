"""The manifest of a table: which folders belong to it, what they hold, and which batch came last.

    _manifest/commit-000000000065.json      one change
    _manifest/snapshot-000000000064.json    what all changes up to that one came to

What the table is, is said by the newest snapshot and the commits after it, in the order of their numbers. Anything else
in the table's folder is not of the table.
"""

import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ams.pipeline.errors import WrongTable
from ams.pipeline.tables.files import Storage

MANIFEST = "_manifest"
_NULL = "__HIVE_DEFAULT_PARTITION__"
FOLD = 64
"""Commits after a snapshot, until there is a new one."""
_COMMIT, _SNAPSHOT, _JSON = "commit-", "snapshot-", ".json"


Partition = Mapping[str, str | None]
"""The values of the partition columns, as texts; None for null."""


class Folder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A folder of files that came by one commit."""

    path: str
    """Below the root: the partition and the name, `day=2024-03-05/batch-1f0c9a7e-000012`."""
    batch: int
    """The newest batch of which it holds rows."""
    rows: int
    files: int
    bytes: int
    ranges: dict[str, tuple[Any, Any]] = {}
    """The least and the greatest value of columns; times as text, in UTC."""

    @property
    def partition(self) -> str:
        """The folder above it, `.` in a table without partitions."""
        return self.path.rpartition("/")[0] or "."

    @property
    def values(self) -> Partition:
        """What its path tells of the partition columns."""
        return values(self.partition)


class Commit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of a table."""

    number: int
    query: str
    """The streaming query whose batches these are."""
    batch: int
    """The last batch that is in the table."""
    work: str
    """Where its folders were written before they got their places, below `_work`."""
    columns: str
    partition_by: tuple[str, ...]
    folders: tuple[Folder, ...]
    merged: tuple[str, ...] = ()
    """Partitions of which all that was there before is replaced."""


class State(msgspec.Struct, omit_defaults=True):
    """What a table is after its last commit."""

    last: Commit | None = None
    snapshot: int = 0
    """The number of the snapshot this was read from."""
    folders: dict[str, tuple[Folder, ...]] = {}
    """By partition."""

    @property
    def number(self) -> int:
        """The number of the last commit, 0 before the first."""
        return self.last.number if self.last else 0

    @property
    def batch(self) -> int:
        """The last batch, -1 before the first."""
        return self.last.batch if self.last else -1

    def all(self) -> Iterator[Folder]:
        """Iterate over all folders, partition by partition."""
        for partition in sorted(self.folders):
            yield from self.folders[partition]

    def add(self, commit: Commit) -> None:
        """Become what the table is after a commit."""
        for partition in commit.merged:
            self.folders.pop(partition, None)
        for folder in commit.folders:
            self.folders[folder.partition] = (*self.folders.get(folder.partition, ()), folder)
        self.last = commit


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest in the folder of a table."""

    files: Storage
    root: str

    def load(self) -> State:
        """Return what the table is. Raises `WrongTable` for a manifest that cannot be read or lacks a commit."""
        for _ in range(3):  # a writer may fold it meanwhile
            names = self.files.names(self._folder)
            try:
                return self._load(names)
            except FileNotFoundError:
                continue
        raise WrongTable(f"the manifest of {self.root} changes all the time; try again when nobody writes")

    def add(self, commit: Commit) -> None:
        """Store a commit: from now on it has happened. Raises `WrongTable` if another writer was faster."""
        try:
            self.files.write(self._path(_COMMIT, commit.number), msgspec.json.encode(commit))
        except FileExistsError:
            raise WrongTable(f"{self.root} is written by two runs at once; nothing of this batch was stored") from None

    def fold(self, state: State) -> None:
        """Put a snapshot in the place of many commits; until it is whole they say the same."""
        if state.number - state.snapshot < FOLD:
            return
        self.files.write(self._path(_SNAPSHOT, state.number), msgspec.json.encode(state))
        for name in self.files.names(self._folder):
            if self._path(_SNAPSHOT, state.number) != f"{self._folder}/{name}" and _number(name) <= state.number:
                self.files.delete(f"{self._folder}/{name}")

    @property
    def _folder(self) -> str:
        return f"{self.root}/{MANIFEST}"

    def _path(self, kind: str, number: int) -> str:
        return f"{self._folder}/{kind}{number:012d}{_JSON}"

    def _load(self, names: list[str]) -> State:
        snapshots = [_number(name) for name in names if name.startswith(_SNAPSHOT) and name.endswith(_JSON)]
        state = State()
        if snapshots:
            state = self._decoded(self._path(_SNAPSHOT, max(snapshots)), State)
            state.snapshot = max(snapshots)
        commits = sorted(_number(name) for name in names if name.startswith(_COMMIT) and name.endswith(_JSON))
        for number in (each for each in commits if each > state.snapshot):
            if number != state.number + 1:
                raise WrongTable(f"the manifest of {self.root} lacks commit {state.number + 1}")
            state.add(self._decoded(self._path(_COMMIT, number), Commit))
        return state

    def _decoded(self, path: str, kind: type[Any]) -> Any:
        try:
            return msgspec.json.decode(self.files.read(path), type=kind)
        except msgspec.MsgspecError:
            raise WrongTable(f"{path} is not of a table of this version") from None


def values(partition: str) -> Partition:
    """Return the values a partition's path tells.

    >>> values("project=meadow/day=2024-03-05")
    {'project': 'meadow', 'day': '2024-03-05'}
    """
    pairs = (each.partition("=") for each in partition.split("/") if "=" in each)
    return {name: None if text == _NULL else urllib.parse.unquote(text) for name, _, text in pairs}


def _number(name: str) -> int:
    digits = name.removeprefix(_COMMIT).removeprefix(_SNAPSHOT)[:12]
    return int(digits) if digits.isdigit() else 0
