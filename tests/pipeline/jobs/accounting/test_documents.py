"""Records in XML and JSON."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting.reader import records
from tests.pipeline.jobs.accounting.texts import ADDRESS, CAR, ENERGY, INDIVIDUAL, JOB, NOW, STAR, text


def read_json(document: object) -> list[Any]:
    return list(records(json.dumps(document).encode(), NOW))


def addresses(*records: object, version: str = "0.2") -> dict[str, object]:
    return {"Type": "APEL Public IP message", "Version": version, "UsageRecords": records}


def test_a_storage_record_is_read_and_one_that_lacks_something_set_aside() -> None:
    storage, broken = records(STAR.encode(), NOW)

    assert storage["month"] == "2024-03"  # type: ignore[index]  # it is not broken
    assert storage["vo_group"] == "/biomed/neuro"  # type: ignore[index]  # likewise
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


@pytest.mark.parametrize("document", [ENERGY, [ENERGY]])
def test_energy_is_read_bare(document: object) -> None:
    [found] = read_json(document)

    assert (found["kind"], found["month"], found["energy_wh"], found["finished"]) == ("energy", "2024-03", 12.5, 1)


def test_a_bad_record_in_json_leaves_the_others() -> None:
    wrong = [{**ADDRESS, "Colour": 1}, {**ADDRESS, "IPCount": -1}, 7]

    good, colour, negative, number = read_json(addresses(ADDRESS, *wrong))

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
@example(b"[" * 100_000)
def test_json_of_any_bytes_is_refused_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Broken):
        list(records(b"[" + data, NOW))


def test_xml_as_deep_as_it_will_is_set_aside() -> None:
    deep = STAR.replace("<sr:FileCount>", "<sr:a>" * 5000 + "</sr:a>" * 5000 + "<sr:FileCount>", 1)

    first, *_ = records(deep.encode(), NOW)

    assert str(first) == "record 1: its elements are nested too deeply"
