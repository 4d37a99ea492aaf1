from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ams.core.cache import ExpiringCache, LruCache
from ams.core.clock import ManualClock

KEYS = st.integers(0, 6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(1, 5)),
        st.tuples(st.sampled_from(["get", "peek", "discard"]), KEYS, st.just(0)),
        st.tuples(st.sampled_from(["drop even", "clear"]), st.just(0), st.just(0)),
    ),
    max_size=60,
)


class NaiveCache:
    """A list, from the entry that was not used for longest to the last one used."""

    def __init__(self, size: int, weighed: bool) -> None:
        self.entries: list[tuple[int, int]] = []
        self._size = size
        self._weighed = weighed

    def take(self, step: str, key: int, value: int) -> int | None:
        found = next((entry for entry in self.entries if entry[0] == key), None)
        if step in ("get", "put", "discard") and found:
            self.entries.remove(found)
        if step == "get" and found:
            self.entries.append(found)
        if step == "put":
            self.entries.append((key, value))
            while self._weight() > self._size and len(self.entries) > 1:
                del self.entries[0]
        if step == "drop even":
            self.entries = [entry for entry in self.entries if entry[1] % 2]
        if step == "clear":
            self.entries = []
        return found[1] if found and step in ("get", "peek") else None

    def _weight(self) -> int:
        return sum(value if self._weighed else 1 for _, value in self.entries)


def take(cache: LruCache[int, int], step: str, key: int, value: int) -> int | None:
    if step == "get":
        return cache.get(key)
    if step == "peek":
        return cache.peek(key)
    if step == "put":
        cache.put(key, value)
    elif step == "discard":
        cache.discard(key)
    elif step == "drop even":
        cache.discard_where(lambda _key, each: each % 2 == 0)
    else:
        cache.clear()
    return None


@given(steps=STEPS, size=st.integers(1, 9), weighed=st.booleans())
def test_it_holds_what_a_naive_list_would(steps: Sequence[tuple[str, int, int]], size: int, weighed: bool) -> None:
    cache: LruCache[int, int] = LruCache(size, (lambda value: value) if weighed else None)
    naive = NaiveCache(size, weighed)

    for step in steps:
        assert take(cache, *step) == naive.take(*step)
        assert len(cache) == len(naive.entries)
        assert {key: cache.peek(key) for key in range(7) if cache.peek(key)} == dict(naive.entries)


def test_an_entry_ends_when_its_time_is_over() -> None:
    clock = ManualClock()
    cache: ExpiringCache[str, int] = ExpiringCache(10, 1_000, clock.monotonic)
    cache.put("a", 1)
    clock.advance(999)
    assert cache.get("a") == 1  # a use does not make it longer

    clock.advance(1)

    assert cache.get("a") is None
    assert len(cache) == 0


def test_an_entry_that_is_put_again_begins_anew() -> None:
    clock = ManualClock()
    cache: ExpiringCache[str, int] = ExpiringCache(10, 1_000, clock.monotonic)
    cache.put("a", 1)
    clock.advance(600)
    cache.put("a", 2)
    clock.advance(600)

    assert cache.get("a") == 2


def test_entries_that_end_are_bounded_and_can_be_dropped() -> None:
    cache: ExpiringCache[str, int] = ExpiringCache(2, 1_000, ManualClock().monotonic)
    for key in ("a", "b", "c"):
        cache.put(key, 1)
    assert [cache.get(key) for key in ("a", "b", "c")] == [None, 1, 1]

    cache.discard("b")
    assert [cache.get(key) for key in ("b", "c")] == [None, 1]
    cache.clear()

    assert len(cache) == 0
