from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.jobs.accounting import values


@given(st.integers(0, values.LARGEST))
def test_a_whole_number_is_read_from_text_as_from_json(number: int) -> None:
    assert values.whole(str(number)) == values.whole(number) == number


REFUSED: dict[values.Read, list[object]] = {
    values.whole: ["1_000", "1.5", "１２", "", " 1", "0x10", "-1", "-1.0", True, 1.5, None, [], str(10**30), 10**30],
    values.number: ["nan", "inf", "1e", "1e999", "1e99", ".5", "1_0.5", True, float("nan"), {}, 10**400],
    values.text: ["x" * 256, "a\0b", 3, None],
    values.duration: [str(values.LONGEST_DURATION + 1)],
    values.iso_duration: ["P1M", "P", "PT", "6704", "PT-5S", "P1Y"],
    values.moment: ["yesterday", "9999-12-31T23:59:59-12:00", "1969-12-31T23:59:59Z", str(values.LAST_SECOND + 1)],
    values.levels: ["{}", "{hepspec}", "{hepspec: 1, HEPSPEC: 2}", "{hepspec: 1", "{a: 1,}", "{a: -1}"],
}


@pytest.mark.parametrize(
    ("read", "value"),
    [pytest.param(read, each, id=f"{read.__name__} {each!r:.30}") for read in REFUSED for each in REFUSED[read]],
)
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
    "written",
    ["1709634030", 1709634030, "2024-03-05T10:20:30Z", "2024-03-05T11:20:30+01:00", "2024-03-05T10:20:30"],
)
def test_times_are_utc_however_they_are_written(written: object) -> None:
    assert values.moment(written) == datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)


def test_zero_is_no_time_where_a_machine_still_runs() -> None:
    assert [values.moment_or_none(each) for each in ("0", 0, "0.0")] == [None] * 3


@pytest.mark.parametrize("text", ["{hepspec: 11.4, HEPscore23: 15.3}", '{"hepspec": 11.4, "HEPscore23": 15.2997}'])
def test_levels_of_a_map_stand_in_the_order_of_their_names_with_three_digits(text: str) -> None:
    assert values.levels(text) == [
        {"benchmark": "hepscore23", "level": Decimal("15.300")},
        {"benchmark": "hepspec", "level": Decimal("11.400")},
    ]


def test_a_plain_normalised_value_is_of_hepspec() -> None:
    assert values.amounts("3600") == {"hepspec": 3600}
    assert values.amounts("{hepspec: 10.5, HEPscore23: 7}") == {"hepscore23": 7, "hepspec": 11}


@pytest.mark.parametrize(("year", "number"), [(1969, 1), (2024, 0), (2024, 13), (10000, 1)])
def test_what_is_no_month_is_refused(year: int, number: int) -> None:
    with pytest.raises(ValueError, match="not a month"):
        values.month(year, number)
