"""Reads ranges of topics and resumes when the service goes away. Works without Spark."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from ams.client.errors import ClientError, InvalidInput, Unreachable
from ams.client.messages import data_of
from ams.client.wire import ReadMessage
from ams.pipeline.errors import DataLoss
from ams.pipeline.messages import MESSAGE
from ams.pipeline.options import ResourceName
from ams.pipeline.service_calls import Patience, ReadBounds, Service

T = TypeVar("T")
Offsets = dict[str, int]  # offsets by `PROJECT/TOPIC`, as they stand in checkpoints and in the progress of queries


class LostMessages(UserWarning):
    """Unread messages expired, and reading goes on without them, as the options say."""


_WAY_ON = (
    "begin with a new checkpoint (of a run, another --work), or with failOnDataLoss=false (of a run, --skip-lost) go "
    "on at the oldest message of the new one"
)


def remade(topic: str, *, fail: bool, since: str = "the checkpoint", done: str = "read", way_on: str = _WAY_ON) -> None:
    """Raise `DataLoss`, or only warn, because a topic was deleted and made again."""
    text = f"topic {topic} was deleted and made again since {since}"
    if fail:
        raise DataLoss(f"{text}; {way_on}")
    warnings.warn(f"{text}; what was not {done} of the old one is lost", LostMessages, stacklevel=2)


def report_data_loss(topic: ResourceName | str, start: int, stop: int | None, *, fail: bool) -> None:
    """Raise `DataLoss`, or only warn, because of the messages from `start` on, or only those before `stop`."""
    lost = f"from {start} on" if stop is None else f"{start} to {stop - 1}"
    text = f"messages {lost} of topic {topic} are kept no longer"
    if fail:
        raise DataLoss(f"{text}; with failOnDataLoss=false (of a run, --skip-lost) reading goes on without them")
    warnings.warn(text, LostMessages, stacklevel=2)


class OffsetRange(NamedTuple):
    """A range of a topic: offsets from `start`, before `stop`."""

    topic: ResourceName
    start: int
    stop: int
    id: str = ""  # topic id; empty if the service does not tell


def parts(
    starts: Offsets, ends: Offsets, topics: Sequence[ResourceName], least: int | None, ids: Mapping[str, str]
) -> list[OffsetRange]:
    """Return the ranges between offsets, split evenly into at least `least` parts if there are enough messages."""
    ranges = (OffsetRange(topic, starts[str(topic)], ends[str(topic)], ids.get(str(topic), "")) for topic in topics)
    whole = [each for each in ranges if each.start < each.stop]
    total = sum(each.stop - each.start for each in whole)
    found: list[OffsetRange] = []
    for each in whole:  # pieces in proportion to its messages, rounded up
        size = each.stop - each.start
        pieces = min(size, max(1, -(-(least or 1) * size // total)))
        edges = [each.start + size * number // pieces for number in range(pieces + 1)]
        found += [each._replace(start=start, stop=stop) for start, stop in pairwise(edges)]
    return found


def limit_ends(starts: Mapping[T, int], ends: Mapping[T, int], most: int | None) -> dict[T, int]:
    """Return ends at most `most` messages after the starts, in proportion to each topic's messages."""
    there = {topic: end - starts[topic] for topic, end in ends.items()}
    total = sum(there.values())
    if most is None or total <= most:
        return dict(ends)
    taken = {topic: most * count // total for topic, count in there.items()}
    for topic in taken:  # the remainder of the rounding
        taken[topic] += min(most - sum(taken.values()), there[topic] - taken[topic])
    return {topic: starts[topic] + count for topic, count in taken.items()}


ARROW = "application/vnd.apache.arrow.stream"
LINES = "application/x-ndjson"
ACCEPT = f"{ARROW}, {LINES};q=0.5"

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # end of a stream (Arrow columnar format, IPC streaming format)

_decode_lines = msgspec.json.Decoder(ReadMessage).decode_lines


def _arrow(chunks: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
    body = _ChunkStream(chunks)
    try:
        with pa.ipc.open_stream(pa.PythonFile(body, mode="r")) as stream:
            yield from stream
    except (pa.ArrowInvalid, OSError) as error:
        raise Unreachable(f"an answer was cut off: {error}") from None
    if body.last != END:  # pyarrow accepts a cut stream as complete
        raise Unreachable("an answer was cut off between two batches")


class _ChunkStream:
    closed = False

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._kept = b""
        self.last = b""  # the last bytes read, as many as the end mark

    def read(self, size: int = -1) -> bytes:
        parts, missing = [], size
        while missing and (chunk := self._kept or next(self._chunks, b"")):
            parts.append(chunk[:missing])
            self._kept = chunk[missing:]
            missing -= len(parts[-1])
        found = parts[0] if len(parts) == 1 else b"".join(parts)
        self.last = (self.last + found[-len(END) :])[-len(END) :]
        return found

    def close(self) -> None:
        """Do nothing: the caller closes the answer."""


def _lines(chunks: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    kept: list[bytes] = []
    for chunk in chunks:
        whole, newline, rest = chunk.rpartition(b"\n")
        if newline:
            read = _decode_lines(b"".join([*kept, whole]))
            times = [datetime.fromisoformat(each.publish_time) for each in read]
            attributes = [list(each.attributes.items()) for each in read]
            columns = {
                "offset": pa.array([each.offset for each in read], pa.int64()),
                "publish_time": pa.array(times, MESSAGE.field("publish_time").type),
                "attributes": pa.array(attributes, MESSAGE.field("attributes").type),
                "data": pa.array([data_of(each) for each in read], pa.binary()),
                "ordering_key": pa.array([each.ordering_key or None for each in read], pa.string()),
            }
            yield pa.RecordBatch.from_pydict(columns)
            kept = []
        kept.append(rest)
    if any(kept):
        raise Unreachable("an answer was cut off within a line")


def _as_messages(batch: pa.RecordBatch, topic: ResourceName) -> pa.RecordBatch:
    columns = {
        **dict(zip(batch.schema.names, batch.columns, strict=True)),
        "project": pa.repeat(pa.scalar(topic.project), batch.num_rows),
        "topic": pa.repeat(pa.scalar(topic.name), batch.num_rows),
        "message_id": batch.column("offset"),
    }
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in MESSAGE], schema=MESSAGE)


@dataclass(slots=True)
class Fetch:
    """Reads one part in order, each offset once; resumes after the last message when an answer was cut."""

    service: Service
    part: OffsetRange
    subscription: str = ""
    fail_on_data_loss: bool = True
    _at: int = -1
    _gap: int | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages. Raises `DataLoss` if some expired, and permanent `ClientError`s."""
        self._at = self.part.start
        patience = Patience(self.service.access.retry_seconds)
        while self._at < self.part.stop:
            try:
                for batch in self._answer():
                    patience.reset()
                    yield batch
            except ClientError as error:
                patience.after(error)
        # It expired during the read, or it is no message: damage, or a marker of Kafka.
        if self._gap is not None and self.service.bounds(self.part.topic, self.subscription).first > self._gap:
            self._report_loss(self._gap, None)

    def _answer(self) -> Iterator[pa.RecordBatch]:
        topic, stop = self.part.topic, self.part.stop
        numbers = {"from": self._at, "to": stop, "max": stop - self._at}
        try:
            with self.service.read(topic, numbers, self.subscription, ACCEPT) as (response, told):
                if told.id and self.part.id and told.id != self.part.id:
                    remade(str(topic), fail=self.fail_on_data_loss)
                    self._at = stop  # nothing is left of the planned topic
                    return
                if told.first > self._at:
                    self._report_loss(self._at, min(told.first, stop))
                    self._at = told.first
                found = _arrow if response.headers.get("content-type", "").startswith(ARROW) else _lines
                for batch in filter(len, found(response.iter_raw())):
                    offsets = batch.column("offset")
                    begin, stopped = offsets[0].as_py(), offsets[-1].as_py() + 1
                    if self._gap is None and stopped - self._at > batch.num_rows:
                        self._gap = self._at if begin > self._at else begin
                    self._at = stopped
                    yield _as_messages(batch, topic)
        except InvalidInput:  # beyond the end: the topic was made again with fewer messages
            self._pass_over(self._at)
        else:
            self._finish(told)

    def _finish(self, told: ReadBounds) -> None:
        """Continue after the answer, which may hold less than the request."""
        if told.next == told.first:
            self._pass_over(told.end)
            return
        if self._gap is None and self._at < told.next:
            self._gap = self._at
        self._at = told.next

    def _pass_over(self, end: int) -> None:
        if end < self.part.stop:
            self._report_loss(end, self.part.stop)
        self._at = self.part.stop

    def _report_loss(self, start: int, stop: int | None) -> None:
        report_data_loss(self.part.topic, start, stop, fail=self.fail_on_data_loss)
