"""A batch of a stream that comes again after a kill, in other partitions or with other rows, is published once."""

import contextlib
import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ams.client import wire
from ams.pipeline.errors import PipelineError, StaleCheckpoint, WrongOption, WrongRow
from ams.pipeline.sink import writer
from ams.pipeline.sink.batch_plan import BatchFolder
from ams.pipeline.sink.options import Limits
from ams.pipeline.sink.requests import BATCH_ID, QUERY_ID, Chunker, Encoded, Lane, Publisher
from ams.pipeline.sink.writer import BatchWriter, Kept, StreamWriter
from tests.pipeline.garden import Garden

ROWS = [f"{number:02}" for number in range(12)]
SCHEMA = StructType([StructField("data", StringType())])


class Killed(BaseException):
    """The driver is no more."""


@dataclass(frozen=True)
class Task:
    """What Spark tells a task."""

    partition: int
    batch: int = 7
    query: str | None = "the-query"

    def partitionId(self) -> int:  # noqa: N802  # Spark's name
        return self.partition

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802  # Spark's name
        return {QUERY_ID: self.query, BATCH_ID: self.query and str(self.batch)}[name]


@dataclass(frozen=True)
class Stream:
    """A query that publishes, without Spark."""

    garden: Garden
    topic: str
    checkpoint: Path
    patch: pytest.MonkeyPatch

    def writer(self) -> StreamWriter:
        options = {"topic": self.topic, "checkpointLocation": str(self.checkpoint), "maxRequestMessages": "3"}
        return StreamWriter(self.garden.options | options, SCHEMA, False)

    def write(self, partition: int, rows: Sequence[str], batch: int = 7) -> Kept:
        self.patch.setattr(writer, "_task", lambda: Task(partition, batch))
        return self.writer().write(iter([pa.RecordBatch.from_pydict({"data": list(rows)})]))

    def do_batch(self, partitions: Sequence[Sequence[str]], batch: int = 7) -> None:
        kept = [self.write(number, rows, batch) for number, rows in enumerate(partitions)]
        self.writer().commit(kept, batch)

    @property
    def published(self) -> list[str]:
        read = self.garden.client.call(wire.read_topic(self.garden.name, self.topic))
        return [message.payload().decode() for message in read]


