"""When endpoints that do not answer are asked."""

from hypothesis import given
from hypothesis import strategies as st

from ams.push.circuit import (
    BACKOFF,
    CLOSED,
    FAILURES,
    HALF_OPEN,
    JITTER,
    OPEN,
    PROBE_SECONDS,
    Circuit,
    allows,
    begins,
    failed,
    name,
    succeeded,
    wait,
)

RANDOM = st.floats(0, 1, exclude_max=True)
STEPS = st.lists(
    st.tuples(st.sampled_from(["begins", "succeeded", "failed", "nothing"]), st.floats(0, 100), RANDOM), max_size=60
)


def opened(now: float = 0.0, random: float = 0.5) -> Circuit:
    state = Circuit()
    for _ in range(FAILURES):
        state = failed(state, now, random)
    return state


def test_it_opens_after_five_failures_in_a_row_and_not_before() -> None:
    state = Circuit()
    for _ in range(FAILURES - 1):
        state = failed(state, 0, 0.5)

    assert name(state, 0) == CLOSED
    assert name(failed(state, 0, 0.5), 0) == OPEN
    assert succeeded(state) == Circuit()


def test_an_open_one_lets_nothing_through_until_its_time_has_come() -> None:
    state = opened()

    assert not allows(state, 0.99)
    assert wait(state, 0.25) == 0.75
    assert allows(state, 1.0)
    assert wait(state, 1.0) == 0


def test_a_half_open_one_lets_one_request_through_and_another_when_nothing_is_heard_of_it() -> None:
    state = begins(opened(), 1.0)

    assert name(state, 1.0) == HALF_OPEN
    assert not allows(state, 1.0)
    assert 0 < wait(state, 1.0) <= 1
    assert wait(state, 0.5 + PROBE_SECONDS) == 0.5
    assert not allows(state, PROBE_SECONDS)
    assert allows(state, 1.0 + PROBE_SECONDS)
    assert succeeded(state) == Circuit()


def test_failures_of_requests_that_were_on_their_way_when_it_opened_change_nothing() -> None:
    state = opened()

    assert failed(state, 0.5, 0.5) == state


def test_a_closed_one_takes_no_note_of_requests() -> None:
    assert begins(Circuit(), 5.0) == Circuit()


@given(STEPS)
def test_it_is_never_open_for_more_than_a_minute_and_its_jitter(steps: list[tuple[str, float, float]]) -> None:
    state, now = Circuit(), 0.0
    for what, span, random in steps:
        now += span
        if what == "begins" and allows(state, now):
            state = begins(state, now)
        elif what == "succeeded":
            state = succeeded(state)
        elif what == "failed":
            state = failed(state, now, random)

        assert 0 <= wait(state, now) <= BACKOFF.most * (1 + JITTER)
        assert (wait(state, now) == 0) == allows(state, now)
        assert allows(state, now) or name(state, now) != CLOSED
        assert allows(state, now + BACKOFF.most * 2)


def test_endpoints_that_failed_together_are_asked_at_different_times() -> None:
    assert [round(opened(random=each).until, 3) for each in (0.0, 0.25, 0.5, 0.75, 1.0)] == [
        0.85, 0.925, 1.0, 1.075, 1.15,
    ]  # fmt: skip


def test_each_opening_is_twice_as_long_as_the_one_before_up_to_a_minute() -> None:
    state, now, spans = opened(), 0.0, []
    for _ in range(9):
        spans.append(wait(state, now))
        now += spans[-1]
        state = failed(begins(state, now), now, 0.5)

    assert spans == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_an_endpoint_that_is_away_for_years_is_still_asked_every_minute() -> None:
    state = Circuit(0, 10**9, 0.0)

    assert wait(failed(state, 1.0, 0.5), 1.0) == BACKOFF.most
