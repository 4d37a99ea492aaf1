from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting.reader import records
from tests.pipeline.jobs.accounting.texts import CLOUD, INDIVIDUAL, JOB, NOW, SUMMARY, SYNC, VM, text

JANUARY = {"StartTime": "1706000000", "EndTime": "1706100000"}
SAYS_WHICH_MONTH = "says which month it is of"
SYNC_TEXT = "APEL-sync-message: v0.1"
Said = dict[str, str | None]


def read(message: str) -> list[Any]:
    return list(records(message.encode(), NOW))


def reason(first: str, record: dict[str, str | None]) -> str:
    [found] = read(text(first, record))
    assert isinstance(found, Broken)
    return str(found)


MACHINE = {**VM, "RecordCreateTime": None, "StartTime": "1706700000", "SuspendDuration": "100000"}
"""Its month is that of its start and its durations."""


@pytest.mark.parametrize(
    ("first", "record", "change", "expected"),
    [
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
        (CLOUD, MACHINE, {"StartTime": None}, f"neither EndTime, RecordCreateTime nor StartTime {SAYS_WHICH_MONTH}"),
        (CLOUD, MACHINE, {"WallDuration": "1000000000000"}, "StartTime and the durations lie beyond all calendars"),
        (CLOUD, MACHINE, {"WallDuration": "253402300799"}, "StartTime and the durations lie beyond all calendars"),
    ],
)
def test_a_record_that_breaks_a_rule_is_set_aside_with_the_rule(
    first: str, record: Said, change: Said, expected: str
) -> None:
    assert reason(first, {**record, **change}) == f"record 1: {expected}"


@pytest.mark.parametrize(
    ("first", "record", "change", "month"),
    [
        pytest.param(INDIVIDUAL, JOB, {"EndTime": str(int(NOW.timestamp()) + 2 * 86400)}, "2024-04", id="just ahead"),
        pytest.param(CLOUD, VM, {}, "2024-03", id="when the record was made"),
        pytest.param(CLOUD, VM, {"Status": "completed", **JANUARY}, "2024-01", id="end"),
        pytest.param(CLOUD, MACHINE, {}, "2024-02", id="start and durations"),
    ],
)
def test_a_record_is_of_a_month(first: str, record: Said, change: Said, month: str) -> None:
    [found] = read(text(first, {**record, **change}))

    assert found["month"] == month


@pytest.mark.parametrize("nothing", ["NULL", "None", "", "   "])
def test_what_stands_for_no_value_is_none(nothing: str) -> None:
    [job] = read(text(INDIVIDUAL, {**JOB, "Queue": nothing}))

    assert "queue" not in job


def test_one_bad_record_leaves_the_others_of_its_message() -> None:
    first, bad, last = read(text(INDIVIDUAL, JOB, {**JOB, "EndTime": "never"}, {**JOB, "LocalJobId": "1003"}))

    assert (first["job_id"], last["job_id"]) == ("1001", "1003")
    assert str(bad) == "record 2: EndTime is not a time: 'never'"


@pytest.mark.parametrize("line", ["no colon here", "Site: SITE-B"])
def test_lines_that_are_no_or_the_same_key_break_a_record(line: str) -> None:
    [broken] = read(text(INDIVIDUAL, JOB).replace("%%", f"{line}\n%%"))

    assert isinstance(broken, Broken)


@pytest.mark.parametrize("first", ["APEL-individual-job-message: v0.9", "Hello", "", "x" * 10_000])
def test_a_text_of_no_kind_we_know_is_refused_whole(first: str) -> None:
    with pytest.raises(Broken, match="no kind of record we know") as failed:
        read(text(first, JOB))

    assert len(str(failed.value)) < 150


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({}, ("atlas", "/atlas", "Role=production")),
        ({"FQAN": "/atlas/higgs/Role=NULL/Capability=NULL;/atlas/Role=pilot"}, ("atlas", "/atlas/higgs", None)),
        ({"FQAN": "vo.access.egi.eu"}, ("vo.access.egi.eu", None, None)),
        ({"FQAN": "/"}, (None, "/", None)),
        ({"VO": "cms"}, ("cms", "/atlas", "Role=production")),
    ],
)
def test_an_fqan_gives_vo_group_and_role_where_the_record_does_not(
    names: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    [job] = read(text(INDIVIDUAL, {**JOB, **names}))

    assert (job.get("vo"), job.get("vo_group"), job.get("vo_role")) == expected


@pytest.mark.parametrize("first", ["APEL-summary-job-message: v0.3", "APEL-normalised-summary-message: v0.4"])
def test_a_normalised_summary_brings_its_values_along(first: str) -> None:
    normalised = {**SUMMARY, "ServiceLevelType": None, "ServiceLevel": None, "Infrastructure": "grid"}
    plain = {**normalised, "NormalisedWallDuration": "10000", "NormalisedCpuDuration": "9000"}
    maps = {**normalised, "NormalisedWallDuration": "{hepspec: 1, HEPscore23: 2}"}

    assert len(read(text(first, plain))) == 1
    assert reason(first, {**maps, "NormalisedCpuDuration": "5"}).endswith("name other benchmarks")
    assert reason(first, {**plain, "ServiceLevel": "10"}) == "record 1: unknown key 'ServiceLevel'"


KEYS = st.sampled_from([*JOB, "Nonsense"])
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20)


@given(st.dictionaries(KEYS, TEXTS, max_size=8))
def test_whatever_a_job_says_it_is_a_record_or_set_aside(change: dict[str, str]) -> None:
    for found in read(text(INDIVIDUAL, {**JOB, **change})):
        assert isinstance(found, Broken) or found["kind"] == "job"


@given(st.text(max_size=300))
def test_whatever_follows_a_first_line_is_records_or_set_aside(rest: str) -> None:
    for found in read(f"{CLOUD}\n{rest}"):
        assert isinstance(found, Broken)
