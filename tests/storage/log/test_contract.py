"""The contract of `ams.storage.log.base.Log`, for every engine; keys and totals are in `test_keys`."""

import asyncio
import base64

import pytest

from ams.core.errors import LogUnavailable, TooLarge, TopicGone
from ams.core.messages import message
from ams.core.names import TopicId, new_topic_id
from ams.storage.log.base import Bounds, Log
from tests.storage.log.engines import HOUR, Engine, all_fragments, fragments, make_messages, new_topic, texts
from tests.support.waiting import PATIENCE_SECONDS


async def test_a_new_topic_is_empty(log: Log, topic: TopicId) -> None:
    assert await log.bounds(topic) == Bounds(0, 0)
    assert list(await log.read(topic, 0, max_messages=10, max_bytes=1000)) == []
    assert await log.offset_at(topic, 0) is None
    assert await log.topics() == {topic}


async def test_a_topic_created_again_or_by_many_at_once_is_there_once(log: Log) -> None:
    topic = new_topic_id()
    await asyncio.gather(*(log.create(topic) for _ in range(10)))
    await log.append(topic, texts("a"))

    await log.create(topic)

    assert (await log.topics(), await log.bounds(topic)) == ({topic}, Bounds(0, 1))


async def test_offsets_are_consecutive_from_zero_in_the_order_given(log: Log, engine: Engine, topic: TopicId) -> None:
    """17.1 M8."""
    first = await log.append(topic, texts("a", "b", "c"))
    second = await log.append(topic, texts("d"))

    assert (first.first, first.count) == (0, 3)
    assert engine.is_now(first.time)
    assert (second.first, second.count) == (3, 1)
    messages = await log.read(topic, 0, max_messages=10, max_bytes=1000)
    assert [(each.offset, each.fragment) for each in messages] == list(enumerate(fragments(texts("a", "b", "c", "d"))))


async def test_appends_at_once_get_consecutive_offsets_each(log: Log) -> None:
    topics = [await new_topic(log) for _ in range(3)]
    sizes = [1 + number % 5 for number in range(60)]

    answers = await asyncio.gather(
        *(log.append(topics[n % 3], make_messages(n * 100, size)) for n, size in enumerate(sizes))
    )

    for which, topic in enumerate(topics):
        expected: list[bytes] = []
        mine = [(answer, n) for n, answer in enumerate(answers) if n % 3 == which]
        for answer, n in sorted(mine):
            assert (answer.first, answer.count) == (len(expected), sizes[n])
            expected += fragments(make_messages(n * 100, sizes[n]))
        assert await all_fragments(log, topic) == expected


async def test_messages_and_appends_larger_than_a_record_are_whole(log: Log, topic: TopicId) -> None:
    large, many = make_messages(0, 1, size=300_000) + texts("b"), make_messages(0, 500, size=1000)

    await log.append(topic, large)
    assert len(await log.read(topic, 0, max_messages=10, max_bytes=1)) == 1
    answer = await log.append(topic, many)

    assert (answer.first, answer.count) == (2, 500)
    assert await all_fragments(log, topic) == fragments([*large, *many])


async def test_topics_have_any_names_and_the_largest_message_of_googles_clients(log: Log) -> None:
    large = [message(base64.b64encode(bytes(range(250)) * 40_000).decode(), plain=True)]
    for name in ("a.b~c+d%25-e", "a%2Fb", "ends.", "%~+" * 84):
        topic = new_topic_id()
        await log.create(topic, label=f"P.{name}")
        assert (await log.append(topic, large if name == "ends." else texts("a"))).first == 0
        assert topic in await log.topics()
        if name == "ends.":
            assert await all_fragments(log, topic) == fragments(large)


