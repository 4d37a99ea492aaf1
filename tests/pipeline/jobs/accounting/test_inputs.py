"""Messages of producers, row by row as the reference shows them, and in the formats of real programs."""

import codecs
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from xml.dom import minidom
from xml.etree import ElementTree

import pytest

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting import reader, record_formats
from ams.pipeline.jobs.accounting.reader import records
from tests.pipeline.jobs.accounting.texts import (
    ACCELERATOR,
    ADDRESS,
    CAR,
    CLOUD,
    ENERGY,
    INDIVIDUAL,
    JOB,
    NOW,
    STAR,
    SUMMARY,
    SYNC,
    VM,
    text,
)
from tests.pipeline.jobs.inputs_page import Input, format_cell, inputs, rows

FORMS = {
    "job": record_formats.JOB, "summary": record_formats.JOB_SUMMARY,
    "normalised": record_formats.NORMALISED_SUMMARY, "sync": record_formats.SYNC, "vm": record_formats.VM,
    "vm summary": record_formats.VM_SUMMARY, "ip": record_formats.PUBLIC_IP,
    "accelerator": record_formats.ACCELERATOR, "energy": record_formats.ENERGY, "StAR": record_formats.STORAGE,
    "CAR": record_formats.CAR_JOB,
}  # fmt: skip
INPUTS = inputs("accounting", frozenset(FORMS))
BEGINNINGS = [tuple(row) for row in rows("accounting", "Forms")]

NORMALISED_SUMMARY = {
    **{key: value for key, value in SUMMARY.items() if not key.startswith("ServiceLevel")},
    "NormalisedWallDuration": "10000", "NormalisedCpuDuration": "9000",
}  # fmt: skip
VM_SUMMARY = {"SiteName": "SITE-B", "Month": "3", "Year": "2024", "NumberOfVMs": "2"}
STORAGE = {
    "RecordIdentity@recordId": "1", "RecordIdentity@createTime": "2024-03-05T23:50:00Z", "StorageSystem": "se",
    "StartTime": "2024-03-05T00:00:00Z", "EndTime": "2024-03-05T23:45:00Z", "ResourceCapacityUsed": "900",
}  # fmt: skip
COMPUTE = {
    "JobIdentity/LocalJobId": "1001", "WallDuration": "PT1H", "CpuDuration": "PT50M",
    "StartTime": "2024-03-05T09:13:20Z", "EndTime": "2024-03-05T10:20:00Z", "Site": "SITE-A",
}  # fmt: skip
RECORDS: Mapping[str, Mapping[str, Any]] = {
    "job": JOB, "summary": SUMMARY, "normalised": NORMALISED_SUMMARY, "sync": SYNC, "vm": VM, "vm summary": VM_SUMMARY,
    "ip": ADDRESS, "accelerator": ACCELERATOR, "energy": ENERGY, "StAR": STORAGE, "CAR": COMPUTE,
}  # fmt: skip
"""A record in each format."""
LEVELS = {"ServiceLevel": "11.4", "ServiceLevelType": "hepspec", "ServiceLevel@type": "hepspec"}


def record(form: str, key: str, example: str) -> dict[str, Any]:
    """Return a record of a format with a key's value, without contradicting fields."""
    found = dict(RECORDS[form])
    column = FORMS[form].fields[key].column if key in FORMS[form].fields else ""
    for other, field in FORMS[form].fields.items():
        if other != key and column and field.column == column:
            found.pop(other, None)
    match key.removeprefix("UserIdentity/"):
        case "FQAN" | "GroupAttribute[fqan]":
            found = {name: value for name, value in found.items() if not name.startswith("VO")}
        case "VO" | "VOGroup" | "VORole":
            found.pop("FQAN", None)
        case "ServiceLevel" | "ServiceLevelType" | "ServiceLevel@type":
            names = FORMS[form].fields.keys() & LEVELS.keys()
            found |= {name: LEVELS[name] for name in names if not example.startswith("{") or name == "ServiceLevel"}
            if example.startswith("{"):
                found.pop("ServiceLevelType", None)
        case "CpuDuration[user]" | "CpuDuration[system]":
            found |= {"CpuDuration[user]": "PT50M", "CpuDuration[system]": "PT1M"}
            found.pop("CpuDuration")
        case "MeasureTime":
            found = {name: value for name, value in found.items() if name not in ("StartTime", "EndTime")}
        case "SubjectIdentity/GroupAttribute[*]" | "GroupAttribute[*]":
            key = key.replace("*", "authority")
        case "AccUUID":
            found.pop("AssociatedRecord")
        case _ if key.startswith("*@"):
            key = f"Site{key[1:]}"
            found.setdefault("Site", "SITE-A")
    return found | {key: example}


