"""Publishing status events to a topic, each once, whatever is computed again and whenever the job is killed.

What is to be published is first put into a table of its own, numbered, and then published from there under its number:
a kill in between publishes the same under the same name once more, which the service answers without storing it again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ams.pipeline.checkpoint import CHECKPOINT, read, write
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

    table: Table
    options: Mapping[str, str]
    """Of `format("ams")`."""
    name: str
    """Names this outbox, and no other that may publish to the topic."""
    marker: Path

    @classmethod
    def of(cls, run: Run, topic: str) -> "Outbox":
        """Return the outbox of a run whose stream has begun."""
        name = str(json.loads((run.work / CHECKPOINT / "metadata").read_text())["id"])
        return cls(run.table("outbox", OUTBOX), {**run.source, "topic": topic}, name, run.work / "published.json")

    def put(self, events: DataFrame) -> None:
        """Take in what of `columns.EVENTS` is not there yet. The text gets the time at which it is taken in."""
        number = self.table.batch() + 1
        date = F.replace("date", F.lit("-"), F.lit("")).alias("date")
        taken = F.date_format(F.current_timestamp(), "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("ts_processed")
        text = F.to_json(F.struct(*(name for name in events.columns if name != "date"), date, taken))
        new = events.withColumns({"number": F.lit(number), "data": F.encode(text, "utf-8")})
        new = new.join(self.table.read().select(*EVENT), on=list(EVENT), how="left_anti")
        if not new.isEmpty():
            self.table.append(new, number, self.name)

    def send(self) -> int:
        """Publish what has not been, oldest first; returns how many numbers that were."""
        sent = read(self.marker, Sent) or Sent(-1)
        pending = range(sent.number + 1, self.table.batch() + 1)
        context = self.table.spark.sparkContext
        batch = context.getLocalProperty(BATCH_ID)
        # Under the given name alone: which batch is at work when something is sent again is a matter of chance.
        context.setLocalProperty(BATCH_ID, None)  # type: ignore[arg-type]  # null takes a property away
        try:
            for number in pending:
                rows = self.table.read().where(F.col("number") == number)
                key = {"idempotencyKey": f"events-{self.name}-{number}"}
                publish(_messages(rows), {**self.options, **key}, ("order_by",))
                write(self.marker, Sent(number))
        finally:
            context.setLocalProperty(BATCH_ID, batch)  # type: ignore[arg-type]  # it may have been absent
        return len(pending)


def _messages(rows: DataFrame) -> DataFrame:
    """Make messages of the events, in the order in which they happened."""
    named = {"report": "report", "type": "type", "partition_date": "date"}
    attributes = F.create_map(*(part for name, column in named.items() for part in (F.lit(name), F.col(column))))
    order = F.concat_ws(" ", "ts_monitored", *(name for name in EVENT if name != "ts_monitored"))
    return rows.select("data", attributes.alias("attributes"), order.alias("order_by"))
