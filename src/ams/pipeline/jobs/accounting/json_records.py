"""Usage records in JSON: public addresses, accelerators, and energy."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting import values
from ams.pipeline.jobs.accounting.forms import Form, Key, Row, month_at, record, take_apart_fqan, take_month
from ams.pipeline.jobs.accounting.values import any_moment, duration, long_text, moment, number, text, whole

OWNER: Final[Mapping[str, Key]] = {
    "SiteName": ("site", text),
    "CloudType": ("cloud_type", text),
    "CloudComputeService": ("cloud_service", text),
    "GlobalUserName": ("user", text),
    "FQAN": ("fqan", long_text),
}


def _measured(column: str) -> Callable[[Row, datetime], None]:
    def finish(row: Row, now: datetime) -> None:
        take_apart_fqan(row)
        month_at(row, row[column], now)

    return finish


def _accelerator(row: Row, now: datetime) -> None:
    take_apart_fqan(row)
    take_month(row, now)


def _energy(row: Row, now: datetime) -> None:
    if row["end_time"] < row["start_time"]:
        raise Broken("EndExecTime is before StartExecTime")
    month_at(row, row["end_time"], now)


PUBLIC_IP: Final = Form(
    "public_ip",
    {
        **OWNER,
        "uuid": ("record_id", text),
        "LocalUser": ("local_user", text),
        "LocalGroup": ("local_group", text),
        "IPVersion": ("ip_version", whole),
        "IPCount": ("count", whole),
        "MeasurementTime": ("measured", moment),
    },
    frozenset({"SiteName", "IPVersion", "IPCount", "MeasurementTime"}),
    _measured("measured"),
)

ACCELERATOR: Final = Form(
    "accelerator",
    {
        **OWNER,
        "LocalUser": ("local_user", text),
        "LocalGroup": ("local_group", text),
        "AssociatedRecordType": ("associated_type", text),
        "AssociatedRecord": ("vm_id", text),
        "Type": ("accelerator", text),
        "Model": ("model", text),
        "Count": ("count", number),
        "AvailableDuration": ("wall", duration),
        "ActiveDuration": ("active", duration),
        "BenchmarkType": ("benchmark_type", text),
        "Benchmark": ("benchmark", values.level),
        "MeasurementMonth": ("month_number", whole),
        "MeasurementYear": ("year", whole),
    },
    frozenset({"SiteName", "AssociatedRecord", "Type", "Count", "MeasurementMonth", "MeasurementYear"}),
    _accelerator,
)

ENERGY: Final = Form(
    "energy",
    {
        "ExecUnitID": ("record_id", text),
        "StartExecTime": ("start_time", any_moment),
        "EndExecTime": ("end_time", any_moment),
        "EnergyWh": ("energy_wh", number),
        "Work": ("work", number),
        "Efficiency": ("efficiency", number),
        "WallClockTime_s": ("wall", duration),
        "CpuDuration_s": ("cpu", duration),
        "SuspendDuration_s": ("suspended", duration),
        "CPUNormalizationFactor": ("normalisation", number),
        "ExecUnitFinished": ("finished", whole),
        "Status": ("status", text),
        "Owner": ("user", text),
        "SiteName": ("site", text),
        "CloudType": ("cloud_type", text),
        "CloudComputeService": ("cloud_service", text),
    },
    frozenset({"ExecUnitID", "StartExecTime", "EndExecTime", "EnergyWh", "SiteName"}),
    _energy,
)

FORMS: Final[Mapping[tuple[str, str], Form]] = {
    ("APEL Public IP message", "0.2"): PUBLIC_IP,
    ("APEL-accelerator-message", "0.1"): ACCELERATOR,
}
"""The forms by the type and version a document names; energy records come bare, one or a list."""


def records(data: bytes, now: datetime) -> Iterator[Row | Broken]:
    """Read all records of a document, yielding `Broken` for each that is not one; raises `Broken` for another one."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Broken("is not JSON") from error
    form, found = _form(document)
    for place, each in enumerate(found, 1):
        try:
            yield record(form, _pairs(each), now)
        except Broken as error:
            yield Broken(f"record {place}: {error}")


def _form(document: Any) -> tuple[Form, list[Any]]:
    if isinstance(document, dict) and "UsageRecords" in document:
        form = FORMS.get((str(document.get("Type")), str(document.get("Version"))))
        found = document["UsageRecords"]
        if form is None or not isinstance(found, list):
            told = f"{document.get('Type')!s:.40} {document.get('Version')!s:.10}"
            raise Broken(f"its type and version are {told!r}, which is no kind of record we know")
        return form, found
    bare = document if isinstance(document, list) else [document]
    if bare and all(isinstance(each, dict) and "ExecUnitID" in each for each in bare):
        return ENERGY, bare
    raise Broken("is JSON, but no kind of record we know")


def _pairs(document: Any) -> Iterator[tuple[str, object]]:
    if not isinstance(document, dict):
        raise Broken("is not an object")
    yield from document.items()
