"""What a definition comes to: messages through steps into a sink, as a run does it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from ams.pipeline.columns import PLACE
from ams.pipeline.expressions.types import struct
from ams.pipeline.flows.expectations import Expect, watching
from ams.pipeline.flows.sinks import ROWS, Sink
from ams.pipeline.flows.steps import Step
from ams.pipeline.flows.steps.schemas import SOURCE
from ams.pipeline.parsing import Parse, parsed
from ams.pipeline.running import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A definition, ready to run.

    Rows are made of each batch by itself. With steps on all rows, they are kept in a table, and what the sink gets is
    computed from all of it, so that doubled and late messages change nothing that they should not.
    """

    topics: Sequence[str]
    options: Mapping[str, str]
    before: Sequence[Step | Expect]
    parse: Parse | None
    parsed: Mapping[str, DataType]
    rows: Sequence[Step | Expect]
    row_columns: Mapping[str, DataType]
    whole: Sequence[Step | Expect]
    sink: Sink

    def run(self, run: Run) -> None:
        """Read, make, and hand over, until it has caught up."""
        messages = run.topic(*self.topics, **self.options)
        if not self.whole:
            run.stream(
                messages,
                lambda batch, number: self._batch(run, batch, number, lambda rows: self.sink.add(run, rows, number)),
            )
            return
        table = run.table(ROWS, struct(self.row_columns))
        run.stream(
            messages,
            lambda batch, number: self._batch(run, batch, number, lambda rows: run.append(table, rows, number)),
            lambda: self._result(run, table.read()),
        )

    def _batch(self, run: Run, batch: DataFrame, number: int, take: Callable[[DataFrame], None]) -> None:
        """Set aside what of a batch cannot be read or is not as expected, and hand over the rows of the rest."""
        with watching(f"batch {number}", run.say) as watch:
            rows = watch.through(self.before, batch.withColumn(SOURCE, F.struct(*PLACE.names)))
            if self.parse is not None:
                schema = struct(self.parsed)
                read = watch.stack.enter_context(parsed(rows, self.parse, schema, StorageLevel.DISK_ONLY))
                watch.aside.append(read.broken)
                rows = read.records
            rows = watch.through(self.rows, rows)
            if watch.aside:
                run.quarantine(reduce(DataFrame.union, watch.aside), number)
            take(rows)
            run.expect(watch.counts, number)

    def _result(self, run: Run, rows: DataFrame) -> None:
        """Compute the result of all rows there are, and put it in the place of the one before."""
        with watching("the result", run.say) as watch:
            self.sink.replace(run, watch.through(self.whole, rows))
            run.expect(watch.counts)
