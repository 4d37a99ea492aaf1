"""Counters on the real engines: in every case the days of a topic sum up to its messages."""

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.clock import DAY, day_text
from ams.core.errors import NotFound, RegistryUnavailable
from ams.core.messages import message
from ams.core.supervisor import Supervisor
from ams.service.tallies import MIN_NOTES_KEPT, Counting, Counts, shares
from ams.storage.log.base import Totals
from ams.storage.log.embedded import LogOptions
from ams.storage.registry.counts import Rate, Tally
from ams.storage.registry.records import Topic
from tests.service.interference import fail_calls, interrupt_call
from tests.storage.log.engines import Embedded, new_topic, texts
from tests.support.clock import ManualClock
from tests.support.use_cases import TOPIC, UseCases, open_use_cases

NOON = 20_000 * DAY + DAY // 2
DAY_0 = "2024-10-04"


@pytest.fixture
def use_cases(use_cases: UseCases) -> UseCases:
    use_cases.engines.clock.now = NOON
    return use_cases


@pytest.fixture
def counting(use_cases: UseCases) -> Counting:
    return use_cases.engines.counting


async def topic_of(use_cases: UseCases) -> Topic:
    return await use_cases.publisher.topic(use_cases.caller, TOPIC)


async def count_days(use_cases: UseCases) -> dict[str, int]:
    return (await use_cases.engines.counting.topic(await topic_of(use_cases)))[1]


async def project_days(use_cases: UseCases) -> dict[str, int]:
    return await use_cases.engines.counting.project_days(use_cases.caller.here.id)


async def stored_days(use_cases: UseCases) -> Mapping[str, int]:
    return (await use_cases.engines.registry.tallies.topic((await topic_of(use_cases)).id, 30))[1]


def restart_counting(use_cases: UseCases) -> Counting:
    """Return the counting of a killed service: its unstored counts are lost."""
    use_cases.engines.counts.take()
    use_cases.engines.counts.pulled.clear()
    return use_cases.engines.counting


async def test_a_topic_whose_log_was_lost_counts_what_the_new_one_has(use_cases: UseCases) -> None:
    await use_cases.publish(5)
    await use_cases.engines.counting.round()
    topic = await topic_of(use_cases)
    await use_cases.engines.log.drop(topic.id)
    await use_cases.engines.log.create(topic.id)
    await use_cases.publish(2)

    await restart_counting(use_cases).catch_up()

    assert await count_days(use_cases) == {DAY_0: 2}
    assert sum((await project_days(use_cases)).values()) == 7


async def test_a_publish_that_was_given_up_is_counted_when_its_messages_are_stored(use_cases: UseCases) -> None:
    topic = await topic_of(use_cases)
    publishing = asyncio.ensure_future(use_cases.publisher.publish(topic, [message("aGk=")]))
    await asyncio.sleep(0)
    publishing.cancel()
    await asyncio.wait({publishing})
    await use_cases.engines.log.wait(topic.id, 0, 5)

    await use_cases.engines.counting.round()

    assert (await count_days(use_cases), await project_days(use_cases)) == ({DAY_0: 1}, {DAY_0: 1})


async def test_a_round_that_fails_leaves_everything_to_the_next(use_cases: UseCases, counting: Counting) -> None:
    topic, subscription = await topic_of(use_cases), await use_cases.subscription()

    async def publish_and_pull() -> None:
        await use_cases.publisher.publish(topic, [message("aGk=")])
        await use_cases.deliverer().pull(subscription, 1, wait=False)

    await publish_and_pull()
    with (
        fail_calls(use_cases.engines.registry.tallies, "store", RegistryUnavailable),
        pytest.raises(RegistryUnavailable),
    ):
        await counting.round()
    assert await counting.subscription(subscription.id) == Tally(1, 4, Rate(1, NOON))
    use_cases.engines.clock.advance(10)
    await publish_and_pull()
    await counting.round()

    assert await stored_days(use_cases) == {DAY_0: 2}
    assert await counting.subscription(subscription.id) == Tally(2, 8, Rate(1, NOON + 10, NOON))
    assert (await counting.topic(topic))[0].rate.last == NOON + 10


async def test_a_delete_that_fails_counts_nothing_twice_and_leaves_the_topic(use_cases: UseCases, counting: Counting):
    await use_cases.publish(2)

    with (
        fail_calls(use_cases.engines.registry.topics, "delete", RegistryUnavailable),
        pytest.raises(RegistryUnavailable),
    ):
        await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
    await use_cases.publish(1)
    await counting.round()

    assert await count_days(use_cases) == await project_days(use_cases) == {DAY_0: 3}


