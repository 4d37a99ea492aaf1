"""What Spark calls to write: made on the driver, carried to the executors, one `write` for each partition.

A batch that was begun and not finished is published again when its query starts again. What of it was stored the first
time is known to the service by its keys, but not for ever: for the setting `idempotency_window`, and no longer than the
topic keeps its messages. No route tells these, so the option `keyWindow` does, and checkpoints that are too old to go
on from are refused. A checkpoint whose last batch is finished may be of any age.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ams.pipeline.errors import StaleCheckpoint, WrongOption
from ams.pipeline.service import Service
from ams.pipeline.sink.options import writing
from ams.pipeline.sink.requests import Chunk, Chunker, Publisher, Sender, key_prefix
from ams.pipeline.sink.rows import Rows, layout


def local_folder(checkpoint: str | None) -> Path | None:
    """Return the folder of a checkpoint that is on a file system of this machine, None of any other."""
    if checkpoint is None or urlsplit(checkpoint).scheme not in ("", "file"):
        return None
    return Path(unquote(urlsplit(checkpoint).path) if checkpoint.startswith("file:") else checkpoint)


def refuse_stale(checkpoint: Path, window: float, now: float | None = None) -> None:
    """Raise `StaleCheckpoint` if a batch was begun more than `window` seconds before `now` and never finished."""
    number = unfinished(_names(checkpoint / "offsets"), _names(checkpoint / "commits"))
    if number is None:
        return
    age = (time.time() if now is None else now) - begun((checkpoint / "offsets" / str(number)).read_bytes())
    if age > window:
        raise StaleCheckpoint(
            f"batch {number} of {checkpoint} was begun {_told(age)} ago and never finished; the service may have "
            f"forgotten what it stored of it (keyWindow is {_told(window)}), so messages could be published twice. "
            "If the service knows keys for longer, say so by keyWindow; else look what the topics hold and go on "
            "with a new checkpoint from there"
        )


def unfinished(offsets: Iterable[str], commits: Iterable[str]) -> int | None:
    """Return the last batch that was begun, by the names in a checkpoint, unless it was finished."""
    begun, finished = (
        max((int(name) for name in names if name.isdecimal()), default=-1) for names in (offsets, commits)
    )
    return begun if begun > finished else None


def begun(entry: bytes) -> float:
    """Return when a batch was begun, in seconds since 1970, by its entry among the offsets of a checkpoint.

    The entry is a line with its version, one of JSON about the batch, and one for each source.
    """
    return float(json.loads(entry.split(b"\n")[1])["batchTimestampMs"]) / 1000


def _names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()] if folder.is_dir() else []


def _told(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


@dataclass(frozen=True, slots=True)
class Published(WriterCommitMessage):
    """What a task published."""

    messages: int
    requests: int


class _Writer:
    """Publishes partitions. What a task sent stays sent when the job fails: trying again sends the same requests."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Raise `WrongOption` for options or columns that cannot be."""
        if overwrite:
            raise WrongOption("mode", "messages are only ever added to a topic: append")
        self._writing = writing(options)
        self._layout = layout(schema, self._writing.topic, self._writing.order_by)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish the rows of a partition in their order; raise `WrongRow` or a `ClientError`."""
        task = TaskContext.get()
        assert task is not None, "Spark calls this in a task"
        rows, chunker = Rows(self._layout, task.partitionId()), Chunker(self._writing.limits)
        messages = requests = 0
        with Service(self._writing.access) as service:
            prefix = key_prefix(self._writing.idempotency_key, task)
            with Sender(Publisher(service, self._writing, prefix).send) as sender:
                for chunk in _chunks(iterator, rows, chunker):
                    sender.put(chunk)
                    messages, requests = messages + len(chunk.messages), requests + 1
        return Published(messages, requests)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Of `frame.write`."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Of `frame.writeStream`; `StaleCheckpoint` is raised as well."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        folder = local_folder(self._writing.checkpoint)
        if folder is not None:
            refuse_stale(folder, self._writing.key_window)


def _chunks(batches: Iterator[pa.RecordBatch], rows: Rows, chunker: Chunker) -> Iterator[Chunk]:
    for batch in batches:
        for lane, message in rows.messages(batch):
            yield from chunker.add(lane, message)
    yield from chunker.rest()
