"""The promises of `ams.storage.log.base.Log` about idempotency keys and totals, for every engine."""

import asyncio

import pytest

from ams.core.errors import InvalidInput, KeyReused, TopicGone
from ams.core.messages import message
from ams.core.names import TopicId, new_topic_id
from ams.storage.log.base import Bounds, Log, Totals
from tests.storage.log.engines import Engine, all_fragments, fragments, new_topic, numbered, texts


async def test_an_append_with_a_key_already_seen_returns_the_first_answer(log: Log, engine: Engine, topic: TopicId):
    first = await log.append(topic, texts("a", "b"), key="k")
    await engine.let_pass(10)
    await log.append(topic, texts("c"))

    again = await log.append(topic, texts("a", "b"), key="k")

    assert again == first
    assert await log.bounds(topic) == Bounds(0, 3)


async def test_a_key_with_other_content_is_refused(log: Log, topic: TopicId):
    await log.append(topic, texts("a"), key="k")

    for other in (texts("b"), texts("a", "a"), texts("a", "b")):
        with pytest.raises(KeyReused):
            await log.append(topic, other, key="k")

    assert await log.bounds(topic) == Bounds(0, 1)


async def test_the_order_of_attributes_does_not_make_it_other_content(log: Log, topic: TopicId):
    first = await log.append(topic, [message("a", {"x": "1", "y": "2", "z": "3"})], key="k")

    assert await log.append(topic, [message("a", {"z": "3", "x": "1", "y": "2"})], key="k") == first
    for other in ({"x": "2", "y": "1", "z": "3"}, {"x": "1", "y": "2"}, {}):
        with pytest.raises(KeyReused):
            await log.append(topic, [message("a", other)], key="k")


async def test_what_was_answered_to_a_key_is_told_without_appending(log: Log, topic: TopicId):
    first = await log.append(topic, texts("a", "b"), key="k")

    assert await log.answered(topic, texts("a", "b"), "k") == first
    assert await log.answered(topic, texts("a", "b"), "new") is None
    with pytest.raises(KeyReused):
        await log.answered(topic, texts("a"), "k")
    with pytest.raises(TopicGone):
        await log.answered(new_topic_id(), texts("a"), "k")
    assert await log.bounds(topic) == Bounds(0, 2)


async def test_an_append_under_way_is_awaited_before_its_answer_is_told(log: Log, topic: TopicId):
    appending = asyncio.ensure_future(log.append(topic, texts("a"), key="k"))
    await asyncio.sleep(0)

    assert await log.answered(topic, texts("a"), "k") == await appending


async def test_keys_of_different_topics_have_nothing_to_do_with_each_other(log: Log):
    one, other = await new_topic(log), await new_topic(log)

    await log.append(one, texts("a"), key="k")
    answer = await log.append(other, texts("b"), key="k")

    assert (answer.first, answer.count) == (0, 1)


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_a_key_that_is_none_is_refused_and_nothing_is_stored(log: Log, key: str, topic: TopicId):
    with pytest.raises(InvalidInput):
        await log.append(topic, texts("a"), key=key)

    assert await log.bounds(topic) == Bounds(0, 0)


async def test_appends_with_the_same_key_at_once_are_stored_once(log: Log, topic: TopicId):
    answers = await asyncio.gather(*(log.append(topic, texts("a", "b"), key="k" * 255) for _ in range(20)))

    assert set(answers) == {answers[0]}
    assert await log.bounds(topic) == Bounds(0, 2)


async def test_appends_with_many_keys_at_once_are_all_stored(log: Log, topic: TopicId):
    answers = await asyncio.gather(*(log.append(topic, numbered(n, 1), key=f"ключ{n}") for n in range(200)))

    assert sorted(answer.first for answer in answers) == list(range(200))


async def test_a_key_is_free_again_when_its_append_was_cancelled_and_not_stored(log: Log, topic: TopicId):
    task = asyncio.ensure_future(log.append(topic, texts("a"), key="k"))
    task.cancel()
    await asyncio.wait({task})

    answer = await log.append(topic, texts("a"), key="k")

    assert answer.first == 0
    assert await all_fragments(log, topic) == fragments(texts("a"))


async def test_totals_are_of_all_that_was_ever_published(log: Log, engine: Engine, topic: TopicId):
    assert await log.totals(topic) == Totals(0, 0, None)

    await log.append(topic, texts("a", "bcd"))
    await engine.let_pass(5)
    last = await log.append(topic, [message("ef", {"k": "not counted"})])
    assert engine.is_now(last.time)
    assert await log.totals(topic) == Totals(3, 6, last.time)


async def test_totals_survive_a_restart(engine: Engine):
    async with engine.opened() as log:
        topic = await new_topic(log)
        appended = await log.append(topic, numbered(0, 500, size=1000))
        before = await log.totals(topic)

    async with engine.opened() as log:
        assert await log.totals(topic) == before == Totals(500, 500 * 1008, appended.time)
