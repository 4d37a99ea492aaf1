"""What Spark calls to write: made on the driver, carried to the executors, one `write` for each partition.

The tasks of a batch write publish. Those of a stream write down their requests, and `commit` publishes them on the
driver (`batch_plan`): a batch may come again with other rows in other partitions.

A batch that was begun and not finished is published again when its query starts again. What of it was stored the first
time is known to the service by its keys, but not for ever: for the setting `idempotency_window`, and no longer than the
topic keeps its messages. No route tells these, so the option `keyWindow` does, and checkpoints that are too old to go
on from are refused. A checkpoint whose last batch is finished may be of any age.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ams.pipeline.errors import StaleCheckpoint, WrongOption
from ams.pipeline.service import Service
from ams.pipeline.sink.batch_plan import BatchFolder, Part, Plan
from ams.pipeline.sink.options import writing
from ams.pipeline.sink.requests import BATCH_ID, Chunk, Chunker, Publisher, Sender, key_prefix
from ams.pipeline.sink.rows import LANE, Rows, layout


def local_folder(checkpoint: str | None) -> Path | None:
    """Return the folder of a checkpoint that is on a file system of this machine, None of any other."""
    if checkpoint is None or urlsplit(checkpoint).scheme not in ("", "file"):
        return None
    return Path(unquote(urlsplit(checkpoint).path) if checkpoint.startswith("file:") else checkpoint)


def refuse_stale(checkpoint: Path, window: float, now: float | None = None) -> None:
    """Raise `StaleCheckpoint` if a batch was begun more than `window` seconds before `now` and never finished."""
    number = _last(checkpoint / "offsets")
    if number <= _last(checkpoint / "commits") or BatchFolder.of(checkpoint, number).can_be_repeated:
        return
    # A line with a version, one of JSON about the batch, and one for each source.
    batch = json.loads((checkpoint / "offsets" / str(number)).read_bytes().split(b"\n")[1])
    age = (time.time() if now is None else now) - batch["batchTimestampMs"] / 1000
    if age > window:
        raise StaleCheckpoint(
            f"batch {number} of {checkpoint} was begun {_told(age)} ago and never finished; the service may have "
            f"forgotten what it stored of it (keyWindow is {_told(window)}), so messages could be published twice. "
            "If the service knows keys for longer, say so by keyWindow; else look what the topics hold and go on "
            "with a new checkpoint from there"
        )


def _last(folder: Path) -> int:
    """Return the number of the last batch in a folder of a checkpoint, -1 if there is none."""
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _told(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


@dataclass(frozen=True, slots=True)
class Published(WriterCommitMessage):
    """What a task published."""

    messages: int
    requests: int


@dataclass(frozen=True, slots=True)
class Kept(WriterCommitMessage):
    """What a task of a stream wrote down."""

    key_prefix: str
    part: Part | None
    """None where the batch has a plan already."""


PARTS_AT_ONCE = 4
"""Partitions of a stream's batch that are published side by side."""


class _Writer:
    """Makes requests of partitions."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Raise `WrongOption` for options or columns that cannot be."""
        if overwrite:
            raise WrongOption("mode", "messages are only ever added to a topic: append")
        self._writing = writing(options)
        self._layout = layout(schema, self._writing.topic, self._writing.order_by)

    def _chunks(self, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[Chunk]:
        """Yield the requests of a partition in the order of its rows; raise `WrongRow`."""
        rows, chunker = Rows(self._layout, partition), Chunker(self._writing.limits)
        given = (chunk for batch in batches for each in rows.messages(batch) for chunk in chunker.add(*each))
        yield from chain(given, chunker.rest())


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Of `frame.write`. What a task sent stays sent when the job fails: trying again sends the same requests."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish the rows of a partition in their order; raise `WrongRow` or a `ClientError`."""
        task = _task()
        self._refuse_partitions(task)
        messages = requests = 0
        with Service(self._writing.access) as service:
            publisher = Publisher(service, self._writing, key_prefix(self._writing.idempotency_key, task))
            with Sender(publisher.send) as sender:
                for chunk in self._chunks(iterator, task.partitionId()):
                    sender.put(chunk)
                    messages, requests = messages + len(chunk.messages), requests + 1
        return Published(messages, requests)

    def _refuse_partitions(self, task: TaskContext) -> None:
        """Refuse a write that is to be repeated exactly where its keys would follow from the partitions of its rows."""
        is_repeatable = self._writing.idempotency_key is not None or task.getLocalProperty(BATCH_ID) is not None
        if is_repeatable and LANE not in self._layout.columns:
            raise WrongOption(
                "columns",
                "a batch write with an idempotencyKey, or within foreachBatch, may come again in other partitions and"
                " store messages twice: publish it with ams.pipeline.sink.publish, which arranges the rows",
            )


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Of `frame.writeStream`; `StaleCheckpoint` is raised as well."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        folder = local_folder(self._writing.checkpoint)
        if folder is None:
            raise WrongOption(
                "checkpointLocation",
                "is needed as an option, on a file system that all machines share: batches are kept there until they"
                " are published",
            )
        self._checkpoint = folder.absolute()
        refuse_stale(self._checkpoint, self._writing.key_window)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Kept:
        """Write down the requests of a partition; raise `WrongRow`."""
        task = _task()
        folder = BatchFolder.of(self._checkpoint, int(task.getLocalProperty(BATCH_ID) or 0))
        prefix = key_prefix(self._writing.idempotency_key, task)
        if folder.plan is not None:
            for _ in iterator:  # Spark wants its rows to be taken
                pass
            return Kept(prefix, None)
        return Kept(prefix, folder.keep(task.partitionId(), self._chunks(iterator, task.partitionId())))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Publish a batch from its plan, which is made first; raise a `ClientError`."""
        folder = BatchFolder.of(self._checkpoint, batchId)
        kept = [each for each in messages if isinstance(each, Kept)]
        prefix = next((each.key_prefix for each in kept), "")
        parts = tuple(each.part for each in kept if each.part is not None)
        plan = folder.plan or folder.seal(Plan(self._writing.project, prefix, parts))
        if plan.is_published:
            return
        with Service(self._writing.access) as service, ThreadPoolExecutor(PARTS_AT_ONCE) as threads:
            publisher = Publisher(service, replace(self._writing, project=plan.project), plan.key_prefix)
            under_way = [threads.submit(_publish, publisher, folder.chunks(part)) for part in plan.parts]
            for each in under_way:
                each.result()
        folder.finish(plan)


def _publish(publisher: Publisher, chunks: Iterator[Chunk]) -> None:
    with Sender(publisher.send) as sender:
        for chunk in chunks:
            sender.put(chunk)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark calls this in a task"
    return task
