import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.client import Retry
from ams.client.errors import AckTimeout, Overloaded, Unavailable, Unreachable, Untrusted
from ams.client.plans import may_send_again, seconds_asked

seconds = st.floats(0, 1000)
policies = st.builds(
    Retry, attempts=st.none() | st.integers(1, 10), total=seconds, first=st.floats(0, 10), longest=st.floats(0, 20)
)


def test_the_bound_of_a_wait_doubles_up_to_the_longest() -> None:
    retry = Retry(first=1, longest=5, total=1000, attempts=None)

    assert [retry.pause(sent, 0, 0, chance=1) for sent in range(1, 6)] == [1, 2, 4, 5, 5]


def test_a_wait_is_drawn_from_nothing_to_its_bound() -> None:
    assert [Retry(first=2).pause(1, 0, 0, chance) for chance in (0, 0.25, 1)] == [0, 0.5, 2]


def test_the_service_is_left_alone_as_long_as_it_asks() -> None:
    assert Retry(first=1).pause(1, 0, asked=3, chance=0.5) == 3.5


def test_a_call_is_sent_so_many_times_at_most() -> None:
    retry = Retry(attempts=3)

    assert [retry.pause(sent, 0, 0, 0) is None for sent in (1, 2, 3)] == [False, False, True]


def test_no_sending_begins_after_the_total() -> None:
    retry = Retry(total=10, first=4, attempts=None)

    assert retry.pause(1, 6, 0, chance=1) == 4
    assert retry.pause(1, 6.1, 0, chance=1) is None
    assert retry.pause(1, 0, asked=11, chance=0) is None


@given(policies, st.integers(1, 10_000), seconds, seconds, st.floats(0, 1))
def test_a_pause_stays_within_what_the_policy_allows(
    retry: Retry, sent: int, elapsed: float, asked: float, chance: float
) -> None:
    pause = retry.pause(sent, elapsed, asked, chance)

    if pause is not None:
        assert asked <= pause <= asked + retry.longest
        assert elapsed + pause <= retry.total
        assert retry.attempts is None or sent < retry.attempts


@pytest.mark.parametrize("values", [{"attempts": 0}, {"total": -1.0}, {"first": -0.1}, {"longest": -1.0}])
def test_a_policy_that_cannot_be_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Retry(**values)  # type: ignore[arg-type]  # one value of each kind


def test_what_may_have_been_carried_out_is_repeated_only_if_that_does_no_harm() -> None:
    for error in (Unreachable("cut"), Unavailable("500", 500), Overloaded("503", 503)):
        assert may_send_again(error, repeatable=True)
        assert not may_send_again(error, repeatable=False)


def test_what_was_never_sent_may_always_be_sent() -> None:
    assert may_send_again(Unreachable("refused", sent=False), repeatable=False)


def test_what_will_not_pass_by_itself_is_not_repeated() -> None:
    assert not may_send_again(AckTimeout("ack timeout", 408), repeatable=True)
    assert not may_send_again(Untrusted("unknown CA", sent=False), repeatable=True)


@pytest.mark.parametrize(
    ("header", "asked"), [("", 0), ("7", 7), ("-1", 0), ("٣", 0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0)]
)
def test_seconds_are_read_from_the_header(header: str, asked: float) -> None:
    assert seconds_asked(Overloaded("busy", 503, "", header)) == asked
    assert seconds_asked(Unreachable("away")) == 0
