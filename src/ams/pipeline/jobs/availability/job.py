"""The availability job: monitoring results in, daily figures, timelines of statuses and status events out."""

import time
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ams.pipeline.jobs.availability.board import as_page, board
from ams.pipeline.jobs.availability.daily import RESULTS
from ams.pipeline.jobs.availability.inputs import inputs
from ams.pipeline.jobs.availability.options import Options
from ams.pipeline.jobs.availability.recomputing import Tables, recompute
from ams.pipeline.jobs.availability.results import parse_as
from ams.pipeline.jobs.availability.synced import Lists, lists, parse_for
from ams.pipeline.jobs.availability.telling import Outbox
from ams.pipeline.jobs.availability.timelines import DAY
from ams.pipeline.jobs.base import Job
from ams.pipeline.parsing import parsed, rows_of, split
from ams.pipeline.report.page import put
from ams.pipeline.running import Run
from ams.pipeline.tables import Table

SYNCED = StructType([StructField(name, StringType()) for name in ("type", "partition_date", "item")])
"""A record of topology, profile or downtimes that came in a message."""


def run(run: Run, options: Options) -> None:
    """Store the results of the topic by day, and keep the tables of the board right."""
    messages = run.topic(*topics(options), maxOffsetsPerTrigger=str(options.batch_messages))
    follow(run, options, messages)


def topics(options: Options) -> list[str]:
    """Return the topics that the job reads."""
    return [each for each in (options.topic, options.sync_topic) if each]


def follow(run: Run, options: Options, messages: DataFrame) -> None:
    """Do the job over any stream of messages (`columns.MESSAGES`)."""
    inputs(options)  # what is wrong in a file is said before anything is read
    job = Availability(run, options)
    run.stream(messages, job.handle, job.refresh)


@dataclass(frozen=True, slots=True)
class Availability:
    """The two halves of the job: storing what came, and computing from what is stored."""

    run: Run
    options: Options

    def handle(self, batch: DataFrame, batch_id: int) -> None:
        """Store a batch of messages; what is none of what it should be is set aside."""
        sync = F.col("topic") == self.options.sync_topic
        latest = time.time() + DAY  # clocks differ, but not by a day
        items = split(rows_of(batch.where(sync), parse_for(self.options.report), SYNCED), SYNCED)
        with parsed(batch.where(~sync), parse_as(self.options.shape, latest), RESULTS) as found:
            self.run.append(self._stored, found.records, batch_id)
            if self.options.sync_topic:
                self.run.append(self._synced, items.records, batch_id)
            self.run.quarantine(found.broken.unionByName(items.broken), batch_id)

    def refresh(self) -> None:
        """Compute the days that are not as they should be."""
        known = inputs(self.options, self._lists())
        if known.unfit:
            self.run.say(f"metric profiles of which nothing counts, passed over: {', '.join(known.unfit)}")
        if not known.rules:
            self.run.say(f"no metric profile has come in {self.options.sync_topic} yet: nothing to compute")
            return
        outbox = Outbox.of(self.run, self.options.events_topic) if self.options.events_topic else None
        tables, tell = Tables.of(self.run), outbox.put if outbox else None
        days = recompute(tables, self._stored, known, self.options, int(time.time()), tell)
        if outbox:
            outbox.send()
        if days and self.run.every is None:
            shown = board(tables.figures.read(), tables.statuses.read())
            put(self.run.work / "board.html", as_page(shown))
        self.run.say(f"computed {', '.join(days)}" if days else "nothing to compute")

    @property
    def _stored(self) -> Table:
        return self.run.table("results", RESULTS, ("date",))

    @property
    def _synced(self) -> Table:
        return self.run.table("synced", SYNCED)

    def _lists(self) -> Lists:
        if not self.options.sync_topic:
            return Lists()
        return lists([tuple(row) for row in self._synced.read().distinct().collect()])


JOB = Job(
    name="availability",
    summary="Daily availability and reliability of sites, services and endpoints, from monitoring results",
    options=Options,
    run=run,
    # Days are computed again when one of these says something else; so they may say it from another file, too.
    harmless=frozenset(
        {
            *("metric_profile", "aggregation_profile", "operations_profile", "topology", "groups"),
            *("downtimes", "recomputations", "repeat_hours", "batch_messages"),
        }
    ),
)