async def test_a_read_returns_no_more_than_asked_for_but_one_message_at_least(log: Log, topic: TopicId) -> None:
    await log.append(topic, make_messages(0, 3))
    await log.append(topic, make_messages(3, 3))
    size = len(make_messages(0, 1)[0].fragment)

    for limit, expected in [(1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (5 * size, 5), (6 * size, 6)]:
        assert len(await log.read(topic, 0, max_messages=100, max_bytes=limit)) == expected
    assert [each.offset for each in await log.read(topic, 2, max_messages=3, max_bytes=10_000)] == [2, 3, 4]
    for offset, count in [(6, 10), (99, 10), (0, 0)]:
        assert list(await log.read(topic, offset, max_messages=count, max_bytes=1000)) == []


async def test_calls_for_an_unknown_topic_are_not_found(log: Log) -> None:
    unknown = new_topic_id()

    for call in (
        log.append(unknown, texts("a")), log.append(unknown, texts("a"), key="k"),
        log.read(unknown, 0, max_messages=1, max_bytes=1), log.bounds(unknown), log.offset_at(unknown, 0),
        log.totals(unknown), log.wait(unknown, 0, 0.1),
    ):  # fmt: skip
        with pytest.raises(TopicGone, match="Topic doesn't exist"):
            await call


async def test_a_dropped_topic_is_forgotten_and_the_others_are_not(log: Log) -> None:
    dropped, kept = await new_topic(log), await new_topic(log)
    await log.append(dropped, texts("a"))
    await log.append(kept, texts("b"))

    for _ in range(2):  # to drop what is unknown is no error
        await log.drop(dropped)

    assert await log.topics() == {kept}
    with pytest.raises(TopicGone):
        await log.bounds(dropped)
    assert await all_fragments(log, kept) == fragments(texts("b"))


async def test_a_held_topic_has_its_final_totals_and_appends_go_on_after_the_block(log: Log, topic: TopicId) -> None:
    before = [asyncio.ensure_future(log.append(topic, make_messages(n, 1))) for n in range(20)]
    await asyncio.sleep(0)

    async with log.hold_appends(topic):
        assert (await log.totals(topic)).messages == 20
        meanwhile = [asyncio.ensure_future(log.append(topic, texts("a"), key=key)) for key in (None, "k")]
        await log.append(await new_topic(log), texts("another topic is free"))
        assert not any(each.done() for each in meanwhile)
        assert (await log.totals(topic)).messages == 20

    assert [each.first for each in await asyncio.gather(*before, *meanwhile)] == list(range(22))


async def test_what_topics_take_grows_with_what_is_published(log: Log) -> None:
    one, other, gone = await new_topic(log), await new_topic(log), new_topic_id()
    await log.append(one, make_messages(0, 10, size=1000))
    before = await log.stored_bytes([one, other, gone])
    assert before[other] == 0
    assert before[one] >= 10 * 750
    assert gone not in before
    await log.append(one, make_messages(10, 10, size=1000))
    assert (await log.stored_bytes([one]))[one] > 1.5 * before[one]


async def test_what_waits_for_a_topic_that_is_dropped_meanwhile_is_not_stored(log: Log, topic: TopicId) -> None:
    async with log.hold_appends(topic):
        meanwhile = [asyncio.ensure_future(log.append(topic, texts("a"), key=key)) for key in (None, "k")]
        await asyncio.sleep(0)
        await log.drop(topic)

    for each in meanwhile:
        with pytest.raises(TopicGone):
            await each


async def test_a_topic_is_held_by_one_at_a_time_and_an_unknown_one_by_anyone(log: Log) -> None:
    topic, order = await new_topic(log), []

    async def hold(name: str) -> None:
        async with log.hold_appends(topic):
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            order.append(f"{name} ends")

    await asyncio.gather(hold("a"), hold("b"))
    async with log.hold_appends(new_topic_id()):
        assert order == ["a begins", "a ends", "b begins", "b ends"]


async def test_a_hold_given_up_while_appends_are_under_way_holds_nothing(log: Log, topic: TopicId) -> None:
    appends = [asyncio.ensure_future(log.append(topic, make_messages(n, 1))) for n in range(5)]
    await asyncio.sleep(0)
    holding = asyncio.ensure_future(log.hold_appends(topic).__aenter__())
    await asyncio.sleep(0)
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding

    await asyncio.gather(*appends)
    assert (await log.append(topic, texts("a"))).first == 5


async def test_more_than_one_append_may_hold_is_too_large_and_nothing_is_stored(log: Log, topic: TopicId) -> None:
    huge = texts("A" * 3_000_000) * 100
    with pytest.raises(TooLarge):
        await log.append(topic, huge)
    assert await log.bounds(topic) == Bounds(0, 0)


async def test_publish_times_never_go_backwards(log: Log, engine: Engine, topic: TopicId) -> None:
    before = await log.append(topic, texts("a"))

    engine.turn_back(HOUR)
    after = await log.append(topic, texts("b"))

    assert after.time >= before.time
    messages = await log.read(topic, 0, max_messages=2, max_bytes=1000)
    assert [each.time for each in messages] == [before.time, after.time]


async def test_offset_at_is_the_first_offset_of_that_time_or_later(log: Log, engine: Engine, topic: TopicId) -> None:
    times = []
    for _ in range(5):
        times.append((await log.append(topic, texts("a", "b"))).time)
        assert engine.is_now(times[-1])
        await engine.let_pass(10)

    assert await log.offset_at(topic, -5) == await log.offset_at(topic, times[0] - 1) == 0
    assert (await log.offset_at(topic, times[0]), await log.offset_at(topic, times[0] + 1)) == (0, 2)
    assert (await log.offset_at(topic, times[2]), await log.offset_at(topic, times[4])) == (4, 8)
    assert await log.offset_at(topic, times[4] + 1) is None


async def test_cancelled_appends_leave_the_log_whole(log: Log, topic: TopicId) -> None:
    tasks = [asyncio.ensure_future(log.append(topic, make_messages(n * 10, 3), key=f"{n}")) for n in range(30)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.wait(tasks)

    last = await log.append(topic, texts("last"))

    stored = await all_fragments(log, topic)
    assert len(stored) == last.first + 1
    requests = {tuple(fragments(make_messages(n * 10, 3))) for n in range(30)}
    whole = {tuple(stored[at : at + 3]) for at in range(0, last.first, 3)}
    assert whole <= requests
    assert len(whole) == last.first // 3
    assert all(tuple(fragments(make_messages(n * 10, 3))) in whole for n in range(1, 30, 2))


async def test_a_cancelled_create_leaves_the_topic_there_or_not(log: Log) -> None:
    topic = new_topic_id()
    task = asyncio.ensure_future(log.create(topic))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})

    await log.create(topic)

    assert (await log.append(topic, texts("a"))).first == 0


