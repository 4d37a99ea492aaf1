from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.clock import Milliseconds, publish_time
from ams.core.errors import InvalidInput
from ams.http.routes.subscriptions import zulu_time

MOMENTS = st.integers(0, 4_102_444_800_000).map(Milliseconds)


@given(MOMENTS)
def test_11_4_a_publish_time_reads_as_itself(moment: Milliseconds) -> None:
    assert zulu_time(publish_time(moment)) == moment


@given(MOMENTS, st.integers(0, 9))
def test_11_4_a_blank_for_the_t_and_up_to_nine_digits(moment: Milliseconds, digits: int) -> None:
    seconds, milliseconds = divmod(moment, 1000)
    fraction = f"{milliseconds:03d}000000"[:digits]
    text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}{'.' + fraction if digits else ''}Z"

    assert zulu_time(text) == seconds * 1000 + int(fraction.ljust(3, "0")[:3])


def test_11_4_what_is_finer_than_a_millisecond_is_rounded_up() -> None:
    assert zulu_time("1970-01-01T00:00:00.000000001Z") == 1
    assert zulu_time("1970-01-01T00:00:00.999999999Z") == 1000
    assert zulu_time("1969-12-31T23:59:59.999Z") == -1


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "2024-01-02", "2024-01-02T03:04Z", "2024-01-02T03:04:05.678", "2024-01-02T03:04:05.Z",
        "2024-01-02T03:04:05.1234567890Z", "2024-01-02t03:04:05Z", "2024-01-02T03:04:05z", "2024-02-30T00:00:00Z",
        "2024-01-02T24:00:01Z", "2024-01-02T03:04:60Z", "0000-01-01T00:00:00Z", "2024-01-02T03:04:05.678+00:00",
        " 2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z\n", "٢٠٢٤-01-02T03:04:05Z", "12024-01-02T03:04:05Z",
    ],
)  # fmt: skip
def test_11_4_everything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^Time is not in valid Zulu format\.$"):
        zulu_time(text)


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))
def test_any_day_of_the_calendar_can_be_asked_for(moment: datetime) -> None:
    expected = (moment.replace(tzinfo=UTC, microsecond=0) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        milliseconds=1
    )

    assert zulu_time(f"{moment.replace(microsecond=0).isoformat()}Z") == expected
