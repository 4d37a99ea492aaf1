"""The answers of a range read, Arrow or JSON lines, as record batches in the columns of a message."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import httpx
import msgspec
import pyarrow as pa

from ams.client.errors import Unreachable
from ams.client.messages import data_of
from ams.client.wire import ReadMessage
from ams.pipeline.messages import MESSAGE
from ams.pipeline.options import Name

ARROW = "application/vnd.apache.arrow.stream"
LINES = "application/x-ndjson"
ACCEPT = f"{ARROW}, {LINES};q=0.5"

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""What ends a stream (Arrow columnar format, IPC streaming format)."""

_decode_lines = msgspec.json.Decoder(ReadMessage).decode_lines


def batches(answer: httpx.Response, topic: Name) -> Iterator[pa.RecordBatch]:
    """Yield the messages of an answer, never more than a few thousand at once.

    Raises `Unreachable` when the answer is cut off; what came until then is right.
    """
    if answer.headers.get("content-type", "").startswith(ARROW):
        found = _arrow(answer.iter_raw())
    else:
        found = _lines(answer.iter_raw())
    return (_as_messages(each, topic) for each in found if each.num_rows)


def _arrow(chunks: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
    body = _Body(chunks)
    try:
        with pa.ipc.open_stream(pa.PythonFile(body, mode="r")) as stream:
            yield from stream
    except (pa.ArrowInvalid, OSError) as error:
        raise Unreachable(f"an answer was cut off: {error}") from None
    if body.last != END:  # which pyarrow takes for an end all the same
        raise Unreachable("an answer was cut off between two batches")


class _Body:
    """What pyarrow reads from, over the chunks of an answer."""

    closed = False

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._kept = b""
        self.last = b""
        """The last bytes that were read, as many as mark the end."""

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer only at the end."""
        parts, missing = [], size
        while missing and (chunk := self._kept or next(self._chunks, b"")):
            parts.append(chunk[:missing])
            self._kept = chunk[missing:]
            missing -= len(parts[-1])
        found = parts[0] if len(parts) == 1 else b"".join(parts)
        self.last = (self.last + found[-len(END) :])[-len(END) :]
        return found

    def close(self) -> None:
        """Do nothing: the answer is closed by whoever opened it."""


def _lines(chunks: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield messages as their lines come in; raise `Unreachable` when the last line is cut off."""
    kept: list[bytes] = []
    for chunk in chunks:
        whole, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield _of_lines(_decode_lines(b"".join([*kept, whole])))
            kept = []
        kept.append(rest)
    if any(kept):
        raise Unreachable("an answer was cut off within a line")


def _of_lines(lines: Sequence[ReadMessage]) -> pa.RecordBatch:
    times = [datetime.fromisoformat(each.publish_time) for each in lines]
    columns = {
        "offset": pa.array([each.offset for each in lines], pa.int64()),
        "publish_time": pa.array(times, MESSAGE.field("publish_time").type),
        "attributes": pa.array([list(each.attributes.items()) for each in lines], MESSAGE.field("attributes").type),
        "data": pa.array([data_of(each) for each in lines], pa.binary()),
        "ordering_key": pa.array([each.ordering_key or None for each in lines], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _as_messages(batch: pa.RecordBatch, topic: Name) -> pa.RecordBatch:
    rows = batch.num_rows
    columns = [
        pa.repeat(pa.scalar(topic.project), rows),
        pa.repeat(pa.scalar(topic.name), rows),
        batch.column("offset"),
        batch.column("offset").cast(pa.string()),
        batch.column("publish_time"),
        batch.column("attributes"),
        batch.column("data"),
        # A service of a version before there were ordering keys knows no such column.
        batch.column("ordering_key") if "ordering_key" in batch.schema.names else pa.nulls(rows, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, MESSAGE, strict=True)], schema=MESSAGE
    )
