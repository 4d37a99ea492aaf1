"""Caches of database records, and their invalidation in this process and on other nodes.

Caches are filled on a miss; a write invalidates single entries. The writer names them by small values, which are sent
with the transaction where nodes share a database (`ams.storage.database.postgresql`) and applied here by one hub. A
fill is dropped if any entry was invalidated since its query began, as the query may have read the old state. Entries
are used only while the node surely receives all changes (`CacheValidity`). Otherwise each read goes to the database.
"""

import math
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import msgspec

from ams.core.cache import K, LruCache, V

FOREVER = math.inf
MAX_CACHED_RECORDS = 50_000  # of each kind, as projects, topics, users by their tokens


@dataclass(slots=True)
class CacheValidity:
    """Time (`time.monotonic`) until which entries may be used; unlimited where no other process writes."""

    until: float = FOREVER

    def holds(self) -> bool:
        """Return whether entries may be used now."""
        return self.until == FOREVER or time.monotonic() < self.until


class Cache(LruCache[K, V]):
    """LRU cache of database records. Absence is not cached."""

    __slots__ = ("_forgotten", "_trust")

    def __init__(self, size: int, weigh: Callable[[V], int] | None = None, trust: CacheValidity | None = None) -> None:
        super().__init__(size, weigh)
        self._trust = trust or CacheValidity()
        self._forgotten = 0

    def find_cached(self, key: K) -> V | None:
        """Return the entry if it is cached and valid, else None. For hot paths: needs no coroutine, unlike `find`."""
        if self._trust.until != FOREVER and not self._trust.holds():
            return None
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    async def find(self, key: K, fill: Callable[[], Awaitable[V | None]]) -> V | None:
        """Return the entry, without suspending if it is cached and valid; else call `fill`."""
        value = self.find_cached(key)
        if value is not None:
            return value
        if not self._trust.holds():
            return await fill()
        forgotten = self._forgotten
        value = await fill()
        if value is not None and forgotten == self._forgotten:
            self.put(key, value)
        return value

    def forget(self, key: K) -> None:
        """Drop an entry, and all running fills."""
        self._forgotten += 1
        self.discard(key)

    def forget_where(self, condition: Callable[[K, V], bool]) -> None:
        """Drop all entries that meet a condition, and all running fills."""
        self._forgotten += 1
        self.discard_where(condition)


PRINCIPAL = "principal"  # the user of a token; key: the user's identity
PROJECT = "project"  # a project; key: its identity
TOPIC = "topic"  # a topic; keys: its project's identity, and its name
SUBSCRIPTION = "subscription"  # a subscription; keys: its project's identity, and its name
SCHEMA = "schema"  # a schema attached to topics; key: its identity
ISSUERS = "issuers"  # all issuers, and verified tokens of theirs; no keys


class Invalidation(NamedTuple):
    """One or more cache entries to drop."""

    kind: str
    keys: tuple[str, ...]

    def text(self) -> str:
        """Encode it for other nodes; always below the 8000 bytes of a notification."""
        return msgspec.json.encode([self.kind, *self.keys]).decode()

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Parse the result of `text`; None if malformed."""
        try:
            kind, *keys = msgspec.json.decode(text, type=list[str])
        except ValueError:  # also for an empty list
            return None
        return cls(kind, tuple(keys))


class Invalidations:
    """Hub that makes caches and applies the invalidations of all writers."""

    def __init__(self) -> None:
        self.validity = CacheValidity()  # of all caches; over while changes of other nodes are not received
        self._caches: list[Cache[Any, Any]] = []
        self._kinds: dict[str, list[Callable[..., None]]] = {}
        self.generation = 0  # grows with each invalidation: results derived from caches are valid while it is unchanged

    def new_cache(self, size: int = MAX_CACHED_RECORDS, weigh: Callable[[Any], int] | None = None) -> Cache[Any, Any]:
        """Make a cache that is used only while changes are received (`LruCache`)."""
        cache: Cache[Any, Any] = Cache(size, weigh, self.validity)
        self._caches.append(cache)
        return cache

    def on(self, kind: str, forget: Callable[..., None]) -> None:
        """Register `forget`, called with the keys at each invalidation of a kind."""
        self._kinds.setdefault(kind, []).append(forget)

    def apply(self, forgets: Iterable[Invalidation]) -> None:
        """Apply invalidations. An unknown kind, from a newer node, invalidates everything."""
        for each in forgets:
            self.generation += 1
            if each.kind not in self._kinds:
                self.forget_all()
            for forget in self._kinds.get(each.kind, ()):
                forget(*each.keys)

    def forget_all(self) -> None:
        """Invalidate everything, and drop all running fills."""
        self.generation += 1
        for cache in self._caches:
            cache.forget_where(lambda _key, _value: True)
