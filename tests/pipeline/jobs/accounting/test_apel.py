from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting.reader import records
from tests.pipeline.jobs.accounting.texts import CLOUD, INDIVIDUAL, JOB, NOW, SUMMARY, SYNC, VM, text

LEVELS = [{"benchmark": "hepspec", "level": Decimal("11.400")}]


def read(message: str) -> list[Any]:
    return list(records(message.encode(), NOW))


def reason(first: str, record: dict[str, str | None]) -> str:
    [found] = read(text(first, record))
    assert isinstance(found, Broken)
    return str(found)


def test_a_job_is_read_with_all_it_says() -> None:
    [job] = read(text(INDIVIDUAL, JOB))

    assert job == {
        "kind": "job",
        "month": "2024-03",
        "site": "SITE-A",
        "submit_host": "ce01.site-a.example:9619/htcondor",
        "machine": "wn001",
        "queue": "grid",
        "job_id": "1001",
        "local_user": "atlas001",
        "user": "/DC=org/DC=example/CN=Robot 17",
        "fqan": "/atlas/Role=production/Capability=NULL",
        "vo": "atlas",
        "vo_group": "/atlas",
        "vo_role": "Role=production",
        "wall": 3600,
        "cpu": 3000,
        "processors": 1,
        "node_count": 1,
        "start_time": datetime(2024, 3, 5, 9, 13, 20, tzinfo=UTC),
        "end_time": datetime(2024, 3, 5, 10, 20, tzinfo=UTC),
        "infrastructure": "APEL-HTCONDOR",
        "infrastructure_type": "grid",
        "memory_real": 1000,
        "levels": LEVELS,
    }


@pytest.mark.parametrize("nothing", ["NULL", "None", "", "   "])
def test_what_stands_for_no_value_is_none(nothing: str) -> None:
    [job] = read(text(INDIVIDUAL, {**JOB, "Queue": nothing}))

    assert "queue" not in job


def test_a_map_of_levels_is_read_in_newer_texts() -> None:
    newer = {**JOB, "ServiceLevelType": None, "ServiceLevel": "{hepspec: 11.4, HEPscore23: 15.3}"}

    [job] = read(text("APEL-individual-job-message: v0.4", newer))

    assert job["levels"] == [{"benchmark": "hepscore23", "level": Decimal("15.300")}, *LEVELS]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"Colour": "red"}, "record 1: unknown key 'Colour'"),
        ({"site": "SITE-A"}, "record 1: unknown key 'site'"),
        ({"Site": "NULL"}, "record 1: Site is missing"),
        ({"EndTime": None}, "record 1: EndTime is missing"),
        ({"WallDuration": "-1"}, "record 1: WallDuration is negative: '-1'"),
        ({"WallDuration": "long"}, "record 1: WallDuration is not a whole number: 'long'"),
        ({"EndTime": "1709620000"}, "record 1: EndTime is before StartTime"),
        ({"EndTime": "1712188800"}, "record 1: EndTime is more than two days ahead"),
        ({"ServiceLevel": None}, "record 1: ServiceLevel and ServiceLevelType go together"),
        ({"ServiceLevelType": "NULL"}, "record 1: ServiceLevel and ServiceLevelType go together"),
        ({"ServiceLevel": "fast"}, "record 1: ServiceLevel is not a number: 'fast'"),
        ({"ServiceLevel": "0"}, "record 1: ServiceLevel is not a service level: '0'"),
    ],
)
def test_a_job_that_breaks_a_rule_is_set_aside_with_the_rule(change: dict[str, str | None], expected: str) -> None:
    assert reason(INDIVIDUAL, {**JOB, **change}) == expected


def test_an_end_two_days_ahead_of_our_clock_is_taken() -> None:
    [job] = read(text(INDIVIDUAL, {**JOB, "EndTime": str(int(NOW.timestamp()) + 2 * 86400)}))

    assert job["month"] == "2024-04"


def test_one_bad_record_leaves_the_others_of_its_message() -> None:
    first, bad, last = read(text(INDIVIDUAL, JOB, {**JOB, "EndTime": "never"}, {**JOB, "LocalJobId": "1003"}))

    assert (first["job_id"], last["job_id"]) == ("1001", "1003")
    assert str(bad) == "record 2: EndTime is not a whole number: 'never'"


def test_the_last_record_may_lack_its_end() -> None:
    assert len(read(text(INDIVIDUAL, JOB, JOB).removesuffix("%%\n"))) == 2


