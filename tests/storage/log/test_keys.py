"""The contract of `ams.storage.log.base.Log` for idempotency keys, ordering keys and totals, for every engine."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput, KeyReused, TopicGone
from ams.core.messages import Message, message, ordering_key_of
from ams.core.names import TopicId, new_topic_id
from ams.core.runs import runs_of
from ams.storage.log import base
from ams.storage.log.base import Bounds, Log, Totals
from tests.storage.log.engines import Embedded, Engine, all_fragments, fragments, make_messages, new_topic, texts


async def test_an_append_with_a_key_already_seen_returns_the_first_answer(log: Log, engine: Engine, topic: TopicId):
    first = await log.append(topic, texts("a", "b"), key="k")
    await engine.let_pass(10)
    await log.append(topic, texts("c"))

    assert (await log.append(topic, texts("a", "b"), key="k"), await log.bounds(topic)) == (first, Bounds(0, 3))


async def test_a_key_with_other_content_is_refused_and_the_order_of_attributes_does_not_count(log: Log, topic: TopicId):
    first = await log.append(topic, [message("a", {"x": "1", "y": "2", "z": "3"}, "bed 4")], key="k")

    assert await log.append(topic, [message("a", {"z": "3", "x": "1", "y": "2"}, "bed 4")], key="k") == first
    same = message("a", {"x": "1", "y": "2", "z": "3"}, "bed 4")
    for other in (
        texts("b"), [same, same], [message("a", {"x": "2", "y": "1", "z": "3"}, "bed 4")],
        [message("a", {"x": "1", "y": "2"}, "bed 4")], [message("a", {"x": "1", "y": "2", "z": "3"}, "bed 5")],
        [message("a", {"x": "1", "y": "2", "z": "3"})],
    ):  # fmt: skip
        with pytest.raises(KeyReused):
            await log.append(topic, other, key="k")
    assert await log.bounds(topic) == Bounds(0, 1)


async def test_what_was_answered_to_a_key_is_told_without_appending(log: Log, topic: TopicId) -> None:
    first = await log.append(topic, texts("a", "b"), key="k")

    assert await log.earlier_answer(topic, texts("a", "b"), "k") == first
    for some in (texts("a", "b"), ()):  # no messages ask whether a key is known
        assert await log.earlier_answer(topic, some, "new") is None
    for other in (texts("a"), ()):
        with pytest.raises(KeyReused):
            await log.earlier_answer(topic, other, "k")
    with pytest.raises(TopicGone):
        await log.earlier_answer(new_topic_id(), texts("a"), "k")
    assert await log.bounds(topic) == Bounds(0, 2)


async def test_an_append_under_way_is_awaited_before_its_answer_is_told(log: Log, topic: TopicId) -> None:
    appending = asyncio.ensure_future(log.append(topic, texts("a"), key="k"))
    await asyncio.sleep(0)
    assert await log.earlier_answer(topic, texts("a"), "k") == await appending


async def test_keys_of_different_topics_have_nothing_to_do_with_each_other(log: Log) -> None:
    one, other = await new_topic(log), await new_topic(log)
    await log.append(one, texts("a"), key="k")
    answer = await log.append(other, texts("b"), key="k")
    assert (answer.first, answer.count) == (0, 1)


async def test_an_empty_or_long_key_is_refused_and_nothing_is_stored(log: Log, topic: TopicId) -> None:
    for key in ("", "k" * 256):
        with pytest.raises(InvalidInput):
            await log.append(topic, texts("a"), key=key)
    assert await log.bounds(topic) == Bounds(0, 0)


async def test_what_another_process_remembered_stays_valid(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process hashes contents with its own secret, which it stores with the hash."""
    async with engine.open_log() as log:
        topic = await new_topic(log)
        first = await log.append(topic, texts("a"), key="k")

    other = bytes(8)
    monkeypatch.setattr(base, "_SECRET", other)
    async with engine.open_log() as log:
        assert await log.append(topic, texts("a"), key="k") == first
        with pytest.raises(KeyReused):
            await log.append(topic, texts("b"), key="k")


async def test_appends_with_the_same_key_at_once_are_stored_once(log: Log, topic: TopicId) -> None:
    answers = await asyncio.gather(*(log.append(topic, texts("a", "b"), key="k" * 255) for _ in range(20)))
    assert set(answers) == {answers[0]}
    assert await log.bounds(topic) == Bounds(0, 2)


