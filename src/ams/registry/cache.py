"""What requests need again and again, so that the hot paths never touch the database.

Filled on a miss, emptied entry by entry by whoever writes. A fill is dropped when anything was forgotten since its
query began: the query may have read what stood there before.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Cache(Generic[K, V]):
    """At most `size` entries; the one not used for longest goes first. What does not exist is not remembered."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def find(self, key: K, fill: Callable[[], Awaitable[V | None]]) -> V | None:
        """Return the entry, without suspending when it is there; else ask `fill`."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
            return value
        forgotten = self._forgotten
        value = await fill()
        if value is not None and forgotten == self._forgotten:
            self._keep(key, value)
        return value

    def forget(self, key: K) -> None:
        """Drop an entry, and every fill that is under way."""
        self._forgotten += 1
        self._entries.pop(key, None)

    def forget_where(self, condition: Callable[[K, V], bool]) -> None:
        """Drop all entries that meet a condition, and every fill that is under way."""
        self._forgotten += 1
        for key in [key for key, value in self._entries.items() if condition(key, value)]:
            del self._entries[key]

    def _keep(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
