"""The columns of monitoring results and of all that is computed from them: the contract of each table."""

from typing import Final

from pyspark.sql import types as T
from pyspark.sql.types import StructField, StructType


def _columns(kind: T.DataType, names: str) -> list[StructField]:
    return [StructField(name, kind) for name in names.split()]


_TEXT, _TIME = T.StringType(), T.TimestampType()
_SOURCE = [*_columns(_TEXT, "topic"), *_columns(T.LongType(), "offset")]
"""Which message a row came in; null in rows that were stored before there were these columns."""

RESULTS: Final = StructType(
    [
        *_columns(_TEXT, "date"),
        *_columns(_TIME, "timestamp"),
        *_columns(_TEXT, "service hostname metric status monitoring_host summary message"),
        *_columns(T.DoubleType(), "response_time"),
        *_SOURCE,
    ]
)
"""A monitoring result as it is stored; `date` is the day of `timestamp`, `response_time` is in seconds."""

SYNCED: Final = StructType([*_columns(_TEXT, "type partition_date item"), *_SOURCE])
"""A record of topology, profile or downtimes that came in a message."""

EVENT_WORDS: Final = (
    *("report", "type", "endpoint_group", "service", "hostname", "metric", "status", "prev_status", "ts_monitored"),
    *("prev_ts", "monitoring_host", "summary", "message", "hostname_url", "repeat", "reminder"),
)
EVENT_LISTS: Final = (
    *("status_metric", "status_endpoint", "status_service", "status_egroup", "metric_names", "metric_statuses"),
    *("group_endpoints", "group_services", "group_statuses"),
)
"""The fields of an event: words, and lists of words."""
_EVENT = [*_columns(_TEXT, " ".join(EVENT_WORDS)), *_columns(T.ArrayType(_TEXT), " ".join(EVENT_LISTS))]
EVENTS: Final = StructType([*_EVENT, *_columns(_TEXT, "date")])
"""A status event; `date` is the day as in the other tables, with dashes."""
EVENT: Final = (
    *("report", "date", "type", "endpoint_group", "service", "hostname", "metric"),
    *("ts_monitored", "status", "repeat"),
)
"""What tells an event from others. The same event with another text around it is not published again."""
OUTBOX: Final = StructType(
    [*_columns(T.IntegerType(), "number"), *_columns(_TEXT, " ".join(EVENT)), *_columns(T.BinaryType(), "data")]
)
"""Events to publish; those of one number go out together."""

ROWS: Final = StructType(
    [
        *_columns(_TEXT, "date type endpoint_group service hostname metric"),
        *_columns(T.LongType(), "start end"),
        *_columns(_TEXT, "status"),
        *_columns(T.LongType(), "up_seconds unknown_seconds down_seconds"),
        *_columns(T.BooleanType(), "partial"),
        StructField("event", StructType(_EVENT)),
    ]
)
"""What is computed: a stretch of one status, from second `start` of the day up to `end`, or an `event`.

The seconds are those of the stretch by what its status counts as; it may count as several.
"""

STATUSES: Final = StructType(
    [
        *_columns(_TEXT, "report type endpoint_group service hostname metric"),
        *_columns(_TIME, "start end"),
        *_columns(_TEXT, "status date"),
    ]
)
"""A stretch of one status of a `metric`, `endpoint`, `service` or `endpoint_group`, from `start` up to `end`."""

PERCENT: Final = T.DecimalType(8, 5)
FIGURES: Final = StructType(
    [
        *_columns(_TEXT, "report type endpoint_group service hostname"),
        *_columns(PERCENT, "availability reliability up unknown down"),
        *_columns(T.IntegerType(), "up_seconds unknown_seconds down_seconds"),
        *_columns(T.BooleanType(), "partial"),
        *_columns(_TEXT, "date"),
    ]
)
"""The figures of an `endpoint`, a `service` or an `endpoint_group` on a day.

`availability` and `reliability` are percentages, `up`, `unknown` and `down` fractions of the day. `partial` says that
the day was not over when this was computed: its last statuses are taken to hold until its end.
"""

DAYS: Final = StructType(_columns(_TEXT, "fingerprint date"))
"""What a day was computed from."""
