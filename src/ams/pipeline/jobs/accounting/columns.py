"""The columns of usage records and of all that is computed from them: the contract of each table."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import ArrayType, DecimalType, StructType

from ams.pipeline.columns import PLACE
from ams.pipeline.jobs.frames import columns

LEVEL: Final = DecimalType(10, 3)
LEVELS: Final = ArrayType(columns(("string", "benchmark"), (LEVEL, "level")))
"""What benchmarks say of the machine a job ran on, in the order of their names."""
NORMALISED: Final = ArrayType(columns(("string", "benchmark"), ("bigint", "wall cpu")))
"""Wall and CPU seconds times the level of each benchmark; for si2k times level / 250, the scale of hepspec."""

RECORD: Final = columns(
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
)
"""A usage record of any kind; durations are seconds, memory of jobs is kB, of machines MB, disk GB, storage bytes."""

RECORDS: Final = columns(RECORD, (PLACE, "source"))
"""The table of all records, by kind and month."""


def _of(names: str) -> StructType:
    return StructType([RECORDS[name] for name in names.split()])


JOB_GROUP: Final = _of(
    "month site vo user vo_group vo_role infrastructure_type submit_host levels node_count processors"
)
"""What jobs are summed by."""
JOB_SUMMARIES: Final = columns(JOB_GROUP, _of("jobs earliest_end latest_end wall cpu normalised"))

VM_GROUP: Final = _of("month site cloud_service vo user status image cpu_count benchmark_type benchmark")
"""What machines are summed by."""
VM_SUMMARIES: Final = columns(
    VM_GROUP, _of("vms earliest_start latest_start wall cpu network_in network_out public_ips memory disk")
)
VM_KEPT: Final = _of(
    "month site vm_id cloud_service vo user status image cpu_count benchmark_type benchmark start_time"
    " measured wall cpu network_in network_out public_ips memory disk source"
)
"""The one record that is kept of each machine and month; its durations count from the machine's start."""

STORAGE_GROUP: Final = _of(
    "month site storage_system share media storage_class path local_user local_group user vo vo_group vo_role"
    " vo_attributes"
)
"""Whose storage, and which."""

RESULTS: Final[Mapping[str, StructType]] = {
    "job_summaries": JOB_SUMMARIES,
    "site_summaries": columns(JOB_SUMMARIES, _of("source")),
    # What sites believe they sent beside what came.
    "sync": columns(_of("month site submit_host"), ("bigint", "told arrived summarised missing surplus")),
    "machines": VM_KEPT,
    # Machines of which a number is smaller than the month before: it was reset, and counts whole.
    "vm_summaries": columns(VM_SUMMARIES, ("bigint", "resets")),
    "site_vm_summaries": columns(VM_SUMMARIES, _of("source")),
    "storage_summaries": columns(
        STORAGE_GROUP,
        ("bigint", "days"),
        ("timestamp", "last_time"),
        ("bigint", "last_files last_used last_allocated most_used average_used"),
    ),
}
"""The results, each by month; rows that one record made say by `source` which message it came in."""
