"""Spark's writers: made on the driver, pickled to the executors, one `write` per partition.

Tasks of a batch write publish directly. Tasks of a stream write their requests to the checkpoint, and `commit`
publishes them on the driver: a retried batch may have other rows in other partitions. The files are readable for the
owner only and stay until all are published. All machines must see the folder by the same path:

    CHECKPOINT/unpublished/batch-000007/part-00000-ID   requests of one task
    CHECKPOINT/unpublished/batch-000007/plan.json       which parts count, and whether all are published

The driver writes the plan after all tasks; without a plan nothing was published. A retried batch is published from its
plan, whatever rows it has now.

An unfinished batch is published again when its query restarts, but only while the service knows the keys of its
requests: the option `keyWindow` says how long that is.
"""

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ams.pipeline.errors import PipelineError, StaleCheckpoint, WrongOption
from ams.pipeline.options import Writing
from ams.pipeline.service_calls import Service
from ams.pipeline.sink.requests import BATCH_ID, LANE, Chunk, Chunker, Publisher, Rows, Sender, key_prefix, layout
from ams.storage.files import Disk, write_whole
from ams.tables.location import sync

FOLDER: Final = "unpublished"
PLAN: Final = "plan.json"
_LENGTH_BYTES: Final = 8
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Chunk).decode


class _TaskRequests(msgspec.Struct, frozen=True):
    file: str
    size: int


class _PublishPlan(msgspec.Struct, frozen=True):
    project: str  # project of the topics
    key_prefix: str
    parts: tuple[_TaskRequests, ...]
    is_published: bool = False


class BatchFolder:
    """The folder of one batch in a checkpoint."""

    def __init__(self, checkpoint: Path, batch: int) -> None:
        self.path = checkpoint / FOLDER / f"batch-{batch:06d}"

    @property
    def plan(self) -> _PublishPlan | None:
        """The plan; None until the batch may be published."""
        try:
            return msgspec.json.decode((self.path / PLAN).read_bytes(), type=_PublishPlan)
        except FileNotFoundError:
            return None

    def keep(self, partition: int, chunks: Iterable[Chunk]) -> _TaskRequests:
        """Write a task's requests to a new file on stable storage; runs on executors."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"part-{partition:05d}-{uuid4().hex}"
        with open(os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            for chunk in chunks:
                data = _encode(chunk)
                file.write(len(data).to_bytes(_LENGTH_BYTES, "big"))
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
            return _TaskRequests(name, file.tell())

    def seal(self, plan: _PublishPlan) -> _PublishPlan:
        """Write the plan and return it. Raises `PipelineError` if a part is not visible here."""
        for part in plan.parts:
            path = self.path / part.file
            if not path.is_file() or path.stat().st_size != part.size:
                must = "the checkpoint of a stream that publishes must be on a file system that all machines share"
                raise PipelineError(f"{path} is not as its task wrote it; {must}")
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(plan)
        return plan

    def chunks(self, part: _TaskRequests) -> Iterator[Chunk]:
        """Yield a part's requests in order."""
        with open(self.path / part.file, "rb") as file:
            while length := file.read(_LENGTH_BYTES):
                yield _decode(file.read(int.from_bytes(length, "big")))

    def finish(self, plan: _PublishPlan) -> None:
        """Mark the plan as published, and remove the parts of this and earlier batches."""
        # The plan stays until the next batch: Spark may retry this one.
        self._write(_PublishPlan(plan.project, plan.key_prefix, (), is_published=True))
        for each in self.path.glob("part-*"):
            each.unlink(missing_ok=True)
        for each in self.path.parent.glob("batch-*"):
            if each.name < self.path.name:
                shutil.rmtree(each, ignore_errors=True)

    def _write(self, plan: _PublishPlan) -> None:
        write_whole(Disk(), str(self.path / PLAN), msgspec.json.encode(plan))
        for each in (self.path.parent, self.path.parent.parent):  # made by the first batch
            sync(str(each))


def local_folder(checkpoint: str | None) -> Path | None:
    """Return the checkpoint's local folder; None if it is not on a local file system."""
    if checkpoint is None or urlsplit(checkpoint).scheme not in ("", "file"):
        return None
    return Path(unquote(urlsplit(checkpoint).path) if checkpoint.startswith("file:") else checkpoint)


