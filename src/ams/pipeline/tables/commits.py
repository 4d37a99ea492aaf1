"""How rows get into a table, so that a kill between any two steps leaves nothing doubled and nothing lost.

1. Folders are written below `_work/NAME`, where no reader looks, and synced.
2. A commit is added to the manifest: from here on it has happened.
3. The folders get their places by renaming, and `_work/NAME` is removed.

Whoever writes next first finishes step 3 of the last commit, which may be done any number of times, and removes all
that never reached step 2. Of a batch each folder gets its place in one step. Of a merge each partition does in two:
the old one goes away, the new one comes.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from ams.pipeline.errors import WrongTable
from ams.pipeline.tables.files import Storage, below, folders_at
from ams.pipeline.tables.footers import described
from ams.pipeline.tables.manifest import Commit, Folder, Manifest, State

WORK = "_work"


Write = Callable[[str], None]
"""Writes rows as folders of Parquet below a path, partition by partition; some folder `a=1/b=2` for each."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a table looks like."""

    columns: str
    partition_by: tuple[str, ...]
    ranges: tuple[str, ...] = ()
    """Columns of which the manifest shall know the least and the greatest value in each folder."""
    earlier: tuple[str, ...] = ()
    """Columns it may have had before."""


@dataclass(frozen=True, slots=True)
class Commits:
    """The steps, for the table in a folder. One writer at a time; the run's lock sees to that."""

    files: Storage
    root: str

    @property
    def manifest(self) -> Manifest:
        """The table's manifest."""
        return Manifest(self.files, self.root)

    def append(self, shape: Shape, query: str, batch: int, write: Write) -> State:
        """Add a batch of a streaming query, unless it is there; return what the table is then.

        Raises `WrongTable`, and changes nothing, if the table was written by another query, knows later batches, or has
        another shape.
        """
        state = self.recover()
        self._check(state, shape, query, batch)
        if batch == state.batch:
            return state
        work = uuid.uuid4().hex
        write(self._rows(work))
        folders = self._written(shape, work, f"batch-{query[:8]}-{batch:06d}", batch)
        self.files.sync(self._work(work))
        self._commit(
            state, Commit(state.number + 1, query, batch, work, shape.columns, shape.partition_by, tuple(folders))
        )
        return state

    def merge(self, state: State, shape: Shape, partitions: Sequence[str], write: Write) -> None:
        """Put what `write` writes in the place of all there is in some partitions; it must be the same rows.

        Raises `WrongTable`, and changes nothing, when it is not, or when there is something else in those partitions.
        """
        last, work, name = state.last, uuid.uuid4().hex, f"merged-{state.number + 1:012d}"
        assert last is not None
        write(self._rows(work))
        newest = max(folder.batch for each in partitions for folder in state.folders[each])
        folders = self._written(shape, work, name, newest)
        self._check_merge(state, partitions, folders)
        for folder in folders:
            self.files.move(self._in_work(work, folder.partition), f"{self._new(work)}/{folder.path}")
        self.files.sync(self._work(work))
        self._commit(
            state,
            msgspec.structs.replace(
                last, number=state.number + 1, work=work, folders=tuple(folders), merged=tuple(partitions)
            ),
        )

    def recover(self) -> State:
        """Finish the last commit, remove what was left lying about, and return what the table is."""
        state = self.manifest.load()
        left = self.files.names(f"{self.root}/{WORK}")
        if state.last and state.last.work in left:
            self._place(state.last)
        for name in left:
            self.files.delete(f"{self.root}/{WORK}/{name}")
        return state

    def is_settled(self, state: State) -> bool:
        """Whether all folders of the last commit have their places."""
        return not (state.last and self.files.exists(self._work(state.last.work)))

    def _check(self, state: State, shape: Shape, query: str, batch: int) -> None:
        last = state.last
        if last is None:
            return
        if last.query != query:
            raise WrongTable(
                f"{self.root} was written from another checkpoint; give another folder, or that checkpoint"
            )
        if batch < last.batch:
            raise WrongTable(
                f"{self.root} knows batch {last.batch} already, and this is batch {batch}: the checkpoint is older "
                "than the table; give another folder, or the newer checkpoint"
            )
        if last.columns not in (shape.columns, *shape.earlier) or last.partition_by != shape.partition_by:
            raise WrongTable(f"{self.root} has other columns or partitions than this job writes; give another folder")

    def _check_merge(self, state: State, partitions: Sequence[str], folders: Sequence[Folder]) -> None:
        rows = {folder.partition: folder.rows for folder in folders}
        for partition in partitions:
            here = state.folders[partition]
            if rows.get(partition) != sum(each.rows for each in here):
                raise WrongTable(f"{self.root}/{partition} does not hold the rows its manifest says; nothing changed")
            known = {each.path.rpartition("/")[2] for each in here}
            foreign = sorted(set(self.files.names(f"{self.root}/{partition}")) - known)
            if foreign:
                raise WrongTable(f"{self.root}/{partition} holds {foreign[0]}, which is not of it; move it away")

    def _written(self, shape: Shape, work: str, name: str, batch: int) -> list[Folder]:
        partitions = folders_at(self.files, self._rows(work), len(shape.partition_by))
        found = [
            described(
                self.files,
                self._in_work(work, each),
                name if each == "." else f"{each}/{name}",
                batch,
                shape.ranges,
            )
            for each in partitions
        ]
        return [folder for folder in found if folder.rows]

    def _commit(self, state: State, commit: Commit) -> None:
        self.manifest.add(commit)
        self._place(commit)
        self.files.delete(self._work(commit.work))
        state.add(commit)
        self.manifest.fold(state)

    def _place(self, commit: Commit) -> None:
        for folder in commit.folders:
            if self.files.exists(f"{self.root}/{folder.path}"):
                continue
            if folder.partition in commit.merged:
                self._swap(commit.work, folder.partition)
            else:
                self.files.move(self._in_work(commit.work, folder.partition), f"{self.root}/{folder.path}")

    def _swap(self, work: str, partition: str) -> None:
        place = f"{self.root}/{partition}"
        if self.files.exists(place):
            self.files.move(place, f"{self._work(work)}/old/{partition}")
        self.files.move(f"{self._new(work)}/{partition}", place)

    def _work(self, work: str) -> str:
        return f"{self.root}/{WORK}/{work}"

    def _rows(self, work: str) -> str:
        return f"{self._work(work)}/rows"

    def _new(self, work: str) -> str:
        return f"{self._work(work)}/new"

    def _in_work(self, work: str, partition: str) -> str:
        return below(self._rows(work), partition)
