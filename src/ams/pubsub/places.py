"""Places for what lasts: so nobody can take all of what everybody needs."""

import contextlib
from collections import Counter
from collections.abc import Hashable, Iterator

from ams.core.errors import Overloaded


class Places:
    """Places that are taken for as long as something lasts.

    A holder may have as many as it leaves free: one alone half of them, each of two a third, and so on. That is the
    share that a project has of the memory for answers, too.
    """

    def __init__(self, most: int, refusal: str) -> None:
        """`most` is how many there are, 2 at least; `refusal` is what a holder is told for whom there is none."""
        self._most = max(most, 2)
        self._refusal = refusal
        self._taken: Counter[Hashable] = Counter()
        self._all = 0

    @contextlib.contextmanager
    def taken(self, holder: Hashable) -> Iterator[None]:
        """Have a place while the block runs; raise `Overloaded` when the holder's share is taken."""
        if self._taken[holder] >= self._most - self._all:
            raise Overloaded(self._refusal)
        self._taken[holder] += 1
        self._all += 1
        try:
            yield
        finally:
            self._taken[holder] -= 1
            self._all -= 1
            if not self._taken[holder]:
                del self._taken[holder]
