import pytest

from ams.core.names import Offset, new_topic_id
from ams.storage.log.kafka.reading import ring as module
from ams.storage.log.kafka.reading.ring import Ring
from ams.storage.log.kafka.reading.run import OVERHEAD, Wish
from tests.storage.log.kafka.reading.test_run import stored

ONE, TWO, THREE = (new_topic_id() for _ in range(3))
MESSAGE = OVERHEAD + 10
"""Memory of a message of the tests."""


def held(ring, topic):
    run = ring.run(topic)
    if run is None:
        return None
    wish = Wish(1000, 1 << 20)
    run.fill(wish, run.start)
    return [each.offset for each in wish.messages]


async def test_only_topics_that_somebody_reads_are_held():
    ring = Ring(1 << 20)
    ring.add(ONE, Offset(0), Offset(1), stored(0))
    assert not ring.accepts(ONE, Offset(0))
    assert held(ring, ONE) is None
    ring.begin(ONE, Offset(1), Offset(1), [])
    ring.add(ONE, Offset(1), Offset(3), stored(1, 2))
    assert held(ring, ONE) == [1, 2]
    assert ring.newest(ONE) == 3


async def test_what_comes_after_a_gap_is_left_to_be_fetched_or_begins_anew():
    ring = Ring(1 << 20)
    ring.begin(ONE, Offset(0), Offset(2), stored(0, 1))
    ring.add(ONE, Offset(3), Offset(4), stored(3))
    assert held(ring, ONE) == [0, 1]
    ring.begin(ONE, Offset(3), Offset(4), stored(3))
    assert held(ring, ONE) == [3]
    ring.begin(ONE, Offset(0), Offset(2), stored(0, 1))
    assert held(ring, ONE) == [3]


async def test_what_is_there_already_is_not_added_again():
    ring = Ring(1 << 20)
    ring.begin(ONE, Offset(0), Offset(2), stored(0, 1))
    ring.begin(ONE, Offset(1), Offset(4), stored(1, 2, 3))
    ring.add(ONE, Offset(0), Offset(3), stored(0, 1, 2))
    assert held(ring, ONE) == [0, 1, 2, 3]
    assert ring.bytes == 4 * MESSAGE
    assert ring.has(ONE, Offset(1), Offset(4))
    assert not ring.has(ONE, Offset(1), Offset(5))
    assert ring.ends_at(ONE, Offset(4))


async def test_topics_not_read_for_longest_go_when_memory_is_full():
    ring = Ring(8 * MESSAGE)
    for topic in (ONE, TWO, THREE):
        ring.begin(topic, Offset(0), Offset(2), stored(0, 1))
    ring.run(ONE)
    ring.begin(new_topic_id(), Offset(0), Offset(2), stored(0, 1))
    assert held(ring, ONE) == [0, 1]
    ring.begin(new_topic_id(), Offset(0), Offset(2), stored(0, 1))
    assert held(ring, TWO) is None
    assert held(ring, THREE) == [0, 1]
    assert ring.bytes <= 8 * MESSAGE


async def test_one_topic_takes_no_more_than_its_share():
    ring = Ring(40 * MESSAGE)
    ring.begin(ONE, Offset(0), Offset(0), [])
    for offset in range(30):
        ring.add(ONE, Offset(offset), Offset(offset + 1), stored(offset))
    assert held(ring, ONE) == list(range(20, 30))
    assert ring.bytes == 10 * MESSAGE
    ring.forget(ONE)
    assert ring.bytes == 0


async def test_a_topic_nobody_reads_any_more_is_let_go(monkeypatch):
    monkeypatch.setattr(module, "UNUSED_FOR", -1.0)
    ring = Ring(1 << 20)
    ring.begin(ONE, Offset(0), Offset(1), stored(0))
    ring.add(ONE, Offset(1), Offset(2), stored(1))
    assert held(ring, ONE) is None
    assert ring.bytes == 0


async def test_the_number_of_topics_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_TOPICS", 2)
    ring = Ring(1 << 20)
    for topic in (ONE, TWO, THREE):
        ring.begin(topic, Offset(0), Offset(0), [])
    assert held(ring, ONE) is None
    assert held(ring, THREE) == []


@pytest.mark.parametrize(("oldest", "left"), [(0, [0, 1]), (1, [1]), (5, [])])
async def test_what_retention_took_is_let_go(oldest, left):
    ring = Ring(1 << 20)
    ring.begin(ONE, Offset(0), Offset(2), stored(0, 1))
    ring.drop_before(ONE, Offset(oldest))
    assert held(ring, ONE) == left
    assert ring.bytes == len(left) * MESSAGE
