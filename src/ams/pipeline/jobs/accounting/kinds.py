"""The forms of usage records, each a table: which keys it has, which column each fills, and how its value is read."""

from collections.abc import Mapping
from typing import Final

from ams.pipeline.jobs.accounting.forms import Field, Form
from ams.pipeline.jobs.accounting.values import (
    amounts,
    any_moment,
    duration,
    iso_duration,
    iso_moment,
    level,
    long_text,
    moment,
    moment_or_none,
    number,
    text,
    whole,
)

Fields = Mapping[str, Field]

# What several forms have.

OWNER: Final[Fields] = {
    "LocalUserId": Field("local_user", text),
    "GlobalUserName": Field("user", text),
    "FQAN": Field("fqan", long_text),
    "VO": Field("vo", text),
    "VOGroup": Field("vo_group", text),
    "VORole": Field("vo_role", text),
}
MONTH: Final[Fields] = {
    "Month": Field("month_number", whole, needed=True),
    "Year": Field("year", whole, needed=True),
}
LEVEL: Final[Fields] = {
    "ServiceLevelType": Field("benchmark_name", text),
    "ServiceLevel": Field("service_level", long_text),
}
WORK: Final[Fields] = {
    "Site": Field("site", text, needed=True),
    "SubmitHost": Field("submit_host", text),
    "WallDuration": Field("wall", duration, needed=True),
    "CpuDuration": Field("cpu", duration, needed=True),
    "Processors": Field("processors", whole),
    "NodeCount": Field("node_count", whole),
}
CLOUD: Final[Fields] = {
    "SiteName": Field("site", text, needed=True),
    "CloudType": Field("cloud_type", text),
    "CloudComputeService": Field("cloud_service", text),
}

# Text: jobs, virtual machines, and summaries of both that sites made.

JOB: Final = Form(
    "job",
    {
        **WORK,
        **OWNER,
        **LEVEL,
        "LocalJobId": Field("job_id", text, needed=True),
        "MachineName": Field("machine", text),
        "Queue": Field("queue", text),
        "StartTime": Field("start_time", moment, needed=True),
        "EndTime": Field("end_time", moment, needed=True),
        "InfrastructureDescription": Field("infrastructure", text),
        "InfrastructureType": Field("infrastructure_type", text),
        "MemoryReal": Field("memory_real", whole),
        "MemoryVirtual": Field("memory_virtual", whole),
    },
)
JOBS: Final[Fields] = {
    **WORK,
    **OWNER,
    **MONTH,
    "NumberOfJobs": Field("jobs", whole, needed=True),
    "EarliestEndTime": Field("earliest_end", moment),
    "LatestEndTime": Field("latest_end", moment),
}
JOB_SUMMARY: Final = Form("job_summary", {**JOBS, **LEVEL, "InfrastructureType": Field("infrastructure_type", text)})
NORMALISED_SUMMARY: Final = Form(
    "job_summary",
    {
        **JOBS,
        "Infrastructure": Field("infrastructure_type", text),
        "NormalisedWallDuration": Field("normalised_wall", amounts, needed=True),
        "NormalisedCpuDuration": Field("normalised_cpu", amounts, needed=True),
    },
)
SYNC: Final = Form(
    "sync",
    {
        **MONTH,
        "Site": Field("site", text, needed=True),
        "SubmitHost": Field("submit_host", text, needed=True),
        "NumberOfJobs": Field("jobs", whole, needed=True),
    },
)

MACHINE: Final[Fields] = {
    **CLOUD,
    **OWNER,
    "LocalGroupId": Field("local_group", text),
    "Status": Field("status", text),
    "WallDuration": Field("wall", duration),
    "CpuDuration": Field("cpu", duration),
    "CpuCount": Field("cpu_count", whole),
    "NetworkType": Field("network_type", text),
    "NetworkInbound": Field("network_in", whole),
    "NetworkOutbound": Field("network_out", whole),
    "PublicIPCount": Field("public_ips", whole),
    "Memory": Field("memory", whole),
    "Disk": Field("disk", whole),
    "BenchmarkType": Field("benchmark_type", text),
    "Benchmark": Field("benchmark", level),
    "ImageId": Field("image", text),
}
VM: Final = Form(
    "vm",
    {
        **MACHINE,
        "VMUUID": Field("vm_id", text, needed=True),
        "RecordCreateTime": Field("created", moment_or_none),
        "MachineName": Field("machine", text),
        "StartTime": Field("start_time", moment_or_none),
        "EndTime": Field("end_time", moment_or_none),
        "SuspendDuration": Field("suspended", duration),
        "StorageRecordId": Field("storage_record", text),
    },
)
VM_SUMMARY: Final = Form(
    "vm_summary",
    {
        **MACHINE,
        **MONTH,
        "NumberOfVMs": Field("vms", whole, needed=True),
        "EarliestStartTime": Field("earliest_start", moment_or_none),
        "LatestStartTime": Field("latest_start", moment_or_none),
    },
)

IN_TEXT: Final[Mapping[str, Form]] = {
    "APEL-individual-job-message: v0.3": JOB,
    "APEL-individual-job-message: v0.4": JOB,
    "APEL-summary-job-message: v0.2": JOB_SUMMARY,
    "APEL-summary-job-message: v0.3": NORMALISED_SUMMARY,
    "APEL-summary-job-message: v0.4": JOB_SUMMARY,
    "APEL-normalised-summary-message: v0.4": NORMALISED_SUMMARY,
    "APEL-sync-message: v0.1": SYNC,
    "APEL-cloud-message: v0.4": VM,
    "APEL-cloud-summary-message: v0.4": VM_SUMMARY,
}
"""The forms by the first line of a text."""

