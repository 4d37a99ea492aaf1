"""Each row of a batch is published once, also when the batch is repeated after a kill."""

import contextlib
import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ams.client import wire
from ams.pipeline.errors import PipelineError, StaleCheckpoint, WrongOption, WrongRow
from ams.pipeline.options import Limits
from ams.pipeline.sink import publish, writer
from ams.pipeline.sink.requests import BATCH_ID, QUERY_ID, Chunker, EncodedMessage, Lane, Publisher
from ams.pipeline.sink.writer import BatchFolder, BatchWriter, StreamWriter, WrittenRequests
from tests.pipeline.garden import Garden
from tests.support.s3 import Often, unreliable

ROWS = [f"{number:02}" for number in range(12)]
SCHEMA = StructType([StructField("data", StringType())])


class DriverKilled(BaseException):
    """The driver was killed."""


@dataclass(frozen=True)
class Task:
    partition: int
    batch: int = 7
    query: str | None = "the-query"

    def partitionId(self) -> int:  # noqa: N802  # Spark's name
        return self.partition

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802  # Spark's name
        return {QUERY_ID: self.query, BATCH_ID: self.query and str(self.batch)}[name]


@dataclass(frozen=True)
class Stream:
    garden: Garden
    topic: str
    checkpoint: Path
    patch: pytest.MonkeyPatch

    def writer(self) -> StreamWriter:
        options = {"topic": self.topic, "checkpointLocation": str(self.checkpoint), "maxRequestMessages": "3"}
        return StreamWriter(self.garden.options | options, SCHEMA, False)

    def write(self, partition: int, rows: Sequence[str], batch: int = 7) -> WrittenRequests:
        self.patch.setattr(writer, "_task", lambda: Task(partition, batch))
        return self.writer().write(iter([pa.RecordBatch.from_pydict({"data": list(rows)})]))

    def do_batch(self, partitions: Sequence[Sequence[str]], batch: int = 7) -> None:
        kept = [self.write(number, rows, batch) for number, rows in enumerate(partitions)]
        self.writer().commit(kept, batch)

    @property
    def published_texts(self) -> list[str]:
        read = self.garden.client.call(wire.read_topic(self.garden.name, self.topic))
        return [message.payload().decode() for message in read]


