"""How many messages go into one delivery."""

from hypothesis import given
from hypothesis import strategies as st

from ams.core.push_config import MAX_MESSAGES
from ams.push.retry import FIRST, batch_after, first_batch, halved

MOST = st.integers(1, MAX_MESSAGES)


def test_it_begins_with_a_hundred_or_with_all_that_is_allowed() -> None:
    assert [first_batch(most) for most in (1, 99, 100, 10_000)] == [1, 99, FIRST, FIRST]


def test_full_and_fast_deliveries_double_it_up_to_what_is_allowed() -> None:
    batch, seen = 100, []
    for _ in range(4):
        batch = batch_after(batch, 500, messages=batch, seconds=0.1, limit=30)
        seen.append(batch)

    assert seen == [200, 400, 500, 500]


def test_a_delivery_that_was_not_full_tells_nothing_about_more() -> None:
    assert batch_after(100, 500, messages=99, seconds=0.1, limit=30) == 100


def test_an_answer_after_more_than_five_seconds_halves_it() -> None:
    assert batch_after(100, 500, messages=100, seconds=5.1, limit=30) == 50


def test_an_answer_after_more_than_a_third_of_its_time_halves_it() -> None:
    assert batch_after(100, 500, messages=100, seconds=3.1, limit=9) == 50


def test_what_is_halved_is_what_was_sent_not_what_could_have_been() -> None:
    assert batch_after(100, 500, messages=8, seconds=5.1, limit=30) == 4


def test_failures_halve_it_down_to_one() -> None:
    batch, seen = 100, []
    for _ in range(8):
        batch = halved(batch)
        seen.append(batch)

    assert seen == [50, 25, 12, 6, 3, 1, 1, 1]


@given(MOST, st.lists(st.tuples(st.booleans(), st.integers(1, MAX_MESSAGES), st.floats(0, 60)), max_size=60))
def test_it_stays_within_one_and_what_is_allowed(most: int, outcomes: list[tuple[bool, int, float]]) -> None:
    batch = first_batch(most)
    for ok, messages, seconds in outcomes:
        batch = (
            batch_after(batch, most, messages=min(batch, messages), seconds=seconds, limit=30)
            if ok
            else halved(min(batch, messages))
        )
        assert 1 <= batch <= most
