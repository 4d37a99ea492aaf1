"""How long to wait after a failure (push contract 9, 15)."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.push_config import DEFAULT_PERIOD, EXPONENTIAL, HTTP_ENDPOINT, LINEAR, SLOWSTART, PushConfig
from ams.push.retry import (
    EXPONENTIAL_MOST,
    JITTER,
    LINEAR_MOST,
    RETRY_AFTER_MOST,
    SLOWSTART_LEAST,
    SLOWSTART_MOST,
    History,
    Policy,
    failed,
    longest,
    policy_of,
    succeeded,
)

POLICIES = st.builds(Policy, st.sampled_from([LINEAR, SLOWSTART, EXPONENTIAL, "other"]), st.integers(1, 10**9))
RANDOM = st.floats(0, 1, exclude_max=True)
OUTCOMES = st.lists(st.booleans(), max_size=80)
DAY = 24 * 3_600_000


def after(policy: Policy, outcomes: Iterable[bool]) -> History:
    state = History()
    for ok in outcomes:
        state = succeeded(policy, state) if ok else failed(policy, state, retry_after=None, random=0.5)[0]
    return state


def slowstart(outcomes: Iterable[bool]) -> list[int]:
    given = list(outcomes)
    return [after(Policy(SLOWSTART, 0), given[:count]).last for count in range(len(given) + 1)]


@pytest.mark.parametrize(
    ("outcomes", "delays"),
    [
        ([True] * 4, [1000, 500, 300, 300, 300]),
        ([True] * 3 + [False] * 2 + [True] * 2, [1000, 500, 300, 300, 600, 1200, 1000, 500]),
        ([False] * 3, [1000, 2000, 4000, 8000]),
    ],
)
def test_slowstart_goes_as_the_contract_tabulates(outcomes: list[bool], delays: list[int]) -> None:
    assert slowstart(outcomes) == delays


def test_slowstart_doubles_up_to_a_day() -> None:
    delays = slowstart([False] * 20)

    assert delays[16:] == [65_536_000, DAY, DAY, DAY, DAY]


def test_slowstart_takes_nineteen_failures_from_its_floor_to_a_day() -> None:
    delays = slowstart([True] * 3 + [False] * 19)

    assert delays[-2] < DAY
    assert delays[-1] == DAY


def test_slowstart_forgets_its_failures_when_a_pull_is_empty() -> None:
    """P5: what is told to `succeeded` is a delivery or an empty pull; neither lets the delay go on doubling."""
    state = after(Policy(SLOWSTART, 0), [False] * 17 + [True])

    assert failed(Policy(SLOWSTART, 0), state, retry_after=None, random=0.5)[1] == 2000


@given(POLICIES, OUTCOMES, RANDOM)
def test_a_delay_is_near_its_policy_and_never_negative(policy: Policy, outcomes: list[bool], random: float) -> None:
    state, delay = failed(policy, after(policy, outcomes), retry_after=None, random=random)

    assert 0 <= delay <= longest(policy, state) * (1 + JITTER)
    assert policy.type == EXPONENTIAL or delay >= int(longest(policy, state) * (1 - JITTER))


@given(POLICIES, OUTCOMES)
def test_no_delay_is_above_the_cap_of_its_policy(policy: Policy, outcomes: list[bool]) -> None:
    state = after(policy, [*outcomes, False])

    most = {SLOWSTART: SLOWSTART_MOST, EXPONENTIAL: EXPONENTIAL_MOST}
    assert 0 < longest(policy, state) <= most.get(policy.type, max(policy.period, LINEAR_MOST))


@given(POLICIES, OUTCOMES)
def test_a_success_ends_the_row_of_failures(policy: Policy, outcomes: list[bool]) -> None:
    state = after(policy, [*outcomes, True])

    assert state.failures == 0
    assert state.last >= SLOWSTART_LEAST
    assert state.last <= 1000


@given(st.integers(1, 10**6), st.integers(1, 200))
def test_a_linear_delay_never_gets_shorter_by_another_failure(period: int, failures: int) -> None:
    linear = Policy(LINEAR, period)
    delays = [longest(linear, History(count)) for count in range(1, failures + 1)]

    assert delays == sorted(delays)
    assert delays[0] == period


def test_a_linear_delay_grows_by_its_period_up_to_a_minute() -> None:
    """P14."""
    delays = [longest(Policy(LINEAR, 25_000), History(count)) for count in (1, 2, 3, 4)]

    assert delays == [25_000, 50_000, 60_000, 60_000]


def test_a_linear_period_above_a_minute_is_kept() -> None:
    assert longest(Policy(LINEAR, 90_000), History(7)) == 90_000


@pytest.mark.parametrize("policy", [LINEAR, EXPONENTIAL])
@given(st.integers(2**32, 2**63 - 1), st.floats(0, 1, exclude_max=True))
def test_a_period_that_no_push_server_could_be_told_is_cut(policy: str, period: int, random: float) -> None:
    config = PushConfig(HTTP_ENDPOINT, retry_policy=policy, retry_period=period)

    _, delay = failed(policy_of(config), History(), retry_after=None, random=random)
    assert delay < 2**33


def test_an_exponential_delay_is_anywhere_below_a_bound_that_doubles_up_to_an_hour() -> None:
    exponential = Policy(EXPONENTIAL, 1000)

    assert [longest(exponential, History(count)) for count in (1, 2, 3, 12, 13, 10**6)] == [
        1000, 2000, 4000, 2_048_000, 3_600_000, 3_600_000,
    ]  # fmt: skip
    assert failed(exponential, History(), retry_after=None, random=0.0)[1] == 0
    assert failed(exponential, History(), retry_after=None, random=0.999)[1] == 999


def test_delays_that_are_waited_differ_by_chance() -> None:
    """P14: fifteen percent up or down."""
    delays = [failed(Policy(LINEAR, 1000), History(), retry_after=None, random=each)[1] for each in (0, 0.5, 0.9999)]

    assert delays == [850, 1000, 1149]


@given(POLICIES, OUTCOMES, st.floats(0, 10**9), RANDOM)
def test_what_an_endpoint_asks_for_is_waited_at_least_up_to_an_hour(
    policy: Policy, outcomes: list[bool], seconds: float, random: float
) -> None:
    """P17."""
    before = after(policy, outcomes)
    without = failed(policy, before, retry_after=None, random=random)
    state, delay = failed(policy, before, retry_after=seconds, random=random)

    assert delay >= int(1000 * min(seconds, RETRY_AFTER_MOST))
    assert delay <= max(without[1], 1000 * RETRY_AFTER_MOST * (1 + JITTER))
    assert state == without[0]


@given(st.floats(-10, 0))
def test_what_an_endpoint_asks_for_cannot_shorten_a_delay(seconds: float) -> None:
    assert failed(Policy(LINEAR, 1000), History(), retry_after=seconds, random=0.5)[1] == 1000


@pytest.mark.parametrize("type_", [LINEAR, EXPONENTIAL, SLOWSTART])
def test_a_configuration_without_a_period_has_the_usual_one(type_: str) -> None:
    assert policy_of(PushConfig(HTTP_ENDPOINT, retry_policy=type_, retry_period=0)) == Policy(type_, DEFAULT_PERIOD)
    assert policy_of(PushConfig(HTTP_ENDPOINT, retry_policy=type_, retry_period=5)) == Policy(type_, 5)
