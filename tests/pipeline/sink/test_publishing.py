"""Rows become messages, each exactly once, whatever happens on the way."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import LongType, StructField, StructType

from ams.client import wire
from ams.pipeline.sink import publish, publish_stream
from tests.pipeline.garden import Garden
from tests.support.s3 import Often, unreliable

NUMBERS = StructType([StructField("n", LongType())])
"""Numbers that stand for messages: published as texts."""


def test_a_stream_is_published_once_through_lost_answers_and_failing_tasks(
    spark: SparkSession, garden: Garden, tmp_path: Path
) -> None:
    garden.topic("out")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    shaken = _stream(spark, tmp_path / "in", batches=2, rows=300).mapInArrow(_failing_once, NUMBERS)

    with unreliable(garden.served.run.base_url, Often(seed=1, share=0.5)) as way:
        options = garden.options | {"endpoint": way, "retrySeconds": "20", "topic": "out"}
        writer = shaken.select(F.col("n").cast("string").alias("data")).writeStream.format("ams").options(**options)
        _run(writer.options(maxRequestMessages="50", checkpointLocation=str(tmp_path / "checkpoint")))
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
def test_rows_that_differ_each_time_are_written_down(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    garden.topic("out")
    checkpoint = tmp_path / "checkpoint"

    def drawn() -> DataStreamWriter:
        numbers = spark.readStream.schema(NUMBERS).json(str(tmp_path / "in"))
        rows = numbers.select(F.concat_ws(" ", "n", F.expr("uuid()")).alias("data"))
        return publish_stream(rows, {**garden.options, "topic": "out"}, str(checkpoint), write_down=True)

    _stream(spark, tmp_path / "in", batches=1, rows=10)
    _run(drawn())
    first = _texts(garden, "out")
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink()
    _run(drawn())

    assert len(first) == 10
    assert _texts(garden, "out") == first


@pytest.mark.long
@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"data": "'x'"}, {"topic": "none"}, "NotFound: topic .*/none: Topic doesn't exist .createTopics=true makes"),
        ({"data": "repeat('x', 1200000)"}, {}, "topic .*/out: row 0 of partition 0 is too large for the service"),
        ({"data": "''"}, {}, "row 0 of partition 0 has neither data nor attributes"),
        ({"data": "1"}, {}, "option columns: data is int; it must be binary or string"),
        ({"data": "'x'"}, {"topics": "out"}, "option topics: there is no such option; topic is meant"),
        ({"data": "'x'"}, {"token": "none"}, "NotAuthenticated: topic .*/out: Unauthorized"),
        ({"data": "'x'"}, {"maxRequestBytes": "0"}, "option maxRequestBytes: '0' is no whole number of at least 1"),
        ({"data": "'x'"}, {"idempotencyKey": "a b"}, "option idempotencyKey: has 1 to 128 visible ASCII characters"),
        ({"data": "'x'"}, {"endpoint": "http://localhost:9"}, "topic .*/out: cannot reach http://localhost:9"),
    ],
)
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
    """Fail the first try of each task after its first rows."""
    task = TaskContext.get()
    for number, batch in enumerate(batches):
        if number == 1 and task is not None and task.attemptNumber() == 0:
            raise OSError("this try fails")
        yield batch


def _to_topics(numbers: DataFrame) -> DataFrame:
    """Even numbers to topic a, odd ones to b."""
    return numbers.select(
        "n",
        F.col("n").cast("string").alias("data"),
        F.create_map(F.lit("number"), F.col("n").cast("string")).alias("attributes"),
        F.when(F.col("n") % 2 == 0, "a").otherwise("b").alias("topic"),
    )


def _stream(spark: SparkSession, folder: Path, batches: int, rows: int) -> DataFrame:
    """A stream whose batches hold `rows` numbers each, in order."""
    folder.mkdir()
    for batch in range(batches):
        lines = (json.dumps({"n": number}) for number in range(batch * rows, (batch + 1) * rows))
        file = folder / f"{batch}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (batch, batch))
    return spark.readStream.schema(NUMBERS).option("maxFilesPerTrigger", 1).json(str(folder))


def _run(writer: DataStreamWriter) -> None:
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def _texts(garden: Garden, topic: str) -> list[str]:
    """Return the data of all messages of a topic."""
    return [message.payload().decode() for message in garden.client.call(wire.read_topic(garden.name, topic))]
