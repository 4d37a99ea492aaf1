import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting import values
from ams.pipeline.jobs.accounting.reader import records
from tests.pipeline.jobs.accounting.texts import (
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

JANUARY = {"StartTime": "1706000000", "EndTime": "1706100000"}
MONTH_REASON = "says which month it is of"
SYNC_TEXT = "APEL-sync-message: v0.1"
Said = dict[str, str | None]


def read_records(message: str) -> list[Any]:
    return list(records(message.encode(), NOW))


def get_reason(first: str, record: dict[str, str | None]) -> str:
    [found] = read_records(text(first, record))
    assert isinstance(found, Broken)
    return str(found)


MACHINE = {**VM, "RecordCreateTime": None, "StartTime": "1706700000", "SuspendDuration": "100000"}
"""Its month is that of its start and its durations."""


@pytest.mark.parametrize(("first", "record", "change", "expected"), [
    (INDIVIDUAL, JOB, {"site": "SITE-A"}, "unknown key 'site'"),
    (INDIVIDUAL, JOB, {"Site": "NULL"}, "Site is missing"),
    (INDIVIDUAL, JOB, {"EndTime": None}, "EndTime is missing"),
    (INDIVIDUAL, JOB, {"WallDuration": "long"}, "WallDuration is not a number: 'long'"),
    (INDIVIDUAL, JOB, {"EndTime": "1709620000"}, "EndTime is before StartTime"),
    (INDIVIDUAL, JOB, {"EndTime": "1712188800"}, "EndTime is more than two days ahead"),
    (INDIVIDUAL, JOB, {"ServiceLevel": None}, "ServiceLevel and ServiceLevelType go together"),
    (INDIVIDUAL, JOB, {"ServiceLevelType": "NULL"}, "ServiceLevel and ServiceLevelType go together"),
    (INDIVIDUAL, JOB, {"ServiceLevel": "fast"}, "ServiceLevel is not a number: 'fast'"),
    (INDIVIDUAL, JOB, {"ServiceLevel": "-1"}, "ServiceLevel is not a service level: '-1'"),
    (SYNC_TEXT, SYNC, {"Month": "5"}, "Month is in the future"),
    (SYNC_TEXT, SYNC, {"Month": "13"}, "Year and Month are not a month: 2024, 13"),
    ("APEL-summary-job-message: v0.2", SUMMARY, {"Month": "2"}, "EarliestEndTime is not inside the month"),
    (CLOUD, MACHINE, {"StartTime": None}, f"neither EndTime, RecordCreateTime nor StartTime {MONTH_REASON}"),
    (CLOUD, MACHINE, {"WallDuration": "1000000000000"}, "StartTime and the durations lie beyond all calendars"),
    (CLOUD, MACHINE, {"WallDuration": "253402300799"}, "StartTime and the durations lie beyond all calendars"),
])  # fmt: skip
def test_a_record_that_breaks_a_rule_is_set_aside_with_the_rule(first: str, record: Said, change: Said, expected: str):
    assert get_reason(first, {**record, **change}) == f"record 1: {expected}"


@pytest.mark.parametrize(("first", "record", "change", "month"), [
    pytest.param(INDIVIDUAL, JOB, {"EndTime": str(int(NOW.timestamp()) + 2 * 86400)}, "2024-04", id="just ahead"),
    pytest.param(CLOUD, VM, {}, "2024-03", id="when the record was made"),
    pytest.param(CLOUD, VM, {"Status": "completed", **JANUARY}, "2024-01", id="end"),
    pytest.param(CLOUD, MACHINE, {}, "2024-02", id="start and durations"),
])  # fmt: skip
def test_a_record_is_of_a_month(first: str, record: Said, change: Said, month: str) -> None:
    [found] = read_records(text(first, {**record, **change}))
    assert found["month"] == month


@pytest.mark.parametrize("nothing", ["NULL", "None", "", "   "])
def test_what_stands_for_no_value_is_none(nothing: str) -> None:
    [job] = read_records(text(INDIVIDUAL, {**JOB, "Queue": nothing}))
    assert "queue" not in job


def test_one_bad_record_leaves_the_others_of_its_message() -> None:
    first, bad, last = read_records(text(INDIVIDUAL, JOB, {**JOB, "EndTime": "never"}, {**JOB, "LocalJobId": "1003"}))
    assert (first["job_id"], last["job_id"]) == ("1001", "1003")
    assert str(bad) == "record 2: EndTime is not a time: 'never'"


@pytest.mark.parametrize("line", ["no colon here", "Site: SITE-B"])
def test_lines_that_are_no_or_the_same_key_break_a_record(line: str) -> None:
    [broken] = read_records(text(INDIVIDUAL, JOB).replace("%%", f"{line}\n%%"))
    assert isinstance(broken, Broken)


@pytest.mark.parametrize("first", ["APEL-individual-job-message: v0.9", "Hello", "", "x" * 10_000])
def test_a_text_of_no_kind_we_know_is_refused_whole(first: str) -> None:
    with pytest.raises(Broken, match="no kind of record we know") as failed:
        read_records(text(first, JOB))
    assert len(str(failed.value)) < 150


@pytest.mark.parametrize(("names", "expected"), [
    ({}, ("atlas", "/atlas", "Role=production")),
    ({"FQAN": "/atlas/higgs/Role=NULL/Capability=NULL;/atlas/Role=pilot"}, ("atlas", "/atlas/higgs", None)),
    ({"FQAN": "vo.access.egi.eu"}, ("vo.access.egi.eu", None, None)), ({"FQAN": "/"}, (None, "/", None)),
    ({"VO": "cms"}, ("cms", "/atlas", "Role=production")),
])  # fmt: skip
def test_an_fqan_gives_missing_vo_group_and_role(names: dict[str, str], expected: tuple[str | None, ...]) -> None:
    [job] = read_records(text(INDIVIDUAL, {**JOB, **names}))
    assert (job.get("vo"), job.get("vo_group"), job.get("vo_role")) == expected


@pytest.mark.parametrize("first", ["APEL-summary-job-message: v0.3", "APEL-normalised-summary-message: v0.4"])
def test_a_normalised_summary_brings_its_values_along(first: str) -> None:
    normalised = {**SUMMARY, "ServiceLevelType": None, "ServiceLevel": None, "Infrastructure": "grid"}
    plain = {**normalised, "NormalisedWallDuration": "10000", "NormalisedCpuDuration": "9000"}
    maps = {**normalised, "NormalisedWallDuration": "{hepspec: 1, HEPscore23: 2}"}

    assert len(read_records(text(first, plain))) == 1
    assert get_reason(first, {**maps, "NormalisedCpuDuration": "5"}).endswith("name other benchmarks")
    assert get_reason(first, {**plain, "ServiceLevel": "10"}) == "record 1: unknown key 'ServiceLevel'"


KEYS = st.sampled_from([*JOB, "Nonsense"])
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20)


