"""The records of APEL, each a form: jobs, virtual machines, summaries of both that sites made, and sync messages."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting.forms import (
    Form,
    Key,
    Row,
    check_inside_month,
    check_span,
    month_at,
    take_apart_fqan,
    take_level,
    take_month,
)
from ams.pipeline.jobs.accounting.values import (
    amounts,
    duration,
    level,
    long_text,
    moment,
    moment_or_none,
    month_of,
    text,
    whole,
)

OWNER: Final[Mapping[str, Key]] = {
    "LocalUserId": ("local_user", text),
    "GlobalUserName": ("user", text),
    "FQAN": ("fqan", long_text),
    "VO": ("vo", text),
    "VOGroup": ("vo_group", text),
    "VORole": ("vo_role", text),
}
MONTH: Final[Mapping[str, Key]] = {"Month": ("month_number", whole), "Year": ("year", whole)}
LEVEL: Final[Mapping[str, Key]] = {
    "ServiceLevelType": ("benchmark_name", text),
    "ServiceLevel": ("service_level", long_text),
}
WORK: Final[Mapping[str, Key]] = {
    "Site": ("site", text),
    "SubmitHost": ("submit_host", text),
    "WallDuration": ("wall", duration),
    "CpuDuration": ("cpu", duration),
    "Processors": ("processors", whole),
    "NodeCount": ("node_count", whole),
    "InfrastructureType": ("infrastructure_type", text),
}
MACHINE: Final[Mapping[str, Key]] = {
    "SiteName": ("site", text),
    "CloudComputeService": ("cloud_service", text),
    "LocalUserId": ("local_user", text),
    "LocalGroupId": ("local_group", text),
    "GlobalUserName": ("user", text),
    "FQAN": ("fqan", long_text),
    "VO": ("vo", text),
    "VOGroup": ("vo_group", text),
    "VORole": ("vo_role", text),
    "Status": ("status", text),
    "WallDuration": ("wall", duration),
    "CpuDuration": ("cpu", duration),
    "CpuCount": ("cpu_count", whole),
    "NetworkType": ("network_type", text),
    "NetworkInbound": ("network_in", whole),
    "NetworkOutbound": ("network_out", whole),
    "PublicIPCount": ("public_ips", whole),
    "Memory": ("memory", whole),
    "Disk": ("disk", whole),
    "BenchmarkType": ("benchmark_type", text),
    "Benchmark": ("benchmark", level),
    "ImageId": ("image", text),
    "CloudType": ("cloud_type", text),
}


def _job(row: Row, now: datetime) -> None:
    check_span(row, now)
    take_level(row)
    take_apart_fqan(row)
    row["month"] = month_of(row["end_time"])


def _job_summary(row: Row, now: datetime) -> None:
    take_month(row, now)
    take_level(row)
    take_apart_fqan(row)
    check_inside_month(row, "earliest_end", "latest_end")
    _normalised(row)


def _normalised(row: Row) -> None:
    """Bring normalised wall and CPU time together by benchmark."""
    wall = {each["benchmark"]: each["amount"] for each in row.pop("normalised_wall", [])}
    cpu = {each["benchmark"]: each["amount"] for each in row.pop("normalised_cpu", [])}
    if set(wall) != set(cpu):
        raise Broken("NormalisedWallDuration and NormalisedCpuDuration name other benchmarks")
    if wall:
        row["normalised"] = [{"benchmark": name, "wall": wall[name], "cpu": cpu[name]} for name in sorted(wall)]


def _machine(row: Row, now: datetime) -> None:
    check_span(row, now)
    take_apart_fqan(row)
    time = measured(row)
    if time is None:
        raise Broken("neither EndTime, RecordCreateTime nor StartTime says which month it is of")
    month_at(row, time, now)
    row["measured"] = time


def measured(row: Row) -> datetime | None:
    """Return the time a record of a virtual machine is of.

    Its end if it is completed, else when the record was made, else its start and all its durations.
    """
    if row.get("status") == "completed" and row.get("end_time") is not None:
        return row["end_time"]  # type: ignore[no-any-return]  # filled by `moment`
    if row.get("created") is not None:
        return row["created"]  # type: ignore[no-any-return]
    start: datetime | None = row.get("start_time")
    if start is None:
        return None
    try:
        return start + timedelta(seconds=row.get("suspended", 0) + row.get("wall", 0))
    except OverflowError:
        raise Broken("StartTime and the durations lie beyond all calendars") from None


def _machine_summary(row: Row, now: datetime) -> None:
    take_month(row, now)
    take_apart_fqan(row)


JOB: Final = Form(
    "job",
    {
        **WORK,
        **OWNER,
        **LEVEL,
        "LocalJobId": ("job_id", text),
        "MachineName": ("machine", text),
        "Queue": ("queue", text),
        "StartTime": ("start_time", moment),
        "EndTime": ("end_time", moment),
        "InfrastructureDescription": ("infrastructure", text),
        "MemoryReal": ("memory_real", whole),
        "MemoryVirtual": ("memory_virtual", whole),
    },
    frozenset({"Site", "LocalJobId", "WallDuration", "CpuDuration", "StartTime", "EndTime"}),
    _job,
)

JOB_SUMMARY: Final = Form(
    "job_summary",
    {
        **WORK,
        **OWNER,
        **LEVEL,
        **MONTH,
        "NumberOfJobs": ("jobs", whole),
        "EarliestEndTime": ("earliest_end", moment),
        "LatestEndTime": ("latest_end", moment),
    },
    frozenset({"Site", "Month", "Year", "WallDuration", "CpuDuration", "NumberOfJobs"}),
    _job_summary,
)

NORMALISED_SUMMARY: Final = Form(
    "job_summary",
    {
        **{name: key for name, key in JOB_SUMMARY.keys.items() if name not in ("InfrastructureType", *LEVEL)},
        "Infrastructure": ("infrastructure_type", text),
        "NormalisedWallDuration": ("normalised_wall", amounts),
        "NormalisedCpuDuration": ("normalised_cpu", amounts),
    },
    JOB_SUMMARY.required | {"NormalisedWallDuration", "NormalisedCpuDuration"},
    _job_summary,
)

SYNC: Final = Form(
    "sync",
    {"Site": WORK["Site"], "SubmitHost": WORK["SubmitHost"], "NumberOfJobs": ("jobs", whole), **MONTH},
    frozenset({"Site", "SubmitHost", "NumberOfJobs", "Month", "Year"}),
    take_month,
)

VM: Final = Form(
    "vm",
    {
        **MACHINE,
        "VMUUID": ("vm_id", text),
        "RecordCreateTime": ("created", moment_or_none),
        "MachineName": ("machine", text),
        "StartTime": ("start_time", moment_or_none),
        "EndTime": ("end_time", moment_or_none),
        "SuspendDuration": ("suspended", duration),
        "StorageRecordId": ("storage_record", text),
    },
    frozenset({"VMUUID", "SiteName"}),
    _machine,
)

VM_SUMMARY: Final = Form(
    "vm_summary",
    {
        **MACHINE,
        **MONTH,
        "NumberOfVMs": ("vms", whole),
        "EarliestStartTime": ("earliest_start", moment_or_none),
        "LatestStartTime": ("latest_start", moment_or_none),
    },
    frozenset({"SiteName", "Month", "Year", "NumberOfVMs"}),
    _machine_summary,
)
