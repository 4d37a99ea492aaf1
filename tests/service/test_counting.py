"""Counters, on the real engines: whatever happens, the days of a topic sum up to its messages."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.clock import DAY, ManualClock, Milliseconds, day_of, day_text
from ams.core.errors import NotFound, RegistryUnavailable
from ams.core.messages import message
from ams.core.names import Offset, ProjectId, SubscriptionId, TopicId, TopicName
from ams.core.supervisor import Supervisor
from ams.service.counting import FEWEST, Counting, Counts, Pulls, shares
from ams.storage.log.base import Appended, Totals
from ams.storage.log.embedded import EmbeddedLog, LogOptions
from ams.storage.registry.counts import Advance, DayCount, Rate, Tally
from ams.storage.registry.records import Subscription, Topic
from tests.storage.log.engines import Embedded, new_topic, texts
from tests.support.use_cases import SUB, TOPIC, UseCases, open_use_cases

NOON = 20_000 * DAY + DAY // 2
DAY_0, DAY_1, DAY_2 = "2024-10-04", "2024-10-05", "2024-10-06"


@pytest.fixture
def use_cases(use_cases: UseCases) -> UseCases:
    use_cases.engines.clock.now = NOON
    return use_cases


async def topic_of(use_cases: UseCases) -> Topic:
    return await use_cases.publisher.topic(use_cases.caller, TOPIC)


async def days(use_cases: UseCases) -> dict[str, int]:
    return (await use_cases.engines.counting.topic(await topic_of(use_cases)))[1]


async def project_days(use_cases: UseCases) -> dict[str, int]:
    return await use_cases.engines.counting.project_days(use_cases.caller.here.id)


async def stored_days(use_cases: UseCases) -> Mapping[str, int]:
    return (await use_cases.engines.registry.tallies.topic((await topic_of(use_cases)).id, 30))[1]


def restarted(use_cases: UseCases) -> Counting:
    """Return the counting of a service that was killed: its notes are gone."""
    use_cases.engines.counts.take_published()
    use_cases.engines.counts.pulled.clear()
    return use_cases.engines.counting


async def test_a_topic_nobody_published_to_has_nothing(use_cases: UseCases) -> None:
    tally, by_day = await use_cases.engines.counting.topic(await topic_of(use_cases))

    assert (tally, by_day) == (Tally(), {})
    assert await project_days(use_cases) == {}


async def test_what_was_published_is_told_at_once_and_the_same_after_a_round(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    told = await use_cases.engines.counting.topic(await topic_of(use_cases)), await project_days(use_cases)

    await use_cases.engines.counting.round()

    assert (await use_cases.engines.counting.topic(await topic_of(use_cases)), await project_days(use_cases)) == told
    assert told == ((Tally(3, 0, Rate(3, NOON)), {DAY_0: 3}), {DAY_0: 3})


async def test_asking_stores_nothing(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    await days(use_cases)
    await project_days(use_cases)

    assert await use_cases.engines.registry.tallies.project_days(use_cases.caller.here.id, 30) == {}


async def test_messages_go_to_their_days_newest_first(use_cases: UseCases) -> None:
    for count in (1, 2, 3):
        await use_cases.publish(count)
        use_cases.engines.clock.advance(DAY)
    await use_cases.engines.counting.round()

    assert list((await days(use_cases)).items()) == [(DAY_2, 3), (DAY_1, 2), (DAY_0, 1)]
    assert await project_days(use_cases) == await days(use_cases)


async def test_only_the_newest_thirty_days_with_messages_are_told(use_cases: UseCases) -> None:
    for _ in range(32):
        await use_cases.publish(1)
        await use_cases.engines.counting.round()
        use_cases.engines.clock.advance(2 * DAY)
    await use_cases.publish(1)

    told = await days(use_cases)

    assert len(told) == 30
    assert max(told) == "2024-12-07"
    assert min(told) == "2024-10-10"


async def test_what_a_crash_left_uncounted_is_found_in_the_log(use_cases: UseCases) -> None:
    await use_cases.publish(2)
    await use_cases.engines.counting.round()
    await use_cases.publish(1)
    use_cases.engines.clock.advance(DAY)
    await use_cases.publish(4)

    counting = restarted(use_cases)
    await counting.catch_up()

    assert await stored_days(use_cases) == {DAY_0: 3, DAY_1: 4}
    assert (await counting.topic(await topic_of(use_cases)))[0].messages == 7


async def test_catching_up_twice_counts_nothing_twice(use_cases: UseCases) -> None:
    await use_cases.publish(2)
    counting = restarted(use_cases)
    await counting.catch_up()
    await counting.catch_up()

    assert await days(use_cases) == {DAY_0: 2}


async def test_a_topic_whose_log_was_lost_counts_what_the_new_one_has(use_cases: UseCases) -> None:
    await use_cases.publish(5)
    await use_cases.engines.counting.round()
    topic = await topic_of(use_cases)
    await use_cases.engines.log.drop(topic.id)
    await use_cases.engines.log.create(topic.id)
    await use_cases.publish(2)

    await restarted(use_cases).catch_up()

    assert await days(use_cases) == {DAY_0: 2}
    assert sum((await project_days(use_cases)).values()) == 7


async def test_a_publish_that_was_given_up_is_counted_when_its_messages_are_stored(use_cases: UseCases) -> None:
    topic = await topic_of(use_cases)
    publishing = asyncio.ensure_future(use_cases.publisher.publish(topic, [message("aGk=")]))
    await asyncio.sleep(0)
    publishing.cancel()
    await asyncio.wait({publishing})
    await use_cases.engines.log.wait(topic.id, 0, 5)

    await use_cases.engines.counting.round()

    assert await days(use_cases) == {DAY_0: 1}
    assert await project_days(use_cases) == {DAY_0: 1}


async def test_a_round_that_fails_leaves_everything_to_the_next(
    use_cases: UseCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use_cases.publish(2)
    await use_cases.deliverer().pull(await subscription_of(use_cases), 2, wait=False)

    async def failing(*_: object) -> None:
        raise RegistryUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(use_cases.engines.registry.tallies, "store", failing)
        with pytest.raises(RegistryUnavailable):
            await use_cases.engines.counting.round()
    await use_cases.engines.counting.round()

    assert await stored_days(use_cases) == {DAY_0: 2}
    assert (await use_cases.engines.counting.subscription((await subscription_of(use_cases)).id)).messages == 2


async def test_a_deleted_topic_leaves_its_project_what_it_counted(use_cases: UseCases) -> None:
    await use_cases.publish(2)
    await use_cases.engines.counting.round()
    await use_cases.publish(1)

    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
    await use_cases.engines.counting.round()

    assert await project_days(use_cases) == {DAY_0: 3}


async def test_a_delete_that_fails_counts_nothing_twice_and_leaves_the_topic(
    use_cases: UseCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use_cases.publish(2)

    async def failing(*_: object) -> None:
        raise RegistryUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(use_cases.engines.registry.topics, "delete", failing)
        with pytest.raises(RegistryUnavailable):
            await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
    await use_cases.publish(1)
    await use_cases.engines.counting.round()

    assert await days(use_cases) == await project_days(use_cases) == {DAY_0: 3}


async def test_every_message_that_was_answered_is_counted_however_often_its_topic_goes(use_cases: UseCases) -> None:
    """Topics are deleted and made again under load: a project's days are the messages its publishers were told of."""
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
    assert sum((await project_days(use_cases)).values()) == use_cases.engines.counting.figures.messages == answered