def refuse_stale(checkpoint: Path, window: float, now: float | None = None) -> None:
    """Raise `StaleCheckpoint` if an unfinished batch began more than `window` seconds before `now`."""
    number = _last(checkpoint / "offsets")
    if number <= _last(checkpoint / "commits"):
        return
    folder = BatchFolder(checkpoint, number)
    plan = folder.plan  # no plan: nothing was published
    if folder.path.is_dir() and (plan is None or plan.is_published):
        return
    # A line with a version, one of JSON about the batch, and one for each source.
    batch = json.loads((checkpoint / "offsets" / str(number)).read_bytes().split(b"\n")[1])
    age = (time.time() if now is None else now) - batch["batchTimestampMs"] / 1000
    if age > window:
        raise StaleCheckpoint(
            f"batch {number} of {checkpoint} was begun {_in_hours(age)} ago and never finished; the service may have "
            f"forgotten what it stored of it (keyWindow is {_in_hours(window)}), so messages could be published twice. "
            "If the service knows keys for longer, say so by keyWindow; else look what the topics hold and go on "
            "with a new checkpoint from there"
        )


def _last(folder: Path) -> int:
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _in_hours(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


@dataclass(frozen=True, slots=True)
class WrittenRequests(WriterCommitMessage):
    """Requests that a stream's task wrote down."""

    key_prefix: str
    part: _TaskRequests | None  # None if the batch has a plan already


class _Writer:
    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise WrongOption("mode", "messages are only ever added to a topic: append")
        self._writing = Writing(options)
        self._layout = layout(schema, self._writing.topic, self._writing.order_by)

    def _chunks(self, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[Chunk]:
        rows, chunker = Rows(self._layout, partition), Chunker(self._writing.limits)
        given = (chunk for batch in batches for each in rows.messages(batch) for chunk in chunker.add(*each))
        yield from chain(given, chunker.rest())


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writer of `frame.write`. Sent requests stay when the job fails; a retry sends the same ones."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish a partition's rows in order. Raises `WrongRow` or a `ClientError`."""
        task = _task()
        is_repeatable = self._writing.idempotency_key is not None or task.getLocalProperty(BATCH_ID) is not None
        if is_repeatable and LANE not in self._layout.columns:  # keys would depend on the partitioning
            reason = "may come again in other partitions and store messages twice"
            advice = "publish it with ams.pipeline.sink.publish, which arranges the rows"
            what = "a batch write with an idempotencyKey, or within foreachBatch,"
            raise WrongOption("columns", f"{what} {reason}: {advice}")
        with Service(self._writing.access) as service:
            prefix = key_prefix(self._writing.idempotency_key, task)
            publisher = Publisher(service, self._writing.project, prefix, self._writing.create_topics)
            _publish(publisher, self._chunks(iterator, task.partitionId()))
        return WriterCommitMessage()


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writer of `frame.writeStream`. Also raises `StaleCheckpoint`."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        folder = local_folder(self._writing.checkpoint)
        if folder is None:
            reason = "batches are kept there until they are published"
            where = "on a file system that all machines share"
            raise WrongOption("checkpointLocation", f"is needed as an option, {where}: {reason}")
        self._checkpoint = folder.absolute()
        refuse_stale(self._checkpoint, self._writing.key_window)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRequests:
        """Write down a partition's requests. Raises `WrongRow`."""
        task = _task()
        folder = BatchFolder(self._checkpoint, int(task.getLocalProperty(BATCH_ID) or 0))
        prefix = key_prefix(self._writing.idempotency_key, task)
        if folder.plan is not None:
            for _ in iterator:  # Spark requires the rows to be consumed
                pass
            return WrittenRequests(prefix, None)
        return WrittenRequests(prefix, folder.keep(task.partitionId(), self._chunks(iterator, task.partitionId())))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Write the batch's plan, then publish from it. Raises a `ClientError`."""
        folder = BatchFolder(self._checkpoint, batchId)
        kept = [each for each in messages if isinstance(each, WrittenRequests)]
        prefix = next((each.key_prefix for each in kept), "")
        parts = tuple(each.part for each in kept if each.part is not None)
        plan = folder.plan or folder.seal(_PublishPlan(self._writing.project, prefix, parts))
        if plan.is_published:
            return
        with Service(self._writing.access) as service, ThreadPoolExecutor(4) as threads:  # so many parts at once
            publisher = Publisher(service, plan.project, plan.key_prefix, self._writing.create_topics)
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