def message(form: str, found: Mapping[str, Any], beginning: str) -> bytes:
    if form in ("StAR", "CAR"):
        return as_xml(beginning, reader.STAR if form == "StAR" else reader.CAR, found)
    if form == "energy":
        return json.dumps(found).encode()
    if form in ("ip", "accelerator"):
        return json.dumps({**json.loads(beginning), "UsageRecords": [found]}).encode()
    return text(beginning, found).encode()


def as_xml(root: str, space: str, found: Mapping[str, str]) -> bytes:
    element = ElementTree.Element(space + root.strip("<>").removesuffix("s"))
    for key, value in found.items():
        path, _, attribute = key.partition("@")
        path, _, kind = path.removesuffix("]").partition("[")
        *above, name = path.split("/")
        parent = element
        for each in above:
            there = parent.find(space + each)
            parent = ElementTree.SubElement(parent, space + each) if there is None else there
        there = parent.find(space + name) if not kind else None
        child = ElementTree.SubElement(parent, space + name) if there is None else there
        if attribute:
            child.set(space + attribute, value)
            continue
        child.text = value
        if kind:
            # In capitals, and without its namespace: types are recognised anyway.
            child.set(record_formats.TYPES[path], kind.upper() if kind != "authority" else kind)
    if root.endswith("s>"):
        above_all = ElementTree.Element(space + root.strip("<>"))
        above_all.append(element)
        element = above_all
    return ElementTree.tostring(element)


def first_beginning(form: str) -> str:
    return next(beginning for beginning, named in BEGINNINGS if named == form)


@pytest.mark.parametrize("row", INPUTS, ids=" ".join)
def test_what_a_producer_says_becomes_what_the_reference_shows(row: Input) -> None:
    data = message(row.form, record(row.form, row.key, row.example), first_beginning(row.form))

    [found] = records(data, NOW)

    if row.result.startswith("set aside: "):
        assert str(found) == f"record 1: {row.result.removeprefix('set aside: ')}"
        return
    assert not isinstance(found, Broken), found
    if row.result.startswith("not taken: "):
        [plain] = records(message(row.form, RECORDS[row.form], first_beginning(row.form)), NOW)
        assert not FORMS[row.form].fields.keys() & {row.key}
        assert found == plain | {name: found[name] for name in ("site",) if name in found}
    elif row.result.startswith("no value of "):
        assert found.get(row.result.split("`")[1]) is None
    else:
        _, column, value = row.result.split("`")
        assert format_cell(found[column]) == value.strip()


@pytest.mark.parametrize("form", FORMS)
def test_every_key_that_is_known_has_a_row_and_no_other(form: str) -> None:
    in_reference = {row.key for row in INPUTS if row.form == form and not row.result.startswith("set aside: unknown")}
    assert in_reference == FORMS[form].fields.keys() | FORMS[form].not_taken


@pytest.mark.parametrize(("beginning", "form"), BEGINNINGS)
def test_every_form_is_known_by_its_beginning(beginning: str, form: str) -> None:
    found = dict(RECORDS[form])
    if beginning.endswith("v0.4") and form in ("job", "summary"):
        found = {**found, "ServiceLevel": "{hepspec: 11.4}"}
        del found["ServiceLevelType"]

    [read] = records(message(form, found, beginning), NOW)

    assert not isinstance(read, Broken), read
    assert read["kind"] == FORMS[form].kind


def test_no_form_is_without_a_row() -> None:
    in_text = {line for line, _ in BEGINNINGS if line.startswith("APEL")}
    in_json = {tuple(json.loads(line).values()) for line, form in BEGINNINGS if form in ("ip", "accelerator")}
    assert in_text == record_formats.IN_TEXT.keys()
    assert in_json == record_formats.IN_JSON.keys()


