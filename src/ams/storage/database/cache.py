"""What requests need again and again, so that the hot paths never touch the database.

Filled on a miss, emptied entry by entry by whoever writes. A fill is dropped when anything was forgotten since its
query began: the query may have read what stood there before. Where others write too, entries are believed only while
this process surely hears of that; else the database is asked each time.
"""

import math
import time
from collections.abc import Awaitable, Callable

from ams.core.cache import K, LruCache, V

FOREVER = math.inf


class Trust:
    """Until when entries may be believed, as a moment of `time.monotonic`; for ever where nobody else writes."""

    __slots__ = ("until",)

    def __init__(self, until: float = FOREVER) -> None:
        self.until = until

    def holds(self) -> bool:
        """Whether entries may be believed now."""
        return self.until == FOREVER or time.monotonic() < self.until


class Cache(LruCache[K, V]):
    """A bounded cache of what a database said. What is not there is not remembered."""

    __slots__ = ("_forgotten", "_trust")

    def __init__(self, size: int, weigh: Callable[[V], int] | None = None, trust: Trust | None = None) -> None:
        super().__init__(size, weigh)
        self._trust = trust or Trust()
        self._forgotten = 0

    def known(self, key: K) -> V | None:
        """Return the entry if it is there and to be believed, None if it has to be looked for: see `find`.

        For the hot paths, which a coroutine for each thing they need would cost more than the things.
        """
        if self._trust.until != FOREVER and not self._trust.holds():
            return None
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    async def find(self, key: K, fill: Callable[[], Awaitable[V | None]]) -> V | None:
        """Return the entry, without suspending when it is there and to be believed; else ask `fill`."""
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