@pytest.fixture
def stream(garden: Garden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    return Stream(garden, garden.topic("out"), tmp_path / "checkpoint", monkeypatch)


def split_rows(rows: Sequence[str], count: int) -> list[Sequence[str]]:
    edges = [len(rows) * number // count for number in range(count + 1)]
    return [rows[start:stop] for start, stop in itertools.pairwise(edges)]


TWO_PARTS = split_rows(ROWS, 2)
WRITTEN, ALL = 4, 15
"""Kill points of the first try before all tasks have written, and all: two tasks, four requests and the end have two
each. At the last point only Spark's commit is missing."""


def do_batch_until(stream: Stream, moment: int) -> None:
    moments = itertools.count()

    def pass_moment() -> None:
        if next(moments) >= moment:
            raise DriverKilled

    def kill_around(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            pass_moment()
            done = step(*arguments)
            pass_moment()
            return done

        return call

    with stream.patch.context() as patch, contextlib.suppress(DriverKilled):
        for kind, name in ((StreamWriter, "write"), (Publisher, "send"), (BatchFolder, "finish")):
            patch.setattr(kind, name, kill_around(getattr(kind, name)))
        stream.do_batch(TWO_PARTS)


@pytest.mark.parametrize(
    "partitions", [1, 3, 7, *(pytest.param(each, marks=pytest.mark.long) for each in (2, 4, 5, 6))]
)
@pytest.mark.parametrize("moment", range(ALL))
def test_a_batch_in_other_partitions_publishes_the_same(moment: int, partitions: int, stream: Stream) -> None:
    do_batch_until(stream, moment)

    stream.do_batch(split_rows(ROWS, partitions))
    stream.do_batch(split_rows(ROWS, partitions % 7 + 1))  # and again, should that have been killed at its very end

    assert Counter(stream.published_texts) == Counter(ROWS)
    for part in split_rows(ROWS, partitions) if moment < WRITTEN else TWO_PARTS:
        assert [row for row in stream.published_texts if row in part] == list(part)


@pytest.mark.parametrize("moment", range(WRITTEN, ALL, 2))
def test_rows_that_come_differently_again_are_those_of_the_first_try(moment: int, stream: Stream) -> None:
    do_batch_until(stream, moment)
    stream.do_batch([["other"], ROWS[::-1], ["rows"]])
    assert sorted(stream.published_texts) == ROWS


def test_killed_again_and_again_a_batch_is_published_once(stream: Stream) -> None:
    for moment in (7, 5, 9):
        do_batch_until(stream, moment)
    stream.do_batch(split_rows(ROWS, 5))
    assert sorted(stream.published_texts) == ROWS


def test_what_is_kept_goes_with_the_next_batch(stream: Stream) -> None:
    kept = stream.checkpoint / "unpublished"
    stream.do_batch(TWO_PARTS)
    assert [path.name for path in kept.rglob("*") if path.is_file()] == ["plan.json"]

    stream.do_batch([["x"]], batch=8)

    assert [path.name for path in kept.iterdir()] == ["batch-000008"]
    assert sorted(stream.published_texts) == [*ROWS, "x"]


def test_payloads_that_are_kept_are_for_the_owner_only(stream: Stream) -> None:
    stream.write(0, ROWS)
    [part] = (stream.checkpoint / "unpublished" / "batch-000007").iterdir()
    assert (part.stat().st_mode & 0o777, part.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_batch_without_partitions_is_published(stream: Stream) -> None:
    stream.do_batch([])
    stream.do_batch([ROWS])
    assert stream.published_texts == []


def test_a_row_that_is_no_message_keeps_its_whole_batch_from_being_published(stream: Stream) -> None:
    with pytest.raises(WrongRow, match="row 1 of partition 1 has neither data nor attributes"):
        stream.do_batch([ROWS, ["x", ""]])
    assert stream.published_texts == []


def test_a_folder_that_machines_do_not_share_is_told_before_anything_is_published(stream: Stream) -> None:
    kept = stream.write(0, ROWS)
    assert kept.part is not None
    (stream.checkpoint / "unpublished" / "batch-000007" / kept.part.file).unlink()

    with pytest.raises(PipelineError, match="must be on a file system that all machines share"):
        stream.writer().commit([kept], 7)
    assert stream.published_texts == []


@pytest.mark.parametrize("checkpoint", [None, "hdfs://namenode/checkpoint"])
def test_a_checkpoint_that_cannot_keep_batches_is_refused(checkpoint: str | None, stream: Stream) -> None:
    options = {"topic": "out"} | ({"checkpointLocation": checkpoint} if checkpoint else {})
    with pytest.raises(WrongOption, match="option checkpointLocation: is needed as an option, on a file system"):
        StreamWriter(stream.garden.options | options, SCHEMA, False)


def begin_batch(checkpoint: Path) -> None:
    """Record the start of a batch as Spark does, long ago."""
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "7").write_text('v1\n{"batchTimestampMs": 1000}\n{}')


def test_a_batch_of_which_nothing_or_all_was_published_may_be_of_any_age(stream: Stream) -> None:
    folder = BatchFolder(stream.checkpoint, 7).path
    stream.do_batch(TWO_PARTS)
    begin_batch(stream.checkpoint)
    stream.writer()

    shutil.rmtree(folder)
    with pytest.raises(StaleCheckpoint):
        stream.writer()
    folder.mkdir()
    do_batch_until(stream, WRITTEN + 1)
    with pytest.raises(StaleCheckpoint):
        stream.writer()


LANE_SCHEMA = StructType([*SCHEMA, StructField("lane", LongType())])


@pytest.mark.parametrize(("options", "task"), [
    ({"idempotencyKey": "import-7"}, Task(0, query=None)), ({}, Task(0)),
], ids=["a key", "within foreachBatch"])  # fmt: skip
def test_a_write_that_must_not_double_needs_arranged_rows(options: dict[str, str], task: Task, stream: Stream) -> None:
    stream.patch.setattr(writer, "_task", lambda: task)
    options = stream.garden.options | options | {"topic": stream.topic}

    with pytest.raises(WrongOption, match=r"publish it with ams\.pipeline\.sink\.publish, which arranges the rows"):
        BatchWriter(options, SCHEMA, False).write(iter([pa.RecordBatch.from_pydict({"data": ROWS})]))
    assert stream.published_texts == []

    arranged = pa.RecordBatch.from_pydict({"data": ROWS, "lane": [0] * len(ROWS)})
    BatchWriter(options, LANE_SCHEMA, False).write(iter([arranged]))
    assert stream.published_texts == ROWS


def test_where_requests_of_a_lane_end_does_not_depend_on_its_neighbours() -> None:
    limits = Limits(messages=10, bytes=1000, open_bytes=2000)
    rows = [
        (Lane(f"topic-{number:02}", "l0"), EncodedMessage(b"x" * 50, "")) for number in range(40) for _ in range(15)
    ]

    def requests(lanes: Sequence[int]) -> Iterator[tuple[str, int, int]]:
        wanted = {f"topic-{number:02}" for number in lanes}
        chunker = Chunker(limits)
        for lane, message in rows:
            if lane.topic in wanted:
                yield from ((each.lane.topic, each.number, len(each.messages)) for each in chunker.add(lane, message))
        yield from ((each.lane.topic, each.number, len(each.messages)) for each in chunker.rest())

    alone = sorted(each for number in range(40) for each in requests([number]))

    assert sorted(requests(range(40))) == alone
    assert sorted([*requests(range(0, 40, 2)), *requests(range(1, 40, 2))]) == alone


NUMBERS = StructType([StructField("n", LongType())])  # numbers that stand for messages: published as texts


def test_a_stream_is_published_once_despite_failures(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    garden.topic("out")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    shaken = _stream(spark, tmp_path / "in", batches=2, rows=300).mapInArrow(_failing_once, NUMBERS)

    with unreliable(garden.served.run.base_url, Often(seed=1, share=0.5)) as way:
        options = garden.options | {"endpoint": way, "retrySeconds": "20", "topic": "out"}
        writer = shaken.select(F.col("n").cast("string").alias("data")).writeStream.format("ams").options(**options)
        _run_query(writer.options(maxRequestMessages="50", checkpointLocation=str(tmp_path / "checkpoint")))
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    assert _texts(garden, "out") == [str(number) for number in range(600)]


def test_a_batch_that_comes_again_in_other_partitions_is_published_once(spark: SparkSession, garden: Garden) -> None:
    rows = _to_topics(spark.range(200).withColumnRenamed("id", "n"))
    options = garden.options | {"createTopics": "true", "idempotencyKey": "import-7", "maxRequestMessages": "30"}

    publish(rows.repartition(3), options, ["n"])
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    publish(rows.orderBy(F.desc("n")), options, ["n"])
    spark.conf.set("spark.sql.shuffle.partitions", "1")

    assert _texts(garden, "a") == [str(number) for number in range(0, 200, 2)]
    assert _texts(garden, "b") == [str(number) for number in range(1, 200, 2)]
    [message] = garden.client.call(wire.read_topic(garden.name, "b", start=7, most=1))
    assert message.attributes == {"number": "15"}

    with pytest.raises(PySparkException, match="topic .*/a: a request of 30 messages, .* published with other"):
        publish(rows.where("n != 10"), options, ["n"])
    assert len(_texts(garden, "a")) == 100


@pytest.mark.long
@pytest.mark.parametrize(("columns", "options", "said"), [
    ({"data": "'x'"}, {"topic": "none"}, "NotFound: topic .*/none: Topic doesn't exist .createTopics=true makes"),
    ({"data": "repeat('x', 1200000)"}, {}, "topic .*/out: row 0 of partition 0 is too large for the service"),
    ({"data": "'x'"}, {"topics": "out"}, "option topics: there is no such option; topic is meant"),
])  # fmt: skip
def test_what_cannot_be_published_is_said_in_one_line(
    spark: SparkSession, garden: Garden, columns: dict[str, str], options: dict[str, str], said: str
) -> None:
    garden.topic("out")
    rows = spark.range(1, numPartitions=1).select(*(F.expr(text).alias(name) for name, text in columns.items()))

    with pytest.raises(PySparkException, match=said) as caught:
        rows.write.format("ams").mode("append").options(**{"topic": "out", **garden.options, **options}).save()

    assert garden.options["token"] not in str(caught.value)
    assert _texts(garden, "out") == []


def _failing_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    task = TaskContext.get()
    for number, batch in enumerate(batches):
        if number == 1 and task is not None and task.attemptNumber() == 0:
            raise OSError("this try fails")
        yield batch


def _to_topics(numbers: DataFrame) -> DataFrame:
    return numbers.select(
        "n", F.col("n").cast("string").alias("data"),
        F.create_map(F.lit("number"), F.col("n").cast("string")).alias("attributes"),
        F.when(F.col("n") % 2 == 0, "a").otherwise("b").alias("topic"),
    )  # fmt: skip


def _stream(spark: SparkSession, folder: Path, batches: int, rows: int) -> DataFrame:
    folder.mkdir()
    for batch in range(batches):
        lines = (json.dumps({"n": number}) for number in range(batch * rows, (batch + 1) * rows))
        file = folder / f"{batch}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (batch, batch))
    return spark.readStream.schema(NUMBERS).option("maxFilesPerTrigger", 1).json(str(folder))


def _run_query(writer: DataStreamWriter) -> None:
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def _texts(garden: Garden, topic: str) -> list[str]:
    return [message.payload().decode() for message in garden.client.call(wire.read_topic(garden.name, topic))]
