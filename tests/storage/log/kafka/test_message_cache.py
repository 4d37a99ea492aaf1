"""Cached messages: runs without a gap, the tails of topics, and prefetch."""

from hypothesis import given
from hypothesis import strategies as st

from ams.core.messages import Stored
from ams.core.names import new_topic_id
from ams.core.runs import Run, Runs, runs_of
from ams.storage.log.base import PendingRead
from ams.storage.log.kafka import message_cache as module
from ams.storage.log.kafka.message_cache import MAX_AHEAD_BYTES, CachedRange, ReadAhead, TailCache, memory_of


def make_runs(*offsets, size=10):
    return [Run.of(offset, 1, [b"x" * size]) for offset in offsets]


runs = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 2), st.integers(1, 30)), unique_by=lambda each: each[0]
).map(lambda each: runs_of([Stored(o, time, b"x" * size) for o, time, size in sorted(each)]))
"""Messages published one by one and together, with gaps between them."""


def runs_between(runs, start, end):
    return runs_of([each for each in Runs(runs) if start <= each.offset < end])


def choose_messages(found, max_messages, max_bytes):
    """Return the permitted messages of a read of `found`."""
    chosen = []
    for each in found[:max_messages]:
        if chosen and sum(len(one.fragment) for one in [*chosen, each]) > max_bytes:
            break
        chosen.append(each)
    return chosen


@given(runs, st.integers(0, 61), st.integers(1, 12), st.integers(0, 100), st.integers(0, 61))
def test_a_read_takes_the_same_from_one_range_or_two(found, start, max_messages, max_bytes, cut) -> None:
    pending = PendingRead(start, max_messages, max_bytes)
    for low, high in ((0, cut), (cut, 61)):
        if not pending.full and start < high:
            CachedRange(low, high, runs_between(found, low, high)).fill(pending)
    rest = [each for each in Runs(found) if each.offset >= start]
    assert list(Runs(pending.runs)) == choose_messages(rest, max_messages, max_bytes)
    assert all(run.size == sum(map(len, run.fragments)) for run in pending.runs)
    if start < 61:
        assert [each for each in rest if each.offset < pending.offset] == list(Runs(pending.runs))
        assert pending.offset == 61 or pending.full


@given(runs, runs, st.integers(0, 30))
def test_a_range_grows_by_what_it_has_not(found, more, start) -> None:
    grown = CachedRange(0, 30, runs_between(found, 0, 30))
    grown.extend(61, runs_between(more, start, 61))
    expected = [*Runs(runs_between(found, 0, 30)), *Runs(runs_between(more, 30, 61))]
    assert list(Runs(grown.runs)) == expected
    assert (grown.start, grown.next, grown.bytes) == (0, 61, memory_of(grown.runs))


@given(runs, st.integers(0, 2000))
def test_a_range_keeps_its_newest_within_a_budget(found, most) -> None:
    every = list(Runs(found))
    kept = CachedRange(0, 61, found)
    kept.trim(most)
    left = list(Runs(kept.runs))
    assert kept.bytes == memory_of(kept.runs) <= most
    assert left == every[len(every) - len(left) :]
    assert all(each.offset >= kept.start for each in left)
    assert left == every or kept.start == every[-len(left) - 1].offset + 1


@given(runs, st.integers(0, 70))
def test_a_range_lets_go_of_what_is_before_an_offset(found, offset) -> None:
    kept = CachedRange(0, 61, found)
    kept.drop_before(offset)
    assert list(Runs(kept.runs)) == [each for each in Runs(found) if each.offset >= offset]
    assert (kept.start, kept.next, kept.bytes) == (offset, max(61, offset), memory_of(kept.runs))


ONE, TWO, THREE = (new_topic_id() for _ in range(3))
MESSAGE = memory_of(make_runs(0))  # memory of a message of the tests


def cached_range(cache, topic):
    found = cache.cached_range(topic)
    return None if found is None else [each.offset for each in Runs(found.runs)]


async def test_only_topics_that_somebody_reads_are_held() -> None:
    cache = TailCache(1 << 20)
    cache.add(ONE, 0, 1, make_runs(0))
    assert not cache.accepts(ONE, 0)
    assert cached_range(cache, ONE) is None
    cache.begin(ONE, 1, 1, [])
    cache.add(ONE, 1, 3, make_runs(1, 2))
    assert (cached_range(cache, ONE), cache.newest(ONE)) == ([1, 2], 3)


