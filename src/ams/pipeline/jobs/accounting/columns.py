"""The columns of usage records and of all that is computed from them: the contract of each table."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ams.pipeline.columns import PLACE

LEVEL: Final = DecimalType(10, 3)
LEVELS: Final = ArrayType(StructType([StructField("benchmark", StringType()), StructField("level", LEVEL)]))
"""What benchmarks say of the machine a job ran on, in the order of their names."""
NORMALISED: Final = ArrayType(
    StructType(
        [StructField("benchmark", StringType()), StructField("wall", LongType()), StructField("cpu", LongType())]
    )
)
"""Wall and CPU seconds times the level of each benchmark; for si2k times level / 250, the scale of hepspec."""


def _columns(kind: DataType, names: str) -> list[StructField]:
    return [StructField(name, kind) for name in names.split()]


RECORD: Final = StructType(
    [
        *_columns(StringType(), "kind month signer site submit_host"),
        *_columns(StringType(), "local_user local_group user fqan vo vo_group vo_role status"),
        *_columns(TimestampType(), "start_time end_time created measured"),
        *_columns(LongType(), "wall cpu suspended"),
        # jobs, and summaries of them
        *_columns(StringType(), "job_id machine queue infrastructure infrastructure_type"),
        *_columns(LongType(), "processors node_count memory_real memory_virtual jobs"),
        *_columns(LEVELS, "levels"),
        *_columns(NORMALISED, "normalised"),
        *_columns(TimestampType(), "earliest_end latest_end"),
        # virtual machines, and summaries of them
        *_columns(StringType(), "vm_id cloud_service cloud_type image network_type benchmark_type storage_record"),
        *_columns(LEVEL, "benchmark"),
        *_columns(LongType(), "cpu_count network_in network_out public_ips memory disk vms"),
        *_columns(TimestampType(), "earliest_start latest_start"),
        # storage
        *_columns(StringType(), "record_id storage_system share media storage_class path"),
        *_columns(LongType(), "files used logical_used allocated"),
        # public addresses, accelerators, energy
        *_columns(StringType(), "associated_type accelerator model"),
        *_columns(LongType(), "ip_version active finished"),
        *_columns(DoubleType(), "count energy_wh work efficiency normalisation"),
    ]
)
"""A usage record of any kind; durations are seconds, memory of jobs is kB, of machines MB, disk GB, storage bytes."""

RECORDS: Final = StructType([*RECORD.fields, StructField("source", PLACE)])
"""The table of all records, by kind and month."""


def _of(names: str) -> list[StructField]:
    return [RECORDS[name] for name in names.split()]


def _names(fields: list[StructField]) -> tuple[str, ...]:
    return tuple(field.name for field in fields)


_JOB: Final = _of("month site vo user vo_group vo_role infrastructure_type submit_host levels node_count processors")
JOB_GROUP: Final = _names(_JOB)
"""What jobs are summed by."""
JOB_SUMMARIES: Final = StructType([*_JOB, *_of("jobs earliest_end latest_end wall cpu normalised")])
SITE_SUMMARIES: Final = StructType([*JOB_SUMMARIES.fields, *_of("source")])

_VM: Final = _of("month site cloud_service vo user status image cpu_count benchmark_type benchmark")
VM_GROUP: Final = _names(_VM)
"""What machines are summed by."""
VM_SUMMARIES: Final = StructType(
    [*_VM, *_of("vms earliest_start latest_start wall cpu network_in network_out public_ips memory disk")]
)
SITE_VM_SUMMARIES: Final = StructType([*VM_SUMMARIES.fields, *_of("source")])
VM_KEPT: Final = StructType(
    [
        *_of("month site vm_id cloud_service vo user status image cpu_count benchmark_type benchmark start_time"),
        *_of("measured wall cpu network_in network_out public_ips memory disk source"),
    ]
)
"""The one record that is kept of each machine and month; its durations count from the machine's start."""

_STORAGE: Final = _of(
    "month site storage_system share media storage_class path local_user local_group user vo vo_group"
)
STORAGE_GROUP: Final = _names(_STORAGE)
"""Whose storage, and which."""
STORAGE_SUMMARIES: Final = StructType(
    [
        *_STORAGE,
        StructField("days", LongType()),
        StructField("last_time", TimestampType()),
        *_columns(LongType(), "last_files last_used last_allocated most_used average_used"),
    ]
)

SYNC: Final = StructType(
    [*_of("month site submit_host"), *_columns(LongType(), "told arrived summarised missing surplus")]
)
"""What sites believe they sent beside what came."""

RESULTS: Final[Mapping[str, StructType]] = {
    "job_summaries": JOB_SUMMARIES,
    "site_summaries": SITE_SUMMARIES,
    "sync": SYNC,
    "machines": VM_KEPT,
    "vm_summaries": VM_SUMMARIES,
    "site_vm_summaries": SITE_VM_SUMMARIES,
    "storage_summaries": STORAGE_SUMMARIES,
}
"""The results, each by month; rows that one record made say by `source` which message it came in."""
