"""What Spark calls to write: made on the driver, carried to the executors, one `write` for each partition."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ams.pipeline.errors import WrongOption
from ams.pipeline.service import Service
from ams.pipeline.sink.chunks import Chunk, Chunker
from ams.pipeline.sink.keys import keys
from ams.pipeline.sink.options import Writing, writing
from ams.pipeline.sink.publishing import Publisher
from ams.pipeline.sink.rows import Layout, Rows, layout
from ams.pipeline.sink.sending import Sender
from ams.pipeline.sink.window import local_folder, refuse_stale


@dataclass(frozen=True, slots=True)
class Published(WriterCommitMessage):
    """What a task published."""

    messages: int
    requests: int


class _Writer:
    """Publishes partitions. What a task sent stays sent when the job fails: trying again sends the same requests."""

    def __init__(self, writing: Writing, layout: Layout) -> None:
        self._writing = writing
        self._layout = layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish the rows of a partition in their order; raise `WrongRow` or a `ClientError`."""
        task = TaskContext.get()
        assert task is not None, "Spark calls this in a task"
        rows, chunker = Rows(self._layout, task.partitionId()), Chunker(self._writing.limits)
        messages = requests = 0
        with Service(self._writing.access) as service:
            publisher = Publisher(service, self._writing, keys(self._writing.idempotency_key, task))
            with Sender(publisher.send) as sender:
                for chunk in _chunks(iterator, rows, chunker):
                    sender.put(chunk)
                    messages, requests = messages + len(chunk.messages), requests + 1
        return Published(messages, requests)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Of `frame.write`."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Of `frame.writeStream`."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a frame; raise `WrongOption` for options or columns that cannot be."""
    return BatchWriter(*_checked(options, schema, overwrite))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of a stream; raise `WrongOption` as for a frame, and `StaleCheckpoint`."""
    wanted, columns = _checked(options, schema, overwrite)
    folder = local_folder(wanted.checkpoint)
    if folder is not None:
        refuse_stale(folder, wanted.key_window)
    return StreamWriter(wanted, columns)


def _checked(options: Mapping[str, str], schema: StructType, overwrite: bool) -> tuple[Writing, Layout]:
    if overwrite:
        raise WrongOption("mode", "messages are only ever added to a topic: append")
    wanted = writing(options)
    return wanted, layout(schema, wanted.topic, wanted.order_by)


def _chunks(batches: Iterator[pa.RecordBatch], rows: Rows, chunker: Chunker) -> Iterator[Chunk]:
    for batch in batches:
        for lane, message in rows.messages(batch):
            yield from chunker.add(lane, message)
    yield from chunker.rest()
