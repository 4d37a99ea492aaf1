"""The forms of usage records: which keys each has, by how their values are read (the readers of `values`).

`Key=column` says which column a key fills, and `Key!=column` that the key is needed. In XML keys are paths of elements,
`path@name` for an attribute and `path[type]` for an element that comes in several types.
"""

from collections.abc import Mapping
from typing import Final

from ams.pipeline.jobs.accounting.forms import Form, fields, form

# What several forms have.

OWNER: Final = fields(
    text="LocalUserId=local_user GlobalUserName=user VO=vo VOGroup=vo_group",
    role="VORole=vo_role",
    long_text="FQAN=fqan",
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
    count="CpuCount=cpu_count",
    whole="PublicIPCount=public_ips",
    rounded="NetworkInbound=network_in NetworkOutbound=network_out Memory=memory Disk=disk",
    level="Benchmark=benchmark",
)
UPDATED: Final = "UpdateTime"
"""When the sender's database changed: of its house, and not of the record."""
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
    rounded="MemoryReal=memory_real MemoryVirtual=memory_virtual",
    not_taken=f"{UPDATED} SubmitHostType",
)
JOB_SUMMARY: Final = form("job_summary", JOBS | LEVEL, text="InfrastructureType=infrastructure_type", not_taken=UPDATED)
NORMALISED_SUMMARY: Final = form(
    "job_summary",
    JOBS,
    text="Infrastructure=infrastructure_type",
    amounts="NormalisedWallDuration!=normalised_wall NormalisedCpuDuration!=normalised_cpu",
    not_taken=UPDATED,
)
SYNC: Final = form(
    "sync", MONTH, text="Site!=site SubmitHost!=submit_host", whole="NumberOfJobs!=jobs", not_taken=UPDATED
)
VM: Final = form(
    "vm",
    MACHINE,
    text="VMUUID!=vm_id MachineName=machine StorageRecordId=storage_record",
    moment_or_none="RecordCreateTime=created StartTime=start_time EndTime=end_time",
    duration="SuspendDuration=suspended",
    not_taken=f"{UPDATED} MeasurementTime MeasurementMonth MeasurementYear",
)
VM_SUMMARY: Final = form(
    "vm_summary",
    MACHINE | MONTH,
    whole="NumberOfVMs!=vms",
    moment_or_none="EarliestStartTime=earliest_start LatestStartTime=latest_start",
    not_taken=UPDATED,
)

IN_TEXT: Final[Mapping[str, Form]] = {
    "APEL-individual-job-message: v0.1": JOB,
    "APEL-individual-job-message: v0.2": JOB,
    "APEL-individual-job-message: v0.3": JOB,
    "APEL-individual-job-message: v0.4": JOB,
    "APEL-summary-job-message: v0.1": JOB_SUMMARY,
    "APEL-summary-job-message: v0.2": JOB_SUMMARY,
    "APEL-summary-job-message: v0.3": NORMALISED_SUMMARY,
    "APEL-summary-job-message: v0.4": JOB_SUMMARY,
    "APEL-normalised-summary-message: v0.4": NORMALISED_SUMMARY,
    "APEL-sync-message: v0.1": SYNC,
    "APEL-cloud-message: v0.2": VM,
    "APEL-cloud-message: v0.4": VM,
    "APEL-cloud-summary-message: v0.2": VM_SUMMARY,
    "APEL-cloud-summary-message: v0.4": VM_SUMMARY,
}
"""The forms by the first line of a text, in the spelling of `header`."""

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
    text="AssociatedRecordType=associated_type AssociatedRecord!=vm_id AccUUID=record_id Type!=accelerator Model=model"
    " BenchmarkType=benchmark_type",
    number="Count!=count",
    duration="AvailableDuration=wall ActiveDuration=active",
    level="Benchmark=benchmark",
    whole="MeasurementMonth!=month_number MeasurementYear!=year Cores=processors",
)
ENERGY: Final = form(
    "energy",
    CLOUD,
    text="ExecUnitID!=record_id Status=status Owner=user",
    moment="StartExecTime!=start_time EndExecTime!=end_time",
    number="EnergyWh!=energy_wh Work=work Efficiency=efficiency CPUNormalizationFactor=normalisation",
    duration="WallClockTime_s=wall CpuDuration_s=cpu SuspendDuration_s=suspended",
    whole="ExecUnitFinished=finished",
)

IN_JSON: Final[Mapping[tuple[str, str], Form]] = {
    ("APEL Public IP message", "0.2"): PUBLIC_IP,
    ("APEL-accelerator-message", "0.1"): ACCELERATOR,
    ("APEL GPU message", "0.1"): ACCELERATOR,
}
"""The forms by the type and version a document names; energy records come bare, one or a list."""

# XML, of the EMI name spaces: storage (StAR) and jobs (CAR).

STORAGE: Final = form(
    "storage",
    text="RecordIdentity@recordId!=record_id StorageSystem!=storage_system Site=site SubjectIdentity/Site=site"
    " StorageShare=share StorageMedia=media StorageClass=storage_class SubjectIdentity/LocalUser=local_user"
    " SubjectIdentity/LocalGroup=local_group SubjectIdentity/UserIdentity=user SubjectIdentity/Group=vo"
    " SubjectIdentity/GroupAttribute[subgroup]=vo_group SubjectIdentity/GroupAttribute[role]=vo_role",
    long_text="DirectoryPath=path SubjectIdentity/GroupAttribute[*]=vo_attributes",
    iso_moment="RecordIdentity@createTime!=created StartTime!=start_time EndTime!=end_time MeasureTime=measure_time",
    rounded="FileCount=files ResourceCapacityUsed!=used LogicalCapacityUsed=logical_used",
    limit="ResourceCapacityAllocated=allocated",
    not_taken="ValidDuration *@type *@description *@primary",
)
CAR_JOB: Final = form(
    "job",
    WORK,
    text="JobIdentity/LocalJobId!=job_id MachineName=machine Queue=queue Status=status"
    " UserIdentity/LocalUserId=local_user UserIdentity/LocalGroup=local_group UserIdentity/GlobalUserName=user"
    " UserIdentity/Group=vo UserIdentity/GroupAttribute[vo-group]=vo_group UserIdentity/GroupAttribute[group]=vo_group"
    " Infrastructure@description=infrastructure Infrastructure@type=infrastructure_type"
    " ServiceLevel@type=benchmark_name",
    role="UserIdentity/GroupAttribute[vo-role]=vo_role UserIdentity/GroupAttribute[role]=vo_role",
    long_text="UserIdentity/GroupAttribute[fqan]=fqan ServiceLevel=service_level",
    iso_duration="WallDuration!=wall CpuDuration!=cpu CpuDuration[user]=cpu_user CpuDuration[system]=cpu_system",
    moment="StartTime!=start_time EndTime!=end_time",
    not_taken="RecordIdentity@createTime RecordIdentity@recordId JobIdentity/GlobalJobId JobIdentity/ProcessId"
    " UserIdentity/GroupAttribute[*] JobName Charge ExitStatus Infrastructure Middleware Memory Swap Network Disk"
    " TimeInstant Host ProjectName *@type *@description *@metric *@storageUnit *@phaseUnit *@unit *@formula"
    " *@consumptionRate *@primary *@name *@version",
)
TYPES: Final = {
    "SubjectIdentity/GroupAttribute": "attributeType",
    "UserIdentity/GroupAttribute": "type",
    "CpuDuration": "usageType",
}
"""The elements that come in several types, and the attribute that names it, in any case and with or without its name
space; the CPU time of `all` types is the one, else what `user` and `system` add up to."""
