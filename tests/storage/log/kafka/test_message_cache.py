"""Messages in memory: runs without a gap, the tails of topics, and what was fetched ahead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.clock import Milliseconds
from ams.core.messages import Fragment, Stored
from ams.core.names import Offset, new_topic_id
from ams.storage.log.kafka import message_cache as module
from ams.storage.log.kafka.message_cache import (
    LEAST_AHEAD,
    MOST_AHEAD,
    OVERHEAD,
    MessageRun,
    PendingRead,
    ReadAhead,
    TailCache,
    memory_of,
)


def stored(*offsets, size=10):
    return [Stored(Offset(offset), Milliseconds(1), Fragment(b"x" * size)) for offset in offsets]


messages = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), unique_by=lambda each: each[0]).map(
    lambda pairs: [Stored(Offset(o), Milliseconds(1), Fragment(b"x" * size)) for o, size in sorted(pairs)]
)


def wanted(found, max_messages, max_bytes):
    """What a read of `found` may answer, message by message."""
    chosen = []
    for each in found[:max_messages]:
        if chosen and sum(len(one.fragment) for one in [*chosen, each]) > max_bytes:
            break
        chosen.append(each)
    return chosen


@given(messages, st.integers(1, 12), st.integers(0, 100), st.lists(st.integers(0, 40), max_size=4))
def test_a_read_takes_the_same_in_however_many_pieces(found, max_messages, max_bytes, cuts):
    pending = PendingRead(max_messages, max_bytes)
    begin = 0
    for cut in [*sorted(cuts), len(found)]:
        if not pending.full:
            pending.take(found[begin:cut])
        begin = max(begin, cut)
    assert pending.messages == wanted(found, max_messages, max_bytes)


@given(messages, st.integers(0, 61), st.integers(1, 12), st.integers(0, 100))
def test_a_run_gives_what_is_there_from_an_offset_and_says_where_to_go_on(found, start, max_messages, max_bytes):
    run = MessageRun(Offset(0), Offset(61), list(found))
    pending = PendingRead(max_messages, max_bytes)
    next_ = run.fill(pending, Offset(start))
    rest = [each for each in found if each.offset >= start]
    assert pending.messages == wanted(rest, max_messages, max_bytes)
    assert [each for each in rest if each.offset < next_] == pending.messages
    assert next_ == 61 or pending.full


@given(messages, messages)
def test_a_run_grows_by_what_it_has_not(found, more):
    run = MessageRun(Offset(0), Offset(30), [each for each in found if each.offset < 30])
    run.extend(Offset(61), [each for each in more if each.offset >= 20])
    expected = [each for each in found if each.offset < 30] + [each for each in more if each.offset >= 30]
    assert run.messages == expected
    assert (run.start, run.next, run.bytes) == (0, 61, memory_of(expected))


@given(messages, st.integers(0, 2000))
def test_a_run_keeps_its_newest_within_a_budget(found, most):
    run = MessageRun(Offset(0), Offset(61), list(found))
    run.trim(most)
    assert run.bytes == memory_of(run.messages) <= most
    assert run.messages == found[len(found) - len(run.messages) :]
    assert all(each.offset >= run.start for each in run.messages)
    assert run.messages == found or run.start == found[-len(run.messages) - 1].offset + 1


def test_a_run_lets_go_of_what_is_no_longer_kept():
    run = MessageRun(Offset(0), Offset(10), stored(1, 3, 5))
    run.drop_before(Offset(4))
    assert (run.start, run.next, run.messages, run.bytes) == (4, 10, stored(5), memory_of(stored(5)))
    run.drop_before(Offset(20))
    assert (run.start, run.next, run.messages, run.bytes) == (20, 20, [], 0)


ONE, TWO, THREE = (new_topic_id() for _ in range(3))
MESSAGE = OVERHEAD + 10
"""Memory of a message of the tests."""


def held(cache, topic):
    run = cache.run(topic)
    if run is None:
        return None
    pending = PendingRead(1000, 1 << 20)
    run.fill(pending, run.start)
    return [each.offset for each in pending.messages]


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


def run(start, end):
    return MessageRun(Offset(start), Offset(end), stored(*range(start, end)))


async def test_what_was_fetched_ahead_is_found_by_every_offset_of_it():
    ahead = ReadAhead(1 << 20)
    ahead.keep(ONE, run(10, 20))
    assert ahead.run(ONE, Offset(9)) is None
    assert ahead.run(ONE, Offset(20)) is None
    assert ahead.run(TWO, Offset(15)) is None
    found = ahead.run(ONE, Offset(15))
    assert found is not None
    assert found.start == 10


async def test_what_was_not_used_for_longest_goes_first():
    ahead = ReadAhead(25 * MESSAGE)
    ahead.keep(ONE, run(0, 10))
    ahead.keep(ONE, run(10, 20))
    assert ahead.run(ONE, Offset(0))
    ahead.keep(TWO, run(0, 10))
    assert ahead.run(ONE, Offset(10)) is None
    assert ahead.run(ONE, Offset(0))
    assert ahead.bytes == 20 * MESSAGE
    ahead.keep(TWO, run(0, 40))  # more than may be held at all
    assert ahead.bytes == 0


async def test_what_begins_at_the_same_place_is_replaced():
    ahead = ReadAhead(1 << 20)
    ahead.keep(ONE, run(0, 10))
    ahead.keep(ONE, run(0, 5))
    assert ahead.bytes == 5 * MESSAGE
    assert ahead.run(ONE, Offset(7)) is None


async def test_a_topic_is_forgotten_and_what_retention_took_is_let_go():
    ahead = ReadAhead(1 << 20)
    ahead.keep(ONE, run(0, 10))
    ahead.keep(ONE, run(10, 20))
    ahead.drop_before(ONE, Offset(5))
    assert ahead.run(ONE, Offset(7)) is None
    assert ahead.run(ONE, Offset(10))
    ahead.forget(ONE)
    assert ahead.bytes == 0


async def test_only_a_read_that_begins_where_one_ended_fetches_ahead():
    ahead = ReadAhead(1 << 30)
    assert ahead.size(ONE, Offset(0)) == 0
    ahead.ended(ONE, Offset(0), Offset(100))
    assert ahead.size(ONE, Offset(100)) == MOST_AHEAD
    assert ahead.size(ONE, Offset(99)) == 0
    assert ahead.size(TWO, Offset(100)) == 0
    ahead.ended(ONE, Offset(100), Offset(200))
    assert ahead.size(ONE, Offset(100)) == 0
    assert ahead.size(ONE, Offset(200)) == MOST_AHEAD


async def test_many_who_read_on_share_the_memory_and_random_reads_take_none_of_it():
    ahead = ReadAhead(32_000_000)
    for number in range(1000):
        ahead.ended(TWO, Offset(number), Offset(number + 5000))
    assert ahead.size(TWO, Offset(5000)) == MOST_AHEAD
    for number in range(200):
        ahead.ended(ONE, Offset(1000 * number), Offset(1000 * number + 1))
        ahead.ended(ONE, Offset(1000 * number + 1), Offset(1000 * number + 2))
    assert ahead.size(ONE, Offset(2)) == LEAST_AHEAD


async def test_ends_are_forgotten_in_time_and_bounded_in_number(monkeypatch):
    ahead = ReadAhead(1 << 30)
    monkeypatch.setattr(module, "MAX_ENDS", 2)
    for number in range(3):
        ahead.ended(ONE, Offset(number), Offset(100 + number))
    assert [bool(ahead.size(ONE, Offset(100 + number))) for number in range(3)] == [False, True, True]
    monkeypatch.setattr(module, "REMEMBERED_FOR", -1.0)
    ahead.ended(ONE, Offset(5), Offset(105))
    assert not ahead.size(ONE, Offset(102))