@pytest.mark.parametrize("number", ["v0.4", "0.4  "])
@pytest.mark.parametrize("colon", [":", ": ", " :", " : "])
def test_a_first_line_may_have_blanks_where_its_sender_likes(colon: str, number: str) -> None:
    [found] = records(text(f"APEL-cloud-message{colon}{number}", VM).encode(), NOW)
    assert not isinstance(found, Broken)


CASO = """APEL-cloud-message: v0.4
CloudComputeService: cloud.site-b.example
CloudType: caso/5.2.2 (OpenStack)
CpuDuration: 3456000
EndTime: 0
FQAN: vo.access.egi.eu
PublicIPCount: 7
SiteName: SITE-B
StartTime: 1709000000
Status: started
VMUUID: 721cf1db
WallDuration: 432000%%
SiteName: SITE-B
StartTime: 1709000000
EndTime: 1709418400
Status: completed
VMUUID: a53738e1
WallDuration: 418400
CpuDuration: 418400
Benchmark: 0.0
BenchmarkType: HEPSPEC06
"""
"""As cASO writes it: keys sorted, and `%%` after the last value of a record."""

NOTEBOOKS = """APEL-cloud-message: v0.4
VMUUID: 1d2c
SiteName: SITE-C
Status: started
StartTime: 1709600000
WallDuration: 34000.5
CpuDuration: 1234.56789
CpuCount: 1.456
NetworkOutbound: 0.0
UpdateTime: 2024-03-05 10:20:00
MeasurementTime: 1709634000

%%
VMUUID: 1d2d
SiteName: SITE-C
Status: completed
StartTime: 1709600000
EndTime: 1709634000
WallDuration: 34000
CpuDuration: 0.5
CpuCount: 2.000
"""
"""As harvesters of metrics write it: all numbers are decimal."""

PODS = """APEL-individual-job-message: v0.3
Site: SITE-D
VO: atlas
SubmitHost: k8s.site-d.example:6443/harvester
LocalJobId: pod-1
ServiceLevelType: si2k
ServiceLevel: 2975.0
WallDuration: 3600.0
CpuDuration: 28799.62
Processors: 8.0
StartTime: 1709600000.0
EndTime: 1709603600.0
%%
"""
"""As a publisher of jobs on Kubernetes writes it."""

ARC = """<?xml version="1.0" encoding="utf-8"?>
<UsageRecords xmlns="http://eu-emi.eu/namespaces/2012/11/computerecord"><UsageRecord\
 xmlns:urf="http://eu-emi.eu/namespaces/2012/11/computerecord" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"\
 xsi:schemaLocation="http://eu-emi.eu/namespaces/2012/10/computerecord car_v1.2.xsd">
<RecordIdentity urf:createTime="2024-03-05T10:30:00Z" urf:recordId="ur-arc-1"/>
<JobIdentity><GlobalJobId>https://arc.site-e.example/1</GlobalJobId><LocalJobId>1</LocalJobId></JobIdentity>
<UserIdentity><GlobalUserName urf:type="opensslCompat">/DC=org/CN=Robot</GlobalUserName>
<LocalUserId>atlas001</LocalUserId><LocalGroup>atlas</LocalGroup><Group>atlas</Group>
<GroupAttribute urf:type="FQAN">/atlas/Role=production/Capability=NULL</GroupAttribute>
<GroupAttribute urf:type="vo-group">/atlas</GroupAttribute>
<GroupAttribute urf:type="vo-role">Role=production</GroupAttribute>
<GroupAttribute urf:type="ProjectName">p1</GroupAttribute></UserIdentity>
<JobName>sim</JobName><Status>completed</Status><ExitStatus>0</ExitStatus>
<WallDuration>PT1H</WallDuration><CpuDuration urf:usageType="all">PT55M</CpuDuration>
<CpuDuration urf:usageType="user">PT54M</CpuDuration><CpuDuration urf:usageType="system">PT1M</CpuDuration>
<StartTime>2024-03-05T09:00:00Z</StartTime><EndTime>2024-03-05T10:00:00Z</EndTime>
<MachineName>arc.site-e.example</MachineName><Host urf:primary="true">wn1</Host><Host>wn2</Host>
<SubmitHost urf:type="org.nordugrid.arcrest">https://arc.site-e.example/arex</SubmitHost>
<Queue urf:description="execution">grid</Queue><Site urf:type="gocdb">SITE-E</Site>
<Infrastructure urf:type="grid" urf:description="JURA-ARC-SLURM"></Infrastructure>
<Middleware urf:name="arc" urf:version="6.18" urf:description="NorduGrid ARC 6.18"/>
<Memory urf:storageUnit="KB" urf:metric="max" urf:type="Shared">9404</Memory>
<Memory urf:storageUnit="KB" urf:metric="max" urf:type="Physical">2368</Memory>
<NodeCount>1</NodeCount><Processors>1</Processors><ServiceLevel urf:type="HEPSPEC">0.0</ServiceLevel>
</UsageRecord><UsageRecord>
<JobIdentity><LocalJobId>2</LocalJobId></JobIdentity>
<UserIdentity><Group>atlas</Group><GroupAttribute type="role">pilot</GroupAttribute></UserIdentity>
<WallDuration>P0Y0M0DT1H</WallDuration>
<CpuDuration usageType="user">PT50M</CpuDuration><CpuDuration usageType="system">PT2M</CpuDuration>
<StartTime>2024-03-05T09:00:00Z</StartTime><EndTime>2024-03-05T24:00:00Z</EndTime><Site>SITE-E</Site>
</UsageRecord></UsageRecords>
"""
"""As ARC writes it, with a record of another program beside it."""

