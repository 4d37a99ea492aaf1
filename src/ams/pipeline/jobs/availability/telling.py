"""Publishing status events to a topic, each once, whatever is computed again and whenever the job is killed.

What is to be published is first put into a table of its own, numbered, and then published from there under its number:
a kill in between publishes the same under the same name once more, which the service answers without storing it again.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ams.pipeline.checkpoint import CHECKPOINT, write
from ams.pipeline.jobs.availability.columns import EVENT, OUTBOX
from ams.pipeline.running import Run
from ams.pipeline.sink import publish
from ams.pipeline.sink.requests import BATCH_ID
from ams.pipeline.tables import Table


class Sent(msgspec.Struct, frozen=True):
    """How far events have been published."""

    number: int


@dataclass(frozen=True, slots=True)
class Outbox:
    """The events that are published to a topic."""

    spark: SparkSession
    table: Table
    options: Mapping[str, str]
    """Of `format("ams")`."""
    name: str
    """Names this outbox, and no other that may publish to the topic."""
    marker: Path

    @classmethod
    def of(cls, run: Run, topic: str) -> "Outbox":
        """Return the outbox of a run whose stream has begun."""
        metadata = json.loads((run.work / CHECKPOINT / "metadata").read_text())
        options = {**run.source, "topic": topic}
        marker = run.work / "published.json"
        return cls(run.spark, run.table("outbox", OUTBOX), options, str(metadata["id"]), marker)

    def put(self, events: DataFrame) -> None:
        """Take in what of `columns.EVENTS` is not there yet. The text gets the time at which it is taken in."""
        known = self.table.read().select(*EVENT)
        number = self._last + 1
        text = F.to_json(
            F.struct(
                *(name for name in events.columns if name != "date"),
                F.replace("date", F.lit("-"), F.lit("")).alias("date"),
                F.date_format(F.current_timestamp(), "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("ts_processed"),
            )
        )
        new = events.withColumn("data", F.encode(text, "utf-8")).join(known, on=list(EVENT), how="left_anti")
        if not new.isEmpty():
            self.table.append(new.withColumn("number", F.lit(number)), number, self.name)

    def send(self) -> int:
        """Publish what has not been, oldest first; returns how many numbers that were."""
        pending = range(self._sent + 1, self._last + 1)
        for number in pending:
            rows = self.table.read().where(F.col("number") == number)
            with outside_of_batches(self.spark):
                publish(
                    _messages(rows), {**self.options, "idempotencyKey": f"events-{self.name}-{number}"}, ("order_by",)
                )
            write(self.marker, Sent(number))
        return len(pending)

    @property
    def _last(self) -> int:
        return self.table.batch()

    @property
    def _sent(self) -> int:
        return msgspec.json.decode(self.marker.read_bytes(), type=Sent).number if self.marker.exists() else -1


def _messages(rows: DataFrame) -> DataFrame:
    """Make messages of the events, in the order in which they happened."""
    named = F.create_map(*(part for name in ("report", "type") for part in (F.lit(name), F.col(name))))
    dated = F.map_concat(named, F.create_map(F.lit("partition_date"), F.col("date")))
    order = F.concat_ws(" ", "ts_monitored", *(name for name in EVENT if name != "ts_monitored"))
    return rows.select("data", dated.alias("attributes"), order.alias("order_by"))


@contextlib.contextmanager
def outside_of_batches(spark: SparkSession) -> Iterator[None]:
    """Publish under the given name alone: which batch is at work when something is sent again is a matter of chance."""
    context = spark.sparkContext
    batch = context.getLocalProperty(BATCH_ID)
    context.setLocalProperty(BATCH_ID, None)  # type: ignore[arg-type]  # null takes a property away
    try:
        yield
    finally:
        context.setLocalProperty(BATCH_ID, batch)  # type: ignore[arg-type]  # it may have been absent
