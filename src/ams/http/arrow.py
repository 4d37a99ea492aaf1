"""Messages as an Arrow IPC stream. The one file that needs pyarrow (extra `arrow`), loaded when it is asked for."""

import itertools
from collections.abc import AsyncIterator, Sequence

import pyarrow as pa
import pybase64

from ams.messages import Body, Stored, parse_all

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("publish_time", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
"""Part of the API; `docs/reference/reading.md` shows it."""
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""What ends a stream (Arrow columnar format, IPC streaming format)."""


async def stream(pieces: AsyncIterator[Sequence[Stored]]) -> AsyncIterator[bytes]:
    """Yield the schema, a record batch for each piece, and the end."""
    yield SCHEMA.serialize().to_pybytes()
    async for piece in pieces:
        yield batch(piece).serialize().to_pybytes()
    yield _END


def batch(messages: Sequence[Stored]) -> "pa.RecordBatch":
    """Make a record batch of messages, their data decoded."""
    bodies = parse_all([each.fragment for each in messages])
    columns = [
        pa.array([each.offset for each in messages], SCHEMA.field("offset").type),
        pa.array([each.time for each in messages], SCHEMA.field("publish_time").type),
        _attributes(bodies),
        pa.array([payload(each.data) for each in bodies], SCHEMA.field("data").type),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def payload(data: str) -> bytes:
    """Decode data from base64, line breaks tolerated; of a lenient service's other text, return its UTF-8 bytes."""
    for text in (data, data.replace("\r", "").replace("\n", "")):
        try:
            return pybase64.b64decode(text, validate=True)
        except ValueError:
            continue
    return data.encode()


def _attributes(bodies: Sequence[Body]) -> "pa.MapArray":
    ends = itertools.accumulate((len(each.attributes) for each in bodies), initial=0)
    names = [name for each in bodies for name in each.attributes]
    values = [value for each in bodies for value in each.attributes.values()]
    text = pa.string()
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), pa.array(names, text), pa.array(values, text))