@pytest.fixture
def stream(garden: Garden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    return Stream(garden, garden.topic("out"), tmp_path / "checkpoint", monkeypatch)


def parted(rows: Sequence[str], count: int) -> list[Sequence[str]]:
    edges = [len(rows) * number // count for number in range(count + 1)]
    return [rows[start:stop] for start, stop in itertools.pairwise(edges)]


TWO = parted(ROWS, 2)
WRITTEN, ALL = 4, 15
"""Moments of the first try before all its tasks have written, and all: two tasks, four requests and the end have two
each, and in the last everything is done but noted by Spark."""


def do_batch_until(stream: Stream, moment: int) -> None:
    """Do a batch until a moment, before or after one of its steps; then the driver is no more."""
    moments = itertools.count()

    def pass_moment() -> None:
        if next(moments) >= moment:
            raise Killed

    def dying(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            pass_moment()
            done = step(*arguments)
            pass_moment()
            return done

        return call

    with stream.patch.context() as patch, contextlib.suppress(Killed):
        for kind, name in ((StreamWriter, "write"), (Publisher, "send"), (BatchFolder, "finish")):
            patch.setattr(kind, name, dying(getattr(kind, name)))
        stream.do_batch(TWO)


@pytest.mark.parametrize(
    "partitions", [1, 3, 7, *(pytest.param(each, marks=pytest.mark.long) for each in (2, 4, 5, 6))]
)
@pytest.mark.parametrize("moment", range(ALL))
def test_a_batch_in_other_partitions_publishes_the_same(moment: int, partitions: int, stream: Stream) -> None:
    do_batch_until(stream, moment)

    stream.do_batch(parted(ROWS, partitions))
    stream.do_batch(parted(ROWS, partitions % 7 + 1))  # and again, should that have been killed at its very end

    assert Counter(stream.published) == Counter(ROWS)
    for part in parted(ROWS, partitions) if moment < WRITTEN else TWO:
        assert [row for row in stream.published if row in part] == list(part)


@pytest.mark.parametrize("moment", range(WRITTEN, ALL, 2))
def test_rows_that_come_differently_again_are_those_of_the_first_try(moment: int, stream: Stream) -> None:
    do_batch_until(stream, moment)

    stream.do_batch([["other"], ROWS[::-1], ["rows"]])

    assert sorted(stream.published) == ROWS


def test_killed_again_and_again_a_batch_is_published_once(stream: Stream) -> None:
    for moment in (7, 5, 9):
        do_batch_until(stream, moment)
    stream.do_batch(parted(ROWS, 5))

    assert sorted(stream.published) == ROWS


def test_what_is_kept_goes_with_the_next_batch(stream: Stream) -> None:
    kept = stream.checkpoint / "unpublished"
    stream.do_batch(TWO)
    assert [path.name for path in kept.rglob("*") if path.is_file()] == ["plan.json"]

    stream.do_batch([["x"]], batch=8)

    assert [path.name for path in kept.iterdir()] == ["batch-000008"]
    assert sorted(stream.published) == [*ROWS, "x"]


def test_payloads_that_are_kept_are_for_the_owner_only(stream: Stream) -> None:
    stream.write(0, ROWS)

    [part] = (stream.checkpoint / "unpublished" / "batch-000007").iterdir()
    assert part.stat().st_mode & 0o777 == 0o600
    assert part.parent.stat().st_mode & 0o777 == 0o700


def test_a_batch_without_partitions_is_published(stream: Stream) -> None:
    stream.do_batch([])
    stream.do_batch([ROWS])

    assert stream.published == []


def test_a_row_that_is_no_message_keeps_its_whole_batch_from_being_published(stream: Stream) -> None:
    with pytest.raises(WrongRow, match="row 1 of partition 1 has neither data nor attributes"):
        stream.do_batch([ROWS, ["x", ""]])

    assert stream.published == []


def test_a_folder_that_machines_do_not_share_is_told_before_anything_is_published(stream: Stream) -> None:
    kept = stream.write(0, ROWS)
    assert kept.part is not None
    (stream.checkpoint / "unpublished" / "batch-000007" / kept.part.file).unlink()

    with pytest.raises(PipelineError, match="must be on a file system that all machines share"):
        stream.writer().commit([kept], 7)
    assert stream.published == []


@pytest.mark.parametrize("checkpoint", [None, "hdfs://namenode/checkpoint"])
def test_a_checkpoint_that_cannot_keep_batches_is_refused(checkpoint: str | None, stream: Stream) -> None:
    options = {"topic": "out"} | ({"checkpointLocation": checkpoint} if checkpoint else {})

    with pytest.raises(WrongOption, match="option checkpointLocation: is needed as an option, on a file system"):
        StreamWriter(stream.garden.options | options, SCHEMA, False)


def begun(checkpoint: Path) -> None:
    """Note a batch as Spark does when it is begun, long ago."""
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "7").write_text('v1\n{"batchTimestampMs": 1000}\n{}')


def test_a_batch_of_which_nothing_or_all_was_published_may_be_of_any_age(stream: Stream) -> None:
    folder = BatchFolder.of(stream.checkpoint, 7).path
    stream.do_batch(TWO)
    begun(stream.checkpoint)
    stream.writer()

    shutil.rmtree(folder)
    with pytest.raises(StaleCheckpoint):
        stream.writer()
    folder.mkdir()
    do_batch_until(stream, WRITTEN + 1)
    with pytest.raises(StaleCheckpoint):
        stream.writer()


LANED = StructType([*SCHEMA, StructField("lane", LongType())])


@pytest.mark.parametrize(
    ("options", "task"),
    [({"idempotencyKey": "import-7"}, Task(0, query=None)), ({}, Task(0))],
    ids=["a key", "within foreachBatch"],
)
def test_a_batch_write_that_must_not_double_needs_rows_that_are_arranged(
    options: dict[str, str], task: Task, stream: Stream
) -> None:
    stream.patch.setattr(writer, "_task", lambda: task)
    options = stream.garden.options | options | {"topic": stream.topic}

    with pytest.raises(WrongOption, match=r"publish it with ams\.pipeline\.sink\.publish, which arranges the rows"):
        BatchWriter(options, SCHEMA, False).write(iter([pa.RecordBatch.from_pydict({"data": ROWS})]))
    assert stream.published == []

    arranged = pa.RecordBatch.from_pydict({"data": ROWS, "lane": [0] * len(ROWS)})
    BatchWriter(options, LANED, False).write(iter([arranged]))
    assert stream.published == ROWS


def test_where_requests_of_a_lane_end_does_not_depend_on_its_neighbours() -> None:
    limits = Limits(messages=10, bytes=1000, open_bytes=2000)
    rows = [(Lane(f"topic-{number:02}", "l0"), Encoded(b"x" * 50, "")) for number in range(40) for _ in range(15)]

    def requests(lanes: Sequence[int]) -> Iterator[tuple[str, int, int]]:
        """Make the requests of one partition that has these lanes."""
        wanted = {f"topic-{number:02}" for number in lanes}
        chunker = Chunker(limits)
        for lane, message in rows:
            if lane.topic in wanted:
                yield from ((each.lane.topic, each.number, len(each.messages)) for each in chunker.add(lane, message))
        yield from ((each.lane.topic, each.number, len(each.messages)) for each in chunker.rest())

    alone = sorted(each for number in range(40) for each in requests([number]))

    assert sorted(requests(range(40))) == alone
    assert sorted([*requests(range(0, 40, 2)), *requests(range(1, 40, 2))]) == alone
