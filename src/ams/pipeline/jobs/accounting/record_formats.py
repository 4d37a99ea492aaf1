"""The forms of usage records: the keys that each has, how their values are read, and the rules for all forms.

`record` turns the keys and values of one record, whichever syntax they came in, into a row of `summaries.RECORD`.
A broken rule raises `Broken` with the key and the rule.

`Key=column` in a form says which column a key fills, and `Key!=column` that the key is needed. Both stand behind the
reader of `values` for them. In XML keys are paths of elements, `path@name` for an attribute and `path[type]` for an
element that comes in several types.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting import values

AHEAD: Final = timedelta(days=2)  # how far ahead of our clock an end may be: clocks of sites are off

Row = dict[str, Any]


class Field(NamedTuple):
    """A key of a form: its column, its reader, and whether it is required."""

    column: str  # of `summaries.RECORD`, or one that `_finish` takes out of the row again
    read: values.Read
    needed: bool


Fields = dict[str, Field]
NONE: Final[Fields] = {}


class Form:
    """One kind of record in one syntax."""

    def __init__(self, kind: str, shared: Fields = NONE, /, *, not_taken: str = "", **keys: str) -> None:
        """Make a form with the fields that `fields` returns.

        `not_taken` are keys that may be there and fill no column; `*@name` is an attribute of any element, `path[*]`
        any other type of an element that comes in several. A key that is in neither breaks a record.
        """
        self.kind, self.fields, self.not_taken = kind, fields(shared, **keys), frozenset(not_taken.split())

    def key(self, column: str) -> str:
        """Return the key that fills a column."""
        return next(key for key, field in self.fields.items() if field.column == column)

    def knows(self, key: str) -> bool:
        """Return whether a key that fills no column may be there."""
        return not self.not_taken.isdisjoint((key, f"*@{key.rpartition('@')[2]}", _any_type(key)))


def _any_type(key: str) -> str:
    return f"{key.partition('[')[0]}[*]"


def fields(shared: Fields = NONE, /, **keys: str) -> Fields:
    """Return fields as they are written below, by the names of readers; they go before those that are shared."""
    found = dict(shared)
    for reader, pairs in keys.items():
        for key, column in (pair.split("=") for pair in pairs.split()):
            found[key.removesuffix("!")] = Field(column, getattr(values, reader), key.endswith("!"))
    return found


def record(form: Form, pairs: Iterable[tuple[str, object]], now: datetime) -> Row:
    """Return a record as a row; raises `Broken`."""
    row: Row = {"kind": form.kind}
    fields = form.fields
    seen = set()
    others: list[str] = []
    for key, value in pairs:
        field = fields.get(key)
        if field is None:
            if form.knows(key):
                continue
            if _any_type(key) not in fields:
                raise Broken(f"unknown key {key[:40]!r}")
            others.append(f"{key.partition('[')[2].removesuffix(']')}={value}")
            continue
        if key in seen:
            raise Broken(f"{key} is given twice")
        seen.add(key)
        if value is None or (value.__class__ is str and value in values.NOTHING):
            continue
        try:
            found = field.read(value)
        except ValueError as error:
            raise Broken(f"{key} {error}") from None
        if row.get(field.column, found) != found:
            other = next(each for each in seen if fields[each].column == field.column and each != key)
            raise Broken(f"{key} says something else than {other}")
        row[field.column] = found
    if others:
        row["vo_attributes"] = ", ".join(sorted(others))
    _fill_in(row)
    for key, field in fields.items():
        if field.needed and row.get(field.column) is None:
            raise Broken(f"{key} is missing")
    _finish(form, row, now)
    return row


def _fill_in(row: Row) -> None:
    """Fill missing columns: CPU time from its two parts, an interval from the time of measurement."""
    parts = [row.pop(name, None) for name in ("cpu_user", "cpu_system")]
    if row.get("cpu") is None and None not in parts:
        row["cpu"] = sum(parts)
    measure = row.pop("measure_time", None)
    if measure is not None:
        row.setdefault("start_time", measure)
        row.setdefault("end_time", measure)
    if row["kind"] == "accelerator":
        row.setdefault("vm_id", row.get("record_id"))


def _finish(form: Form, row: Row, now: datetime) -> None:
    """Check the times against each other, and derive month, level and benchmarks. Raises `Broken`."""
    start, end = row.get("start_time"), row.get("end_time")
    if start is not None and end is not None and end < start:
        raise Broken(f"{form.key('end_time')} is before {form.key('start_time')}")
    if end is not None and end > now + AHEAD:
        raise Broken(f"{form.key('end_time')} is more than two days ahead")
    _take_level(row)
    wall, cpu = row.pop("normalised_wall", {}), row.pop("normalised_cpu", {})
    if set(wall) != set(cpu):
        raise Broken("NormalisedWallDuration and NormalisedCpuDuration name other benchmarks")
    if wall:
        row["normalised"] = [{"benchmark": name, "wall": wall[name], "cpu": cpu[name]} for name in sorted(wall)]
    _take_apart_fqan(row)
    if "year" in row:
        _take_month(form, row, now)
        return
    if form.kind == "vm":
        row["measured"] = _measurement_time(row)
    time = row.get("measured") or row["end_time"]
    if time > now + AHEAD:
        raise Broken("the time it is of is more than two days ahead")
    row["month"] = values.month_of(time)


def _take_level(row: Row) -> None:
    """Convert ServiceLevelType and ServiceLevel (both or neither), or the newer map, to `levels`."""
    benchmark, level = row.pop("benchmark_name", None), row.pop("service_level", None)
    is_map = level is not None and level.startswith("{")
    if (benchmark is None) != (level is None) and not is_map:
        raise Broken("ServiceLevel and ServiceLevelType go together")
    if level is None:
        return
    try:
        if is_map:
            levels = values.levels(level)
        else:
            found = values.level(level)
            levels = [] if found is None else [{"benchmark": benchmark.lower(), "level": found}]
    except ValueError as error:
        raise Broken(f"ServiceLevel {error}") from None
    if levels:
        row["levels"] = levels


def _take_apart_fqan(row: Row) -> None:
    """Fill VO (also one without a leading slash), group and role (if not NULL) from the first name of an FQAN."""
    if "fqan" not in row:
        return
    first = row["fqan"].split(";", 1)[0].strip()
    found = {"vo": first}
    if first.startswith("/"):
        parts = first.split("/")[1:]
        groups = [part for part in parts if "=" not in part]
        found = {"vo": groups[0], "vo_group": "/" + "/".join(groups)} if groups else {}
        roles = (values.role(part) for part in parts if part.lower().startswith("role="))
        found["vo_role"] = next(filter(None, roles), "")
    for name, value in found.items():
        if value and row.get(name) is None:
            row[name] = value


def _take_month(form: Form, row: Row, now: datetime) -> None:
    try:
        row["month"] = values.month(row.pop("year"), row.pop("month_number"))
    except ValueError as error:
        raise Broken(str(error)) from None
    if row["month"] > values.month_of(now):
        raise Broken("Month is in the future")
    for name in ("earliest_end", "latest_end"):
        if row.get(name) is not None and values.month_of(row[name]) != row["month"]:
            raise Broken(f"{form.key(name)} is not inside the month")


def _measurement_time(row: Row) -> datetime:
    """Return the end of a completed record, else its creation time, else start plus all durations."""
    ended = row.get("end_time") if row.get("status") == "completed" else None
    known: datetime | None = ended or row.get("created")
    if known is not None:
        return known
    start: datetime | None = row.get("start_time")
    if start is None:
        raise Broken("neither EndTime, RecordCreateTime nor StartTime says which month it is of")
    try:
        return start + timedelta(seconds=row.get("suspended", 0) + row.get("wall", 0))
    except OverflowError:
        raise Broken("StartTime and the durations lie beyond all calendars") from None


# Fields that several forms share.

OWNER = fields(
    text="LocalUserId=local_user GlobalUserName=user VO=vo VOGroup=vo_group",
    role="VORole=vo_role",
    long_text="FQAN=fqan",
)
MONTH = fields(whole="Month!=month_number Year!=year")
LEVEL = fields(text="ServiceLevelType=benchmark_name", long_text="ServiceLevel=service_level")
WORK = fields(
    text="Site!=site SubmitHost=submit_host",
    duration="WallDuration!=wall CpuDuration!=cpu",
    whole="Processors=processors NodeCount=node_count",
)
JOBS = fields(
    WORK | OWNER | MONTH, whole="NumberOfJobs!=jobs", moment="EarliestEndTime=earliest_end LatestEndTime=latest_end"
)
CLOUD = fields(text="SiteName!=site CloudType=cloud_type CloudComputeService=cloud_service")
MACHINE = fields(
    CLOUD | OWNER,
    text="LocalGroupId=local_group Status=status NetworkType=network_type BenchmarkType=benchmark_type ImageId=image",
    duration="WallDuration=wall CpuDuration=cpu",
    count="CpuCount=cpu_count",
    whole="PublicIPCount=public_ips",
    round_half_up="NetworkInbound=network_in NetworkOutbound=network_out Memory=memory Disk=disk",
    level="Benchmark=benchmark",
)
UPDATED: Final = "UpdateTime"  # when the sender's database changed: of its house, and not of the record
CLOUD_OWNER = fields(
    CLOUD, text="LocalUser=local_user LocalGroup=local_group GlobalUserName=user", long_text="FQAN=fqan"
)

# Text: jobs, virtual machines, and summaries of both that sites made.

JOB = Form(
    "job",
    WORK | OWNER | LEVEL,
    text="LocalJobId!=job_id MachineName=machine Queue=queue InfrastructureDescription=infrastructure"
    " InfrastructureType=infrastructure_type",
    moment="StartTime!=start_time EndTime!=end_time",
    round_half_up="MemoryReal=memory_real MemoryVirtual=memory_virtual",
    not_taken=f"{UPDATED} SubmitHostType",
)
JOB_SUMMARY = Form("job_summary", JOBS | LEVEL, text="InfrastructureType=infrastructure_type", not_taken=UPDATED)
NORMALISED_SUMMARY = Form(
    "job_summary",
    JOBS,
    text="Infrastructure=infrastructure_type",
    amounts="NormalisedWallDuration!=normalised_wall NormalisedCpuDuration!=normalised_cpu",
    not_taken=UPDATED,
)
SYNC = Form("sync", MONTH, text="Site!=site SubmitHost!=submit_host", whole="NumberOfJobs!=jobs", not_taken=UPDATED)
VM = Form(
    "vm",
    MACHINE,
    text="VMUUID!=vm_id MachineName=machine StorageRecordId=storage_record",
    moment_or_none="RecordCreateTime=created StartTime=start_time EndTime=end_time",
    duration="SuspendDuration=suspended",
    not_taken=f"{UPDATED} MeasurementTime MeasurementMonth MeasurementYear",
)
VM_SUMMARY = Form(
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

# JSON: public addresses, accelerators, and energy.

PUBLIC_IP = Form(
    "public_ip",
    CLOUD_OWNER,
    text="uuid=record_id",
    whole="IPVersion!=ip_version IPCount!=count",
    moment="MeasurementTime!=measured",
)
ACCELERATOR = Form(
    "accelerator",
    CLOUD_OWNER,
    text="AssociatedRecordType=associated_type AssociatedRecord!=vm_id AccUUID=record_id Type!=accelerator Model=model"
    " BenchmarkType=benchmark_type",
    number="Count!=count",
    duration="AvailableDuration=wall ActiveDuration=active",
    level="Benchmark=benchmark",
    whole="MeasurementMonth!=month_number MeasurementYear!=year Cores=processors",
)
ENERGY = Form(
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

# XML, of the EMI name spaces: storage (StAR) and jobs (CAR).

STORAGE = Form(
    "storage",
    text="RecordIdentity@recordId!=record_id StorageSystem!=storage_system Site=site SubjectIdentity/Site=site"
    " StorageShare=share StorageMedia=media StorageClass=storage_class SubjectIdentity/LocalUser=local_user"
    " SubjectIdentity/LocalGroup=local_group SubjectIdentity/UserIdentity=user SubjectIdentity/Group=vo"
    " SubjectIdentity/GroupAttribute[subgroup]=vo_group SubjectIdentity/GroupAttribute[role]=vo_role",
    long_text="DirectoryPath=path SubjectIdentity/GroupAttribute[*]=vo_attributes",
    iso_moment="RecordIdentity@createTime!=created StartTime!=start_time EndTime!=end_time MeasureTime=measure_time",
    round_half_up="FileCount=files ResourceCapacityUsed!=used LogicalCapacityUsed=logical_used",
    limit="ResourceCapacityAllocated=allocated",
    not_taken="ValidDuration *@type *@description *@primary",
)
CAR_JOB = Form(
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
