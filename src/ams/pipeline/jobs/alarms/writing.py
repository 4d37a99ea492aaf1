"""Writing reports of alarms into PostgreSQL: the history keeps each once, and `alarms` is what follows from it.

One transaction first takes the alarms it is about, in the order of their ids, and holds them until its end; then it
adds to the history, and then reads the whole history of these alarms anew. So of two tasks that write the same alarm,
the second sees what the first has written, and the rows do not depend on who came first.
"""

from importlib import resources
from typing import TYPE_CHECKING

from ams.pipeline.jobs.alarms.parse import STATUSES
from ams.pipeline.postgres import Rows, check_table, load, told

if TYPE_CHECKING:
    from ams.pipeline.postgres import Session

KEY = ("project", "kind", "report", "level", "site", "service", "hostname", "metric")
"""What makes an alarm: the same of all these is the same alarm."""
TOLD = ("details", "cause", "monitoring_host", "vo", "roc", "url_history", "url_help")
"""What comes with a report; an alarm has what came with the last one."""
PLACED = ("published", "topic", "offset")
"""Which of two messages that tell the same report is the newer one."""
COLUMNS = ("alarm", *KEY, "at", "status", *TOLD, *PLACED)
"""The columns of rows to write."""

_CREATE_LOCK = 7_245_301_001
"""An advisory lock: two jobs that make the tables at once would get in each other's way."""


def prepare(connection: "Session") -> None:
    """Make the tables and views where they are missing; raises `WrongTable` if there are others of these names."""
    with told("table alarms"), connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE_LOCK,))
        connection.execute(resources.files(__package__).joinpath("tables.sql").read_bytes())
    check_table(connection, "alarms", ["alarm", *KEY, "status", "since", *TOLD], ["alarm"])
    check_table(connection, "alarm_history", ["alarm", "at", "status", *TOLD, *PLACED], ["alarm", "at", "status"])


def write_reports(connection: "Session", rows: Rows) -> int:
    """Write the rows of a task; return how many reports were new or told anew."""
    from psycopg.sql import SQL

    with told("table alarms"), connection.cursor() as cursor:
        load(cursor, SQL(_SHAPE), COLUMNS, rows)
        cursor.execute(_TAKE)
        cursor.execute(_ADD)
        written = cursor.rowcount
        cursor.execute(_RENEW)
        return written


_told = ", ".join(TOLD)
_excluded = ", ".join(f"{name} = excluded.{name}" for name in (*TOLD, "published", "topic", '"offset"'))
_badness = f"array_position(ARRAY{list(STATUSES)!r}, status)"

_SHAPE = f"""
    SELECT alarms.alarm, {", ".join(KEY)}, at, alarms.status, {", ".join(f"alarms.{name}" for name in TOLD)},
        published, topic, "offset"
    FROM alarms JOIN alarm_history USING (alarm)
"""
"""The types of `COLUMNS`, as they are in the two tables."""

_TAKE = f"""
    INSERT INTO alarms AS kept (alarm, {", ".join(KEY)}, status, since, first_seen, last_seen, reports, changes)
    SELECT DISTINCT ON (alarm) alarm, {", ".join(KEY)}, status, at, at, at, 0, 0 FROM incoming ORDER BY alarm
    ON CONFLICT (alarm) DO UPDATE SET project = kept.project
"""
"""Taking a row that is there changes nothing of it, and holds it."""

_ADD = f"""
    INSERT INTO alarm_history AS kept (alarm, at, status, {_told}, published, topic, "offset")
    SELECT DISTINCT ON (alarm, at, status) alarm, at, status, {_told}, published, topic, "offset"
    FROM incoming ORDER BY alarm, at, status, published DESC, topic DESC, "offset" DESC
    ON CONFLICT (alarm, at, status) DO UPDATE SET {_excluded}
    WHERE (kept.published, kept.topic, kept."offset") < (excluded.published, excluded.topic, excluded."offset")
"""

_RENEW = f"""
    WITH reports AS (
        SELECT *, {_badness} AS badness FROM alarm_history WHERE alarm IN (SELECT alarm FROM incoming)
    ), ordered AS (
        SELECT *, lag(status) OVER (PARTITION BY alarm ORDER BY at, badness) AS previous FROM reports
    ), counted AS (
        SELECT alarm, min(at) AS first_seen, count(*) AS reports,
            max(at) FILTER (WHERE previous IS DISTINCT FROM status) AS since,
            count(*) FILTER (WHERE previous <> status) AS changes
        FROM ordered GROUP BY alarm
    ), last AS (
        SELECT DISTINCT ON (alarm) * FROM reports ORDER BY alarm, at DESC, badness DESC
    )
    UPDATE alarms SET status = last.status, since = counted.since, first_seen = counted.first_seen,
        last_seen = last.at, reports = counted.reports, changes = counted.changes,
        {", ".join(f"{name} = last.{name}" for name in TOLD)}
    FROM counted JOIN last USING (alarm) WHERE alarms.alarm = counted.alarm
"""
