"""What producers send, row by row as the reference shows it."""

import json
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import pytest

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting import kinds
from ams.pipeline.jobs.accounting.reader import CAR, STAR, records
from tests.pipeline.jobs.accounting.texts import ACCELERATOR, ADDRESS, ENERGY, JOB, NOW, SUMMARY, SYNC, VM, text
from tests.pipeline.jobs.inputs_page import Input, inputs, rows, shown

FORMS = {
    "job": kinds.JOB,
    "summary": kinds.JOB_SUMMARY,
    "normalised": kinds.NORMALISED_SUMMARY,
    "sync": kinds.SYNC,
    "vm": kinds.VM,
    "vm summary": kinds.VM_SUMMARY,
    "ip": kinds.PUBLIC_IP,
    "accelerator": kinds.ACCELERATOR,
    "energy": kinds.ENERGY,
    "StAR": kinds.STORAGE,
    "CAR": kinds.CAR_JOB,
}
INPUTS = inputs("accounting", frozenset(FORMS))
BEGINNINGS = [tuple(row) for row in rows("accounting", "Forms")]

NORMALISED = {
    **{key: value for key, value in SUMMARY.items() if not key.startswith("ServiceLevel")},
    "NormalisedWallDuration": "10000",
    "NormalisedCpuDuration": "9000",
}
VM_SUMMARY = {"SiteName": "SITE-B", "Month": "3", "Year": "2024", "NumberOfVMs": "2"}
STORAGE = {
    "RecordIdentity@recordId": "1",
    "RecordIdentity@createTime": "2024-03-05T23:50:00Z",
    "StorageSystem": "se",
    "StartTime": "2024-03-05T00:00:00Z",
    "EndTime": "2024-03-05T23:45:00Z",
    "ResourceCapacityUsed": "900",
}
COMPUTE = {
    "JobIdentity/LocalJobId": "1001",
    "WallDuration": "PT1H",
    "CpuDuration": "PT50M",
    "StartTime": "2024-03-05T09:13:20Z",
    "EndTime": "2024-03-05T10:20:00Z",
    "Site": "SITE-A",
}
RECORDS: Mapping[str, Mapping[str, Any]] = {
    "job": JOB,
    "summary": SUMMARY,
    "normalised": NORMALISED,
    "sync": SYNC,
    "vm": VM,
    "vm summary": VM_SUMMARY,
    "ip": ADDRESS,
    "accelerator": ACCELERATOR,
    "energy": ENERGY,
    "StAR": STORAGE,
    "CAR": COMPUTE,
}
"""A record of each form."""
LEVELS = {"ServiceLevel": "11.4", "ServiceLevelType": "hepspec", "ServiceLevel@type": "hepspec"}


def record(form: str, key: str, example: str) -> dict[str, Any]:
    """Return a record of a form that says something by a key, without what would contradict it."""
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
    """Return a message of one record, in the syntax of its form."""
    if form in ("StAR", "CAR"):
        return as_xml(beginning, STAR if form == "StAR" else CAR, found)
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
            # In capitals, and without its name space: types are known all the same.
            child.set(kinds.TYPES[path], kind.upper() if kind != "authority" else kind)
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
        assert shown(found[column]) == value.strip()


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

    assert in_text == kinds.IN_TEXT.keys()
    assert in_json == kinds.IN_JSON.keys()


@pytest.mark.parametrize("number", ["v0.4", "0.4  "])
@pytest.mark.parametrize("colon", [":", ": ", " :", " : "])
def test_a_first_line_may_have_blanks_where_its_sender_likes(colon: str, number: str) -> None:
    [found] = records(text(f"APEL-cloud-message{colon}{number}", VM).encode(), NOW)

    assert not isinstance(found, Broken)