async def test_a_key_is_free_again_when_its_append_was_cancelled_and_not_stored(log: Log, topic: TopicId) -> None:
    task = asyncio.ensure_future(log.append(topic, texts("a"), key="k"))
    task.cancel()
    await asyncio.wait({task})

    assert (await log.append(topic, texts("a"), key="k")).first == 0
    assert await all_fragments(log, topic) == fragments(texts("a"))


async def test_totals_are_of_all_that_was_ever_published_and_survive_a_restart(engine: Engine) -> None:
    async with engine.open_log() as log:
        topic = await new_topic(log)
        assert await log.totals(topic) == Totals(0, 0, None)

        await log.append(topic, texts("a", "bcd"))
        await engine.let_pass(5)
        last = await log.append(topic, [message("ef", {"k": "not counted"}), *make_messages(0, 500, size=1000)])
        assert engine.is_now(last.time)
        assert await log.totals(topic) == Totals(503, 6 + 500 * 1008, last.time)

    async with engine.open_log() as log:
        assert await log.totals(topic) == Totals(503, 6 + 500 * 1008, last.time)


KEYED_MESSAGES = [
    message("a", {}, "bed 4"), message("b", {"ams:key": "x"}, 'b\u00e9d "5",'), message("c"), message("d", {"n": "1"}),
]  # fmt: skip


async def test_keys_are_read_as_they_were_appended(engine: Engine) -> None:
    async with engine.open_log() as log:
        topic = await new_topic(log)
        await log.append(topic, KEYED_MESSAGES)
        await log.append(topic, texts("e"))
        assert await all_fragments(log, topic) == fragments([*KEYED_MESSAGES, *texts("e")])

    async with engine.open_log() as log:
        messages = await log.read(topic, 0, max_messages=99, max_bytes=10_000)

    assert [each.fragment for each in messages] == fragments([*KEYED_MESSAGES, *texts("e")])
    assert [ordering_key_of(each.fragment) for each in messages] == ["bed 4", 'b\u00e9d "5",', "", "", ""]
    for run in runs_of(messages):
        assert run.has_ordering_keys >= any(map(ordering_key_of, run.fragments))
    assert not runs_of(messages)[-1].has_ordering_keys


async def test_a_large_append_has_its_keys_in_every_record() -> None:
    engine = Embedded(options={"group_bytes": 100_000})
    sent = [message(each.data, {}, f"bed {number % 3}") for number, each in enumerate(make_messages(0, 900, size=1000))]
    async with engine.open_log() as log:
        topic = await new_topic(log)
        await asyncio.gather(log.append(topic, sent), log.append(await new_topic(log), texts("in between")))

    async with engine.open_log() as log:
        messages = await log.read(topic, 0, max_messages=900, max_bytes=1 << 30)
        assert [each.fragment for each in messages] == fragments(sent)
        assert len(runs_of(messages)) > 10
        assert all(run.has_ordering_keys for run in runs_of(messages))


MESSAGES = st.builds(
    message, st.just("aGk="), st.sampled_from([{}, {"a": "b"}]), st.just("") | st.sampled_from(["k", "k2", '",'])
)
APPENDS = st.lists(st.lists(MESSAGES, min_size=1, max_size=4), min_size=1, max_size=8)


@given(APPENDS, st.booleans(), st.integers(300, 3000))
def test_a_record_says_whether_it_has_ordering_keys(appends: list[list[Message]], at_once: bool, segment_bytes: int):
    engine = Embedded(options={"segment_bytes": segment_bytes})

    async def check_records() -> None:
        async with engine.open_log() as log:
            topic = await new_topic(log)
            if at_once:
                await asyncio.gather(*(log.append(topic, each) for each in appends))
            for each in [] if at_once else appends:
                await log.append(topic, each)
            await log.retain()
        sent = [each for append in appends for each in append]
        async with engine.open_log() as log:
            messages = await log.read(topic, 0, max_messages=99, max_bytes=1 << 20)
            assert [each.fragment for each in messages] == fragments(sent)
            for run in runs_of(messages):
                assert run.has_ordering_keys == any(map(ordering_key_of, run.fragments))

    asyncio.run(check_records())


@pytest.mark.parametrize("sizes", [[10, 20, 5], [70_000, 10, 70_000]])
async def test_reads_that_begin_within_a_record_find_the_keys(log: Log, sizes: list[int], topic: TopicId) -> None:
    await log.append(topic, [message("A" * 4 * size, {}, f"k{place}") for place, size in enumerate(sizes)])
    for start in range(len(sizes)):
        [read] = await log.read(topic, start, max_messages=1, max_bytes=1)
        assert ordering_key_of(read.fragment) == f"k{start}"
