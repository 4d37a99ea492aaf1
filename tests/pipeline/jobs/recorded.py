"""A job over messages recorded in files, so that a test controls the batches."""

import fnmatch
import functools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from ams.pipeline.columns import MESSAGES
from ams.pipeline.run import Run, quarantine_of
from demo.pipeline.samples import Sample
from tests.pipeline.delta import by_duckdb

PROJECT = "egi"
START = datetime(2024, 3, 5, tzinfo=UTC)

Message = dict[str, Any]  # one message, by the columns of `MESSAGES`


def store_samples(samples: Iterable[Sample], start: datetime = START, every: timedelta | None = None) -> list[Message]:
    """Return messages as topics store them after publishing them one after the other."""
    ends: dict[str, int] = {}
    rows = []
    for number, sample in enumerate(samples):
        offset = ends[sample.topic] = ends.get(sample.topic, -1) + 1
        rows.append(
            {
                "project": PROJECT, "topic": sample.topic, "offset": offset, "message_id": str(offset),
                "publish_time": start + number * (every or timedelta(milliseconds=1)),
                "attributes": list(sample.attributes.items()), "data": sample.data,
            }
        )  # fmt: skip
    return rows


@dataclass(slots=True)
class RecordedRun(Run):
    """A run whose topics are files below `work/recorded`: one batch a file, in the order of `record`."""

    def record(self, *batches: Sequence[Message]) -> None:
        """Add batches for the next start of the job."""
        folder = self.work / "recorded"
        folder.mkdir(parents=True, exist_ok=True)
        schema = to_arrow_schema(MESSAGES, timezone="UTC")
        for number, batch in enumerate(batches, len(list(folder.iterdir()))):
            pq.write_table(pa.Table.from_pylist(list(batch), schema=schema), folder / f"{number:06d}.parquet")

    def topic(self, *names: str, **options: str) -> DataFrame:
        reader = self.spark.readStream.schema(MESSAGES).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.work / "recorded")).where(_match_names(names))


def _match_names(names: Iterable[str]) -> Column:
    return functools.reduce(operator.or_, [F.col("topic").rlike(f"^{fnmatch.translate(name)}") for name in names])


def recorded_run(spark: SparkSession, folder: Path, *batches: Sequence[Message]) -> RecordedRun:
    run = RecordedRun(spark, folder, {})
    run.record(*batches)
    return run


def read_quarantine(run: Run) -> list[tuple[bytes, str]]:
    return [(bytes(row["data"]), row["reason"]) for row in quarantine_of(run.spark, run.work).read().collect()]


def rows_of(run: Run, result: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """Read a result with DuckDB, independent of Spark."""
    return by_duckdb(run.work / "results" / result, f"SELECT {columns} FROM rows ORDER BY ALL")
