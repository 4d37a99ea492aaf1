import doctest
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ams.core.clock
from ams.core.clock import ManualClock, Milliseconds, RetentionClock, SystemClock, publish_time, span_text


def test_the_examples_of_the_module_hold() -> None:
    assert doctest.testmod(ams.core.clock).failed == 0


@given(st.integers(0, 4_000_000_000_000))
def test_a_publish_time_names_its_millisecond_without_trailing_zeros(moment: int) -> None:
    text = publish_time(Milliseconds(moment))

    assert round(datetime.fromisoformat(text).timestamp() * 1000) == moment
    assert not text.removesuffix("Z").rpartition(".")[2].endswith("0") or "." not in text


def test_the_clock_of_the_machine_is_in_milliseconds() -> None:
    assert 1_700_000_000_000 < SystemClock().wall() < 10_000_000_000_000


def test_a_stepped_clock_lets_no_time_pass() -> None:
    clock = ManualClock()
    before = clock.monotonic()
    clock.step(-3_600_000)

    assert clock.monotonic() == before


HOUR = 3_600_000


@pytest.mark.parametrize(
    ("step", "followed"),
    [(-90 * 24 * HOUR, True), (HOUR, True), (HOUR + 1, False), (8 * 24 * HOUR, False)],
    ids=["back", "an hour ahead", "more than an hour ahead", "eight days ahead"],
)
def test_retention_follows_a_step_ahead_only_when_it_has_lasted_a_day(step: int, followed: bool) -> None:
    clock = ManualClock()
    retention = RetentionClock(clock)
    clock.advance(5 * HOUR)
    before = retention.wall()
    assert before == clock.wall()
    clock.step(step)
    assert retention.wall() == (clock.wall() if followed else before)
    assert retention.leap == (0 if followed else step)
    clock.advance(24 * HOUR - 1)
    assert retention.wall() == (clock.wall() if followed else before + 24 * HOUR - 1)
    clock.advance(1)
    assert retention.wall() == clock.wall()
    assert retention.leap == 0


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(0, "0s"), (59_900, "59.9s"), (60_000, "1m"), (5_400_000, "1.5h"), (259_200_000, "3d")]
)
def test_spans_are_written_in_their_largest_unit(milliseconds: int, text: str) -> None:
    assert span_text(Milliseconds(milliseconds)) == text
