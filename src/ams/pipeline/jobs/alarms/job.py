"""The job `alarms`: alarms, status events and alerts into PostgreSQL, and all reports into a table.

The history keeps each report once, and `alarms` is what follows from it. One transaction first takes the alarms it is
about, in the order of their ids, and holds them until its end; then it adds to the history, and then reads the whole
history of these alarms anew. So of two tasks that write the same alarm, the second sees what the first has written, and
the rows do not depend on who came first.
"""

import time
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Annotated

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from ams.pipeline.jobs.alarms.parse import STATUSES, parse
from ams.pipeline.jobs.base import Job
from ams.pipeline.parsing import parsed
from ams.pipeline.postgres import Rows, address, check_table, connected, load, told, write
from ams.pipeline.running import Run

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


REPORT = StructType(
    [
        *(StructField(name, StringType(), nullable=False) for name in KEY[1:]),
        StructField("at", TimestampType(), nullable=False),
        StructField("status", StringType(), nullable=False),
        *(StructField(name, StringType()) for name in TOLD),
    ]
)
"""What one message tells: the status of something at a time; `parse` makes these."""
_TYPES = {"at": TimestampType(), "published": TimestampType(), "offset": LongType()}
REPORTS = StructType([StructField(name, _TYPES.get(name, StringType())) for name in COLUMNS])
"""Every report there was, also such as were told again, and where it is from."""

_AHEAD_SECONDS = 86_400
"""How far ahead of our clock a report may be: clocks differ, but not by a day."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be said to the job."""

    topics: tuple[str, ...] = ("alarms",)
    """Topics, or patterns of them, with alarms, status events or alerts, in any mixture."""
    database: str = ""
    """`postgresql://USER@HOST:PORT/DATABASE` without a password; empty takes `AMS_PIPELINE_DATABASE`."""
    batch_messages: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    """Messages a batch at most."""


def run(run: Run, options: Options) -> None:
    """Write what the topics tell into `alarms` and `alarm_history`, and set aside what cannot be read."""
    to = address(options.database)
    kept = run.table("reports", REPORTS)
    with connected(to) as connection:
        prepare(connection)

    def handle(messages: DataFrame, batch_id: int) -> None:
        latest = time.time() + _AHEAD_SECONDS
        with parsed(messages, partial(parse, latest=latest), REPORT) as (reports, broken):
            found = identified(reports)
            write(found, to, ["alarm"], write_reports)
            run.append(kept, found, batch_id)
            run.quarantine(broken, batch_id)

    run.stream(run.topic(*options.topics, maxOffsetsPerTrigger=str(options.batch_messages)), handle)


def identified(reports: DataFrame) -> DataFrame:
    """Return the rows to write, each with the id of its alarm, which is a hash of all that makes it."""
    parts = F.to_json(F.array(F.col("source.project"), *KEY[1:]))
    placed = {"published": "publish_time", "topic": "topic", "offset": "offset"}
    return reports.select(
        F.md5(parts).alias("alarm"),
        F.col("source.project").alias("project"),
        *KEY[1:],
        "at",
        "status",
        *TOLD,
        *(F.col(f"source.{placed[name]}").alias(name) for name in PLACED),
    ).select(*COLUMNS)


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


JOB = Job(
    "alarms",
    "Alarms and status events in PostgreSQL: one row an alarm, and all of its history",
    Options,
    run,
    harmless=frozenset({"batch_messages"}),
)
