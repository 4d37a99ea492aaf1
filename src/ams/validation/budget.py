"""How much work a check may take where others wait for it.

Work is estimated before it is done, in units of some ten nanoseconds, and always too high: the engine of JSON Schema
lets nobody else run until it is through with a document.
"""

import math

INLINE = 200_000
"""Units for one request on the event loop: a few milliseconds at worst, and enough for a hundred usual messages."""
EACH = 100
"""Units for looking at a message at all."""


class TooMuch(Exception):
    """The work is over the budget; nothing is known of the message."""


class Budget:
    """Units left."""

    def __init__(self, units: float = math.inf) -> None:
        self._left = units

    def spend(self, units: float) -> None:
        """Take units before doing the work; raise `TooMuch` when there are not as many."""
        self._left -= units
        if self._left < 0:
            raise TooMuch
