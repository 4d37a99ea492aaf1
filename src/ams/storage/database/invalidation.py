"""Caches of what is in the database, and forgetting what changed: in this process and in every other one.

Caches are filled on a miss, and emptied entry by entry when something is written. A writer names what has to be
forgotten as small values. They go out with the transaction where several nodes share a database
(`ams.storage.database.postgresql`), and are applied here by one hub. A fill is dropped when anything was
forgotten since its query began: the query may have read what stood there before. Entries of a cache are used only
while the node surely gets every change: that is its trust. Otherwise the database is read each time.
"""

import math
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Self

import msgspec

from ams.core.cache import K, LruCache, V

FOREVER = math.inf


class Trust:
    """Until when entries may be used, as a moment of `time.monotonic`; without limit where no other process writes."""

    __slots__ = ("until",)

    def __init__(self, until: float = FOREVER) -> None:
        self.until = until

    def holds(self) -> bool:
        """Return whether entries may be used now."""
        return self.until == FOREVER or time.monotonic() < self.until


class Cache(LruCache[K, V]):
    """A bounded cache of answers of a database. Absent things are not remembered."""

    __slots__ = ("_forgotten", "_trust")

    def __init__(self, size: int, weigh: Callable[[V], int] | None = None, trust: Trust | None = None) -> None:
        super().__init__(size, weigh)
        self._trust = trust or Trust()
        self._forgotten = 0

    def known(self, key: K) -> V | None:
        """Return the entry if it is there and valid, else None: see `find`. For hot paths, without a coroutine."""
        if self._trust.until != FOREVER and not self._trust.holds():
            return None
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    async def find(self, key: K, fill: Callable[[], Awaitable[V | None]]) -> V | None:
        """Return the entry, without suspending when it is there and valid; else call `fill`."""
        value = self.known(key)
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
        """Drop an entry that is wrong by now, and every fill that is under way."""
        self._forgotten += 1
        self.discard(key)

    def forget_where(self, condition: Callable[[K, V], bool]) -> None:
        """Drop all entries that meet a condition, and every fill that is under way."""
        self._forgotten += 1
        self.discard_where(condition)


PRINCIPAL = "principal"  # whom the tokens of a user stand for; key: the user's identity
PROJECT = "project"  # a project; key: its identity
TOPIC = "topic"  # a topic; keys: its project's identity, and its name
SUBSCRIPTION = "subscription"  # a subscription; keys: its project's identity, and its name
SCHEMA = "schema"  # a schema, as topics that have it know it; key: its identity
ISSUERS = "issuers"  # all issuers whose tokens are accepted, and what their tokens said; no keys

_decoder = msgspec.json.Decoder(list[str])


class Invalidation(NamedTuple):
    """A cache entry to forget, or several."""

    kind: str
    keys: tuple[str, ...]

    def text(self) -> str:
        """Write it for other nodes; names and identities are short, so this fits into 8000 bytes."""
        return msgspec.json.encode([self.kind, *self.keys]).decode()

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read what `text` wrote; None for anything else."""
        try:
            kind, *keys = _decoder.decode(text)
        except (msgspec.DecodeError, ValueError):  # the latter for an empty list
            return None
        return cls(kind, tuple(keys))


class Invalidations:
    """The hub: makes caches, and applies the invalidations of all writers to them."""

    def __init__(self) -> None:
        self._trust = Trust()
        self._caches: list[Cache[Any, Any]] = []
        self._kinds: dict[str, list[Callable[..., None]]] = {}
        self.generation = 0  # grows with each invalidation: what was concluded from caches holds while it stands

    def new_cache(self, size: int, weigh: Callable[[Any], int] | None = None) -> Cache[Any, Any]:
        """Make a cache that is used only while changes are received; see `LruCache`."""
        cache: Cache[Any, Any] = Cache(size, weigh, self._trust)
        self._caches.append(cache)
        return cache

    def on(self, kind: str, forget: Callable[..., None]) -> None:
        """Have `forget` called too, with the keys, at each invalidation of a kind."""
        self._kinds.setdefault(kind, []).append(forget)

    def apply(self, forgets: Iterable[Invalidation]) -> None:
        """Invalidate; everything, for an unknown kind: a newer node may have more kinds."""
        for each in forgets:
            self.generation += 1
            if each.kind not in self._kinds:
                self.forget_all()
            for forget in self._kinds.get(each.kind, ()):
                forget(*each.keys)

    def forget_all(self) -> None:
        """Invalidate everything, and drop every fill that is under way."""
        self.generation += 1
        for cache in self._caches:
            cache.forget_where(lambda _key, _value: True)

    def distrust(self) -> None:
        """Use no cache from now on, until `trust` is called: others may write, and no change is received yet."""
        self._trust.until = -math.inf

    def trust(self, until: float) -> None:
        """Use the caches until a moment of `time.monotonic`."""
        self._trust.until = until

    @property
    def trusted(self) -> bool:
        """Return whether the caches are used now."""
        return self._trust.holds()
