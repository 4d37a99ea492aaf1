"""The columns of monitoring results and of all that is computed from them: the contract of each table."""

from typing import Final

from pyspark.sql import types as T
from pyspark.sql.types import StructField, StructType


def _table(*columns: tuple[T.DataType, str]) -> StructType:
    return StructType([StructField(name, kind) for kind, names in columns for name in names.split()])


_TEXT, _TIME, _LONG, _INT = T.StringType(), T.TimestampType(), T.LongType(), T.IntegerType()
_SOURCE = (_TEXT, "topic"), (_LONG, "offset")
"""Which message a row came in; null in rows that were stored before there were these columns."""

RESULTS: Final = _table(
    (_TEXT, "date"),
    (_TIME, "timestamp"),
    (_TEXT, "service hostname metric status monitoring_host summary message"),
    (T.DoubleType(), "response_time"),
    *_SOURCE,
)
"""A monitoring result as it is stored; `date` is the day of `timestamp`, `response_time` is in seconds."""

SYNCED: Final = _table((_TEXT, "type partition_date item"), *_SOURCE)
"""A record of topology, profile or downtimes that came in a message."""

_EVENT = (
    (_TEXT, "report type endpoint_group service hostname metric status prev_status ts_monitored prev_ts"),
    (_TEXT, "monitoring_host summary message hostname_url repeat reminder"),
    (T.ArrayType(_TEXT), "status_metric status_endpoint status_service status_egroup metric_names metric_statuses"),
    (T.ArrayType(_TEXT), "group_endpoints group_services group_statuses"),
)
EVENTS: Final = _table(*_EVENT, (_TEXT, "date"))
"""A status event; `date` is the day as in the other tables, with dashes."""

OUTBOX: Final = _table(
    (_INT, "number"),
    (_TEXT, "report date type endpoint_group service hostname metric ts_monitored status repeat"),
    (T.BinaryType(), "data"),
)
"""Events to publish; those of one number go out together."""
EVENT: Final = OUTBOX.names[1:-1]
"""What tells an event from others. The same event with another text around it is not published again."""

ROWS: Final = _table(
    (_TEXT, "date type endpoint_group service hostname metric"),
    (_LONG, "start end"),
    (_TEXT, "status"),
    (_LONG, "up_seconds unknown_seconds down_seconds"),
    (T.BooleanType(), "partial"),
    (_table(*_EVENT), "event"),
)
"""What is computed: a stretch of one status, from second `start` of the day up to `end`, or an `event`.

The seconds are those of the stretch by what its status counts as; it may count as several.
"""

STATUSES: Final = _table(
    (_TEXT, "report type endpoint_group service hostname metric"),
    (_TIME, "start end"),
    (_TEXT, "status date"),
)
"""A stretch of one status of a `metric`, `endpoint`, `service` or `endpoint_group`, from `start` up to `end`."""

PERCENT: Final = T.DecimalType(8, 5)
FIGURES: Final = _table(
    (_TEXT, "report type endpoint_group service hostname"),
    (PERCENT, "availability reliability up unknown down"),
    (_INT, "up_seconds unknown_seconds down_seconds"),
    (T.BooleanType(), "partial"),
    (_TEXT, "date"),
)
"""The figures of an `endpoint`, a `service` or an `endpoint_group` on a day.

`availability` and `reliability` are percentages, `up`, `unknown` and `down` fractions of the day. `partial` says that
the day was not over when this was computed: its last statuses are taken to hold until its end.
"""

DAYS: Final = _table((_TEXT, "fingerprint date"))
"""What a day was computed from."""
