import doctest
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

import ams.clock
from ams.clock import ManualClock, Milliseconds, SystemClock, publish_time


def test_the_examples_of_the_module_hold() -> None:
    assert doctest.testmod(ams.clock).failed == 0


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
