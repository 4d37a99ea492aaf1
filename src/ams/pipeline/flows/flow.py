"""What a definition comes to: messages through steps into a sink, as a run does it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from ams.pipeline.columns import PLACE
from ams.pipeline.expressions.types import struct
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
    before: Sequence[Step]
    parse: Parse | None
    parsed: Mapping[str, DataType]
    rows: Sequence[Step]
    row_columns: Mapping[str, DataType]
    whole: Sequence[Step]
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
            lambda: self.sink.replace(run, applied(self.whole, table.read())),
        )

    def _batch(self, run: Run, batch: DataFrame, number: int, take: Callable[[DataFrame], None]) -> None:
        """Set aside what of a batch cannot be read, and hand over the rows of the rest."""
        messages = applied(self.before, batch.withColumn(SOURCE, F.struct(*PLACE.names)))
        if self.parse is None:
            take(applied(self.rows, messages))
            return
        schema = struct(self.parsed)
        with parsed(messages, self.parse, schema, StorageLevel.DISK_ONLY) as read:
            run.quarantine(read.broken, number)
            take(applied(self.rows, read.records))


def applied(steps: Sequence[Step], rows: DataFrame) -> DataFrame:
    """Return rows after steps."""
    for step in steps:
        rows = step.apply(rows)
    return rows
