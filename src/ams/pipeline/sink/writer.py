"""What Spark calls to write: made on the driver, carried to the executors, one `write` for each partition.

A batch that was begun and not finished is published again when its query starts again. What of it was stored the first
time is known to the service by its keys, but not for ever: for the setting `idempotency_window`, and no longer than the
topic keeps its messages. No route tells these, so the option `keyWindow` does, and checkpoints that are too old to go
on from are refused. A checkpoint whose last batch is finished may be of any age.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
from ams.pipeline.sink.options import writing
from ams.pipeline.sink.requests import Chunker, Publisher, Sender, key_prefix
from ams.pipeline.sink.rows import Rows, layout


def local_folder(checkpoint: str | None) -> Path | None:
    """Return the folder of a checkpoint that is on a file system of this machine, None of any other."""
    if checkpoint is None or urlsplit(checkpoint).scheme not in ("", "file"):
        return None
    return Path(unquote(urlsplit(checkpoint).path) if checkpoint.startswith("file:") else checkpoint)


def refuse_stale(checkpoint: Path, window: float, now: float | None = None) -> None:
    """Raise `StaleCheckpoint` if a batch was begun more than `window` seconds before `now` and never finished."""
    number = _last(checkpoint / "offsets")
    if number <= _last(checkpoint / "commits"):
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
                given = (chunk for batch in iterator for each in rows.messages(batch) for chunk in chunker.add(*each))
                for chunk in chain(given, chunker.rest()):
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
