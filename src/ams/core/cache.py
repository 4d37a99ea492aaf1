"""Bounded LRU caches: the least recently used entry is evicted first."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """LRU cache of total weight `size`. Values are never None. Not thread safe.

    An entry weighs 1, or `weigh(value)`. An entry heavier than `size` stays until the next put.
    """

    __slots__ = ("_entries", "_size", "_weigh", "_weight")

    def __init__(self, size: int, weigh: Callable[[V], int] | None = None) -> None:
        self._size = size
        self._weigh: Callable[[V], int] = weigh or (lambda _: 1)
        self._weight = 0
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return an entry and note its use; None without one."""
        if (value := self._entries.get(key)) is not None:
            self._entries.move_to_end(key)
        return value

    def peek(self, key: K) -> V | None:
        """Return an entry without using it; None without one."""
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Set an entry as the most recently used, and evict others if the cache is over its size."""
        self.discard(key)
        self._entries[key] = value
        self._weight += self._weigh(value)
        while self._weight > self._size and len(self._entries) > 1:
            self.discard(next(iter(self._entries)))

    def discard(self, key: K) -> None:
        """Drop an entry, if it is there."""
        if (value := self._entries.pop(key, None)) is not None:
            self._weight -= self._weigh(value)

    def discard_where(self, condition: Callable[[K, V], bool]) -> None:
        """Drop all entries that meet a condition."""
        for key in [key for key, value in self._entries.items() if condition(key, value)]:
            self.discard(key)

    def clear(self) -> None:
        """Drop all entries."""
        self._entries.clear()
        self._weight = 0


class ExpiringCache(Generic[K, V]):
    """LRU cache of `size` entries that expire after `lifetime`, in the unit of the clock `now`."""

    __slots__ = ("_entries", "_lifetime", "_now", "clear", "discard")

    def __init__(self, size: int, lifetime: float, now: Callable[[], float]) -> None:
        self._lifetime, self._now = lifetime, now
        self._entries: LruCache[K, tuple[float, V]] = LruCache(size)
        self.discard, self.clear = self._entries.discard, self._entries.clear

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return an entry and note its use; None if it is absent or expired."""
        if (entry := self._entries.get(key)) is None:
            return None
        until, value = entry
        if self._now() < until:
            return value
        self._entries.discard(key)
        return None

    def put(self, key: K, value: V) -> None:
        """Set an entry; its lifetime begins now."""
        self._entries.put(key, (self._now() + self._lifetime, value))
