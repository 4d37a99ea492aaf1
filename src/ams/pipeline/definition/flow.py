"""A definition of one's own as a run does it: messages through steps into a sink."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ams.pipeline.definition.expectations import watching
from ams.pipeline.definition.fields import PLACED, SOURCE
from ams.pipeline.definition.reading import Steps, through
from ams.pipeline.definition.sinks import ROWS, Sink
from ams.pipeline.definition.source import Source
from ams.pipeline.expressions.types import struct
from ams.pipeline.parsing import parsed
from ams.pipeline.running import Run


@dataclass(frozen=True, slots=True)
class Flow:
    """A definition, ready to run.

    Rows are made of each batch by itself. With steps on all rows, they are kept in a table, and what the sink gets is
    computed from all of it, so that doubled and late messages change nothing that they should not.
    """

    source: Source
    steps: Steps
    sink: Sink

    def run(self, run: Run) -> None:
        """Read, make, and hand over, until it has caught up."""
        subscribed = {"subscription": self.source.subscription} if self.source.subscription else {}
        messages = run.topic(*self.source.topics, **self.source.options, **subscribed)
        if not self.steps.whole:
            run.stream(
                messages,
                lambda batch, number: self._batch(run, batch, number, lambda rows: self.sink.add(run, rows, number)),
            )
            return
        table = run.table(ROWS, struct(self.steps.row_columns))
        run.stream(
            messages,
            lambda batch, number: self._batch(run, batch, number, lambda rows: run.append(table, rows, number)),
            lambda: self._result(run, table.read()),
        )

    def _batch(self, run: Run, batch: DataFrame, number: int, take: Callable[[DataFrame], None]) -> None:
        """Set aside what of a batch cannot be read or is not as expected, and hand over the rows of the rest."""
        steps = self.steps
        with watching(f"batch {number}", run.say) as watch:
            rows = through(steps.before, batch.withColumn(SOURCE, F.struct(*PLACED)), watch)
            if steps.parse is not None:
                read = parsed(rows, steps.parse, struct(steps.parsed), StorageLevel.DISK_ONLY)
                rows, broken = watch.stack.enter_context(read)
                watch.aside.append(broken)
            rows = through(steps.rows, rows, watch)
            if watch.aside:
                run.quarantine(reduce(DataFrame.union, watch.aside), number)
            take(rows)
            run.expect(watch.counts, number)

    def _result(self, run: Run, rows: DataFrame) -> None:
        """Compute the result of all rows there are, and put it in the place of the one before."""
        with watching("the result", run.say) as watch:
            self.sink.replace(run, through(self.steps.whole, rows, watch))
            run.expect(watch.counts)
