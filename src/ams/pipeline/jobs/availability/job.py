"""The availability job: monitoring results in, daily figures, timelines of statuses and status events out.

A day's figures depend on the results of the day and the two days before, and on its profiles, topology, downtimes and
requests. A fingerprint of these inputs is stored with the figures, and written last. A day whose fingerprint changed is
computed anew and replaced whole: after late results, a recomputation request or its withdrawal, or a kill.

Events go to an outbox table first, numbered, and are published from there with an idempotency key made of the number:
after a kill they are published again under the same key, and the service does not store them twice.
"""

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ams.pipeline.checkpoint import CHECKPOINT, read, write
from ams.pipeline.jobs.availability import figures
from ams.pipeline.jobs.availability.inputs import AvailabilityOptions, DayInputs, Inputs, day_before
from ams.pipeline.jobs.availability.parse import lists, parse_lists, parse_results
from ams.pipeline.jobs.availability.timelines import DAY
from ams.pipeline.jobs.base import Job
from ams.pipeline.jobs.fields import group
from ams.pipeline.report import plots
from ams.pipeline.report.page import Figure, Rows, Section, page, put
from ams.pipeline.run import Run
from ams.pipeline.session import persist_rows
from ams.pipeline.sink import publish
from ams.pipeline.sink.requests import BATCH_ID
from ams.pipeline.tables import Table
from ams.tables.files import File, Partition


class _Sent(msgspec.Struct, frozen=True):
    number: int


