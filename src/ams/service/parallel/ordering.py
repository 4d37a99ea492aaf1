"""Ordering keys: of each, one message is under way, and those behind it are blocked in their order.

Only keys of messages that are not done are known. So their state comes back with the messages, and no topic is ever
scanned for it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ams.core.names import Offset


class Blocking(NamedTuple):
    """A message that is under way, and those of its key behind it."""

    offset: Offset
    key: str
    blocked: int
    """How many it blocks."""


class Keys:
    """The keys of one subscription."""

    def __init__(self) -> None:
        self._blocked: dict[str, deque[Offset]] = {}
        """Of each key that has a message under way, those behind it."""
        self._key_of: dict[Offset, str] = {}
        """The key of each message that is under way."""
        self.blocked = 0
        """How many messages are blocked, of all keys."""

    def begin(self, offset: Offset, key: str) -> bool:
        """Let a message of a key be under way; False, and it is blocked, when another one is."""
        blocked = self._blocked.get(key)
        if blocked is not None:
            blocked.append(offset)
            self.blocked += 1
            return False
        self._blocked[key] = deque()
        self._key_of[offset] = key
        return True

    def end(self, offset: Offset, is_done: Callable[[Offset], bool]) -> Offset | None:
        """End a message that is done; return the next one of its key that is not, which is under way now."""
        key = self._key_of.pop(offset, None)
        if key is None:
            return None
        blocked = self._blocked[key]
        while blocked:
            following = blocked.popleft()
            self.blocked -= 1
            if not is_done(following):
                self._key_of[following] = key
                return following
        del self._blocked[key]
        return None

    def below(self, offset: Offset) -> Sequence[Offset]:
        """Return the messages below an offset that are under way."""
        return [each for each in self._key_of if each < offset]

    def blocks_most(self) -> Blocking | None:
        """Return the message that blocks most; None while nothing is blocked. Looks at all keys."""
        if not self.blocked:
            return None
        found = [Blocking(offset, key, len(self._blocked[key])) for offset, key in self._key_of.items()]
        return max(found, key=lambda each: each.blocked, default=None)

    def __bool__(self) -> bool:
        return bool(self._key_of)
