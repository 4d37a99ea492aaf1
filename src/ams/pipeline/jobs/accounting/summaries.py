"""The columns of usage records, and results of a month from them: jobs, virtual machines, storage, and losses.

Messages come twice, late and in any order. So the choice between records of one thing depends only on the records,
never on their arrival. Results have the columns of `RESULTS`, some also others.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DecimalType, StructType

from ams.pipeline.columns import PLACE
from ams.pipeline.jobs.base import columns, first

LEVEL: Final = DecimalType(10, 3)
LEVELS: Final = ArrayType(columns(("string", "benchmark"), (LEVEL, "level")))
NORMALISED: Final = ArrayType(columns(("string", "benchmark"), ("bigint", "wall cpu")))
"""Wall and CPU seconds times the level of each benchmark; for si2k times level / 250, the scale of hepspec."""

RECORD = columns(
    ("string", "kind month signer site submit_host"),
    ("string", "local_user local_group user fqan vo vo_group vo_role vo_attributes status"),
    ("timestamp", "start_time end_time created measured"),
    ("bigint", "wall cpu suspended"),
    # jobs, and summaries of them
    ("string", "job_id machine queue infrastructure infrastructure_type"),
    ("bigint", "processors node_count memory_real memory_virtual jobs"),
    (LEVELS, "levels"),
    (NORMALISED, "normalised"),
    ("timestamp", "earliest_end latest_end"),
    # virtual machines, and summaries of them
    ("string", "vm_id cloud_service cloud_type image network_type benchmark_type storage_record"),
    (LEVEL, "benchmark cpu_count"),
    ("bigint", "network_in network_out public_ips memory disk vms"),
    ("timestamp", "earliest_start latest_start"),
    # storage
    ("string", "record_id storage_system share media storage_class path"),
    ("bigint", "files used logical_used allocated"),
    # public addresses, accelerators, energy
    ("string", "associated_type accelerator model"),
    ("bigint", "ip_version active finished"),
    ("double", "count energy_wh work efficiency normalisation"),
)  # a usage record of any kind; durations are seconds, memory of jobs is kB, of machines MB, disk GB, storage bytes

RECORDS = columns(RECORD, (PLACE, "source"))


def _columns(names: str) -> StructType:
    return StructType([RECORDS[name] for name in names.split()])


JOB_GROUP = _columns("month site vo user vo_group vo_role infrastructure_type submit_host levels node_count processors")
JOB_SUMMARIES = columns(JOB_GROUP, _columns("jobs earliest_end latest_end wall cpu normalised"))

VM_GROUP = _columns("month site cloud_service vo user status image cpu_count benchmark_type benchmark")
VM_SUMMARIES = columns(
    VM_GROUP, _columns("vms earliest_start latest_start wall cpu network_in network_out public_ips memory disk")
)
VM_KEPT = _columns(
    "month site vm_id cloud_service vo user status image cpu_count benchmark_type benchmark start_time"
    " measured wall cpu network_in network_out public_ips memory disk source"
)  # the one record that is kept of each machine and month; its durations count from the machine's start

STORAGE_GROUP = _columns(
    "month site storage_system share media storage_class path local_user local_group user vo vo_group vo_role"
    " vo_attributes"
)

RESULTS: Final[Mapping[str, StructType]] = {
    "job_summaries": JOB_SUMMARIES,
    "site_summaries": columns(JOB_SUMMARIES, _columns("source")),
    # Numbers that sites say they sent, beside the numbers that came.
    "sync": columns(_columns("month site submit_host"), ("bigint", "told arrived summarised missing surplus")),
    "machines": VM_KEPT,
    # Machines of which a number is smaller than the month before: it was reset, and counts whole.
    "vm_summaries": columns(VM_SUMMARIES, ("bigint", "resets")),
    "site_vm_summaries": columns(VM_SUMMARIES, _columns("source")),
    "storage_summaries": columns(
        STORAGE_GROUP,
        ("bigint", "days"),
        ("timestamp", "last_time"),
        ("bigint", "last_files last_used last_allocated most_used average_used"),
    ),
}  # each by month; rows that one record made say by `source` which message it came in

JOB_KEY = ("site", "submit_host", "job_id", "end_time")  # key of a job; records of one key are of one month
SYNC_KEY = ("month", "site", "submit_host")
USED = ("wall", "cpu", "network_in", "network_out")  # what counts from the start of a machine


def one_per_key(
    records: DataFrame, key: Sequence[str], order: Sequence[str], content: Sequence[str], *equal: str
) -> DataFrame:
    """Return a record for each `key`: the greatest by `order`, then by hash of `content`, the least by `equal`."""
    # A hash passes over nulls, so that it takes their places too.
    digest = F.xxhash64(*content, *(F.col(name).isNull() for name in content))
    return first(records, key, *map(F.desc_nulls_last, order), digest.desc(), *equal)


def job_summaries(records: DataFrame) -> DataFrame:
    """Sum jobs, each once: of two records that differ the one with more wall time counts, then more CPU time."""
    times = ("wall", "cpu", "start_time")
    jobs = one_per_key(records, ("month", *JOB_KEY), times, (*times, *JOB_GROUP.names))
    summed = jobs.groupBy(*JOB_GROUP.names).agg(
        F.count(F.lit(1)).alias("jobs"),
        F.min("end_time").alias("earliest_end"),
        F.max("end_time").alias("latest_end"),
        F.try_sum("wall").alias("wall"),
        F.try_sum("cpu").alias("cpu"),
    )
    return summed.withColumn("normalised", normalised_times())


def site_summaries(records: DataFrame) -> DataFrame:
    """Return the summaries sites made themselves, of jobs they do not send: the one with most jobs of each group."""
    content = ("jobs", "earliest_end", "latest_end", "wall", "cpu", "normalised")
    found = one_per_key(records, JOB_GROUP.names, ("jobs", "latest_end", "wall", "cpu"), content, "source")
    return found.withColumn("normalised", F.coalesce("normalised", normalised_times()))


def normalised_times() -> Column:
    """Return wall and CPU time by each level of `levels`, rounded to whole seconds, half up; null without levels."""

    def by_level(level: Column) -> Column:
        # 250 si2k are 1 on the scale of hepspec: 0.004 keeps it a decimal, and so exact.
        factor = F.when(level["benchmark"] == "si2k", F.lit("0.004")).otherwise(F.lit("1.000")).cast("decimal(4,3)")
        scale = (level["level"] * factor).cast("decimal(16,6)")
        times = {name: F.greatest(F.col(name), F.lit(0)).cast("decimal(20,0)") * scale for name in ("wall", "cpu")}
        return F.struct(
            level["benchmark"].alias("benchmark"),
            *(F.round(time, 0).try_cast("bigint").alias(name) for name, time in times.items()),
        )

    return F.transform("levels", by_level)


def comparison(records: DataFrame, job_summaries: DataFrame, site_summaries: DataFrame) -> DataFrame:
    """Compare the number of jobs a site told (the largest) with those that came, one by one or as summaries."""
    numbers = {"told": records, "arrived": job_summaries, "summarised": site_summaries}
    told, *came = (frame.select(*SYNC_KEY, F.col("jobs").alias(name)) for name, frame in numbers.items())
    for each in came:
        told = told.unionByName(each, allowMissingColumns=True)
    sums = (F.coalesce(F.try_sum(name), F.lit(0)).alias(name) for name in ("arrived", "summarised"))
    found = told.groupBy(*SYNC_KEY).agg(F.max("told").alias("told"), *sums)
    lost = F.col("told") - F.greatest("arrived", "summarised")
    differs = {"missing": F.greatest(lost, F.lit(0)), "surplus": F.greatest(-lost, F.lit(0))}
    return found.withColumns({name: F.when(lost.isNotNull(), number) for name, number in differs.items()})


def machines(records: DataFrame) -> DataFrame:
    """Return the latest record for each machine and month; nothing is later than the end of a machine."""
    ended = records.withColumn("_ended", F.coalesce(F.col("status") == "completed", F.lit(False)))
    content = [name for name in VM_KEPT.names if name != "source"]
    return one_per_key(ended, ("month", "site", "vm_id"), ("_ended", "measured", "created", *USED), content, "source")


def usage(machines: DataFrame) -> DataFrame:
    """Turn what counts from the start of a machine into what was used in the month; needs all its earlier months.

    That is the month's record minus the last record of an earlier month, so that usage adds up to what the last record
    says. A number that is smaller than the one before was reset: it counts whole, and `reset` is true.
    """
    earlier = Window.partitionBy("site", "vm_id").orderBy("month").rowsBetween(Window.unboundedPreceding, -1)
    before = {name: F.last(name, ignorenulls=True).over(earlier) for name in USED}
    is_reset = {name: F.coalesce(F.col(name) < before[name], F.lit(False)) for name in USED}
    base = {name: F.when(is_reset[name], 0).otherwise(F.coalesce(before[name], F.lit(0))) for name in USED}
    used = {name: F.coalesce(F.col(name) - base[name], F.lit(0)) for name in USED}
    return machines.withColumns({**used, "reset": reduce(or_, is_reset.values())})


def vm_summaries(usage: DataFrame) -> DataFrame:
    """Sum what machines used; `resets` are those of which a number was reset."""
    return usage.groupBy(*VM_GROUP.names).agg(
        F.count(F.lit(1)).alias("vms"),
        F.min("start_time").alias("earliest_start"),
        F.max("start_time").alias("latest_start"),
        *(F.try_sum(name).alias(name) for name in (*USED, "public_ips", "memory", "disk")),
        F.count_if("reset").alias("resets"),
    )


def site_vm_summaries(records: DataFrame) -> DataFrame:
    """Return the summaries sites made themselves, one for each group: the one with more machines, then more time."""
    return one_per_key(records, VM_GROUP.names, ("vms", "wall", "cpu"), VM_SUMMARIES.names, "source")


def storage_summaries(records: DataFrame) -> DataFrame:
    """Sum up days to the average and the maximum of the month; averages are whole bytes, rounded half up."""
    # Sites measure at different intervals, so each day counts once: the record that ends last, then the latest made.
    order = ("end_time", "created", "used", "files", "allocated")
    content = ("record_id", "start_time", "used", "files", "logical_used", "allocated")
    days = one_per_key(records.withColumn("day", F.to_date("end_time")), (*STORAGE_GROUP.names, "day"), order, content)
    last = (F.max_by(name, "end_time").alias(f"last_{name}") for name in ("files", "used", "allocated"))
    return days.groupBy(*STORAGE_GROUP.names).agg(
        F.count(F.lit(1)).alias("days"),
        F.max("end_time").alias("last_time"),
        *last,
        F.max("used").alias("most_used"),
        F.round(F.avg(F.col("used").cast("decimal(18,0)")), 0).cast("bigint").alias("average_used"),
    )