ATTRIBUTES = (
    "", '<sr:GroupAttribute sr:attributeType="role">cmsphedex</sr:GroupAttribute>',
    '<sr:GroupAttribute attributeType="role">poweruser</sr:GroupAttribute>',
    '<sr:GroupAttribute sr:attributeType="authority">/O=Grid/CN=auth</sr:GroupAttribute>',
)  # fmt: skip
STORAGE_RECORD = """<sr:StorageUsageRecord>
    <sr:RecordIdentity sr:createTime="2024-03-05T02:42:15Z" sr:recordId="{number}"/>
    <sr:StorageSystem>se.site-f.example</sr:StorageSystem>
    <sr:SubjectIdentity>{attribute}<sr:Group>cms</sr:Group><sr:Site>SITE-F</sr:Site></sr:SubjectIdentity>
    <sr:StartTime>2024-03-04T02:42:15Z</sr:StartTime><sr:EndTime>2024-03-05T02:42:15Z</sr:EndTime>
    <sr:FileCount>{number}</sr:FileCount><sr:ResourceCapacityUsed>{number}00</sr:ResourceCapacityUsed>
    <sr:ResourceCapacityAllocated>-1</sr:ResourceCapacityAllocated>
  </sr:StorageUsageRecord>"""
ROLES = "".join([
    STAR.split("<sr:StorageUsageRecord>")[0],
    *(STORAGE_RECORD.format(number=number, attribute=each) for number, each in enumerate(ATTRIBUTES, 1)),
    "</sr:StorageUsageRecords>",
])  # fmt: skip
"""From a storage with roles: the site is in the group."""


def read_records(data: str | bytes) -> list[dict[str, Any]]:
    found = list(records(data.encode() if isinstance(data, str) else data, NOW))
    assert [str(each) for each in found if isinstance(each, Broken)] == []
    return [each for each in found if not isinstance(each, Broken)]


def parse_plainly(message: str) -> Iterator[dict[str, str]]:
    """Parse APEL text without the job: each line is split at its first colon."""
    for block in message.partition("\n")[2].split("%%"):
        pairs = [line.split(":", 1) for line in block.splitlines() if ":" in line]
        if pairs:
            yield {key.strip(): value.strip() for key, value in pairs}


@pytest.mark.parametrize("message", [CASO, NOTEBOOKS, PODS], ids=["cASO", "notebooks", "pods"])
def test_times_add_up_to_what_the_text_says(message: str) -> None:
    expected: Counter[str] = Counter()
    for each in parse_plainly(message):
        times = ((name, Decimal(each[name])) for name in ("WallDuration", "CpuDuration"))
        expected.update({name: int(time.quantize(Decimal(1), ROUND_HALF_UP)) for name, time in times}, records=1)

    found: Counter[str] = Counter()
    for row in read_records(message):
        found.update(WallDuration=row["wall"], CpuDuration=row["cpu"], records=1)

    assert found == expected


