"""Jobs to monthly summaries."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ams.pipeline.jobs.accounting.columns import JOB_GROUP, JOB_SUMMARIES
from ams.pipeline.jobs.accounting.kept import kept

JOB_KEY = ("site", "submit_host", "job_id", "end_time")
"""What makes two records tell of the same job; records of one key are of one month."""


def jobs(records: DataFrame) -> DataFrame:
    """Return each job once, of all kinds of records; of two that differ, the one with more wall time, then CPU time."""
    content = ("start_time", "wall", "cpu", *JOB_GROUP)
    of_jobs = records.where(F.col("kind") == "job")
    return kept(of_jobs, ("month", *JOB_KEY), (F.col("wall"), F.col("cpu"), F.col("start_time")), content)


def job_summaries(jobs: DataFrame) -> DataFrame:
    """Sum jobs (each once) to `columns.JOB_SUMMARIES`."""
    summed = jobs.groupBy(*JOB_GROUP).agg(
        F.count(F.lit(1)).alias("jobs"),
        F.min("end_time").alias("earliest_end"),
        F.max("end_time").alias("latest_end"),
        F.try_sum("wall").alias("wall"),
        F.try_sum("cpu").alias("cpu"),
    )
    return summed.withColumn("normalised", normalised()).select(*JOB_SUMMARIES.names)


def site_summaries(records: DataFrame) -> DataFrame:
    """Return the summaries sites made themselves, in the same columns, one for each group.

    They are of jobs that sites do not send one by one, so they are never added to those above. A site sends a month
    again as it grows: the one with more jobs is kept, then the one that reaches further.
    """
    order = (F.col("jobs"), F.col("latest_end"), F.col("wall"), F.col("cpu"))
    content = ("jobs", "earliest_end", "latest_end", "wall", "cpu", "normalised")
    found = kept(records.where(F.col("kind") == "job_summary"), JOB_GROUP, order, content)
    return found.withColumn("normalised", F.coalesce("normalised", normalised())).select(*JOB_SUMMARIES.names)


def normalised() -> Column:
    """Return wall and CPU time by each level of `levels`, rounded to whole seconds, half up; null without levels."""
    return F.transform("levels", _by_level)


def _by_level(level: Column) -> Column:
    # 250 si2k are 1 on the scale of hepspec: 0.004 keeps it a decimal, and so exact.
    factor = F.when(level["benchmark"] == "si2k", F.lit("0.004").cast("decimal(4,3)")).otherwise(
        F.lit("1.000").cast("decimal(4,3)")
    )
    scale = (level["level"] * factor).cast("decimal(16,6)")
    return F.struct(
        level["benchmark"].alias("benchmark"),
        _times("wall", scale).alias("wall"),
        _times("cpu", scale).alias("cpu"),
    )


def _times(column: str, scale: Column) -> Column:
    seconds = F.greatest(F.col(column), F.lit(0)).cast("decimal(20,0)")
    return F.round(seconds * scale, 0).try_cast("bigint")
