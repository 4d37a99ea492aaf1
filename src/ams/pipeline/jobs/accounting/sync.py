"""What sites believe they sent, against what came: the way to find lost messages."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ams.pipeline.jobs.accounting.columns import SYNC

KEY = ("month", "site", "submit_host")


def comparison(records: DataFrame, job_summaries: DataFrame, site_summaries: DataFrame) -> DataFrame:
    """Compare month by month and submit host by submit host, as `columns.SYNC`.

    `told` is the largest number a site told, as it tells a growing one while the month lasts; null if it told none.
    A host sends jobs one by one or summaries of them; of one that sends both, the larger number is what came.
    """
    told = records.where(F.col("kind") == "sync").groupBy(*KEY).agg(F.max("jobs").alias("told"))
    arrived = job_summaries.groupBy(*KEY).agg(F.sum("jobs").alias("arrived"))
    summarised = site_summaries.groupBy(*KEY).agg(F.try_sum("jobs").alias("summarised"))
    came = F.greatest("arrived", "summarised")
    return (
        _beside(_beside(told, arrived), summarised)
        .fillna(0, ["arrived", "summarised"])
        .withColumn("missing", F.when(F.col("told").isNotNull(), F.greatest(F.col("told") - came, F.lit(0))))
        .withColumn("surplus", F.when(F.col("told").isNotNull(), F.greatest(came - F.col("told"), F.lit(0))))
        .select(*SYNC.names)
    )


def _beside(left: DataFrame, right: DataFrame) -> DataFrame:
    """Join on the key, where a missing submit host is a value like any other."""
    same = [left[name].eqNullSafe(right[name]) for name in KEY]
    keys = [F.coalesce(left[name], right[name]).alias(name) for name in KEY]
    others = [frame[name] for frame in (left, right) for name in frame.columns if name not in KEY]
    return left.join(right, on=same, how="full").select(*keys, *others)