class Outbox(NamedTuple):
    """Outbox table of events to publish."""

    table: Table
    options: Mapping[str, str]
    name: str  # names this outbox, and no other that may publish to the topic
    marker: Path

    @classmethod
    def of(cls, run: Run, topic: str) -> "Outbox":
        """Return the outbox of a run whose stream has begun."""
        name = str(json.loads((run.work / CHECKPOINT / "metadata").read_text())["id"])
        table, marker = run.table("outbox", figures.OUTBOX), run.work / "published.json"
        return cls(table, {**run.source, "topic": topic}, name, marker)

    def put(self, events: DataFrame) -> None:
        """Add new `EVENTS`; their text gets the current time."""
        number = self.table.batch() + 1
        date = F.replace("date", F.lit("-"), F.lit("")).alias("date")
        taken = F.date_format(F.current_timestamp(), "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("ts_processed")
        text = F.to_json(F.struct(*(name for name in events.columns if name != "date"), date, taken))
        new = events.withColumns({"number": F.lit(number), "data": F.encode(text, "utf-8")})
        new = new.join(self.table.read().select(*figures.EVENT), on=list(figures.EVENT), how="left_anti")
        if not new.isEmpty():
            self.table.append(new, number, self.name)

    def send(self) -> int:
        """Publish unpublished events, oldest first; returns how many numbers."""
        sent = read(self.marker, _Sent) or _Sent(-1)
        pending = range(sent.number + 1, self.table.batch() + 1)
        named = {"report": "report", "type": "type", "partition_date": "date"}
        attributes = F.create_map(*(part for name, column in named.items() for part in (F.lit(name), F.col(column))))
        order = F.concat_ws(" ", "ts_monitored", *(name for name in figures.EVENT if name != "ts_monitored"))
        context = self.table.spark.sparkContext
        batch = context.getLocalProperty(BATCH_ID)
        # Key by the given name only: a retry may happen in any batch.
        context.setLocalProperty(BATCH_ID, None)  # type: ignore[arg-type]  # null takes a property away
        try:
            for number in pending:
                rows = self.table.read().where(F.col("number") == number)
                messages = rows.select("data", attributes.alias("attributes"), order.alias("order_by"))
                options = {**self.options, "idempotencyKey": f"events-{self.name}-{number}"}
                publish(messages, options, ("order_by",))
                write(self.marker, _Sent(number))
        finally:
            context.setLocalProperty(BATCH_ID, batch)  # type: ignore[arg-type]  # it may have been absent
        return len(pending)


DAYS_PER_PASS = 7  # more would need more memory, fewer would compute earlier days more often
DayPrint = tuple[DayInputs, str]  # the inputs of a day, and their fingerprint


def run(run: Run, options: AvailabilityOptions) -> None:
    """Store the topic's results by day, and compute days with changed inputs."""
    Inputs(options)  # report bad files before reading messages
    stored, synced = run.table("results", figures.RESULTS, ("date",)), run.table("synced", figures.SYNCED)

    def handle(batch: DataFrame) -> None:
        sync = F.col("topic") == options.sync_topic
        latest = time.time() + DAY  # clocks differ, but not by a day
        read_results = partial(parse_results, shape=options.shape, latest=latest)
        run.append(stored, _with_source(run.parsed(batch.where(~sync), read_results, figures.RESULTS)))
        if options.sync_topic:
            read_lists = partial(parse_lists, report=options.report)
            run.append(synced, _with_source(run.parsed(batch.where(sync), read_lists, figures.SYNCED)))

    def refresh() -> None:
        came = synced.read(columns=figures.SYNCED.names[:3]).distinct().collect() if options.sync_topic else []
        known = Inputs(options, lists(map(tuple, came)))
        if known.unfit:
            run.say(f"metric profiles of which nothing counts, passed over: {', '.join(known.unfit)}")
        for each in known.passed_over:
            run.say(f"{each}: passed over")
        if known.rules:
            compute_due(run, options, stored, known)
        else:
            run.say(f"no metric profile has come in {options.sync_topic} yet: nothing to compute")

    topics = [each for each in (options.topic, options.sync_topic) if each]
    run.stream(run.topic(*topics, maxOffsetsPerTrigger=str(options.batch_messages)), handle, refresh)


def compute_due(run: Run, options: AvailabilityOptions, stored: Table, known: Inputs) -> None:
    """Compute outdated days, a few at a time, publish their events, and draw the board."""
    outbox = Outbox.of(run, options.events_topic) if options.events_topic else None
    before = {row["date"]: row["fingerprint"] for row in _daily(run, "days").read().collect()}
    every = fingerprints(stored.files(), known, options, int(time.time()))
    due = [(day, print_of) for day, print_of in every if before.get(day.day) != print_of]
    for start in range(0, len(due), DAYS_PER_PASS):
        compute(run, options, stored, due[start : start + DAYS_PER_PASS], outbox)
    if outbox:
        outbox.send()
    if due and run.every is None:
        put(run.work / "board.html", as_page(board(_daily(run, "figures").read(), _daily(run, "statuses").read())))
    run.say(f"computed {', '.join(day.day for day, _ in due)}" if due else "nothing to compute")


def compute(run: Run, options: AvailabilityOptions, stored: Table, due: list[DayPrint], outbox: Outbox | None) -> None:
    """Compute some days; their fingerprints are written last."""
    report, days = options.report, [day for day, _ in due]
    by_day: list[Partition] = [{"date": day.day} for day in days]
    needed = sorted({day_before(day.day, back) for day in days for back in range(3)})
    results = stored.read([{"date": date} for date in needed])
    told = _daily(run, "events")
    with persist_rows(figures.compute_rows(results, days, report, options.repeat_hours * 3600)) as rows:
        rows.count()  # fills the cache with all cores; each result below is written by one task
        _daily(run, "statuses").replace(figures.statuses(rows, report), by_day)
        counted = figures.figures(rows, report)
        of_groups = figures.figures_of_groups(counted, [(day.day, *member) for day in days for member in day.members])
        _daily(run, "figures").replace(counted.unionByName(of_groups), by_day)
        told.replace(figures.events(rows), by_day)
    if outbox:
        outbox.put(told.read(by_day))
    computed = [(print_of, day.day) for day, print_of in due]
    _daily(run, "days").replace(run.spark.createDataFrame(computed, figures.DAYS))


def _daily(run: Run, name: str) -> Table:
    return run.result(name, figures.DAILY[name], ("date",))


def _with_source(records: DataFrame) -> DataFrame:
    return records.withColumns({name: F.col(f"source.{name}") for name in ("topic", "offset")})


def fingerprints(files: Iterable[File], known: Inputs, options: AvailabilityOptions, now: int) -> Iterator[DayPrint]:
    """Return all days with results, in order, each with the fingerprint of its inputs."""
    stored = group((str(file.partition["date"]), file) for file in files)
    for date in sorted(stored):
        eve = day_before(date)
        day = known.on(date, now, known.on(eve, now) if eve in stored else None)
        data = [_extent(stored.get(day_before(date, back), ())) for back in range(3)]
        print_of = repr((data, day, options.report, options.repeat_hours))
        yield day, hashlib.sha256(print_of.encode()).hexdigest()


def _extent(files: Collection[File]) -> tuple[int, int]:
    """Return a text that changes when a table grows, but not when its files are merged."""
    batches = (each.batch for each in files if each.batch is not None)
    return sum(each.rows for each in files), max(batches, default=-1)


DAYS = 14
SITES = 40  # sites in the plots, the least available ones; the table has them all
AVAILABILITY, RELIABILITY = 80, 85  # what sites usually promise, in per cent


class Board(NamedTuple):
    """Data of the board."""

    figures: pd.DataFrame
    """Of each site and day: `site`, `date`, `availability`, `reliability`, `partial`; NaN is not defined."""
    timelines: Mapping[str, Sequence[plots.PlotSpan]]  # the statuses of each site on the last day

    @property
    def availability(self) -> pd.DataFrame:
        """Availability by site and day; lowest on the last day first, sites without figures last."""
        cells = self.figures.pivot(index="site", columns="date", values="availability")
        return cells.sort_values(cells.columns[-1], kind="stable")


def board(counted: DataFrame, statuses: DataFrame) -> Board:
    """Collect the board's data from `figures.FIGURES` and `figures.STATUSES`."""
    sites = counted.where("type = 'endpoint_group'").withColumnRenamed("endpoint_group", "site")
    days = [row["date"] for row in sites.select("date").distinct().orderBy(F.desc("date")).limit(DAYS).collect()]
    names = ("availability", "reliability")
    percents = (F.when(F.col(name) >= 0, F.col(name).cast("double")).alias(name) for name in names)
    shown = sites.where(F.col("date").isin(days)).select("site", "date", *percents, "partial")
    seconds = (F.unix_timestamp(name) for name in ("start", "end"))
    of_day = statuses.where((F.col("type") == "endpoint_group") & (F.col("date") == max(days, default="")))
    rows = of_day.orderBy("start").select("endpoint_group", *seconds, "status").collect() if days else []
    time = partial(datetime.fromtimestamp, tz=UTC)
    strips = group((site, (time(start), time(end), status)) for site, start, end, status in rows)
    return Board(shown.toPandas(), strips)


def sections(shown: Board) -> list[Section]:
    """Return the sections of the page."""
    if shown.figures.empty:
        return [Section("Availability", "No day has been computed yet.")]
    cells = shown.availability
    days, worst = list(cells.columns), cells.index[:SITES]
    last = shown.figures[shown.figures["date"] == days[-1]].set_index("site")
    last = last.loc[cells.index.intersection(last.index)]
    strips = {site: shown.timelines[site] for site in worst if site in shown.timelines}
    span = f"Availability of sites in per cent, {days[0]} to {days[-1]}, the least available first."
    drawn = Figure(plots.board({site: list(cells.loc[site]) for site in worst}, days), span)
    met = ((last["availability"] >= AVAILABILITY) & (last["reliability"] >= RELIABILITY)).sum()
    unfinished = " The day is not over." if last["partial"].any() else ""
    promise = f"{AVAILABILITY} % availability and {RELIABILITY} % reliability"
    verdict = f"{met} of {len(last)} sites reached {promise} on {days[-1]}.{unfinished}"
    body = list(last[["availability", "reliability"]].itertuples(name=None))
    table = Rows(("Site", "Availability, %", "Reliability, %"), body, f"All sites on {days[-1]}.")
    return [
        Section("Availability", verdict, [drawn]),
        Section("Statuses", content=[Figure(plots.timelines(strips), f"Statuses of sites on {days[-1]}, UTC.")]),
        Section("Figures", content=[table]),
    ]


def as_page(shown: Board) -> str:
    """Return the board as a self-contained page."""
    return page("Availability and reliability", "What monitoring found of the sites, day by day.", sections(shown))


SUMMARY = "Daily availability and reliability of sites, services and endpoints, from monitoring results"
# Days depend on the content of these files, not on their paths, so the paths may change.
FILES = {"metric_profile", "aggregation_profile", "operations_profile", "topology", "groups", "downtimes"}
HARMLESS = frozenset({*FILES, "recomputations", "repeat_hours", "batch_messages"})
JOB = Job("availability", SUMMARY, AvailabilityOptions, run, HARMLESS)