@given(st.dictionaries(KEYS, TEXTS, max_size=8))
def test_whatever_a_job_says_it_is_a_record_or_set_aside(change: dict[str, str]) -> None:
    for found in read_records(text(INDIVIDUAL, {**JOB, **change})):
        assert isinstance(found, Broken) or found["kind"] == "job"


@given(st.text(max_size=300))
def test_whatever_follows_a_first_line_is_records_or_set_aside(rest: str) -> None:
    for found in read_records(f"{CLOUD}\n{rest}"):
        assert isinstance(found, Broken)


def read_json(document: object) -> list[Any]:
    return list(records(json.dumps(document).encode(), NOW))


def address_message(*records: object, version: str = "0.2") -> dict[str, object]:
    return {"Type": "APEL Public IP message", "Version": version, "UsageRecords": records}


def test_a_storage_record_is_read_and_one_that_lacks_something_set_aside() -> None:
    storage, broken = records(STAR.encode(), NOW)
    assert storage["month"] == "2024-03"  # type: ignore[index]  # it is not broken
    assert storage["vo_group"] == "/biomed/neuro"  # type: ignore[index]  # likewise
    assert str(broken).startswith("record 2: ")


def test_a_job_in_xml_is_the_job_in_text() -> None:
    in_xml, beside = records(CAR.replace("</urf:UsageRecords>", "<urf:Host/></urf:UsageRecords>").encode(), NOW)
    as_text = {**JOB, "MachineName": None, "Queue": None, "MemoryReal": None}
    [in_text] = records(text(INDIVIDUAL, as_text).encode(), NOW)

    assert in_xml == in_text
    assert str(beside) == "record 2: unknown key 'Host beside UsageRecord'"


@pytest.mark.parametrize("document", [
    "<open>", "<other/>", "<?xml version='1.0' encoding='no-such'?><a/>",
    "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "<!DOCTYPE a SYSTEM 'file:///etc/hostname'><a/>",
])  # fmt: skip
def test_xml_that_is_not_safe_or_not_ours_is_refused(document: str) -> None:
    with pytest.raises(Broken):
        list(records(document.encode(), NOW))


@pytest.mark.parametrize("document", [ENERGY, [ENERGY]])
def test_energy_is_read_bare(document: object) -> None:
    [found] = read_json(document)
    assert (found["kind"], found["month"], found["energy_wh"], found["finished"]) == ("energy", "2024-03", 12.5, 1)