async def test_a_wait_ends_at_once_when_there_is_something_and_else_after_its_time(log: Log, topic: TopicId) -> None:
    for seconds in (0, 0.01):
        assert not await log.wait(topic, 0, seconds)
    await log.append(topic, texts("a"))
    assert await log.wait(topic, 0, 10)


async def test_all_that_wait_are_woken_by_the_append_they_wait_for(log: Log) -> None:
    topic, other = await new_topic(log), await new_topic(log)
    cancelled, *waiting = (asyncio.ensure_future(log.wait(topic, 0, 600)) for _ in range(2000))
    for_more = asyncio.ensure_future(log.wait(topic, 1, 600))
    quiet = asyncio.ensure_future(log.wait(other, 0, 0.05))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)

    await log.append(topic, texts("a"))
    assert all(await asyncio.gather(*waiting))
    assert not for_more.done()
    await log.append(topic, texts("b"))

    assert await for_more
    assert not await quiet


async def test_dropping_a_topic_ends_its_waits(log: Log, topic: TopicId) -> None:
    waiting = asyncio.ensure_future(log.wait(topic, 0, 600))
    await asyncio.sleep(0)

    await log.drop(topic)

    async with asyncio.timeout(PATIENCE_SECONDS):
        assert not await waiting


async def test_closing_the_log_ends_waits_and_finishes_what_was_accepted(engine: Engine) -> None:
    async with engine.open_log() as log:
        topic = await new_topic(log)
        waiting = asyncio.ensure_future(log.wait(topic, 50, 600))
        appends = [asyncio.ensure_future(log.append(topic, make_messages(n, 1))) for n in range(50)]
        await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_SECONDS):
        assert not await waiting
    assert [answer.first for answer in await asyncio.gather(*appends)] == list(range(50))
    for call in (
        log.append(topic, texts("late")), log.append(topic, texts("late"), key="k"),
        log.read(topic, 0, max_messages=1, max_bytes=1), log.bounds(topic), log.create(new_topic_id()), log.drop(topic),
    ):  # fmt: skip
        with pytest.raises(LogUnavailable):
            await call


async def test_what_was_acknowledged_is_there_when_the_log_is_opened_again(engine: Engine) -> None:
    async with engine.open_log() as log:
        topic, dropped, empty = [await new_topic(log) for _ in range(3)]
        await log.append(topic, make_messages(0, 5))
        keyed = await log.append(topic, texts("k"), key="k")
        await log.append(dropped, texts("x"))
        await log.drop(dropped)

    async with engine.open_log() as log:
        assert await log.topics() == {topic, empty}
        assert await all_fragments(log, topic) == fragments(make_messages(0, 5) + texts("k"))
        assert await log.append(topic, texts("k"), key="k") == keyed
        assert ((await log.append(topic, texts("next"))).first, await log.bounds(empty)) == (6, Bounds(0, 0))