async def test_u13_a_topic_created_again_counts_from_nothing(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
    await use_cases.engines.topics.create(use_cases.caller, TOPIC)
    await use_cases.publish(1)

    assert await days(use_cases) == {DAY_0: 1}
    assert await project_days(use_cases) == {DAY_0: 4}


async def test_a_deleted_project_takes_its_counters_with_it(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    await use_cases.engines.projects.delete(use_cases.caller)

    await use_cases.engines.counting.round()

    assert await project_days(use_cases) == {}


async def test_a_topic_that_is_gone_is_told_as_such(use_cases: UseCases) -> None:
    topic = await topic_of(use_cases)
    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)

    with pytest.raises(NotFound, match=r"^Topic doesn't exist$"):
        await use_cases.engines.counting.topic(topic)


@pytest.mark.parametrize("rounds", [False, True], ids=["noted", "stored"])
async def test_a_rate_is_made_of_the_last_two_publishes(use_cases: UseCases, rounds: bool) -> None:
    for count in (3, 5):
        use_cases.engines.clock.advance(2_000)
        await use_cases.publish(count)
        if rounds:
            await use_cases.engines.counting.round()

    tally, _ = await use_cases.engines.counting.topic(await topic_of(use_cases))

    assert tally.rate == Rate(5, NOON + 4_000, NOON + 2_000)


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


async def subscription_of(use_cases: UseCases) -> Subscription:
    return await use_cases.deliverer().to_pull(use_cases.caller, SUB)


@pytest.mark.parametrize("rounds", [False, True], ids=["noted", "stored"])
async def test_pulls_count_what_they_hand_out_repeats_included(use_cases: UseCases, rounds: bool) -> None:
    topic, subscription = await topic_of(use_cases), await subscription_of(use_cases)
    await use_cases.publisher.publish(topic, [message("aGk="), message("aGVsbG8=", {"k": "v"})])
    for wanted in (1, 2, 2):
        use_cases.engines.clock.advance(500)
        await use_cases.deliverer().pull(subscription, wanted, wait=False)
        if rounds:
            await use_cases.engines.counting.round()

    told = await use_cases.engines.counting.subscription(subscription.id)

    assert told == Tally(5, 4 + 12 + 12, Rate(2, NOON + 1_500, NOON + 1_000))


async def test_a_pull_that_finds_nothing_is_a_pull_but_nothing_to_store(use_cases: UseCases) -> None:
    subscription = await subscription_of(use_cases)
    await use_cases.deliverer().pull(subscription, 1, wait=False)

    await use_cases.engines.counting.round()

    assert (await use_cases.engines.counting.subscription(subscription.id)).rate == Rate(0, NOON)
    assert await use_cases.engines.registry.tallies.pulled(subscription.id) == Tally()


async def test_a_subscription_that_went_meanwhile_is_left_out(use_cases: UseCases) -> None:
    await use_cases.publish(2)
    await use_cases.deliverer().pull(await subscription_of(use_cases), 2, wait=False)
    await use_cases.engines.subscriptions.delete(use_cases.caller, SUB)

    await use_cases.engines.counting.round()

    assert await stored_days(use_cases) == {DAY_0: 2}


async def counted_by_another(use_cases: UseCases, counting: Counting) -> None:
    """Let another node count after `counting` worked out what to store, and before it stores that."""
    advances = counting._advances

    async def worked_out(*given: Any) -> list[Advance]:
        found = await advances(*given)
        other = Counts(use_cases.engines.clock)
        other.note_attempt(await topic_of(use_cases))
        await Counting(use_cases.engines.registry, use_cases.engines.log, other).round()
        await use_cases.publish(2)  # on the other node: it leaves no note here
        use_cases.engines.counts.published.clear()
        counting._advances = advances  # type: ignore[method-assign] # as it was
        return found

    counting._advances = worked_out  # type: ignore[method-assign] # one that is slow


async def test_what_two_nodes_counted_at_the_same_time_is_counted_once_and_nothing_is_missed(
    use_cases: UseCases,
) -> None:
    counting = use_cases.engines.counting
    await use_cases.publish(3)
    await counted_by_another(use_cases, counting)

    await counting.round()
    assert (await stored_days(use_cases), counting.figures.messages) == ({DAY_0: 3}, 0)
    await counting.round()

    assert (await stored_days(use_cases), counting.figures.messages) == ({DAY_0: 5}, 2)
    assert await project_days(use_cases) == {DAY_0: 5}


async def test_a_topic_that_goes_while_another_node_counts_it_is_not_counted_twice(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    async with use_cases.engines.counting.last_days(await topic_of(use_cases)) as last:
        await Counting(use_cases.engines.registry, use_cases.engines.log, Counts()).catch_up()
        await use_cases.engines.registry.topics.delete(await topic_of(use_cases), last)

    assert await project_days(use_cases) == {DAY_0: 3}


async def test_figures_since_the_start_are_what_rounds_stored(use_cases: UseCases) -> None:
    counting = Counting(use_cases.engines.registry, use_cases.engines.log, use_cases.engines.counts, by_topic=True)
    await use_cases.publish(3)
    await use_cases.deliverer().pull(await subscription_of(use_cases), 2, wait=False)

    await counting.round()

    figures = counting.figures
    assert (figures.messages, figures.bytes, figures.delivered) == (3, 0, 2)
    assert figures.by_topic == {("P", "t"): 3}


async def test_closing_stores_what_is_noted(use_cases: UseCases) -> None:
    counting = Counting(use_cases.engines.registry, use_cases.engines.log, use_cases.engines.counts)
    await counting.rounds.start(Supervisor())
    await use_cases.publish(2)

    await counting.rounds.close()

    assert await stored_days(use_cases) == {DAY_0: 2}


async def test_messages_of_a_window_are_told_by_project(use_cases: UseCases) -> None:
    await use_cases.publish(1)
    use_cases.engines.clock.advance(DAY)
    await use_cases.publish(2)
    await use_cases.engines.counting.round()
    await use_cases.publish(4)
    use_cases.engines.clock.advance(DAY)
    await use_cases.publish(8)

    assert await messages(use_cases, date(2024, 10, 5), date(2024, 10, 5)) == 6
    assert await messages(use_cases, date(2024, 10, 4), date(2024, 10, 6)) == 15
    assert await messages(use_cases, date(2023, 1, 1), date(2024, 10, 3)) == 0


async def messages(use_cases: UseCases, first: date, last: date) -> int:
    return (await use_cases.engines.counting.activity(first, last))[use_cases.caller.here.id].messages


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 5)),
        st.tuples(st.just("pass"), st.sampled_from([1, DAY // 3, DAY, 5 * DAY])),
        st.tuples(st.just("set"), st.sampled_from([-DAY, -DAY // 3, 2 * DAY])),
        st.tuples(st.sampled_from(["round", "crash", "retain", "recreate"]), st.just(0)),
    ),
    max_size=14,
)


@given(STEPS)
@settings(max_examples=12, deadline=None)
def test_the_days_of_a_topic_always_sum_up_to_its_messages(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_walk(Path(folder), steps))


async def _walk(folder: Path, steps: list[tuple[str, int]]) -> None:
    options = LogOptions(min_free_bytes=0, reserve_bytes=0, retention=2 * DAY, check_interval_ms=DAY)  # type: ignore[arg-type]  # plain numbers
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
                await restarted(use_cases).catch_up()
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
    there = (await subscription_of(use_cases)).id
    counts.note_pull(there)
    counts.note_acknowledgement(there)
    for number in range(FEWEST):
        counts.note_pull(SubscriptionId(f"gone {number}"))
        counts.note_acknowledgement(SubscriptionId(f"gone {number}"))
        counting.figures.by_topic["P", f"gone {number}"] = 1
    counting.figures.by_topic["P", TOPIC] = 1

    await counting.round()

    assert list(counts.pulled) == list(counts.acknowledged) == [there]
    assert counting.figures.by_topic == {("P", TOPIC): 1}


async def test_a_deleted_topic_is_no_figure_any_more(use_cases: UseCases) -> None:
    counting = use_cases.engines.counting
    counting.figures.by_topic.update({("P", TOPIC): 1, ("P", "other"): 2})

    async with counting.last_days(await topic_of(use_cases)):
        pass

    assert counting.figures.by_topic == {("P", "other"): 2}


NOW = Milliseconds(1_000)
NOTED = Topic(TopicId(bytes(16)), ProjectId("p"), TopicName("t"), None, None, NOW)
NOTED_SUB = SubscriptionId("s")


def appended(first: int, time: int = 0) -> Appended:
    return Appended(Offset(first), 1, Milliseconds(time))


def test_the_last_two_publishes_of_a_topic_are_kept() -> None:
    counts = Counts()
    for first in range(3):
        counts.note_publish(NOTED, appended(first))

    assert counts.take_published() == {NOTED.id: ("p", appended(2), appended(1))}
    assert counts.take_published() == {}


def test_a_publish_that_is_not_newer_changes_nothing() -> None:
    counts = Counts()
    for first in (5, 0, 5):
        counts.note_publish(NOTED, appended(first))

    assert counts.take_published() == {NOTED.id: ("p", appended(5), None)}


def test_an_attempt_keeps_what_is_known() -> None:
    counts = Counts()
    counts.note_attempt(NOTED)
    assert counts.published == {NOTED.id: ("p", None, None)}

    counts.note_publish(NOTED, appended(0))
    counts.note_attempt(NOTED)
    assert counts.published == {NOTED.id: ("p", appended(0), None)}


def test_notes_given_back_come_before_newer_ones() -> None:
    clock = ManualClock(now=NOW)
    counts = Counts(clock)
    counts.note_publish(NOTED, appended(0))
    counts.note_pull(NOTED_SUB, 2, 8)
    published, pulled = counts.take_published(), counts.take_pulled()
    clock.advance(10)
    counts.note_publish(NOTED, appended(1))
    counts.note_pull(NOTED_SUB, 1, 4)

    counts.give_back(published, pulled)

    assert counts.published == {NOTED.id: ("p", appended(1), None)}
    assert counts.pulled == {NOTED_SUB: Pulls(3, 12, 1, Milliseconds(NOW + 10), NOW)}


def test_notes_given_back_are_there_again_when_nothing_came_since() -> None:
    counts = Counts(ManualClock(now=NOW))
    counts.note_pull(NOTED_SUB, 1, 4)
    taken = counts.take_pulled()
    expected = Pulls(1, 4, 1, NOW, None)
    assert taken == {NOTED_SUB: expected}

    counts.give_back({}, taken)

    assert counts.pulled == {NOTED_SUB: expected}


def test_looks_that_found_nothing_wait_for_a_pull_that_does() -> None:
    counts = Counts(ManualClock(now=NOW))
    counts.note_pull(NOTED_SUB)

    assert counts.take_pulled() == {}
    assert counts.pulled == {NOTED_SUB: Pulls(0, 0, 0, NOW, None)}


MIDNIGHT = 20_000 * DAY
NOTHING = Totals(0, 0, None)


@pytest.fixture
def engine() -> Embedded:
    made = Embedded(options={"retention": Milliseconds(3 * DAY)})
    made.clock.now = MIDNIGHT
    return made


@pytest.fixture
async def log(engine: Embedded) -> AsyncIterator[EmbeddedLog]:
    async with engine.opened() as log:
        yield log


async def published(engine: Embedded, log: EmbeddedLog, topic: TopicId, *days_and_counts: tuple[int, int]) -> None:
    for day, count in days_and_counts:
        engine.clock.now = MIDNIGHT + day * DAY
        await log.append(topic, texts(*["ab"] * count))


async def told(log: EmbeddedLog, topic: TopicId, counted: Totals) -> list[tuple[int, int]]:
    found = await shares(log, topic, counted, await log.totals(topic))
    first = date.fromisoformat(day_text(day_of(Milliseconds(MIDNIGHT))))
    return [((date.fromisoformat(each.day) - first).days, each.messages) for each in found]


async def test_nothing_new_is_of_no_day(log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    assert await told(log, topic, NOTHING) == []

    await log.append(topic, texts("a"))
    assert await told(log, topic, await log.totals(topic)) == []


async def test_messages_of_one_day_are_told_with_their_bytes(log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    await log.append(topic, texts("a", "bcd"))

    now = await log.totals(topic)

    assert await shares(log, topic, NOTHING, now) == [DayCount(day_text(20_000), 2, 4)]
    assert await shares(log, topic, Totals(1, 1, Milliseconds(MIDNIGHT)), now) == [DayCount(day_text(20_000), 1, 3)]


async def test_messages_of_several_days_are_told_by_their_publish_times(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    await published(engine, log, topic, (0, 3), (1, 1), (2, 2))

    assert await told(log, topic, Totals(0, 0, Milliseconds(MIDNIGHT))) == [(0, 3), (1, 1), (2, 2)]
    assert await told(log, topic, Totals(2, 4, Milliseconds(MIDNIGHT))) == [(0, 1), (1, 1), (2, 2)]
    assert await told(log, topic, Totals(4, 8, Milliseconds(MIDNIGHT))) == [(2, 2)]


async def test_the_first_and_last_millisecond_of_a_day_are_of_it(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    for moment in (MIDNIGHT, MIDNIGHT + DAY - 1, MIDNIGHT + DAY):
        engine.clock.now = moment
        await log.append(topic, texts("a"))

    assert await told(log, topic, Totals(0, 0, Milliseconds(MIDNIGHT))) == [(0, 2), (1, 1)]


async def test_bytes_of_several_days_sum_up(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    for day, data in enumerate(("a", "bb", "c" * 40)):
        engine.clock.now = MIDNIGHT + day * DAY
        await log.append(topic, texts(data))

    found = await shares(log, topic, Totals(0, 0, Milliseconds(MIDNIGHT)), await log.totals(topic))

    assert sum(each.bytes for each in found) == 43


async def test_what_retention_took_is_of_the_earliest_day_it_can_be_of(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    await published(engine, log, topic, (0, 3), (2, 1), (5, 2), (6, 4))
    await log.retain()

    assert (await log.bounds(topic)).oldest == 4
    assert await told(log, topic, Totals(1, 2, Milliseconds(MIDNIGHT))) == [(0, 3), (5, 2), (6, 4)]


async def test_when_retention_took_everything_it_is_all_of_that_day(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    await published(engine, log, topic, (0, 3), (2, 1))
    engine.clock.now = MIDNIGHT + 9 * DAY
    await log.retain()

    assert await told(log, topic, Totals(0, 0, Milliseconds(MIDNIGHT))) == [(0, 4)]


async def test_a_clock_set_back_leaves_messages_on_the_day_the_log_says(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    await published(engine, log, topic, (2, 1), (0, 1))

    assert await told(log, topic, Totals(0, 0, Milliseconds(MIDNIGHT + 4 * DAY))) == [(2, 2)]