def test_line_ends_of_any_kind_are_read() -> None:
    assert read(text(INDIVIDUAL, JOB).replace("\n", "\r\n")) == read(text(INDIVIDUAL, JOB))


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
    ("fqan", "expected"),
    [
        ("/atlas/Role=production/Capability=NULL", ("atlas", "/atlas", "Role=production")),
        ("/atlas/higgs/Role=NULL/Capability=NULL;/atlas/Role=pilot", ("atlas", "/atlas/higgs", None)),
        ("vo.access.egi.eu", ("vo.access.egi.eu", None, None)),
        ("/", (None, "/", None)),
    ],
)
def test_an_fqan_gives_vo_group_and_role(fqan: str, expected: tuple[str | None, ...]) -> None:
    [job] = read(text(INDIVIDUAL, {**JOB, "FQAN": fqan}))

    assert (job.get("vo"), job.get("vo_group"), job.get("vo_role")) == expected


def test_what_a_record_says_itself_goes_before_its_fqan() -> None:
    [job] = read(text(INDIVIDUAL, {**JOB, "VO": "cms"}))

    assert (job["vo"], job["vo_role"]) == ("cms", "Role=production")


def test_a_sync_message_tells_a_number_of_a_month() -> None:
    assert read(text("APEL-sync-message: v0.1", SYNC)) == [
        {
            "kind": "sync",
            "month": "2024-03",
            "site": "SITE-A",
            "submit_host": "ce01.site-a.example:9619/htcondor",
            "jobs": 7,
        }
    ]


def test_a_month_that_has_not_begun_is_refused() -> None:
    assert "in the future" in reason("APEL-sync-message: v0.1", {**SYNC, "Month": "5"})
    assert "not a month" in reason("APEL-sync-message: v0.1", {**SYNC, "Month": "13"})


def test_a_summary_says_its_month_and_level() -> None:
    [found] = read(text("APEL-summary-job-message: v0.2", SUMMARY))

    assert (found["kind"], found["month"], found["jobs"]) == ("job_summary", "2024-03", 5)
    assert found["levels"] == [{"benchmark": "hepspec", "level": Decimal("10.000")}]


def test_times_of_a_summary_lie_in_its_month() -> None:
    assert reason("APEL-summary-job-message: v0.2", {**SUMMARY, "Month": "2"}).endswith("is not inside the month")


@pytest.mark.parametrize("first", ["APEL-summary-job-message: v0.3", "APEL-normalised-summary-message: v0.4"])
def test_a_normalised_summary_brings_its_values_along(first: str) -> None:
    normalised = {**SUMMARY, "ServiceLevelType": None, "ServiceLevel": None, "Infrastructure": "grid"}
    plain = {**normalised, "NormalisedWallDuration": "10000", "NormalisedCpuDuration": "9000"}
    maps = {**normalised, "NormalisedWallDuration": "{hepspec: 1, HEPscore23: 2}"}

    [found] = read(text(first, plain))

    assert found["normalised"] == [{"benchmark": "hepspec", "wall": 10000, "cpu": 9000}]
    assert found["infrastructure_type"] == "grid"
    assert reason(first, {**maps, "NormalisedCpuDuration": "5"}).endswith("name other benchmarks")
    assert reason(first, {**plain, "ServiceLevel": "10"}) == "record 1: unknown key 'ServiceLevel'"


def test_a_machine_that_runs_is_of_the_month_its_record_was_made_in() -> None:
    [machine] = read(text(CLOUD, VM))

    assert (machine["kind"], machine["month"], machine["vo"]) == ("vm", "2024-03", "vo.access.egi.eu")
    assert machine["measured"] == machine["created"] == datetime(2024, 3, 5, 10, 20, tzinfo=UTC)
    assert machine["end_time"] is None


def test_a_completed_machine_is_of_the_month_it_ended_in() -> None:
    ended = {**VM, "Status": "completed", "StartTime": "1706000000", "EndTime": "1706100000"}

    [machine] = read(text(CLOUD, ended))

    assert machine["month"] == "2024-01"


def test_a_machine_without_times_of_its_record_is_of_its_start_and_durations() -> None:
    without = {**VM, "RecordCreateTime": None, "StartTime": "1706700000", "SuspendDuration": "100000"}

    [machine] = read(text(CLOUD, without))

    assert machine["month"] == "2024-02"
    assert "which month" in reason(CLOUD, {**without, "StartTime": None})


@pytest.mark.parametrize("seconds", ["1000000000000", "253402300799"])
def test_durations_beyond_the_calendar_break_a_record_and_nothing_else(seconds: str) -> None:
    assert reason(CLOUD, {**VM, "RecordCreateTime": None, "WallDuration": seconds}).startswith("record 1: ")


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
