"""Virtual machines to monthly summaries.

A record of a machine counts from its start, so a month's usage is what the month's last record says minus what the last
record of an earlier month said. Usage of all months of a machine adds up to what its last record says, with or without
months in between of which nothing came.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from ams.pipeline.jobs.accounting.columns import VM_GROUP, VM_KEPT, VM_SUMMARIES
from ams.pipeline.jobs.accounting.kept import kept

USED = ("wall", "cpu", "network_in", "network_out")
"""What counts from the start of a machine."""


def machines(records: DataFrame) -> DataFrame:
    """Return one record for each machine and month (`columns.VM_KEPT`): the latest.

    Nothing is later than the end of a machine; else the time a record is of decides, then when it was made, then more
    wall time, CPU time and traffic.
    """
    order = (
        F.coalesce(F.col("status") == "completed", F.lit(False)),
        F.col("measured"),
        F.col("created"),
        *(F.col(name) for name in USED),
    )
    return kept(records.where(F.col("kind") == "vm"), ("month", "site", "vm_id"), order, tuple(VM_KEPT.names)).select(
        *VM_KEPT.names
    )


def usage(machines: DataFrame) -> DataFrame:
    """Turn what counts from the start into what was used in the month; needs all earlier months of the machines."""
    earlier = Window.partitionBy("site", "vm_id").orderBy("month").rowsBetween(Window.unboundedPreceding, -1)
    return machines.select(
        *(name for name in VM_KEPT.names if name not in USED), *(_used(name, earlier).alias(name) for name in USED)
    )


def vm_summaries(usage: DataFrame) -> DataFrame:
    """Sum what machines used to `columns.VM_SUMMARIES`."""
    return (
        usage.groupBy(*VM_GROUP)
        .agg(
            F.count(F.lit(1)).alias("vms"),
            F.min("start_time").alias("earliest_start"),
            F.max("start_time").alias("latest_start"),
            *(F.try_sum(name).alias(name) for name in (*USED, "public_ips", "memory", "disk")),
        )
        .select(*VM_SUMMARIES.names)
    )


def site_vm_summaries(records: DataFrame) -> DataFrame:
    """Return the summaries sites made themselves, one for each group: the one with more machines, then more time."""
    order = (F.col("vms"), F.col("wall"), F.col("cpu"))
    of_sites = records.where(F.col("kind") == "vm_summary")
    return kept(of_sites, VM_GROUP, order, tuple(VM_SUMMARIES.names)).select(*VM_SUMMARIES.names)


def _used(name: str, earlier: WindowSpec) -> Column:
    before = F.last(name, ignorenulls=True).over(earlier)
    return F.coalesce(F.col(name) - F.coalesce(before, F.lit(0)), F.lit(0))
