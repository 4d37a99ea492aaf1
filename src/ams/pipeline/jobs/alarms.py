"""The job `alarms`: alarms, status events and alerts into PostgreSQL, and all reports into a table.

The history keeps each report once, and `alarms` is computed from it. A transaction locks its alarms in the order of
their ids, adds to the history, then reads the whole history of these alarms. If two tasks write one alarm, the second
sees the rows of the first, and the result does not depend on their order.
"""

import time
from functools import partial
from importlib import resources
from typing import Annotated

import msgspec
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ams.pipeline.jobs.alarm_messages import parse
from ams.pipeline.jobs.base import NOT_TAKEN, UNKNOWN, Job, columns, unknown
from ams.pipeline.postgres import Rows, Session, address, check_table, load, map_errors, open_session, write
from ams.pipeline.run import Run

KEY = ("project", "kind", "report", "level", "site", "service", "hostname", "metric")
# Details of a report; an alarm has those of its last report.
DETAILS = ("details", "cause", "monitoring_host", "vo", "roc", "url_history", "url_help")
RECENCY = ("published", "topic", "offset")  # the newer of two messages with the same report
_CREATE_LOCK = 7_245_301_001  # advisory lock: two jobs must not make the tables at once

REPORT = columns(("string", " ".join(KEY[1:])), ("timestamp", "at"), ("string", " ".join(("status", *DETAILS))))
READ = columns(REPORT, UNKNOWN)
REPORTS = columns(  # all reports with their messages, including repeated ones
    ("string", "alarm project"), REPORT, ("timestamp", "published"), ("string", "topic"), ("bigint", "offset")
)


class AlarmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the job."""

    topics: tuple[str, ...] = ("alarms",)
    """Topics, or patterns of them, with alarms, status events or alerts, in any mixture."""
    database: str = ""
    """`postgresql://USER@HOST:PORT/DATABASE` without a password; empty takes `AMS_PIPELINE_DATABASE`."""
    batch_messages: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    """Messages a batch at most."""


def run(run: Run, options: AlarmOptions) -> None:
    """Write reports to `alarms` and `alarm_history`; unreadable messages go to quarantine."""
    to = address(options.database)
    kept, others = run.table("reports", REPORTS), run.table("not_taken", NOT_TAKEN)
    with open_session(to) as connection:
        prepare(connection)

    def handle(messages: DataFrame) -> None:
        latest = time.time() + 86_400  # clocks differ, but not by a day
        reports = run.parsed(messages, partial(parse, latest=latest), READ)
        placed = reports.select("*", "source.*").withColumnRenamed("publish_time", "published")
        # The id of an alarm is a hash of its key.
        found = placed.withColumn("alarm", F.md5(F.to_json(F.array(*KEY)))).select(*REPORTS.names)
        write(found, to, ["alarm"], _write_reports)
        run.append(kept, found)
        run.append(others, unknown(reports))

    run.stream(run.topic(*options.topics, maxOffsetsPerTrigger=str(options.batch_messages)), handle)


def prepare(connection: Session) -> None:
    """Make the tables and views where they are missing; raises `WrongTable` if there are others of these names."""
    with map_errors("table alarms"), connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE_LOCK,))
        connection.execute(_statements("alarms_tables.sql"))
    check_table(connection, "alarms", ["alarm", *KEY, "status", "since", *DETAILS], ["alarm"])
    check_table(connection, "alarm_history", ["alarm", "at", "status", *DETAILS, *RECENCY], ["alarm", "at", "status"])


def _write_reports(connection: Session, rows: Rows) -> int:
    like = SQL("SELECT * FROM alarm_history JOIN (SELECT alarm, {} FROM alarms) AS named USING (alarm)")
    with map_errors("table alarms"), connection.cursor() as cursor:
        load(cursor, like.format(SQL(", ").join(map(Identifier, KEY))), REPORTS.names, rows)
        return cursor.execute(_statements("alarms_write.sql")).rowcount


def _statements(file: str) -> bytes:
    return resources.files(__package__).joinpath(file).read_bytes()


SUMMARY = "Alarms and status events in PostgreSQL: one row an alarm, and all of its history"
JOB = Job("alarms", SUMMARY, AlarmOptions, run)
