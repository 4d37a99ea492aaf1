"""`ams archive`: copies topics into the same table as the job `archive`, without Spark and Java.

The table itself holds the position. The commit of a batch also stores each topic's next offset (`Table.append`), so a
kill cannot separate them, and merges, checkpoints and restores keep them. The name of each number holds the topic's id:
a topic that was deleted and made again does not inherit the position.
"""

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ams.client.errors import NotAms, NotFound
from ams.pipeline.checkpoint import hold_lock
from ams.pipeline.errors import WrongTable
from ams.pipeline.messages import ARCHIVE, PARTITIONS, with_date
from ams.pipeline.options import ResourceName, is_pattern
from ams.pipeline.progress import BatchProgress, FinishedBatch
from ams.pipeline.range_reader import Fetch, LostMessages, OffsetRange, limit_ends, remade, report_data_loss
from ams.pipeline.service_calls import ReadBounds, Service
from ams.tables import log, upkeep
from ams.tables.files import Partition, batch_name
from ams.tables.location import Location
from ams.tables.table import Table, TableVersion

_QUERY = "ams-archive/"  # + project: the table's query
_WAY_ON = (
    "archive it into another folder, or go on here with --skip-lost: then the archive holds the messages of both under "
    "the same ids"
)


@dataclass
class Archiver:
    """Writes an archive. The caller holds the lock (`alone`)."""

    service: Service
    location: Location
    stopping: threading.Event  # ends the work between two batches
    say: Callable[[str], None]
    project: str
    wanted: Sequence[str] = ("*",)  # topics or patterns
    batch_messages: int = 200_000
    merge: bool = True
    closed_after: int = 1  # days after its end
    file_bytes: int = upkeep.FILE_BYTES
    skip_lost: bool = False

    def __post_init__(self) -> None:
        self.progress = BatchProgress(self.say)
        self.topics = set[ResourceName]()  # that had messages to store
        self.files = 0  # files written, including files merged since
        self._query = f"{_QUERY}{self.project}"
        self._table = Table(self.location, ARCHIVE, PARTITIONS)

    def begin(self) -> None:
        """Check that the table is an archive or does not exist. Raises `WrongTable`."""
        for each in log.recover(self.location):  # before the position is read
            self.say(f"archive: {each}")
        if not self._table.exists():
            return
        found = self._table.snapshot()
        if found.partition_by != PARTITIONS or found.query is None:
            raise WrongTable(f"{self.location} is no archive; give another folder")
        if found.query == self._query:
            return
        if is_kept_here(found.query):
            other = found.query.removeprefix(_QUERY)
            raise WrongTable(f"{self.location} is the archive of project {other}; give each project one of its own")
        way_out = "go on with `ams pipeline run archive`, or give another folder"
        job = "the job archive, whose place is in its own checkpoint"
        raise WrongTable(f"{self.location} is written by {job}; {way_out}")

    def run(self, every: float | None = None) -> None:
        """Store new messages and merge; with `every`, repeat after so many seconds until stopped.

        Raises `DataLoss`, and permanent `ClientError`s; messages stored before stay.
        """
        while True:
            began = time.monotonic()
            self._catch_up()
            if not self.stopping.is_set():
                self._merge()
            if every is None or self.stopping.wait(max(0.0, began + every - time.monotonic())):
                return

    def _catch_up(self) -> None:
        while True:
            names = self._names()
            try:
                topics = {name: self.service.bounds(name) for name in names}
                while not self.stopping.is_set() and self._batch(topics):
                    pass
                return
            except NotFound:
                if self._names() == names:  # else one was deleted meanwhile: go on with the others
                    raise

    def _names(self) -> list[ResourceName]:
        patterns = [each for each in self.wanted if is_pattern(each)]
        names = {ResourceName(self.project, each) for each in self.wanted if each not in patterns}
        return sorted(names.union(self.service.topics(self.project, patterns) if patterns else ()))

    def _batch(self, topics: Mapping[ResourceName, ReadBounds]) -> bool:
        # Read each time: the table has the position, even if another writer moved it.
        snapshot = self._table.snapshot() if self._table.exists() else None
        number = snapshot.batch + 1 if snapshot else 0
        with _losses_told(self.say):
            starts = {name: self._start(snapshot, name, there) for name, there in topics.items()}
            ends = {name: max(topics[name].end, start) for name, start in starts.items()}
            stops = limit_ends(starts, ends, self.batch_messages)
            parts = [OffsetRange(name, starts[name], stop, topics[name].id) for name, stop in stops.items()]
            parts = [part for part in parts if part.start < part.stop]
            if not parts:
                return False
            fetches = (Fetch(self.service, part, fail_on_data_loss=not self.skip_lost) for part in parts)
            rows = (with_date(rows) for fetch in fetches for rows in fetch.batches())
            files = self._table.write(batch_name(self._query, number), rows)
        if self._table.append(self._query, number, files, {_place(part.topic, part.id): part.stop for part in parts}):
            self.files += len(files)
            self.topics |= {part.topic for part in parts}
            lag = sum(ends.values()) - sum(stops.values())
            self.progress.count(FinishedBatch(number, sum(each.rows for each in files), lag))
        return True

    def _start(self, snapshot: TableVersion | None, topic: ResourceName, there: ReadBounds) -> int:
        """Return the offset to read a topic from. Reports messages that are known to be lost."""
        if not there.id:
            raise NotAms("the service is of a version that does not tell the ids of topics; it is too old for this")
        at = snapshot.number(_place(topic, there.id)) if snapshot else None
        fail = not self.skip_lost
        if at is None:
            stored = {"project": topic.project, "topic": topic.name}.items()
            if snapshot and any(stored <= file.partition.items() for file in snapshot.files):
                remade(str(topic), fail=fail, since="it was archived", done="stored", way_on=_WAY_ON)
            return there.first
        if at > there.end:  # the service was restored to an earlier state
            report_data_loss(topic, there.end, at, fail=fail)
            return there.first
        return at

    def _merge(self) -> None:
        if not self._table.exists():
            return
        files = self._table.snapshot().files
        found = upkeep.crowded_partitions(files)
        if self.merge:
            found += closed_partitions((file.partition for file in files), self.closed_after)
        if merged := upkeep.merge(self.location, found, self.file_bytes, "offset") if found else 0:
            self.say(f"archive: merged {merged} files")


def _place(topic: ResourceName, known: str) -> str:
    return f"{topic} {known}"


def is_kept_here(query: str | None) -> bool:
    """Return whether `ams archive` writes the table, judged by its query."""
    return bool(query) and str(query).startswith(_QUERY)


def closed_partitions(partitions: Iterable[Partition], closed_after: int) -> list[Partition]:
    """Return the partitions whose day ended at least `closed_after` days ago."""
    open_from = (datetime.now(UTC).date() - timedelta(days=closed_after)).isoformat()
    return [each for each in partitions if (each["date"] or "") < open_from]


def alone(location: Location) -> AbstractContextManager[None]:
    """Lock an archive's folder, or raise `Busy`. A store has no lock: there one of two writers' batches is refused."""
    if location.is_store:
        return nullcontext()
    busy = f"another `ams archive` writes {location}; wait for its end, or give another folder"
    return hold_lock(Path(location.root), "_lock", str(location), busy)


@contextmanager
def _losses_told(say: Callable[[str], None]) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", LostMessages)
        yield
    for each in found:
        if issubclass(each.category, LostMessages):
            say(f"archive: {each.message}")
