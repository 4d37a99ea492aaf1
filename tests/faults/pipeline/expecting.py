"""A job whose rows are expected to be of some kind, as people write one."""

import msgspec
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pyspark_ams.jobs import Expectation, Json, Run, job


class ReportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the job."""

    batch_messages: int = 1000
    """Messages a batch at most."""


@job(options=ReportOptions)
def reports(run: Run, options: ReportOptions) -> None:
    """Keep reports that are as expected."""
    parse = Json("site string, node_name string, test_name string, status string")
    table = run.table("reports", parse.schema)

    def keep(messages: DataFrame) -> None:
        first = F.row_number().over(Window.partitionBy("node_name", "test_name", "status").orderBy("source.offset"))
        expected = (
            Expectation("given", F.col("site").isNotNull() & F.col("node_name").isNotNull()),
            Expectation("no warning", F.col("status") != "WARNING"),
            Expectation("unique", first == 1),
        )
        run.append(table, run.expect(run.parsed(messages, parse), *expected))

    run.stream(run.topic("alarms", maxOffsetsPerTrigger=str(options.batch_messages)), keep)