def test_a_bad_record_in_json_leaves_the_others() -> None:
    wrong = [{**ADDRESS, "Colour": 1}, {**ADDRESS, "IPCount": -1}, 7]

    good, colour, negative, number, sender = read_json({**address_message(ADDRESS, *wrong), "Sender": "x"})

    assert good["record_id"] == "a1"
    assert (str(colour), str(negative)) == ("record 2: unknown key 'Colour'", "record 3: IPCount is negative: -1")
    assert str(number) == "record 4: is not an object"
    assert str(sender) == "record 5: unknown key 'Sender beside UsageRecords'"


@pytest.mark.parametrize(
    "document", [{}, [], 3, address_message(version="9"), {"Type": 1, "UsageRecords": 2}, [ENERGY, 1]]
)
def test_json_of_no_kind_we_know_is_refused(document: object) -> None:
    with pytest.raises(Broken, match="no kind of record we know"):
        read_json(document)


@given(st.binary(max_size=200))
@example(b"[" * 100_000)
def test_json_of_any_bytes_is_refused_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Broken):
        list(records(b"[" + data, NOW))


def test_xml_as_deep_as_it_will_is_set_aside() -> None:
    deep = STAR.replace("<sr:FileCount>", "<sr:a>" * 5000 + "</sr:a>" * 5000 + "<sr:FileCount>", 1)
    first, *_ = records(deep.encode(), NOW)
    assert str(first) == "record 1: its elements are nested too deeply"


@given(st.integers(0, values.LARGEST))
def test_a_whole_number_is_read_from_text_as_from_json(number: int) -> None:
    assert values.whole(str(number)) == values.whole(number) == number


REFUSED_VALUES: dict[values.Read, list[object]] = {
    values.whole: ["1_000", "1.5", "１２", "", " 1", "0x10", "-1", "-1.0", True, 1.5, None, [], str(10**30), 10**30],
    values.number: ["nan", "inf", "1e", "1e999", "1e99", ".5", "1_0.5", True, float("nan"), {}, 10**400],
    values.text: ["x" * 256, "a\0b", 3, None], values.duration: [str(values.LONGEST_DURATION + 1)],
    values.iso_duration: ["P1M", "P", "PT", "6704", "PT-5S", "P1Y"],
    values.moment: ["yesterday", "9999-12-31T23:59:59-12:00", "1969-12-31T23:59:59Z", str(values.LAST_SECOND + 1)],
    values.levels: ["{}", "{hepspec}", "{hepspec: 1, HEPSPEC: 2}", "{hepspec: 1", "{a: 1,}", "{a: -1}"],
}  # fmt: skip


@pytest.mark.parametrize(("read", "value"), [
    pytest.param(read, each, id=f"{read.__name__} {each!r:.30}") for read in REFUSED_VALUES
    for each in REFUSED_VALUES[read]
])  # fmt: skip
def test_other_values_are_refused_with_a_short_reason(read: values.Read, value: object) -> None:
    with pytest.raises(ValueError) as failed:
        read(value)
    assert len(str(failed.value)) < 100


@pytest.mark.parametrize(
    ("text", "seconds"), [("PT6704S", 6704), ("PT1H2M3S", 3723), ("P1DT1S", 86401), ("PT0S", 0), ("PT1.7S", 2)]
)
def test_iso_durations_are_read_in_seconds(text: str, seconds: int) -> None:
    assert values.iso_duration(text) == seconds


@pytest.mark.parametrize(
    "written", ["1709634030", 1709634030, "2024-03-05T10:20:30Z", "2024-03-05T11:20:30+01:00", "2024-03-05T10:20:30"]
)
def test_times_are_utc_however_they_are_written(written: object) -> None:
    assert values.moment(written) == datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)


def test_zero_is_no_time_where_a_machine_still_runs() -> None:
    assert [values.moment_or_none(each) for each in ("0", 0, "0.0")] == [None] * 3


@pytest.mark.parametrize("text", ["{hepspec: 11.4, HEPscore23: 15.3}", '{"hepspec": 11.4, "HEPscore23": 15.2997}'])
def test_levels_of_a_map_stand_in_the_order_of_their_names_with_three_digits(text: str) -> None:
    assert values.levels(text) == [
        {"benchmark": "hepscore23", "level": Decimal("15.300")}, {"benchmark": "hepspec", "level": Decimal("11.400")},
    ]  # fmt: skip


def test_a_plain_normalised_value_is_of_hepspec() -> None:
    assert values.amounts("3600") == {"hepspec": 3600}
    assert values.amounts("{hepspec: 10.5, HEPscore23: 7}") == {"hepscore23": 7, "hepspec": 11}


@pytest.mark.parametrize(("year", "number"), [(1969, 1), (2024, 0), (2024, 13), (10000, 1)])
def test_what_is_no_month_is_refused(year: int, number: int) -> None:
    with pytest.raises(ValueError, match="not a month"):
        values.month(year, number)
