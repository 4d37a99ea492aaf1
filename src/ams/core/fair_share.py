"""Fair share of a fixed capacity: a holder may take as much as it leaves free.

When n holders take small amounts in turn, each gets 1/(n+1) of the capacity. Holders do not register.
"""

import contextlib
from collections import Counter
from collections.abc import Generator, Sequence
from typing import Generic, TypeVar

from ams.core.errors import Overloaded

Holder = TypeVar("Holder")

UNLIMITED = 2**62
MAX_UNCOUNTED_BYTES = 2**16  # smaller bodies and answers are not counted; the connection limit bounds them
_NOT_COUNTED = contextlib.nullcontext()


def fair_room(capacity: int, used: int, held: int) -> int:
    """Return how much more a holder of `held` may take when `used` of the capacity is in use."""
    return max(capacity - used - held, 0)


class FairShare(Generic[Holder]):
    """Amounts of a capacity by holder. Not thread safe.

    An amount may have several holders, such as a project and a user. It counts once for the capacity and each holder.
    """

    __slots__ = ("_by_holder", "capacity", "used")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._by_holder: Counter[Holder] = Counter()

    def __len__(self) -> int:
        return len(self._by_holder)

    def held_by(self, holder: Holder) -> int:
        """Return the amount of a holder."""
        return self._by_holder.get(holder, 0)

    def room(self, *holders: Holder) -> int:
        """Return how much these holders may take together."""
        return fair_room(self.capacity, self.used, max(map(self.held_by, holders)))

    def steady_share(self, holder: Holder) -> int:
        """Return how much a holder can reach in small steps while others take nothing."""
        return (max(self.capacity - self.used + self.held_by(holder), 0) + 1) // 2

    def largest_holder(self) -> Holder:
        """Return the holder of the largest amount. Raises `ValueError` when there is no holder."""
        return max(self._by_holder, key=self._by_holder.__getitem__)

    def add(self, amount: int, *holders: Holder) -> None:
        """Add an amount without checking the limit; a negative one gives it back."""
        if not amount:
            return
        self.used += amount
        for holder in set(holders):
            self._by_holder[holder] += amount
            if not self._by_holder[holder]:
                del self._by_holder[holder]

    def try_take(self, holder: Holder, amount: int = 1) -> bool:
        """Take an amount if the limit allows it; return whether it was taken."""
        if self.room(holder) < amount:
            return False
        self.add(amount, holder)
        return True

    def give_back(self, holder: Holder, amount: int = 1) -> None:
        """Give back an amount that was taken."""
        self.add(-amount, holder)

    @contextlib.contextmanager
    def hold_slot(self, holder: Holder, refusal: str) -> Generator[None]:
        """Hold one slot while the block runs. Raises `Overloaded(refusal)` when none is free."""
        if not self.try_take(holder):
            raise Overloaded(refusal)
        try:
            yield
        finally:
            self.give_back(holder)

    def hold_bytes(self, size: int, *holders: Holder) -> contextlib.AbstractContextManager[None]:
        """Count bytes for their holders while the block runs; few bytes are not counted."""
        return _Held(self, size, holders) if size > MAX_UNCOUNTED_BYTES else _NOT_COUNTED


class _Held(contextlib.AbstractContextManager[None], Generic[Holder]):
    """A class instead of @contextmanager: avoids one generator per pull (hot path)."""

    __slots__ = ("_holders", "_share", "_size")

    def __init__(self, share: FairShare[Holder], size: int, holders: Sequence[Holder]) -> None:
        self._share, self._size, self._holders = share, size, holders

    def __enter__(self) -> None:
        self._share.add(self._size, *self._holders)

    def __exit__(self, *_: object) -> None:
        self._share.add(-self._size, *self._holders)
