"""The availability job: monitoring results in, daily figures, timelines of statuses and status events out."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ams.pipeline.jobs.availability.board import as_page, board
from ams.pipeline.jobs.availability.columns import DAYS, EVENTS, FIGURES, RESULTS, STATUSES, SYNCED
from ams.pipeline.jobs.availability.daily import computed, day_before
from ams.pipeline.jobs.availability.figures import STATES, events, figures, figures_of_groups, statuses
from ams.pipeline.jobs.availability.inputs import inputs
from ams.pipeline.jobs.availability.options import Options
from ams.pipeline.jobs.availability.recomputing import Day, days_of
from ams.pipeline.jobs.availability.results import parse_as
from ams.pipeline.jobs.availability.synced import Lists, lists, parse_for
from ams.pipeline.jobs.availability.telling import Outbox
from ams.pipeline.jobs.availability.timelines import DAY
from ams.pipeline.jobs.base import Job
from ams.pipeline.parsing import parsed, rows_of, split
from ams.pipeline.report.page import put
from ams.pipeline.running import Run
from ams.pipeline.tables import Table
from ams.tables.files import Partition

AT_ONCE = 7
"""Days computed in one pass: more would only need more memory, fewer would compute more days before as well."""


def run(run: Run, options: Options) -> None:
    """Store the results of the topic by day, and keep the tables of the board right."""
    topics = [each for each in (options.topic, options.sync_topic) if each]
    follow(run, options, run.topic(*topics, maxOffsetsPerTrigger=str(options.batch_messages)))


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
        """Compute the days that are not as they should be, a few at a time."""
        known = inputs(self.options, self._lists())
        if known.unfit:
            self.run.say(f"metric profiles of which nothing counts, passed over: {', '.join(known.unfit)}")
        if not known.rules:
            self.run.say(f"no metric profile has come in {self.options.sync_topic} yet: nothing to compute")
            return
        outbox = Outbox.of(self.run, self.options.events_topic) if self.options.events_topic else None
        fingerprints = {row["date"]: row["fingerprint"] for row in self._days.read().collect()}
        every = days_of(self._stored.files(), known, self.options, int(time.time()))
        days = [day for day in every if fingerprints.get(day.date) != day.fingerprint]
        for start in range(0, len(days), AT_ONCE):
            self._compute(days[start : start + AT_ONCE], outbox)
        if outbox:
            outbox.send()
        if days and self.run.every is None:
            shown = board(self._result("figures", FIGURES).read(), self._result("statuses", STATUSES).read())
            put(self.run.work / "board.html", as_page(shown))
        self.run.say(f"computed {', '.join(day.date for day in days)}" if days else "nothing to compute")

    def _compute(self, days: Sequence[Day], outbox: Outbox | None) -> None:
        """Compute some days; they count as computed, by their fingerprints, when all the rest is written."""
        spark, report = self.run.spark, self.options.report
        dates = [day.date for day in days]
        by_day: list[Partition] = [{"date": date} for date in dates]
        needed = sorted({day_before(date, back) for date in dates for back in range(3)})
        results = self._stored.read([{"date": date} for date in needed])
        eves = {day.eve.day: day.eve for day in days if day.eve}
        repeat = self.options.repeat_hours * 3600
        rows = computed(results, [day.inputs for day in days], eves, report, repeat).persist()
        try:
            rows.count()  # fills the cache with all cores; each result below is written by one task
            self._result("statuses", STATUSES).replace(statuses(rows, report), by_day)
            counted = figures(rows, spark.createDataFrame([day.states for day in days], STATES), report)
            of_groups = figures_of_groups(counted, [each for day in days for each in day.regions])
            self._result("figures", FIGURES).replace(counted.unionByName(of_groups), by_day)
            told = self._result("events", EVENTS)
            told.replace(events(rows), by_day)
        finally:
            rows.unpersist()
        if outbox:
            outbox.put(told.read(by_day))
        self._days.replace(spark.createDataFrame([(day.fingerprint, day.date) for day in days], DAYS))

    @property
    def _stored(self) -> Table:
        return self.run.table("results", RESULTS, ("date",))

    @property
    def _days(self) -> Table:
        return self._result("days", DAYS)

    def _result(self, name: str, schema: StructType) -> Table:
        """Return a table with one partition a day, which is replaced whole."""
        return self.run.result(name, schema, ("date",))

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
