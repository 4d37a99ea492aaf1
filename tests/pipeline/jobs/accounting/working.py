"""The job without a service: batches of texts, worked through one after the other."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession

from ams.pipeline.columns import CONTENT
from ams.pipeline.jobs.accounting.columns import RECORD
from ams.pipeline.jobs.accounting.job import records_of, refresh
from ams.pipeline.jobs.accounting.reader import Reader
from ams.pipeline.parsing import rows_of, split
from ams.pipeline.running import Run
from tests.pipeline.jobs.accounting.texts import NOW


def messages(spark: SparkSession, texts: Sequence[str], first: int) -> DataFrame:
    rows = [
        Row("accounting", "gLite-APEL", place, str(place), NOW, {"empaid": "1"}, text.encode())
        for place, text in enumerate(texts, first)
    ]
    return spark.createDataFrame(rows, CONTENT)


def work_through(spark: SparkSession, folder: Path, batches: Sequence[Sequence[str]]) -> Run:
    """Do what the job does with its batches, and bring the results up to date after each."""
    run = Run(spark, folder, {})
    run._query = "0" * 36
    first = 0
    for number, texts in enumerate(batches):
        parsed = split(rows_of(messages(spark, texts, first), Reader(now=NOW), RECORD), RECORD)
        run.append(records_of(run), parsed.records, number)
        run.quarantine(parsed.broken, number)
        refresh(run, "")
        first += len(texts)
    return run
