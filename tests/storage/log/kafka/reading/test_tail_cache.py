import pytest

from ams.core.names import Offset, new_topic_id
from ams.storage.log.kafka.reading import tail_cache as module
from ams.storage.log.kafka.reading.run import OVERHEAD, Wish
from ams.storage.log.kafka.reading.tail_cache import TailCache
from tests.storage.log.kafka.reading.test_run import stored

ONE, TWO, THREE = (new_topic_id() for _ in range(3))
MESSAGE = OVERHEAD + 10
"""Memory of a message of the tests."""


def held(cache, topic):
    run = cache.run(topic)
    if run is None:
        return None
    wish = Wish(1000, 1 << 20)
    run.fill(wish, run.start)
    return [each.offset for each in wish.messages]


async def test_only_topics_that_somebody_reads_are_held():
    cache = TailCache(1 << 20)
    cache.add(ONE, Offset(0), Offset(1), stored(0))
    assert not cache.accepts(ONE, Offset(0))
    assert held(cache, ONE) is None
    cache.begin(ONE, Offset(1), Offset(1), [])
    cache.add(ONE, Offset(1), Offset(3), stored(1, 2))
    assert held(cache, ONE) == [1, 2]
    assert cache.newest(ONE) == 3


async def test_what_comes_after_a_gap_is_left_to_be_fetched_or_begins_anew():
    cache = TailCache(1 << 20)
    cache.begin(ONE, Offset(0), Offset(2), stored(0, 1))
    cache.add(ONE, Offset(3), Offset(4), stored(3))
    assert held(cache, ONE) == [0, 1]
    cache.begin(ONE, Offset(3), Offset(4), stored(3))
    assert held(cache, ONE) == [3]
    cache.begin(ONE, Offset(0), Offset(2), stored(0, 1))
    assert held(cache, ONE) == [3]


async def test_what_is_there_already_is_not_added_again():
    cache = TailCache(1 << 20)
    cache.begin(ONE, Offset(0), Offset(2), stored(0, 1))
    cache.begin(ONE, Offset(1), Offset(4), stored(1, 2, 3))
    cache.add(ONE, Offset(0), Offset(3), stored(0, 1, 2))
    assert held(cache, ONE) == [0, 1, 2, 3]
    assert cache.bytes == 4 * MESSAGE
    assert cache.has(ONE, Offset(1), Offset(4))
    assert not cache.has(ONE, Offset(1), Offset(5))
    assert cache.ends_at(ONE, Offset(4))


async def test_topics_not_read_for_longest_go_when_memory_is_full():
    cache = TailCache(8 * MESSAGE)
    for topic in (ONE, TWO, THREE):
        cache.begin(topic, Offset(0), Offset(2), stored(0, 1))
    cache.run(ONE)
    cache.begin(new_topic_id(), Offset(0), Offset(2), stored(0, 1))
    assert held(cache, ONE) == [0, 1]
    cache.begin(new_topic_id(), Offset(0), Offset(2), stored(0, 1))
    assert held(cache, TWO) is None
    assert held(cache, THREE) == [0, 1]
    assert cache.bytes <= 8 * MESSAGE


async def test_one_topic_takes_no_more_than_its_share():
    cache = TailCache(40 * MESSAGE)
    cache.begin(ONE, Offset(0), Offset(0), [])
    for offset in range(30):
        cache.add(ONE, Offset(offset), Offset(offset + 1), stored(offset))
    assert held(cache, ONE) == list(range(20, 30))
    assert cache.bytes == 10 * MESSAGE
    cache.forget(ONE)
    assert cache.bytes == 0


async def test_a_topic_nobody_reads_any_more_is_let_go(monkeypatch):
    monkeypatch.setattr(module, "UNUSED_FOR", -1.0)
    cache = TailCache(1 << 20)
    cache.begin(ONE, Offset(0), Offset(1), stored(0))
    cache.add(ONE, Offset(1), Offset(2), stored(1))
    assert held(cache, ONE) is None
    assert cache.bytes == 0


async def test_the_number_of_topics_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_TOPICS", 2)
    cache = TailCache(1 << 20)
    for topic in (ONE, TWO, THREE):
        cache.begin(topic, Offset(0), Offset(0), [])
    assert held(cache, ONE) is None
    assert held(cache, THREE) == []


@pytest.mark.parametrize(("oldest", "left"), [(0, [0, 1]), (1, [1]), (5, [])])
async def test_what_retention_took_is_let_go(oldest, left):
    cache = TailCache(1 << 20)
    cache.begin(ONE, Offset(0), Offset(2), stored(0, 1))
    cache.drop_before(ONE, Offset(oldest))
    assert held(cache, ONE) == left
    assert cache.bytes == len(left) * MESSAGE