async def test_every_message_that_was_answered_is_counted_however_often_its_topic_goes(use_cases: UseCases) -> None:
    """Topics are deleted and recreated under load: a project's days add up to the messages acknowledged to
    publishers."""
    stop, answered = asyncio.Event(), 0

    async def publish(number: int) -> None:
        nonlocal answered
        while not stop.is_set():
            try:
                topic = await topic_of(use_cases)
                key = str(uuid4()) if number % 2 else None
                appended = await use_cases.publisher.publish(topic, [message("aGk=")] * (number + 1), key=key)
            except NotFound:
                await asyncio.sleep(0)
            else:
                answered += appended.count

    publishers = [asyncio.ensure_future(publish(number)) for number in range(6)]
    for turn in range(40):
        for _ in range(turn % 7):
            await asyncio.sleep(0.001)
        if turn % 5 == 0:
            await use_cases.engines.counting.round()
        await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
        await use_cases.engines.topics.create(use_cases.caller, TOPIC)
    stop.set()
    await asyncio.gather(*publishers)

    assert answered > 0
    assert sum((await project_days(use_cases)).values()) == answered
    await use_cases.engines.counting.round()
    assert sum((await project_days(use_cases)).values()) == use_cases.engines.counting.counts.messages == answered


async def test_an_answer_given_again_for_its_key_is_no_publish(use_cases: UseCases) -> None:
    topic = await topic_of(use_cases)
    await use_cases.publisher.publish(topic, [message("aGk=")] * 7, key="k")
    use_cases.engines.clock.advance(1_000)
    await use_cases.publish(2)

    await use_cases.publisher.publish(topic, [message("aGk=")] * 7, key="k")

    assert (await use_cases.engines.counting.topic(topic))[0].rate == Rate(2, NOON + 1_000, NOON)
    await use_cases.engines.counting.round()
    await use_cases.publisher.publish(topic, [message("aGk=")] * 7, key="k")
    assert (await use_cases.engines.counting.topic(topic))[0].rate == Rate(2, NOON + 1_000, NOON)


@pytest.mark.parametrize("rounds", [False, True], ids=["noted", "stored"])
async def test_rates_are_made_of_the_last_two_requests_and_pulls_count_repeats(use_cases: UseCases, rounds: bool):
    engines, topic, subscription = use_cases.engines, await topic_of(use_cases), await use_cases.subscription()
    for messages, wanted in (([message("aGk=")], 1), ([message("aGVsbG8=", {"k": "v"})] * 2, 2), ([], 2)):
        engines.clock.advance(500)
        if messages:
            await use_cases.publisher.publish(topic, messages)
        await use_cases.deliverer().pull(subscription, wanted, wait=False)
        if rounds:
            await engines.counting.round()

    assert (await engines.counting.topic(topic))[0].rate == Rate(2, NOON + 1_000, NOON + 500)
    assert await engines.counting.subscription(subscription.id) == Tally(
        5, 4 + 12 + 12, Rate(2, NOON + 1_500, NOON + 1_000)
    )


async def test_two_nodes_at_once_count_everything_exactly_once(use_cases: UseCases, counting: Counting) -> None:
    """The second node counts after the first has prepared its update, and before it stores it."""
    engines = use_cases.engines
    await use_cases.publish(3)

    async def count_elsewhere() -> None:
        other = Counts(engines.clock)
        other.note_attempt(await topic_of(use_cases))
        await Counting(engines.registry, engines.log, other).round()
        await use_cases.publish(2)  # on the other node: it leaves no note here
        engines.counts.published.clear()

    with interrupt_call(engines.registry.tallies, "store", count_elsewhere):
        await counting.round()
    assert (await stored_days(use_cases), counting.counts.messages) == ({DAY_0: 3}, 0)
    await counting.round()

    assert (await stored_days(use_cases), counting.counts.messages) == ({DAY_0: 5}, 2)
    assert await project_days(use_cases) == {DAY_0: 5}


