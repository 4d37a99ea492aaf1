"""Storage that die at a chosen call, and tables made without Spark."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ams.pipeline.tables.commits import Commits, Shape
from ams.pipeline.tables.files import NEW, LocalFiles

SHAPE = Shape("struct<n:bigint,day:string>", ("day",), ("n",))
QUERY = "1f0c9a7e-0000-0000-0000-000000000000"
Rows = Iterable[tuple[str, int]]
"""Day and number."""


class Killed(Exception):
    """The process is no more."""


@dataclass
class Crashing(LocalFiles):
    """Real files until the call that is one too many; that one is done by half, where it has halves."""

    calls_left: int
    done: list[str] = field(default_factory=list)

    def move(self, source: str, target: str) -> None:
        self._live("move")
        super().move(source, target)

    def replace(self, source: str, target: str) -> None:
        self._live("replace")
        super().replace(source, target)

    def write(self, path: str, content: bytes) -> None:
        try:
            self._live("write")
        except Killed:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path + NEW).write_bytes(content[: len(content) // 2])
            raise
        super().write(path, content)

    def sync(self, folder: str) -> None:
        self._live("sync")

    def delete(self, path: str) -> None:
        try:
            self._live("delete")
        except Killed:
            for each in [name for name in sorted(Path(path).rglob("*")) if name.is_file()][:1]:
                each.unlink()
            raise
        super().delete(path)

    def _live(self, call: str) -> None:
        if self.calls_left == 0:
            raise Killed(call)
        self.calls_left -= 1
        self.done.append(call)


def append(commits: Commits, batch: int, rows: Rows, query: str = QUERY) -> None:
    """Append a batch as a table does."""
    commits.append(SHAPE, query, batch, lambda path: write(path, rows))


def merge(commits: Commits, days: list[str]) -> None:
    """Merge days as a table does."""
    state = commits.recover()
    folders = [folder.path for day in days for folder in state.folders[f"day={day}"]]
    rows = [row for path in folders for row in rows_in(f"{commits.root}/{path}", path)]
    commits.merge(state, SHAPE, [f"day={day}" for day in days], lambda path: write(path, rows))


def write(path: str, rows: Rows) -> None:
    """Write rows as Spark does: a folder for each day."""
    os.makedirs(path, exist_ok=True)
    for day in sorted({day for day, _ in rows}):
        os.makedirs(f"{path}/day={day}")
        numbers = [number for other, number in rows if other == day]
        pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), f"{path}/day={day}/part-0.parquet")


def rows_in(folder: str, path: str) -> list[tuple[str, int]]:
    """Return the rows of one folder."""
    day = path.split("/")[0].removeprefix("day=")
    return [(day, number) for number in pq.read_table(f"{folder}/part-0.parquet", partitioning=None)["n"].to_pylist()]


def seen(root: str) -> Counter[tuple[str, int]]:
    """Return what a reader of the bare files sees."""
    if not os.path.isdir(root):
        return Counter()
    partitioning = ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
    schema = pa.schema([("n", pa.int64()), ("day", pa.string())])
    found = ds.dataset(root, format="parquet", schema=schema, partitioning=partitioning).to_table().to_pylist()
    return Counter((row["day"], row["n"]) for row in found)


def listed(commits: Commits) -> Counter[tuple[str, int]]:
    """Return what a reader of the manifest sees."""
    found = commits.manifest.load().all()
    return Counter(row for folder in found for row in rows_in(f"{commits.root}/{folder.path}", folder.path))
