"""The columns of monitoring results and of all that is computed from them: the contract of each table."""

from typing import Final

from pyspark.sql.types import DecimalType

from ams.pipeline.jobs.frames import columns

_SOURCE = columns(("string", "topic"), ("bigint", "offset"))
"""Which message a row came in; null in rows that were stored before there were these columns."""

RESULTS: Final = columns(
    ("string", "date"),
    ("timestamp", "timestamp"),
    ("string", "service hostname metric status monitoring_host summary message"),
    ("double", "response_time"),
    _SOURCE,
)
"""A monitoring result as it is stored; `date` is the day of `timestamp`, `response_time` is in seconds."""

SYNCED: Final = columns(("string", "type partition_date item"), _SOURCE)
"""A record of topology, profile or downtimes that came in a message."""

_EVENT = columns(
    ("string", "report type endpoint_group service hostname metric status prev_status ts_monitored prev_ts"),
    ("string", "monitoring_host summary message hostname_url repeat reminder"),
    ("array<string>", "status_metric status_endpoint status_service status_egroup metric_names metric_statuses"),
    ("array<string>", "group_endpoints group_services group_statuses"),
)
EVENTS: Final = columns(_EVENT, ("string", "date"))
"""A status event; `date` is the day as in the other tables, with dashes."""

OUTBOX: Final = columns(
    ("int", "number"),
    ("string", "report date type endpoint_group service hostname metric ts_monitored status repeat"),
    ("binary", "data"),
)
"""Events to publish; those of one number go out together."""
EVENT: Final = OUTBOX.names[1:-1]
"""What tells an event from others. The same event with another text around it is not published again."""

ROWS: Final = columns(
    ("string", "date type endpoint_group service hostname metric"),
    ("bigint", "start end"),
    ("string", "status"),
    ("bigint", "up_seconds unknown_seconds down_seconds"),
    ("boolean", "partial"),
    (_EVENT, "event"),
)
"""What is computed: a stretch of one status, from second `start` of the day up to `end`, or an `event`.

The seconds are those of the stretch by what its status counts as; it may count as several.
"""

STATUSES: Final = columns(
    ("string", "report type endpoint_group service hostname metric"),
    ("timestamp", "start end"),
    ("string", "status date"),
)
"""A stretch of one status of a `metric`, `endpoint`, `service` or `endpoint_group`, from `start` up to `end`."""

PERCENT: Final = DecimalType(8, 5)
FIGURES: Final = columns(
    ("string", "report type endpoint_group service hostname"),
    (PERCENT, "availability reliability up unknown down"),
    ("int", "up_seconds unknown_seconds down_seconds"),
    ("boolean", "partial"),
    ("string", "date"),
)
"""The figures of an `endpoint`, a `service` or an `endpoint_group` on a day.

`availability` and `reliability` are percentages, `up`, `unknown` and `down` fractions of the day. `partial` says that
the day was not over when this was computed: its last statuses are taken to hold until its end.
"""

DAYS: Final = columns(("string", "fingerprint date"))
"""What a day was computed from."""
