"""Arrow columns of a message and of an archive, shared by code with and without Spark."""

import pyarrow as pa

MESSAGE = pa.schema(
    [
        pa.field("project", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("message_id", pa.string(), nullable=False),
        pa.field("publish_time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False)), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("ordering_key", pa.string()),
    ]
)
"""A message; `data` is decoded from base64, `publish_time` is a whole number of milliseconds, a message without an
`ordering_key` has null.
"""
ARCHIVE = MESSAGE.append(pa.field("date", pa.date32(), nullable=False))
PARTITIONS = ("project", "topic", "date")


def with_date(messages: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages (`MESSAGE`) as rows of an archive (`ARCHIVE`)."""
    days = messages.column("publish_time").cast(pa.date32(), safe=False)
    return pa.RecordBatch.from_arrays([*messages.columns, days], schema=ARCHIVE)
