"""Records in XML and JSON."""

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting.reader import records
from tests.pipeline.jobs.accounting.texts import CAR, INDIVIDUAL, JOB, NOW, STAR, text

ADDRESS = {
    "SiteName": "SITE-B",
    "CloudType": "caso/5.2.2 (OpenStack)",
    "CloudComputeService": "cloud.site-b.example",
    "uuid": "a1",
    "LocalUser": "u1",
    "LocalGroup": "g1",
    "GlobalUserName": "someone@example.org",
    "FQAN": "vo.access.egi.eu",
    "IPVersion": 4,
    "IPCount": 3,
    "MeasurementTime": 1709634000,
}
ACCELERATOR = {
    "SiteName": "SITE-B",
    "AssociatedRecordType": "cloud",
    "AssociatedRecord": "0c6f5d1e",
    "Type": "GPU",
    "Model": "T4",
    "Count": 0.5,
    "AvailableDuration": 3600,
    "ActiveDuration": 1200,
    "MeasurementMonth": 3,
    "MeasurementYear": 2024,
    "FQAN": "vo.access.egi.eu",
    "GlobalUserName": "someone@example.org",
}
ENERGY = {
    "ExecUnitID": "job-1",
    "StartExecTime": "2024-03-05T09:00:00Z",
    "EndExecTime": "2024-03-05T10:00:00Z",
    "EnergyWh": 12.5,
    "Work": 3.0,
    "Efficiency": 0.9,
    "WallClockTime_s": 3600,
    "CpuDuration_s": 3000,
    "SuspendDuration_s": 0,
    "CPUNormalizationFactor": 11.4,
    "ExecUnitFinished": 1,
    "Status": "completed",
    "Owner": "biomed",
    "SiteName": "SITE-B",
}


def read_json(document: object) -> list[Any]:
    return list(records(json.dumps(document).encode(), NOW))


def addresses(*records: object, version: str = "0.2") -> dict[str, object]:
    return {"Type": "APEL Public IP message", "Version": version, "UsageRecords": records}


def test_a_storage_record_is_read_and_one_that_lacks_something_set_aside() -> None:
    storage, broken = records(STAR.encode(), NOW)

    assert storage == {
        "kind": "storage",
        "month": "2024-03",
        "created": datetime(2024, 3, 5, 23, 50, tzinfo=UTC),
        "record_id": "se.site-a.example-1",
        "storage_system": "se.site-a.example",
        "site": "SITE-A",
        "share": "pool-1",
        "media": "disk",
        "storage_class": "replicated",
        "files": 42,
        "vo": "biomed",
        "vo_group": "/biomed/neuro",
        "start_time": datetime(2024, 3, 5, tzinfo=UTC),
        "end_time": datetime(2024, 3, 5, 23, 45, tzinfo=UTC),
        "used": 14728000000,
        "logical_used": 13617000000,
    }
    assert str(broken).startswith("record 2: ")


def test_a_job_in_xml_is_the_job_in_text() -> None:
    [in_xml] = records(CAR.encode(), NOW)
    as_text = {**JOB, "MachineName": None, "Queue": None, "MemoryReal": None}
    [in_text] = records(text(INDIVIDUAL, as_text).encode(), NOW)

    assert in_xml == in_text


@pytest.mark.parametrize(
    "document",
    [
        "<open>",
        "<other/>",
        "<?xml version='1.0' encoding='no-such'?><a/>",
        "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
        "<!DOCTYPE a SYSTEM 'file:///etc/hostname'><a/>",
    ],
)
def test_xml_that_is_not_safe_or_not_ours_is_refused(document: str) -> None:
    with pytest.raises(Broken):
        list(records(document.encode(), NOW))


def test_public_addresses_are_read() -> None:
    [found] = read_json(addresses(ADDRESS))

    assert (found["kind"], found["month"], found["vo"], found["count"]) == (
        "public_ip",
        "2024-03",
        "vo.access.egi.eu",
        3,
    )
    assert (found["record_id"], found["ip_version"]) == ("a1", 4)


def test_accelerators_are_read() -> None:
    document = {"Type": "APEL-accelerator-message", "Version": "0.1", "UsageRecords": [ACCELERATOR]}

    [found] = read_json(document)

    assert (found["kind"], found["month"], found["vm_id"]) == ("accelerator", "2024-03", "0c6f5d1e")
    assert (found["count"], found["wall"], found["active"]) == (0.5, 3600, 1200)


@pytest.mark.parametrize("document", [ENERGY, [ENERGY]])
def test_energy_is_read_bare(document: object) -> None:
    [found] = read_json(document)

    assert (found["kind"], found["month"], found["energy_wh"], found["finished"]) == ("energy", "2024-03", 12.5, 1)


def test_a_bad_record_in_json_leaves_the_others() -> None:
    good, colour, negative, number = read_json(
        addresses(ADDRESS, {**ADDRESS, "Colour": 1}, {**ADDRESS, "IPCount": -1}, 7)
    )

    assert good["record_id"] == "a1"
    assert str(colour) == "record 2: unknown key 'Colour'"
    assert str(negative) == "record 3: IPCount is negative: -1"
    assert str(number) == "record 4: is not an object"


@pytest.mark.parametrize("document", [{}, [], 3, addresses(version="9"), {"Type": 1, "UsageRecords": 2}, [ENERGY, 1]])
def test_json_of_no_kind_we_know_is_refused(document: object) -> None:
    with pytest.raises(Broken, match="no kind of record we know"):
        read_json(document)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9), st.lists, max_leaves=4
)


@given(st.sampled_from(sorted(ADDRESS)), VALUES)
def test_whatever_a_value_in_json_is_the_record_is_read_or_set_aside(key: str, value: object) -> None:
    document = json.dumps(addresses({**ADDRESS, key: value})).encode()

    with contextlib.suppress(Broken):  # numbers that JSON does not have make it none
        for found in records(document, NOW):
            assert isinstance(found, Broken) or found["kind"] == "public_ip"


@given(st.sampled_from(["PT3600S", "2024-03-05T10:20:00Z", "11.4", "1001", "SITE-A"]), st.text(max_size=20))
def test_whatever_a_text_in_xml_is_the_document_is_read_or_set_aside(old: str, new: str) -> None:
    with contextlib.suppress(Broken):
        for found in records(CAR.replace(old, new).encode("utf-8", "surrogatepass"), NOW):
            assert isinstance(found, Broken) or found["kind"] == "job"


@given(st.binary(max_size=200))
def test_json_of_any_bytes_is_refused_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Broken):
        list(records(b"[" + data, NOW))


def test_json_as_deep_as_it_will_is_refused() -> None:
    with pytest.raises(Broken):
        list(records(b"[" * 100_000, NOW))


def test_xml_as_deep_as_it_will_is_set_aside() -> None:
    deep = STAR.replace("<sr:FileCount>", "<sr:a>" * 5000 + "</sr:a>" * 5000 + "<sr:FileCount>", 1)

    first, *_ = records(deep.encode(), NOW)

    assert str(first) == "record 1: its elements are nested too deeply"
