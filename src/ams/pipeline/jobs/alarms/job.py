"""The job: alarms, status events and alerts of topics into two tables of PostgreSQL, and all reports into a table."""

import time
from functools import partial
from typing import Annotated

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from ams.pipeline.jobs.alarms.parse import parse
from ams.pipeline.jobs.alarms.writing import COLUMNS, KEY, PLACED, TOLD, prepare, write_reports
from ams.pipeline.jobs.base import Job
from ams.pipeline.parsing import parsed
from ams.pipeline.postgres import address, connected, write
from ams.pipeline.running import Run

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


JOB = Job(
    "alarms",
    "Alarms and status events in PostgreSQL: one row an alarm, and all of its history",
    Options,
    run,
    harmless=frozenset({"batch_messages"}),
)
