"""Looking for keys in a log of very many segments: a new key asks none of them, a known one its own."""

import asyncio
from dataclasses import dataclass, field

import pytest

from ams.core.errors import KeyReused
from ams.core.names import TopicId
from ams.storage.log.base import Appended, key_hash
from ams.storage.log.embedded import EmbeddedLog
from ams.storage.log.embedded.pages import NotLoaded
from tests.storage.log.engines import HOUR, Embedded, new_topic, texts


@dataclass
class Counted(Embedded):
    """The embedded log where nothing is in memory; every third key closes a segment."""

    options: dict[str, object] = field(default_factory=lambda: {"segment_keys": 2})
    answers: list[Appended] = field(default_factory=list)
    """What the first appends were answered, by key."""

    def __post_init__(self) -> None:
        self.disk.cold = True


async def fill(log: EmbeddedLog, topic: TopicId, first: int, segments: int) -> list[Appended]:
    """Make so many segments, with three keys in each: numbers from `first` on. Return the answers."""
    answers: list[Appended] = []
    for start in range(first, first + 3 * segments, 3):
        appends = (log.append(topic, texts("a"), key=str(start + number)) for number in range(3))
        answers += await asyncio.gather(*appends)
    await log.retain()
    return answers


def count(engine: Embedded) -> int:
    return len(engine.disk.paths(".log"))


@pytest.fixture(scope="module")
def large() -> Counted:
    """A log of some 400 segments, with the keys 0 to 1199; tests may add keys of other names."""
    engine = Counted()

    async def make() -> None:
        async with engine.opened() as log:
            topic = await new_topic(log)
            engine.answers = await fill(log, topic, 0, 400)

    asyncio.run(make())
    return engine


async def only_topic(log: EmbeddedLog) -> TopicId:
    (topic,) = await log.topics()
    return topic


async def test_among_very_many_segments_a_new_key_asks_hardly_one_and_a_known_key_its_own(large: Counted) -> None:
    async with large.opened() as log:
        topic = await only_topic(log)
        assert count(large) > 350
        await log.retain()  # counts what segments hold, once after a start
        large.disk.reads = 0

        for number in range(50):
            await log.append(topic, texts("a"), key=f"new{number}")
        assert large.disk.reads < 100

        for number in (0, 599, 1199):
            assert await log.append(topic, texts("a"), key=str(number)) == large.answers[number]
            with pytest.raises(KeyReused):
                await log.append(topic, texts("b"), key=str(number))


async def test_a_search_of_every_segment_reads_each_once(large: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here every key passes the filters, as very few new ones do."""
    monkeypatch.setattr("ams.storage.log.embedded.segment_index.KeyFilter.may_hold", lambda *_: True)
    async with large.opened() as log:
        topic = await only_topic(log)
        end, large.disk.reads = (await log.bounds(topic)).end, 0

        assert (await log.append(topic, texts("a"), key="another")).first == end
        assert large.disk.reads <= 2 * count(large)


async def test_a_segment_that_goes_takes_its_filter_and_keys_along() -> None:
    engine = Counted()
    async with engine.opened(retention=HOUR) as log:
        topic = await new_topic(log)
        await fill(log, topic, 0, 50)
        engine.clock.advance(HOUR - 1000)
        answers = await fill(log, topic, 150, 50)
        engine.clock.advance(2000)
        before = count(engine)
        await log.retain()

        assert count(engine) <= before - 50
        assert (await log.append(topic, texts("a"), key="0")).first == 300
        assert await log.append(topic, texts("a"), key="150") == answers[0]


async def test_a_segment_that_goes_while_it_is_asked_is_passed_over() -> None:
    engine = Counted()
    async with engine.opened(retention=HOUR) as log:
        topic = await new_topic(log)
        await fill(log, topic, 0, 20)
        catalog, key = log._state.catalog, key_hash(topic, b"7")
        *_, segment = catalog.may_hold(key, engine.clock.wall())
        with pytest.raises(NotLoaded):
            catalog.answered_in(segment, topic, key)

        engine.clock.advance(HOUR + 1)
        await log.retain()

        assert catalog.answered_in(segment, topic, key) is None


async def test_indexes_written_before_there_were_filters_are_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Counted()
    async with engine.opened() as log:
        topic = await new_topic(log)
        monkeypatch.setattr("ams.storage.log.embedded.index_file.encode_filter", lambda keys: b"")
        monkeypatch.setattr("ams.storage.log.embedded.upkeep.decode_filter", lambda data, keys: None)
        answers = await fill(log, topic, 0, 30)
    monkeypatch.undo()

    async with engine.opened() as log:
        for number in range(90):
            assert await log.append(topic, texts("a"), key=str(number)) == answers[number]
        engine.disk.reads = 0
        assert (await log.append(topic, texts("a"), key="new")).first == 90
        assert engine.disk.reads < 10
