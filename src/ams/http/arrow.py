"""Messages as Arrow IPC streams, a piece at a time. The only file that needs pyarrow; imported on demand."""

import contextlib
import itertools
from array import array
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
import pybase64

from ams.core import messages
from ams.core.clock import Milliseconds
from ams.core.messages import Fragment, Stored
from ams.core.names import Offset
from ams.core.runs import Run, Runs, runs_of

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("publish_time", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("ordering_key", pa.string()),
    ]
)
"""Part of the API; shown in `docs/reference/reading.md`."""
_ATTRIBUTES, _DATA = b'"attributes":', b'"data":"'  # starts of a fragment's members; the third is removed before
_attributes = msgspec.json.Decoder(dict[str, str]).decode


def batch(stored: Sequence[Stored]) -> "pa.RecordBatch":
    """Return a record batch of messages with decoded data. Built by column: objects for each message are expensive."""
    offsets, times = array("q"), array("q")
    fragments: list[Fragment] = []
    may_have_keys = False
    for run in runs_of(stored):
        offsets.extend(range(run.first, run.end))
        times.extend(array("q", [run.time]) * len(run.fragments))
        fragments += run.fragments
        may_have_keys |= run.has_ordering_keys
    keys = pa.nulls(len(fragments), SCHEMA.field("ordering_key").type)
    if may_have_keys and messages.has_ordering_keys(fragments):
        keys = pa.array([messages.ordering_key_of(each) or None for each in fragments], keys.type)
        fragments = [messages.split_ordering_key(each)[1] for each in fragments]
    attributes, data = _contents(fragments)
    columns = [
        _column(SCHEMA.field("offset").type, offsets),
        _column(SCHEMA.field("publish_time").type, times),
        attributes,
        pa.array(data, SCHEMA.field("data").type),
        keys,
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def _column(kind: "pa.DataType", numbers: "array[int]") -> "pa.Array":
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _contents(fragments: Sequence[Fragment]) -> tuple["pa.MapArray", list[bytes]]:
    """Return attributes and decoded data. Usual messages have plain base64 data only, decoded all at once."""
    if messages.are_data_alone(fragments):
        with contextlib.suppress(ValueError):
            data = [pybase64.b64decode(each[len(_DATA) : -1], None, True) for each in fragments]
            return _map(array("i", [0]) * (len(fragments) + 1), [], []), data
    contents = [_content(each) for each in fragments]
    rows = [attributes for attributes, _ in contents]
    names = [name for row in rows for name in row]
    values = [value for row in rows for value in row.values()]
    ends = array("i", itertools.accumulate(map(len, rows), initial=0))
    return _map(ends, names, values), [data for _, data in contents]


def _content(fragment: bytes) -> tuple[Mapping[str, str], bytes]:
    """Return attributes and decoded data. Plain base64, as in nearly all messages, is decoded without a JSON parser."""
    start = fragment.rfind(b'"', 0, -1) + 1
    head = start - len(_DATA)
    # Inside a JSON text a quote has a backslash before it, so these bytes are not part of a text.
    if head >= 0 and fragment[head:start] == _DATA:
        try:
            data = pybase64.b64decode(fragment[start:-1], validate=True)
            return (_attributes(fragment[len(_ATTRIBUTES) : head - 1]) if head else {}), data
        except ValueError:  # not base64
            pass
    message = messages.parse(fragment)
    return message.attributes, messages.data_or_text(message.data)


def _map(ends: "array[int]", names: Sequence[str], values: Sequence[str]) -> "pa.MapArray":
    text = pa.string()
    return pa.MapArray.from_arrays(_column(pa.int32(), ends), pa.array(names, text), pa.array(values, text))


def encoded_piece(piece: Sequence[Stored]) -> bytes:
    """Return a piece as part of a stream; the schema for an empty piece."""
    made = batch(piece) if piece else SCHEMA
    found: bytes = made.serialize().to_pybytes()
    return found


def parts_of(piece: Sequence[Stored]) -> Sequence[bytes]:
    """Return first offset, time and number of messages of each run, the lengths of fragments, and the fragments."""
    runs = runs_of(piece)
    heads = array("Q", itertools.chain.from_iterable([(run.first, run.time, len(run.fragments)) for run in runs]))
    fragments = list(itertools.chain.from_iterable([run.fragments for run in runs]))
    return heads.tobytes(), array("I", map(len, fragments)).tobytes(), b"".join(fragments)


def encode(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Encode the `parts_of` a piece as `encoded_piece` does; a job for a worker."""
    heads, lengths, blob = map(bytes, parts)
    ends = itertools.accumulate(array("I", lengths), initial=0)
    fragments = [Fragment(blob[start:end]) for start, end in itertools.pairwise(ends)]
    runs, place, numbers = [], 0, array("Q", heads)
    for first, time, count in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
        runs.append(Run.of(Offset(first), Milliseconds(time), fragments[place : place + count]))
        place += count
    return [encoded_piece(Runs(runs))]