async def test_what_comes_after_a_gap_is_left_to_be_fetched_or_begins_anew() -> None:
    cache = TailCache(1 << 20)
    cache.begin(ONE, 0, 2, make_runs(0, 1))
    cache.add(ONE, 3, 4, make_runs(3))
    assert cached_range(cache, ONE) == [0, 1]
    cache.begin(ONE, 3, 4, make_runs(3))
    assert cached_range(cache, ONE) == [3]
    cache.begin(ONE, 0, 2, make_runs(0, 1))
    assert cached_range(cache, ONE) == [3]


async def test_what_reaches_back_before_what_is_held_is_held_with_it_once() -> None:
    """Otherwise a reader a little behind the others would have to fetch each time."""
    cache = TailCache(1 << 20)
    cache.begin(ONE, 4, 4, [])
    cache.begin(ONE, 2, 4, make_runs(2, 3))
    assert cached_range(cache, ONE) == [2, 3]
    cache.add(ONE, 3, 5, make_runs(3, 4))
    cache.begin(ONE, 0, 3, make_runs(0, 1, 2))
    assert cached_range(cache, ONE) == [0, 1, 2, 3, 4]
    assert cache.ends_at(ONE, 5)
    assert cache.bytes == 5 * MESSAGE
    assert cache.has(ONE, 1, 5)
    assert not cache.has(ONE, 1, 6)


async def test_topics_not_read_for_longest_go_when_memory_is_full() -> None:
    cache = TailCache(8 * MESSAGE)
    for topic in (ONE, TWO, THREE):
        cache.begin(topic, 0, 2, make_runs(0, 1))
    cache.cached_range(ONE)
    cache.begin(new_topic_id(), 0, 2, make_runs(0, 1))
    assert cached_range(cache, ONE) == [0, 1]
    cache.begin(new_topic_id(), 0, 2, make_runs(0, 1))
    assert cached_range(cache, TWO) is None
    assert cached_range(cache, THREE) == [0, 1]
    assert cache.bytes <= 8 * MESSAGE


async def test_one_topic_takes_no_more_than_its_share() -> None:
    cache = TailCache(40 * MESSAGE)
    cache.begin(ONE, 0, 0, [])
    for offset in range(30):
        cache.add(ONE, offset, offset + 1, make_runs(offset))
    assert cached_range(cache, ONE) == list(range(20, 30))
    assert cache.bytes == 10 * MESSAGE
    cache.forget(ONE)
    assert cache.bytes == 0


async def test_what_retention_took_is_let_go_and_a_topic_that_nobody_reads_any_more(monkeypatch) -> None:
    cache = TailCache(1 << 20)
    cache.begin(ONE, 0, 2, make_runs(0, 1))
    for oldest, left in ((0, [0, 1]), (1, [1]), (5, [])):
        cache.drop_before(ONE, oldest)
        assert (cached_range(cache, ONE), cache.bytes) == (left, len(left) * MESSAGE)

    cache.begin(TWO, 0, 1, make_runs(0))
    monkeypatch.setattr(module, "UNUSED_FOR", -1.0)
    cache.add(TWO, 1, 2, make_runs(1))
    assert cached_range(cache, TWO) is None
    assert cache.bytes == 0


def make_range(start, end):
    return CachedRange(start, end, make_runs(*range(start, end)))


async def test_what_was_fetched_ahead_is_found_by_every_offset_of_it() -> None:
    ahead = ReadAhead(1 << 20)
    ahead.keep(ONE, make_range(10, 20))
    assert ahead.cached_range(ONE, 9) is None
    assert ahead.cached_range(ONE, 20) is None
    assert ahead.cached_range(TWO, 15) is None
    found = ahead.cached_range(ONE, 15)
    assert found is not None
    assert found.start == 10


async def test_what_was_not_used_for_longest_goes_first() -> None:
    ahead = ReadAhead(25 * MESSAGE)
    ahead.keep(ONE, make_range(0, 10))
    ahead.keep(ONE, make_range(10, 20))
    assert ahead.cached_range(ONE, 0)
    ahead.keep(TWO, make_range(0, 10))
    assert ahead.cached_range(ONE, 10) is None
    assert ahead.cached_range(ONE, 0)
    assert ahead.bytes == 20 * MESSAGE
    ahead.keep(TWO, make_range(0, 40))  # more than may be held at all
    assert ahead.bytes == 0


async def test_only_a_read_that_begins_where_one_ended_fetches_ahead() -> None:
    ahead = ReadAhead(1 << 30)
    assert ahead.size(ONE, 0) == 0
    ahead.note_end(ONE, 0, 100)
    assert (ahead.size(ONE, 100), ahead.size(ONE, 99)) == (MAX_AHEAD_BYTES, 0)
    assert ahead.size(TWO, 100) == 0
    ahead.note_end(ONE, 100, 200)
    assert (ahead.size(ONE, 100), ahead.size(ONE, 200)) == (0, MAX_AHEAD_BYTES)
