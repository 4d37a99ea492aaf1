"""Storage records to monthly summaries.

A record says what was there at its end, and sites send one every few hours or days. Of each day the latest counts, so
that a site which measures more often does not weigh more; the month is the average and the maximum of its days.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ams.pipeline.jobs.accounting.columns import STORAGE_GROUP, STORAGE_SUMMARIES
from ams.pipeline.jobs.accounting.kept import kept


def storage_days(records: DataFrame) -> DataFrame:
    """Return one record for each storage and day: the one that ends last, then the one that was made last."""
    of_storage = records.where(F.col("kind") == "storage").withColumn("day", F.to_date("end_time"))
    order = (F.col("end_time"), F.col("created"), F.col("used"), F.col("files"), F.col("allocated"))
    content = ("record_id", "start_time", "used", "files", "logical_used", "allocated")
    return kept(of_storage, (*STORAGE_GROUP, "day"), order, content)


def storage_summaries(days: DataFrame) -> DataFrame:
    """Sum up days to `columns.STORAGE_SUMMARIES`; averages are whole bytes, rounded half up."""
    last = {f"last_{name}": F.max_by(name, "end_time") for name in ("files", "used", "allocated")}
    return (
        days.groupBy(*STORAGE_GROUP)
        .agg(
            F.count(F.lit(1)).alias("days"),
            F.max("end_time").alias("last_time"),
            *(column.alias(name) for name, column in last.items()),
            F.max("used").alias("most_used"),
            F.round(F.avg(F.col("used").cast("decimal(18,0)")), 0).cast("bigint").alias("average_used"),
        )
        .select(*STORAGE_SUMMARIES.names)
    )