def test_jobs_in_xml_add_up_to_what_the_document_says() -> None:
    space = "http://eu-emi.eu/namespaces/2012/11/computerecord"
    documents = minidom.parseString(ARC).getElementsByTagNameNS(space, "UsageRecord")  # our own text
    hours = [each.getElementsByTagNameNS(space, "WallDuration")[0].firstChild.data for each in documents]

    rows = read_records(ARC)

    assert (len(hours), sum(row["wall"] for row in rows)) == (2, 2 * 3600)
    assert [row["cpu"] for row in rows] == [55 * 60, 52 * 60]
    assert [(row["vo"], row.get("vo_group"), row["vo_role"]) for row in rows] == [
        ("atlas", "/atlas", "Role=production"),
        ("atlas", None, "pilot"),
    ]
    assert [row.get("levels") for row in rows] == [None, None]
    assert ([row["month"] for row in rows], rows[0]["status"]) == (["2024-03"] * 2, "completed")


def test_storage_of_roles_and_other_attributes_stays_apart() -> None:
    space = "http://eu-emi.eu/namespaces/2011/02/storagerecord"
    used = minidom.parseString(ROLES).getElementsByTagNameNS(space, "ResourceCapacityUsed")  # our own text

    rows = read_records(ROLES)

    assert sum(row["used"] for row in rows) == sum(int(each.firstChild.data) for each in used) == 1000
    assert {row["site"] for row in rows} == {"SITE-F"}
    assert [(row["vo"], row.get("vo_role"), row.get("vo_attributes")) for row in rows] == [
        ("cms", None, None), ("cms", "cmsphedex", None), ("cms", "poweruser", None),
        ("cms", None, "authority=/O=Grid/CN=auth"),
    ]  # fmt: skip


def test_one_byte_that_is_not_utf_8_costs_its_record_alone() -> None:
    jobs = [{**JOB, "LocalJobId": str(number)} for number in range(1000)]
    data = text(INDIVIDUAL, *jobs).encode().replace(b"LocalJobId: 500\n", b"LocalJobId: 5\xff0\n")

    found = list(records(data, NOW))

    assert [str(each) for each in found if isinstance(each, Broken)] == ["record 501: is not UTF-8"]
    assert sum(each["wall"] for each in found if not isinstance(each, Broken)) == 999 * 3600


BROKEN_INPUTS = [tuple(row) for row in rows("accounting", "Bytes that are not UTF-8")]
MARK = "MARK"  # a broken byte takes its place
NAMES = {"job": "LocalJobId", "StAR": "StorageSystem", "CAR": "JobIdentity/LocalJobId", "ip": "uuid"}


def with_broken_unit(form: str, place: str, coding: str) -> bytes:
    found = [dict(RECORDS[form]) for _ in range(3)]
    second, name = found[1], "RecordIdentity@recordId" if place == "an attribute" else NAMES[form]
    match place:
        case "a key":
            second[MARK] = "x"
        case "a list":
            second["FQAN"] = [MARK]
        case "a value" | "an attribute":
            second[name] = f"one{MARK}"
    beginning = [line for line, named in BEGINNINGS if named == form][-1]
    if form == "job":
        message = text(beginning, *found)
    elif form == "ip":
        message = json.dumps({**json.loads(beginning), "UsageRecords": found})
    else:
        space = reader.STAR if form == "StAR" else reader.CAR
        whole = [as_xml(beginning, space, each).decode() for each in found]
        inner = [each[each.index(">") + 1 : each.rindex("<")] for each in whole]
        if place == "a comment":
            inner[1] = inner[1].replace(">", f"><!-- {MARK} -->", 1)
        elif place == "between records":
            inner[1] += MARK
        message = whole[0][: whole[0].index(">") + 1] + "".join(inner) + whole[0][whole[0].rindex("<") :]
    assert message.count(MARK) == 1
    if coding == "UTF-8":
        return message.encode().replace(MARK.encode(), b"\xff")
    return ("\ufeff" + message.replace(MARK, "\ud800")).encode("utf-16-be", "surrogatepass")


