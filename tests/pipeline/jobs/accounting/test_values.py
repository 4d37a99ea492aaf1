from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.jobs.accounting import values


@given(st.integers(0, values.LARGEST))
def test_a_whole_number_is_read_from_text_as_from_json(number: int) -> None:
    assert values.whole(str(number)) == values.whole(number) == number


@pytest.mark.parametrize(
    "value", ["1_000", "1.0", "１２", "", " 1", "0x10", "-1", True, 1.0, None, [], str(10**30), 10**30]
)
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        values.whole(value)


@pytest.mark.parametrize("value", ["nan", "inf", "1e", "1e999", "1e99", ".5", "1_0.5", True, float("nan"), {}, 10**400])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        values.number(value)


@pytest.mark.parametrize("value", ["x" * 256, "a\0b", 3, None])
def test_what_is_no_name_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        values.text(value)


def test_a_duration_longer_than_can_be_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than can be"):
        values.duration(str(values.LONGEST_DURATION + 1))


@pytest.mark.parametrize(
    ("text", "seconds"), [("PT6704S", 6704), ("PT1H2M3S", 3723), ("P1DT1S", 86401), ("PT0S", 0), ("PT1.7S", 1)]
)
def test_iso_durations_are_read_in_seconds(text: str, seconds: int) -> None:
    assert values.iso_duration(text) == seconds


@pytest.mark.parametrize("text", ["P1M", "P", "PT", "6704", "PT-5S", "P1Y"])
def test_durations_nobody_knows_the_length_of_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        values.iso_duration(text)


def test_times_are_utc_however_they_are_written() -> None:
    expected = datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)

    assert values.any_moment("1709634030") == values.any_moment(1709634030) == expected
    assert values.any_moment("2024-03-05T10:20:30Z") == expected
    assert values.any_moment("2024-03-05T11:20:30+01:00") == expected
    assert values.any_moment("2024-03-05T10:20:30") == expected


@pytest.mark.parametrize(
    "value", ["yesterday", "9999-12-31T23:59:59-12:00", "1969-12-31T23:59:59Z", str(values.LAST_SECOND + 1)]
)
def test_times_beyond_the_calendar_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        values.any_moment(value)


def test_zero_is_no_time_where_a_machine_still_runs() -> None:
    assert values.moment_or_none("0") is None
    assert values.moment_or_none(0) is None


def test_levels_of_a_map_stand_in_the_order_of_their_names() -> None:
    expected = [
        {"benchmark": "hepscore23", "level": Decimal("15.300")},
        {"benchmark": "hepspec", "level": Decimal("11.400")},
    ]

    assert values.levels("{hepspec: 11.4, HEPscore23: 15.3}") == expected
    assert values.levels('{"hepspec": 11.4, "HEPscore23": 15.3}') == expected


@pytest.mark.parametrize("text", ["{}", "{hepspec}", "{hepspec: 1, HEPSPEC: 2}", "{hepspec: 1", "{a: 1,}", "{a: -1}"])
def test_maps_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        values.levels(text)


def test_a_plain_normalised_value_is_of_hepspec() -> None:
    assert values.amounts("3600") == {"hepspec": 3600}
    assert values.amounts("{hepspec: 10.5, HEPscore23: 7}") == {"hepscore23": 7, "hepspec": 11}


def test_levels_have_three_digits_behind_the_point() -> None:
    assert values.level("11.4567") == Decimal("11.457")


@pytest.mark.parametrize(("year", "number"), [(1969, 1), (2024, 0), (2024, 13), (10000, 1)])
def test_what_is_no_month_is_refused(year: int, number: int) -> None:
    with pytest.raises(ValueError, match="not a month"):
        values.month(year, number)


def test_reasons_show_little_of_a_value() -> None:
    with pytest.raises(ValueError) as failed:
        values.whole("x" * 1000)

    assert len(str(failed.value)) < 100
