"""Messages as Arrow. The one file that needs pyarrow (extra `arrow`), loaded when it is asked for."""

import itertools
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
import pybase64

from ams.core.messages import Stored, decoded_data, parse

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("publish_time", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
"""Part of the API; `docs/reference/reading.md` shows it."""
_ATTRIBUTES, _DATA = b'"attributes":', b'"data":"'
"""How the two members of a fragment begin (`ams.core.messages.Fragment`)."""
_NONE: Mapping[str, str] = {}
_attributes = msgspec.json.Decoder(dict[str, str]).decode


def batch(messages: Sequence[Stored]) -> "pa.RecordBatch":
    """Make a record batch of messages, their data decoded."""
    contents = [_content(each.fragment) for each in messages]
    columns = [
        pa.array([each.offset for each in messages], SCHEMA.field("offset").type),
        pa.array([each.time for each in messages], SCHEMA.field("publish_time").type),
        _map([attributes for attributes, _ in contents]),
        pa.array([data for _, data in contents], SCHEMA.field("data").type),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def payload(data: str) -> bytes:
    """Decode data from base64; of a lenient service's other text, return its UTF-8 bytes."""
    try:
        return decoded_data(data)
    except ValueError:
        return data.encode()


def _content(fragment: bytes) -> tuple[Mapping[str, str], bytes]:
    """Return attributes and decoded data. Data that is plain base64, as nearly all is, is not read as JSON first."""
    start = fragment.rfind(b'"', 0, -1) + 1
    head = start - len(_DATA)
    # Within a JSON text a quote follows a backslash, so these bytes are no part of one.
    if head >= 0 and fragment[head:start] == _DATA:
        try:
            data = pybase64.b64decode(fragment[start:-1], validate=True)
        except ValueError:
            return _patiently(fragment)
        return (_attributes(fragment[len(_ATTRIBUTES) : head - 1]) if head else _NONE), data
    return _patiently(fragment)


def _patiently(fragment: bytes) -> tuple[Mapping[str, str], bytes]:
    message = parse(fragment)
    return message.attributes, payload(message.data)


def _map(rows: Sequence[Mapping[str, str]]) -> "pa.MapArray":
    ends = itertools.accumulate(map(len, rows), initial=0)
    names = [name for row in rows for name in row]
    values = [value for row in rows for value in row.values()]
    text = pa.string()
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), pa.array(names, text), pa.array(values, text))