async def test_a_topic_that_goes_while_another_node_counts_it_is_not_counted_twice(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    async with use_cases.engines.counting.last_days(await topic_of(use_cases)) as last:
        await Counting(use_cases.engines.registry, use_cases.engines.log, Counts()).catch_up()
        await use_cases.engines.registry.topics.delete(await topic_of(use_cases), last)

    assert await project_days(use_cases) == {DAY_0: 3}


async def test_closing_stores_what_is_noted(use_cases: UseCases) -> None:
    counting = Counting(use_cases.engines.registry, use_cases.engines.log, use_cases.engines.counts)
    await counting.rounds.start(Supervisor())
    await use_cases.publish(2)

    await counting.rounds.close()

    assert await stored_days(use_cases) == {DAY_0: 2}


STEPS = st.lists(st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 5)),
    st.tuples(st.just("pass"), st.sampled_from([1, DAY // 3, DAY, 5 * DAY])),
    st.tuples(st.just("set"), st.sampled_from([-DAY, -DAY // 3, 2 * DAY])),
    st.tuples(st.sampled_from(["round", "crash", "retain", "recreate"]), st.just(0)),
), max_size=14)  # fmt: skip


@given(STEPS)
@settings(max_examples=12, deadline=None)
def test_the_days_of_a_topic_always_sum_up_to_its_messages(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_walk(Path(folder), steps))


async def _walk(folder: Path, steps: list[tuple[str, int]]) -> None:
    options = LogOptions(min_free_bytes=0, reserve_bytes=0, retention=2 * DAY, check_interval_ms=DAY)
    async with open_use_cases(folder, options) as use_cases:
        published = 0
        for step, number in steps:
            if step == "publish":
                await use_cases.publish(number)
                published += number
            elif step == "pass":
                use_cases.engines.clock.advance(number)
            elif step == "set":
                use_cases.engines.clock.step(number)
            elif step == "round":
                await use_cases.engines.counting.round()
            elif step == "crash":
                await restart_counting(use_cases).catch_up()
            elif step == "retain":
                await use_cases.engines.log.retain()
            else:
                await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
                await use_cases.engines.topics.create(use_cases.caller, TOPIC)
            await _check(use_cases, published)


async def _check(use_cases: UseCases, published: int) -> None:
    topic = await topic_of(use_cases)
    tally, by_day = await use_cases.engines.counting.topic(topic)
    totals = await use_cases.engines.log.totals(topic.id)

    assert sum(by_day.values()) == tally.messages == totals.messages
    assert tally.bytes == totals.bytes
    assert sum((await project_days(use_cases)).values()) == published


async def test_what_is_gone_is_forgotten_before_it_is_too_much(use_cases: UseCases) -> None:
    counts, counting = use_cases.engines.counts, use_cases.engines.counting
    there = (await use_cases.subscription()).id
    counts.note_pull(there)
    counts.note_acknowledgement(there)
    for number in range(MIN_NOTES_KEPT):
        counts.note_pull(f"gone {number}")
        counts.note_acknowledgement(f"gone {number}")
        counting.counts.by_topic["P", f"gone {number}"] = 1
    counting.counts.by_topic["P", TOPIC] = 1

    await counting.round()

    assert list(counts.pulled) == list(counts.acknowledged_at) == [there]
    assert counting.counts.by_topic == {("P", TOPIC): 1}


def pass_until(clock: ManualClock, moment: int) -> None:
    """Move the clock to a moment; one in the past is a step back."""
    clock.ticks += max(moment - clock.now, 0)
    clock.now = moment


MIDNIGHT = 20_000 * DAY
THREE_DAYS = [(0, 3), (DAY, 1), (2 * DAY, 2)]


@pytest.mark.parametrize(("published", "now", "counted", "since", "told"), [
    ([], 0, 0, 0, []), (THREE_DAYS, 2 * DAY, 6, 0, []), (THREE_DAYS, 2 * DAY, 0, 0, [(0, 3), (1, 1), (2, 2)]),
    (THREE_DAYS, 2 * DAY, 2, 0, [(0, 1), (1, 1), (2, 2)]), (THREE_DAYS, 2 * DAY, 4, 0, [(2, 2)]),
    ([(0, 1), (DAY - 1, 1), (DAY, 1)], DAY, 0, 0, [(0, 2), (1, 1)]),
    ([(0, 3), (2 * DAY, 1), (5 * DAY, 2), (6 * DAY, 4)], 6 * DAY, 1, 0, [(0, 3), (5, 2), (6, 4)]),
    ([(0, 3), (2 * DAY, 1)], 9 * DAY, 0, 0, [(0, 4)]), ([(2 * DAY, 1), (0, 1)], 0, 0, 4 * DAY, [(2, 2)]),
], ids=[
    "nothing", "nothing new", "all of three days", "from within the first day", "the last day alone",
    "the first and the last millisecond are of a day", "what retention took is of the earliest day it can be of",
    "also when it took everything", "after a clock that was set back the days are those of the log",
])  # fmt: skip
async def test_shares_are_of_the_days_of_publish_times_and_their_bytes_sum_up(
    published: list[tuple[int, int]], now: int, counted: int, since: int, told: list[tuple[int, int]]
) -> None:
    engine = Embedded(options={"retention": 3 * DAY})
    engine.clock.now = MIDNIGHT
    async with engine.open_log() as log:
        topic = await new_topic(log)
        sent = [(moment, "a" * (number + 1)) for number, (moment, count) in enumerate(published) for _ in range(count)]
        for moment, data in sent:
            pass_until(engine.clock, MIDNIGHT + moment)
            await log.append(topic, texts(data))
        pass_until(engine.clock, MIDNIGHT + now)
        await log.retain()
        before = Totals(counted, sum(len(data) for _, data in sent[:counted]), MIDNIGHT + since)

        found = await shares(log, topic, before, await log.totals(topic))

    assert [(each.day, each.messages) for each in found] == [(day_text(20_000 + day), count) for day, count in told]
    assert sum(each.bytes for each in found) == sum(len(data) for _, data in sent[counted:])
