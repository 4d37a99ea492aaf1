"""The columns of a message, wherever it is read from: AMS, Kafka, or an archive."""

from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

PLACE = StructType(
    [
        StructField("project", StringType(), nullable=False),
        StructField("topic", StringType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("message_id", StringType(), nullable=False),
        StructField("publish_time", TimestampType(), nullable=False),
    ]
)
"""Where a message stands: the first columns of `MESSAGES`, and the struct `source` of what was read out of one."""

CONTENT = StructType(
    [
        *PLACE.fields,
        StructField("attributes", MapType(StringType(), StringType(), valueContainsNull=False), nullable=False),
        StructField("data", BinaryType(), nullable=False),
    ]
)
"""What records are read out of."""

MESSAGES = StructType([*CONTENT.fields, StructField("ordering_key", StringType())])
"""A message; `data` is decoded from base64, `publish_time` is a whole number of milliseconds, a message without an
`ordering_key` has null.
"""

BROKEN = StructType([*CONTENT.fields, StructField("reason", StringType(), nullable=False)])
"""A message that was set aside, and why."""
