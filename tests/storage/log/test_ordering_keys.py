"""Ordering keys in every engine: what was appended with a key is read with it, and all else is as it always was."""

import asyncio
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import KeyReused
from ams.core.messages import Message, Stored, message, ordering_key_of
from ams.core.names import TopicId, new_topic_id
from ams.core.runs import runs_of
from ams.storage.files import Disk
from ams.storage.log.base import Log, Origin
from ams.storage.log.embedded import check
from tests.storage.log.engines import Embedded, Engine, all_fragments, fragments, new_topic, numbered, texts
from tests.storage.log.make_golden import export

KEYED = [
    message("a", {}, "bed 4"),
    message("b", {"ams:key": "x"}, 'b\u00e9d "5",'),
    message("c"),
    message("d", {"n": "1"}),
]


async def test_keys_are_read_as_they_were_appended(engine: Engine):
    async with engine.opened() as log:
        topic = await new_topic(log)
        await log.append(topic, KEYED)
        await log.append(topic, texts("e"))
        assert await all_fragments(log, topic) == fragments([*KEYED, *texts("e")])

    async with engine.opened() as log:
        messages = await log.read(topic, 0, max_messages=99, max_bytes=10_000)

    assert [each.fragment for each in messages] == fragments([*KEYED, *texts("e")])
    assert [ordering_key_of(each.fragment) for each in messages] == ["bed 4", 'b\u00e9d "5",', "", "", ""]
    for run in runs_of(messages):
        assert run.has_ordering_keys >= any(map(ordering_key_of, run.fragments))
    assert not runs_of(messages)[-1].has_ordering_keys


async def test_another_ordering_key_makes_it_other_content(log: Log, topic: TopicId):
    first = await log.append(topic, [message("a", {"x": "1", "y": "2"}, "bed 4")], key="k")

    assert await log.append(topic, [message("a", {"y": "2", "x": "1"}, "bed 4")], key="k") == first
    for other in ("bed 5", ""):
        with pytest.raises(KeyReused):
            await log.append(topic, [message("a", {"x": "1", "y": "2"}, other)], key="k")


async def test_keys_of_messages_that_are_loaded_are_kept(engine: Engine):
    topic, now = new_topic_id(), engine.clock.now
    stored = [Stored(10 + number, now, each.fragment) for number, each in enumerate(KEYED)]
    async with engine.opened() as log:
        await log.create(topic, origin=Origin(10, 100))
        await log.load(topic, batches(stored))

        assert list(await log.read(topic, 0, max_messages=99, max_bytes=10_000)) == stored


async def batches(*of):
    for each in of:
        yield each


async def test_a_large_append_has_its_keys_in_every_record():
    engine = Embedded(options={"group_bytes": 100_000})
    sent = [message(each.data, {}, f"bed {number % 3}") for number, each in enumerate(numbered(0, 900, size=1000))]
    async with engine.opened() as log:
        topic = await new_topic(log)
        await asyncio.gather(log.append(topic, sent), log.append(await new_topic(log), texts("in between")))

    async with engine.opened() as log:
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

    async def told() -> None:
        async with engine.opened() as log:
            topic = await new_topic(log)
            if at_once:
                await asyncio.gather(*(log.append(topic, each) for each in appends))
            else:
                for each in appends:
                    await log.append(topic, each)
            await log.retain()
        sent = [each for append in appends for each in append]
        async with engine.opened() as log:
            messages = await log.read(topic, 0, max_messages=99, max_bytes=1 << 20)
            assert [each.fragment for each in messages] == fragments(sent)
            for run in runs_of(messages):
                assert run.has_ordering_keys == any(map(ordering_key_of, run.fragments))

    asyncio.run(told())


async def test_a_folder_with_keys_is_sound(tmp_path):
    engine = Embedded(options={"segment_bytes": 1000})
    async with engine.opened() as log:
        topic = await new_topic(log)
        for _ in range(20):
            await log.append(topic, KEYED, key=None)
    export(engine, str(tmp_path))

    report = check(str(tmp_path), files=Disk())

    assert not report.damage
    assert report.messages == 80


@pytest.mark.parametrize("sizes", [[10, 20, 5], [70_000, 10, 70_000]])
async def test_reads_that_begin_within_a_record_find_the_keys(log: Log, sizes: list[int], topic: TopicId):
    sent = [message("A" * 4 * size, {}, f"k{place}") for place, size in enumerate(sizes)]
    await log.append(topic, sent)

    for start, _ in pairwise(accumulate([1] * len(sizes), initial=0)):
        [read] = await log.read(topic, start, max_messages=1, max_bytes=1)
        assert ordering_key_of(read.fragment) == f"k{start}"