@pytest.mark.parametrize("coding", ["UTF-8", "UTF-16"])
@pytest.mark.parametrize(("form", "place", "result"), BROKEN_INPUTS, ids=[" ".join(row) for row in BROKEN_INPUTS])
def test_a_broken_unit_in_any_form_costs_its_record_alone(form: str, place: str, result: str, coding: str) -> None:
    found = list(records(with_broken_unit(form, place, coding), NOW))
    broken = [str(each) for each in found if isinstance(each, Broken)]
    assert broken == ([f"record 2: is not {coding}"] if result == "set aside: is not UTF-8" else [])
    assert len(found) == 3


@pytest.mark.parametrize(("data", "reason"), [
    (CAR.replace("SITE", "S\0E").encode().replace(b"\0", b"\xff").replace(b"</urf:Usage", b"</\xff"), "is not XML"),
    (b'<?xml version="1.0" encoding="iso-8859-1"?><a>\xff</a', "is not XML"),
    (b'{"Type": "APEL Public IP message\xff", "Version": "0.2", "UsageRecords": []}', "its type and version are"),
    (b'[{"ExecUnitID": "\xff', "not JSON"),
])  # fmt: skip
def test_what_is_broken_in_its_frame_too_is_set_aside_whole(data: bytes, reason: str) -> None:
    with pytest.raises(Broken, match=reason):
        list(records(data, NOW))


def test_a_text_in_the_encoding_it_tells_is_whole() -> None:
    latin = CAR.replace("SITE-A", "S\xcfTE").replace("utf-8", "iso-8859-1").replace("UTF-8", "iso-8859-1")
    latin = latin if latin.startswith("<?xml") else f'<?xml version="1.0" encoding="iso-8859-1"?>{latin}'
    assert {row["site"] for row in records(latin.encode("iso-8859-1"), NOW)} == {"S\xcfTE"}


MESSAGES = {
    "text": text(INDIVIDUAL, JOB, JOB), "machines": text(CLOUD, VM), "storage": ROLES, "jobs": CAR,
    "json": json.dumps({"Type": "APEL Public IP message", "Version": "0.2", "UsageRecords": [ADDRESS]}),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize(("mark", "encoding", "end"), [
    (b"", "utf-8", "\r\n"), (b"", "utf-8", "\r"), (codecs.BOM_UTF8, "utf-8", "\n"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "\n"), (codecs.BOM_UTF16_BE, "utf-16-be", "\n"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "\n"), (codecs.BOM_UTF32_BE, "utf-32-be", "\n"),
], ids=repr)  # fmt: skip
def test_texts_are_read_by_their_mark_whatever_ends_lines(name: str, mark: bytes, encoding: str, end: str) -> None:
    assert read_records(mark + MESSAGES[name].replace("\n", end).encode(encoding)) == read_records(MESSAGES[name])


@pytest.mark.parametrize(("document", "old", "new", "reason"), [
    (CAR, "</urf:Site>", "</urf:Site><urf:Sight>B</urf:Sight>", "unknown key 'Sight'"),
    (CAR, 'urf:usageType="all"', 'urf:usageType="system2"', "unknown key 'CpuDuration[system2]'"),
    (CAR, '<urf:CpuDuration urf:usageType="all">PT3000S</urf:CpuDuration>', "", "CpuDuration is missing"),
    (ROLES, "</sr:SubjectIdentity>", "</sr:SubjectIdentity><sr:Site>OTHER</sr:Site>",
     "Site says something else than SubjectIdentity/Site"),
])  # fmt: skip
def test_unknown_or_contradictory_rows_never_go_unsaid(document: str, old: str, new: str, reason: str) -> None:
    assert old in document
    found, *others = records(document.replace(old, new, 1).encode(), NOW)
    assert str(found) == f"record 1: {reason}"
    assert not [each for each in others if isinstance(each, Broken)]


def test_what_others_add_in_their_own_name_space_may_be_there() -> None:
    added = CAR.replace("<urf:NodeCount>", '<x:Any xmlns:x="urn:x" x:a="1"><x:B>2</x:B></x:Any><urf:NodeCount>')
    assert read_records(added) == read_records(CAR)
