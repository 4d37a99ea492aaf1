"""The availability job: monitoring results in, daily figures, timelines of statuses and status events out."""

import time

from pyspark.sql import DataFrame

from ams.pipeline.jobs.availability.daily import RESULTS
from ams.pipeline.jobs.availability.inputs import inputs
from ams.pipeline.jobs.availability.options import Options
from ams.pipeline.jobs.availability.recomputing import Board, recompute
from ams.pipeline.jobs.availability.results import parse_as
from ams.pipeline.jobs.availability.telling import Outbox
from ams.pipeline.jobs.base import Job
from ams.pipeline.parsing import rows_of, split
from ams.pipeline.running import Run


def run(run: Run, options: Options) -> None:
    """Store the results of the topic by day, and keep the tables of the board right."""
    follow(run, options, run.topic(options.topic))


def follow(run: Run, options: Options, messages: DataFrame) -> None:
    """Do the job over any stream of messages (`columns.MESSAGES`)."""
    inputs(options)  # what is wrong in a file is said before anything is read
    stored = run.table("results", RESULTS, ("date",))
    board = Board.of(run)

    def handle(batch: DataFrame, batch_id: int) -> None:
        rows = rows_of(batch, parse_as(options.shape), RESULTS).persist()
        try:
            found = split(rows, RESULTS)
            run.append(stored, found.records, batch_id)
            run.quarantine(found.broken, batch_id)
        finally:
            rows.unpersist()

    def refresh() -> None:
        outbox = Outbox.of(run, options.events_topic) if options.events_topic else None
        tell = outbox.put if outbox else None
        days = recompute(board, stored, inputs(options), options, int(time.time()), tell)
        if outbox:
            outbox.send()
        run.say(f"computed {', '.join(days)}" if days else "nothing to compute")

    run.stream(messages, handle, refresh)


JOB = Job(
    name="availability",
    summary="daily availability and reliability of sites, services and endpoints, from monitoring results",
    options=Options,
    run=run,
)
