"""The forms of usage records: which keys each has, by how their values are read (the readers of `values`).

`Key=column` says which column a key fills, and `Key!=column` that the key is needed. In XML keys are paths of elements,
`path@name` for an attribute and `path[type]` for an element that comes in several types.
"""

from collections.abc import Mapping
from typing import Final

from ams.pipeline.jobs.accounting.forms import Form, fields, form

# What several forms have.

OWNER: Final = fields(
    text="LocalUserId=local_user GlobalUserName=user VO=vo VOGroup=vo_group VORole=vo_role", long_text="FQAN=fqan"
)
MONTH: Final = fields(whole="Month!=month_number Year!=year")
LEVEL: Final = fields(text="ServiceLevelType=benchmark_name", long_text="ServiceLevel=service_level")
WORK: Final = fields(
    text="Site!=site SubmitHost=submit_host",
    duration="WallDuration!=wall CpuDuration!=cpu",
    whole="Processors=processors NodeCount=node_count",
)
JOBS: Final = fields(
    WORK | OWNER | MONTH, whole="NumberOfJobs!=jobs", moment="EarliestEndTime=earliest_end LatestEndTime=latest_end"
)
CLOUD: Final = fields(text="SiteName!=site CloudType=cloud_type CloudComputeService=cloud_service")
MACHINE: Final = fields(
    CLOUD | OWNER,
    text="LocalGroupId=local_group Status=status NetworkType=network_type BenchmarkType=benchmark_type ImageId=image",
    duration="WallDuration=wall CpuDuration=cpu",
    whole="CpuCount=cpu_count NetworkInbound=network_in NetworkOutbound=network_out PublicIPCount=public_ips"
    " Memory=memory Disk=disk",
    level="Benchmark=benchmark",
)
CLOUD_OWNER: Final = fields(
    CLOUD, text="LocalUser=local_user LocalGroup=local_group GlobalUserName=user", long_text="FQAN=fqan"
)

# Text: jobs, virtual machines, and summaries of both that sites made.

JOB: Final = form(
    "job",
    WORK | OWNER | LEVEL,
    text="LocalJobId!=job_id MachineName=machine Queue=queue InfrastructureDescription=infrastructure"
    " InfrastructureType=infrastructure_type",
    moment="StartTime!=start_time EndTime!=end_time",
    whole="MemoryReal=memory_real MemoryVirtual=memory_virtual",
)
JOB_SUMMARY: Final = form("job_summary", JOBS | LEVEL, text="InfrastructureType=infrastructure_type")
NORMALISED_SUMMARY: Final = form(
    "job_summary",
    JOBS,
    text="Infrastructure=infrastructure_type",
    amounts="NormalisedWallDuration!=normalised_wall NormalisedCpuDuration!=normalised_cpu",
)
SYNC: Final = form("sync", MONTH, text="Site!=site SubmitHost!=submit_host", whole="NumberOfJobs!=jobs")
VM: Final = form(
    "vm",
    MACHINE,
    text="VMUUID!=vm_id MachineName=machine StorageRecordId=storage_record",
    moment_or_none="RecordCreateTime=created StartTime=start_time EndTime=end_time",
    duration="SuspendDuration=suspended",
)
VM_SUMMARY: Final = form(
    "vm_summary",
    MACHINE | MONTH,
    whole="NumberOfVMs!=vms",
    moment_or_none="EarliestStartTime=earliest_start LatestStartTime=latest_start",
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

PUBLIC_IP: Final = form(
    "public_ip",
    CLOUD_OWNER,
    text="uuid=record_id",
    whole="IPVersion!=ip_version IPCount!=count",
    moment="MeasurementTime!=measured",
)
ACCELERATOR: Final = form(
    "accelerator",
    CLOUD_OWNER,
    text="AssociatedRecordType=associated_type AssociatedRecord!=vm_id Type!=accelerator Model=model"
    " BenchmarkType=benchmark_type",
    number="Count!=count",
    duration="AvailableDuration=wall ActiveDuration=active",
    level="Benchmark=benchmark",
    whole="MeasurementMonth!=month_number MeasurementYear!=year",
)
ENERGY: Final = form(
    "energy",
    CLOUD,
    text="ExecUnitID!=record_id Status=status Owner=user",
    any_moment="StartExecTime!=start_time EndExecTime!=end_time",
    number="EnergyWh!=energy_wh Work=work Efficiency=efficiency CPUNormalizationFactor=normalisation",
    duration="WallClockTime_s=wall CpuDuration_s=cpu SuspendDuration_s=suspended",
    whole="ExecUnitFinished=finished",
)

IN_JSON: Final[Mapping[tuple[str, str], Form]] = {
    ("APEL Public IP message", "0.2"): PUBLIC_IP,
    ("APEL-accelerator-message", "0.1"): ACCELERATOR,
}
"""The forms by the type and version a document names; energy records come bare, one or a list."""

# XML, of the EMI name spaces: storage (StAR) and jobs (CAR).

STORAGE: Final = form(
    "storage",
    text="RecordIdentity@recordId!=record_id StorageSystem!=storage_system Site=site StorageShare=share"
    " StorageMedia=media StorageClass=storage_class SubjectIdentity/LocalUser=local_user"
    " SubjectIdentity/LocalGroup=local_group SubjectIdentity/UserIdentity=user SubjectIdentity/Group=vo"
    " SubjectIdentity/GroupAttribute[subgroup]=vo_group",
    long_text="DirectoryPath=path",
    iso_moment="RecordIdentity@createTime!=created StartTime!=start_time EndTime!=end_time",
    whole="FileCount=files ResourceCapacityUsed!=used LogicalCapacityUsed=logical_used"
    " ResourceCapacityAllocated=allocated",
    tolerant=True,
)
CAR_JOB: Final = form(
    "job",
    WORK,
    text="JobIdentity/LocalJobId!=job_id MachineName=machine Queue=queue UserIdentity/LocalUserId=local_user"
    " UserIdentity/GlobalUserName=user UserIdentity/Group=vo UserIdentity/GroupAttribute[vo-group]=vo_group"
    " UserIdentity/GroupAttribute[vo-role]=vo_role Infrastructure@description=infrastructure"
    " Infrastructure@type=infrastructure_type ServiceLevel@type=benchmark_name",
    long_text="UserIdentity/GroupAttribute[FQAN]=fqan ServiceLevel=service_level",
    iso_duration="WallDuration!=wall CpuDuration!=cpu",
    any_moment="StartTime!=start_time EndTime!=end_time",
    tolerant=True,
)
TYPES: Final = {
    "SubjectIdentity/GroupAttribute": "attributeType",
    "UserIdentity/GroupAttribute": "type",
    "CpuDuration": "usageType",
}
"""The elements that come in several types, and the attribute that names it; the CPU time of `all` types is the one."""
