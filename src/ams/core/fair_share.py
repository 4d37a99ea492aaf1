"""Fair share of a fixed capacity: a holder may take as much as it leaves free.

One holder alone gets half when it takes a little at a time, each of two a third, and so on. No holder has to be
registered before it comes.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from ams.core.errors import Overloaded

Holder = TypeVar("Holder")

UNLIMITED = 2**62  # a capacity that nobody comes near
SMALL = 2**16  # bytes of a body or an answer that are not counted: connections are
_NOT_COUNTED = contextlib.nullcontext()


def fair_room(capacity: int, used: int, held: int) -> int:
    """Return how much more a holder may take that has `held` of the `used` part of a capacity."""
    return max(capacity - used - held, 0)


class FairShare(Generic[Holder]):
    """Counts who holds how much of a capacity. Not thread safe: used from one event loop.

    An amount of several holders, such as a project and a user, counts once for the capacity and for each of them.
    """

    __slots__ = ("_by_holder", "capacity", "used")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._by_holder: Counter[Holder] = Counter()

    def __len__(self) -> int:
        return len(self._by_holder)

    def held_by(self, holder: Holder) -> int:
        """Return how much a holder has."""
        return self._by_holder.get(holder, 0)

    def room(self, *holders: Holder) -> int:
        """Return how much more may be taken together by these holders."""
        return fair_room(self.capacity, self.used, max(map(self.held_by, holders)))

    def most_of(self, holder: Holder) -> int:
        """Return how much a holder can have that takes a little at a time, while the others stay as they are."""
        return (max(self.capacity - self.used + self.held_by(holder), 0) + 1) // 2

    def largest_holder(self) -> Holder:
        """Return who has most. Raises `ValueError` when nothing is held."""
        return max(self._by_holder, key=self._by_holder.__getitem__)

    def add(self, amount: int, *holders: Holder) -> None:
        """Count an amount whether or not there is room for it; a negative one gives it back."""
        if not amount:
            return
        self.used += amount
        for holder in set(holders):
            self._by_holder[holder] += amount
            if not self._by_holder[holder]:
                del self._by_holder[holder]

    def try_take(self, holder: Holder, amount: int = 1) -> bool:
        """Take an amount if the holder has room for it. Returns False, and counts nothing, when it has not."""
        if self.room(holder) < amount:
            return False
        self.add(amount, holder)
        return True

    def give_back(self, holder: Holder, amount: int = 1) -> None:
        """Give back an amount that was taken."""
        self.add(-amount, holder)

    @contextlib.contextmanager
    def taken(self, holder: Holder, refusal: str) -> Generator[None]:
        """Hold one of the capacity while the block runs. Raises `Overloaded` with a text when there is no room."""
        if not self.try_take(holder):
            raise Overloaded(refusal)
        try:
            yield
        finally:
            self.give_back(holder)


class _Held(contextlib.AbstractContextManager[None], Generic[Holder]):
    """A class, as a generator would be made for each pull."""

    __slots__ = ("_count", "_holder", "_size")

    def __init__(self, count: Callable[[Holder, int], None], holder: Holder, size: int) -> None:
        self._count, self._holder, self._size = count, holder, size

    def __enter__(self) -> None:
        self._count(self._holder, self._size)

    def __exit__(self, *_: object) -> None:
        self._count(self._holder, -self._size)


def held(count: Callable[[Holder, int], None], holder: Holder, size: int) -> contextlib.AbstractContextManager[None]:
    """Have bytes counted for their holder while the block runs, and taken off again after it."""
    return _Held(count, holder, size) if size > SMALL else _NOT_COUNTED