# JSON: public addresses, accelerators, and energy.

CLOUD_OWNER: Final[Fields] = {
    **CLOUD,
    "LocalUser": Field("local_user", text),
    "LocalGroup": Field("local_group", text),
    "GlobalUserName": Field("user", text),
    "FQAN": Field("fqan", long_text),
}
PUBLIC_IP: Final = Form(
    "public_ip",
    {
        **CLOUD_OWNER,
        "uuid": Field("record_id", text),
        "IPVersion": Field("ip_version", whole, needed=True),
        "IPCount": Field("count", whole, needed=True),
        "MeasurementTime": Field("measured", moment, needed=True),
    },
)
ACCELERATOR: Final = Form(
    "accelerator",
    {
        **CLOUD_OWNER,
        "AssociatedRecordType": Field("associated_type", text),
        "AssociatedRecord": Field("vm_id", text, needed=True),
        "Type": Field("accelerator", text, needed=True),
        "Model": Field("model", text),
        "Count": Field("count", number, needed=True),
        "AvailableDuration": Field("wall", duration),
        "ActiveDuration": Field("active", duration),
        "BenchmarkType": Field("benchmark_type", text),
        "Benchmark": Field("benchmark", level),
        "MeasurementMonth": Field("month_number", whole, needed=True),
        "MeasurementYear": Field("year", whole, needed=True),
    },
)
ENERGY: Final = Form(
    "energy",
    {
        **CLOUD,
        "ExecUnitID": Field("record_id", text, needed=True),
        "StartExecTime": Field("start_time", any_moment, needed=True),
        "EndExecTime": Field("end_time", any_moment, needed=True),
        "EnergyWh": Field("energy_wh", number, needed=True),
        "Work": Field("work", number),
        "Efficiency": Field("efficiency", number),
        "WallClockTime_s": Field("wall", duration),
        "CpuDuration_s": Field("cpu", duration),
        "SuspendDuration_s": Field("suspended", duration),
        "CPUNormalizationFactor": Field("normalisation", number),
        "ExecUnitFinished": Field("finished", whole),
        "Status": Field("status", text),
        "Owner": Field("user", text),
    },
)

IN_JSON: Final[Mapping[tuple[str, str], Form]] = {
    ("APEL Public IP message", "0.2"): PUBLIC_IP,
    ("APEL-accelerator-message", "0.1"): ACCELERATOR,
}
"""The forms by the type and version a document names; energy records come bare, one or a list."""

# XML, of the EMI name spaces: storage (StAR) and jobs (CAR). Keys are paths of elements; an attribute's name follows
# the path after a blank, and so does the type of an element that comes in several types.

STORAGE: Final = Form(
    "storage",
    {
        "RecordIdentity createTime": Field("created", iso_moment, needed=True),
        "RecordIdentity recordId": Field("record_id", text, needed=True),
        "StorageSystem": Field("storage_system", text, needed=True),
        "Site": Field("site", text),
        "StorageShare": Field("share", text),
        "StorageMedia": Field("media", text),
        "StorageClass": Field("storage_class", text),
        "FileCount": Field("files", whole),
        "DirectoryPath": Field("path", long_text),
        "SubjectIdentity/LocalUser": Field("local_user", text),
        "SubjectIdentity/LocalGroup": Field("local_group", text),
        "SubjectIdentity/UserIdentity": Field("user", text),
        "SubjectIdentity/Group": Field("vo", text),
        "SubjectIdentity/GroupAttribute subgroup": Field("vo_group", text),
        "StartTime": Field("start_time", iso_moment, needed=True),
        "EndTime": Field("end_time", iso_moment, needed=True),
        "ResourceCapacityUsed": Field("used", whole, needed=True),
        "LogicalCapacityUsed": Field("logical_used", whole),
        "ResourceCapacityAllocated": Field("allocated", whole),
    },
    tolerant=True,
)
CAR_JOB: Final = Form(
    "job",
    {
        **WORK,
        "MachineName": Field("machine", text),
        "Queue": Field("queue", text),
        "JobIdentity/LocalJobId": Field("job_id", text, needed=True),
        "UserIdentity/LocalUserId": Field("local_user", text),
        "UserIdentity/GlobalUserName": Field("user", text),
        "UserIdentity/Group": Field("vo", text),
        "UserIdentity/GroupAttribute FQAN": Field("fqan", long_text),
        "UserIdentity/GroupAttribute vo-group": Field("vo_group", text),
        "UserIdentity/GroupAttribute vo-role": Field("vo_role", text),
        "WallDuration": Field("wall", iso_duration, needed=True),
        "CpuDuration": Field("cpu", iso_duration, needed=True),
        "StartTime": Field("start_time", any_moment, needed=True),
        "EndTime": Field("end_time", any_moment, needed=True),
        "Infrastructure description": Field("infrastructure", text),
        "Infrastructure type": Field("infrastructure_type", text),
        "ServiceLevel": Field("service_level", long_text),
        "ServiceLevel type": Field("benchmark_name", text),
    },
    tolerant=True,
)
TYPES: Final = {
    "SubjectIdentity/GroupAttribute": "attributeType",
    "UserIdentity/GroupAttribute": "type",
    "CpuDuration": "usageType",
}
"""The elements that come in several types, and the attribute that names it; the CPU time of `all` types is the one."""
