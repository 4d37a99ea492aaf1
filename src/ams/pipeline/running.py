"""One job at work: its folder, its checkpoint, its one streaming query, and its end."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ams.pipeline.columns import BROKEN
from ams.pipeline.tables import Result, Table

Handle = Callable[[DataFrame, int], None]
"""Writes a batch, known by its number; the same batch may come again after a kill."""
Source = dict[str, str]
"""Options of `format("ams")` that say which service, as whom, and which project."""


@dataclass(slots=True)
class Run:
    """What a job has while it runs.

    The folder `work` holds `checkpoint/`, `tables/`, `results/` and `quarantine/`; it is the job's whole memory.
    """

    spark: SparkSession
    work: Path
    source: Source
    every: str | None = None
    """The interval between batches of a job that goes on; None for one that ends when it has caught up."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the run is to end after the batch at work."""
    _query: str = ""

    def topic(self, *names: str, **options: str) -> DataFrame:
        """Return topics of the project as one stream of `columns.MESSAGES`, from their oldest message on."""
        reader = self.spark.readStream.format("ams").options(
            **{"startingOffsets": "earliest", **self.source, **options}
        )
        return reader.option("topic", ",".join(names)).load()

    def table(self, name: str, schema: StructType, partition_by: tuple[str, ...] = ()) -> Table:
        """Return a table of this run that batches are added to."""
        return Table(self.spark, str(self.work / "tables" / name), schema, partition_by)

    def result(self, name: str, schema: StructType, partition_by: tuple[str, ...] = ()) -> Result:
        """Return a table of this run whose partitions are replaced."""
        return Result(self.spark, str(self.work / "results" / name), schema, partition_by)

    def append(self, table: Table, batch: DataFrame, batch_id: int) -> None:
        """Add a batch of this run's query to a table, exactly once."""
        table.append(batch, batch_id, self._query)

    def quarantine(self, broken: DataFrame, batch_id: int) -> None:
        """Set aside what could not be read (`columns.BROKEN`), exactly once."""
        self.append(Table(self.spark, str(self.work / "quarantine"), BROKEN), broken, batch_id)

    def stream(self, frame: DataFrame, handle: Handle, refresh: Callable[[], None] | None = None) -> None:
        """Run the one streaming query of this run: `handle` for each batch, `refresh` whenever it has caught up.

        Returns when it has caught up, or of a job that goes on when it is `stopping`.
        """

        def batch(rows: DataFrame, batch_id: int) -> None:
            self._query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or self._query
            handle(rows, batch_id)
            if refresh is not None and self.every is not None:
                refresh()

        writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(self.work / "checkpoint"))
        trigger = {"processingTime": self.every} if self.every else {"availableNow": True}
        query = writer.trigger(**trigger).start()
        query.awaitTermination()
        if refresh is not None and self.every is None:
            refresh()

    def say(self, text: str) -> None:
        """Tell whoever watches."""
        print(text, flush=True)
