"""Idempotency keys: what makes a request that is sent again the same request.

    spark/QUERY/BATCH[/NAME]/PLACE/NUMBER      of a streaming query, also from within its foreachBatch
    spark/NAME/PLACE/NUMBER                    of a batch write with the option idempotencyKey

QUERY is the id that stands in the checkpoint, so it stays the same however often the query is started. PLACE is the
lane of rows that say one, else the number of their partition. A batch write without the option has a new name each
time a task is tried: each request is stored once, but a task that is tried again sends all of its messages again.
"""

from dataclasses import dataclass
from uuid import uuid4

from pyspark import TaskContext

from ams.pipeline.sink.chunks import Chunk

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark gives each task of a streaming query."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of what one task sends."""

    prefix: str

    def key(self, chunk: Chunk) -> str:
        """Return the key of a request; keys of different topics have nothing to do with each other."""
        return f"{self.prefix}/{chunk.lane.place}/{chunk.number}"


def place(lane: int | None, partition: int) -> str:
    """Return where rows stand: in the lane they name, else in their partition."""
    return f"p{partition}" if lane is None else f"l{lane}"


def keys(name: str | None, task: TaskContext) -> Keys:
    """Return the keys of a task; `name` is what the option idempotencyKey says."""
    query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        return Keys(f"spark/{name or uuid4()}")
    return Keys("/".join(["spark", query, batch, *([name] if name else [])]))
