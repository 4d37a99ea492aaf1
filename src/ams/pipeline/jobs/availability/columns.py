"""The columns of monitoring results and of all that is computed from them: the contract of each table."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ams.pipeline.jobs.availability.events import EVENT_LISTS, EVENT_WORDS


def _columns(kind: DataType, names: str) -> list[StructField]:
    return [StructField(name, kind) for name in names.split()]


RESULTS: Final = StructType(
    [
        *_columns(StringType(), "date"),
        *_columns(TimestampType(), "timestamp"),
        *_columns(StringType(), "service hostname metric status monitoring_host summary message"),
        *_columns(DoubleType(), "response_time"),
    ]
)
"""A monitoring result as it is stored; `date` is the day of `timestamp`, `response_time` is in seconds."""

SYNCED: Final = StructType(_columns(StringType(), "type partition_date item"))
"""A record of topology, profile or downtimes that came in a message."""

ROWS: Final = StructType(
    [
        *_columns(StringType(), "date type endpoint_group service hostname metric"),
        *_columns(LongType(), "start end"),
        *_columns(StringType(), "status event"),
    ]
)
"""What is computed: a stretch of one status, in seconds of the day, or, where `event` is there, an event as JSON."""

STATUSES: Final = StructType(
    [
        *_columns(StringType(), "report type endpoint_group service hostname metric"),
        *_columns(TimestampType(), "start end"),
        *_columns(StringType(), "status date"),
    ]
)
"""A stretch of one status of a `metric`, `endpoint`, `service` or `endpoint_group`, from `start` up to `end`."""

PERCENT: Final = DecimalType(8, 5)
FIGURES: Final = StructType(
    [
        *_columns(StringType(), "report type endpoint_group service hostname"),
        *_columns(PERCENT, "availability reliability up unknown down"),
        *_columns(IntegerType(), "up_seconds unknown_seconds down_seconds"),
        *_columns(BooleanType(), "partial"),
        *_columns(StringType(), "date"),
    ]
)
"""The figures of an `endpoint`, a `service` or an `endpoint_group` on a day.

`availability` and `reliability` are percentages, `up`, `unknown` and `down` fractions of the day. `partial` says that
the day was not over when this was computed: its last statuses are taken to hold until its end.
"""

EVENTS: Final = StructType(
    [
        *(StructField(name, StringType()) for name in EVENT_WORDS if name != "date"),
        *(StructField(name, ArrayType(StringType())) for name in EVENT_LISTS),
        StructField("date", StringType()),
    ]
)
"""A status event; `date` is the day as in the other tables, with dashes."""

DAYS: Final = StructType(_columns(StringType(), "fingerprint date"))
"""What a day was computed from."""

EVENT: Final = (
    *("report", "date", "type", "endpoint_group", "service", "hostname", "metric"),
    *("ts_monitored", "status", "repeat"),
)
"""What tells an event from others. The same event with another text around it is not published again."""
OUTBOX: Final = StructType(
    [
        StructField("number", IntegerType()),
        *(StructField(name, StringType()) for name in EVENT),
        StructField("data", BinaryType()),
    ]
)
"""Events to publish; those of one number go out together."""
