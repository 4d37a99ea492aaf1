"""Backoff after a failure, dead letters, and sizes of deliveries (push contract 9, 11, 15)."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.push_config import EXPONENTIAL, HTTP_ENDPOINT, LINEAR, MAX_MESSAGES, SLOWSTART, PushConfig
from ams.push import retry
from tests.push.keepers import make_pulled

POLICIES = st.builds(retry.Policy, st.sampled_from([LINEAR, SLOWSTART, EXPONENTIAL, "other"]), st.integers(1, 10**9))
RANDOM_SHARES = st.floats(0, 1, exclude_max=True)
OUTCOMES = st.lists(st.booleans(), max_size=80)
DAY = 24 * 3_600_000
SUCCESS, FAILURE = [True], [False]


def state_after(policy: retry.Policy, outcomes: Iterable[bool]) -> retry.FailureHistory:
    state = retry.FailureHistory()
    for ok in outcomes:
        state = (
            retry.after_success(policy, state)
            if ok
            else retry.next_backoff(policy, state, retry_after=None, random=0.5)[0]
        )
    return state


@pytest.mark.parametrize(("outcomes", "delays"), [
    (SUCCESS * 4, [1000, 500, 300, 300, 300]),
    (SUCCESS * 3 + FAILURE * 2 + SUCCESS * 2, [1000, 500, 300, 300, 600, 1200, 1000, 500]),
    (FAILURE * 3, [1000, 2000, 4000, 8000]), (FAILURE * 20, [65_536_000, DAY, DAY, DAY, DAY]),
    (SUCCESS * 3 + FAILURE * 19, [78_643_200, DAY]), (FAILURE * 17 + SUCCESS + FAILURE, [1000, 2000]),
], ids=["down", "down and up", "up", "up to a day", "a day from its floor", "P5: anew after a success"])  # fmt: skip
def test_slowstart_goes_as_the_contract_tabulates(outcomes: list[bool], delays: list[int]) -> None:
    found = [state_after(retry.Policy(SLOWSTART, 0), outcomes[:count]).last for count in range(len(outcomes) + 1)]

    assert found[-len(delays) :] == delays


@pytest.mark.parametrize(("policy", "failures", "delays"), [
    (retry.Policy(LINEAR, 25_000), (1, 2, 3, 4), [25_000, 50_000, 60_000, 60_000]),
    (retry.Policy(LINEAR, 90_000), (1, 7), [90_000, 90_000]),
    (
        retry.Policy(EXPONENTIAL, 1000),
        (1, 2, 3, 12, 13, 10**6),
        [1000, 2000, 4000, 2_048_000, 3_600_000, 3_600_000],
    ),
], ids=["P14: by its period up to a minute", "a period above a minute is kept", "double up to an hour"])  # fmt: skip
def test_delays_grow_with_failures(policy: retry.Policy, failures: tuple[int, ...], delays: list[int]) -> None:
    assert [retry.longest_delay(policy, retry.FailureHistory(count)) for count in failures] == delays


@pytest.mark.parametrize(("policy", "delays"), [
    (LINEAR, [850, 1000, 1149]), (EXPONENTIAL, [0, 500, 999]),
], ids=["P14: fifteen percent up or down", "anywhere below the bound"])  # fmt: skip
def test_delays_that_are_waited_differ_by_chance(policy: str, delays: list[int]) -> None:
    waits = [
        retry.next_backoff(retry.Policy(policy, 1000), retry.FailureHistory(), retry_after=None, random=each)[1]
        for each in (0, 0.5, 0.9999)
    ]

    assert waits == delays


@given(POLICIES, OUTCOMES, RANDOM_SHARES)
def test_a_delay_is_near_its_policy_below_its_cap(policy: retry.Policy, outcomes: list[bool], random: float) -> None:
    state, delay = retry.next_backoff(policy, state_after(policy, outcomes), retry_after=None, random=random)

    most = {SLOWSTART: retry.SLOWSTART_MOST, EXPONENTIAL: retry.EXPONENTIAL_MOST}
    assert 0 < retry.longest_delay(policy, state) <= most.get(policy.type, max(policy.period, retry.LINEAR_MOST))
    assert 0 <= delay <= retry.longest_delay(policy, state) * (1 + retry.JITTER)
    assert policy.type == EXPONENTIAL or delay >= int(retry.longest_delay(policy, state) * (1 - retry.JITTER))


@given(POLICIES, OUTCOMES, st.floats(-10, 10**9), RANDOM_SHARES)
def test_p17_a_retry_waits_as_asked(policy: retry.Policy, outcomes: list[bool], seconds: float, random: float) -> None:
    before = state_after(policy, outcomes)
    without = retry.next_backoff(policy, before, retry_after=None, random=random)
    state, delay = retry.next_backoff(policy, before, retry_after=seconds, random=random)

    assert delay >= max(without[1], int(1000 * min(seconds, retry.RETRY_AFTER_MOST)))
    assert delay <= max(without[1], 1000 * min(max(seconds, 0), retry.RETRY_AFTER_MOST) * (1 + retry.JITTER))
    assert state == without[0]


@pytest.mark.parametrize("policy", [LINEAR, EXPONENTIAL, SLOWSTART])
def test_a_period_of_zero_is_the_usual_one_and_one_that_no_push_server_could_be_told_is_cut(policy: str) -> None:
    for period, told in ((0, retry.DEFAULT_PERIOD), (5, 5), (2**63 - 1, retry.MAX_PERIOD_MS)):
        assert retry.policy_of(PushConfig(HTTP_ENDPOINT, retry_policy=policy, retry_period=period)) == retry.Policy(
            policy, told
        )
    assert retry.MAX_PERIOD_MS < 2**33


# Dead letters, and the refusals before

MOST_REFUSALS = 4


def refusals(most: int = MOST_REFUSALS) -> retry.Refusals:
    return retry.Refusals(PushConfig(HTTP_ENDPOINT, dead_letter_topic="dead", max_delivery_attempts=most))


def note_refusal(counted: retry.Refusals, *offsets: int, times: int = 1) -> int:
    return [counted.note_refusal([make_pulled(each) for each in offsets], 422) for _ in range(times)][-1]


@given(st.integers(1, 20))
def test_a_message_alone_is_put_aside_at_the_configured_refusal(most: int) -> None:
    counted = refusals(most)

    assert [note_refusal(counted, 7) for _ in range(most)] == [0] * (most - 1) + [most]


def test_refusals_in_company_count_until_a_message_passed_or_the_one_to_blame_is_found() -> None:
    counted = refusals()
    note_refusal(counted, 1, 2, times=MOST_REFUSALS)
    assert note_refusal(counted, 1) == MOST_REFUSALS + 1

    counted.forget_up_to(make_pulled(1))
    assert note_refusal(counted, 1) == 0
    assert note_refusal(counted, 2) == MOST_REFUSALS + 1
    counted.dead_lettered()
    assert note_refusal(counted, 2) == 0


def test_refusals_of_a_message_before_those_that_come_now_are_forgotten() -> None:
    counted = refusals()
    note_refusal(counted, 1, times=MOST_REFUSALS - 1)
    note_refusal(counted, 2)

    assert note_refusal(counted, 1, times=MOST_REFUSALS - 1) == 0
    assert note_refusal(counted, 1) == MOST_REFUSALS


# Messages in one delivery

MESSAGE_LIMITS = st.integers(1, MAX_MESSAGES)


def test_it_begins_with_a_hundred_or_all_that_is_allowed_and_failures_halve_it_down_to_one() -> None:
    assert [retry.first_batch(most) for most in (1, 99, 100, 10_000)] == [1, 99, retry.FIRST_BATCH, retry.FIRST_BATCH]
    assert retry.batch_after(1, 1, messages=1, seconds=0.1, limit=30) == 1
    assert [retry.half_batch(messages) for messages in (100, 50, 25, 3, 2, 1)] == [50, 25, 12, 1, 1, 1]


@pytest.mark.parametrize(("batch", "messages", "seconds", "limit", "following"), [
    (100, 100, 0.1, 30, 200), (300, 300, 0.1, 30, 500), (100, 99, 0.1, 30, 100), (100, 100, 5.1, 30, 50),
    (100, 100, 3.1, 9, 50), (100, 8, 5.1, 30, 4),
], ids=[
    "doubled when full and fast", "up to what is allowed", "not full: that tells nothing", "more than five seconds",
    "more than a third of its time", "half of what was sent, not of what could have been",
])  # fmt: skip
def test_a_delivery_sizes_the_next_one(batch: int, messages: int, seconds: float, limit: float, following: int) -> None:
    assert retry.batch_after(batch, 500, messages=messages, seconds=seconds, limit=limit) == following


@given(MESSAGE_LIMITS, st.lists(st.tuples(st.booleans(), st.integers(1, MAX_MESSAGES), st.floats(0, 60)), max_size=60))
def test_it_stays_within_one_and_what_is_allowed(most: int, outcomes: list[tuple[bool, int, float]]) -> None:
    batch = retry.first_batch(most)
    for ok, size, seconds in outcomes:
        messages = min(batch, size)
        batch = (
            retry.batch_after(batch, most, messages=messages, seconds=seconds, limit=30)
            if ok
            else retry.half_batch(messages)
        )
        assert 1 <= batch <= most


def test_p2_a_service_that_does_not_answer_is_asked_after_1_to_60_seconds_by_chance() -> None:
    pauses = [[retry.UNREACHED.pause(failures, chance) for failures in range(8)] for chance in (0.0, 1.0)]
    assert pauses == [[1] * 8, [1, 2, 4, 8, 16, 32, 60, 60]]
