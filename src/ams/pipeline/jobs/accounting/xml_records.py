"""Usage records in XML: storage (StAR) and jobs (CAR), both of the EMI name spaces.

Elements and attributes that are not known are passed over: the schemas let anyone add some.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final
from xml.etree.ElementTree import Element, ParseError  # the classes only; defusedxml parses

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting import values
from ams.pipeline.jobs.accounting.forms import Form, Key, Row, check_span, month_at, record, take_apart_fqan, take_level
from ams.pipeline.jobs.accounting.kinds import JOB
from ams.pipeline.jobs.accounting.values import any_moment, iso_duration, iso_moment, long_text, text, whole

STAR: Final = "{http://eu-emi.eu/namespaces/2011/02/storagerecord}"
CAR: Final = "{http://eu-emi.eu/namespaces/2012/11/computerecord}"


def _storage(row: Row, now: datetime) -> None:
    if row["end_time"] < row["start_time"]:
        raise Broken("EndTime is before StartTime")
    month_at(row, row["end_time"], now)


STORAGE_KEYS: Final[Mapping[str, Key]] = {
    "RecordIdentity createTime": ("created", iso_moment),
    "RecordIdentity recordId": ("record_id", text),
    "StorageSystem": ("storage_system", text),
    "Site": ("site", text),
    "StorageShare": ("share", text),
    "StorageMedia": ("media", text),
    "StorageClass": ("storage_class", text),
    "FileCount": ("files", whole),
    "DirectoryPath": ("path", long_text),
    "SubjectIdentity/LocalUser": ("local_user", text),
    "SubjectIdentity/LocalGroup": ("local_group", text),
    "SubjectIdentity/UserIdentity": ("user", text),
    "SubjectIdentity/Group": ("vo", text),
    "SubjectIdentity/GroupAttribute": ("vo_group", text),
    "StartTime": ("start_time", iso_moment),
    "EndTime": ("end_time", iso_moment),
    "ResourceCapacityUsed": ("used", whole),
    "LogicalCapacityUsed": ("logical_used", whole),
    "ResourceCapacityAllocated": ("allocated", whole),
}
STORAGE: Final = Form(
    "storage",
    STORAGE_KEYS,
    frozenset(
        {
            "RecordIdentity createTime",
            "RecordIdentity recordId",
            "StorageSystem",
            "StartTime",
            "EndTime",
            "ResourceCapacityUsed",
        }
    ),
    _storage,
    tolerant=True,
)


def _car_job(row: Row, now: datetime) -> None:
    check_span(row, now)
    take_level(row)
    take_apart_fqan(row)
    row["month"] = values.month_of(row["end_time"])


CAR_KEYS: Final[Mapping[str, Key]] = {
    "Site": JOB.keys["Site"],
    "SubmitHost": JOB.keys["SubmitHost"],
    "MachineName": JOB.keys["MachineName"],
    "Queue": JOB.keys["Queue"],
    "JobIdentity/LocalJobId": JOB.keys["LocalJobId"],
    "UserIdentity/LocalUserId": JOB.keys["LocalUserId"],
    "UserIdentity/GlobalUserName": JOB.keys["GlobalUserName"],
    "UserIdentity/Group": JOB.keys["VO"],
    "UserIdentity/GroupAttribute FQAN": JOB.keys["FQAN"],
    "UserIdentity/GroupAttribute vo-group": JOB.keys["VOGroup"],
    "UserIdentity/GroupAttribute vo-role": JOB.keys["VORole"],
    "WallDuration": ("wall", iso_duration),
    "CpuDuration": ("cpu", iso_duration),
    "Processors": JOB.keys["Processors"],
    "NodeCount": JOB.keys["NodeCount"],
    "StartTime": ("start_time", any_moment),
    "EndTime": ("end_time", any_moment),
    "Infrastructure description": JOB.keys["InfrastructureDescription"],
    "Infrastructure type": JOB.keys["InfrastructureType"],
    "ServiceLevel": JOB.keys["ServiceLevel"],
    "ServiceLevel type": JOB.keys["ServiceLevelType"],
}
CAR_JOB: Final = Form(
    "job",
    CAR_KEYS,
    frozenset({"Site", "JobIdentity/LocalJobId", "WallDuration", "CpuDuration", "StartTime", "EndTime"}),
    _car_job,
    tolerant=True,
)


def records(data: bytes, now: datetime) -> Iterator[Row | Broken]:
    """Read all records of a document, yielding `Broken` for each that is not one; raises `Broken` for another one."""
    try:
        root = fromstring(data, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise Broken("is not XML that is safe to read") from error
    for number, (form, pairs) in enumerate(_documents(root), 1):
        try:
            yield record(form, pairs, now)
        except Broken as error:
            yield Broken(f"record {number}: {error}")
        except RecursionError:
            yield Broken(f"record {number}: its elements are nested too deeply")


def _documents(root: Element) -> Iterator[tuple[Form, Iterator[tuple[str, str]]]]:
    if root.tag == f"{STAR}StorageUsageRecords":
        for each in root.findall(f"{STAR}StorageUsageRecord"):
            yield STORAGE, _pairs(each, STAR, _of_storage)
    elif root.tag in (f"{CAR}UsageRecords", f"{CAR}UsageRecord"):
        for each in [root] if root.tag == f"{CAR}UsageRecord" else root.findall(f"{CAR}UsageRecord"):
            yield CAR_JOB, _pairs(each, CAR, _of_car)
    else:
        raise Broken(f"its root element is {root.tag[:100]!r}, which is no kind of record we know")


Name = Callable[[str, Element, str], str | None]
"""From the path of an element to its key; None: it is not one of ours."""


def _pairs(element: Element, space: str, key: Name, path: str = "") -> Iterator[tuple[str, str]]:
    """Return what a record says: texts of elements by their path, and attributes by path, blank, and name."""
    for child in element:
        name = child.tag.removeprefix(space) if isinstance(child.tag, str) else ""
        here = f"{path}{name}"
        for attribute, value in child.attrib.items():
            yield f"{here} {attribute.removeprefix(space)}", value.strip()
        if len(child):
            yield from _pairs(child, space, key, f"{here}/")
        elif (found := key(here, child, space)) is not None:
            yield found, (child.text or "").strip()


def _of_storage(path: str, element: Element, space: str) -> str | None:
    # Further attributes of the group (its role, its authority) tell the first one closer, and are not kept.
    further = path == "SubjectIdentity/GroupAttribute" and element.get(f"{space}attributeType") != "subgroup"
    return None if further else path


def _of_car(path: str, element: Element, space: str) -> str | None:
    if path == "CpuDuration":
        # Told in parts as well: user, system, and all of it.
        return path if element.get(f"{space}usageType", "all") == "all" else None
    if path == "UserIdentity/GroupAttribute":
        return f"{path} {element.get(f'{space}type', '')}"
    return path
