"""What may be out of one subscription since before this run: given by this process, or by another one.

An id of then is good for a grace. Nothing that may be out is given meanwhile where delivery is exactly once.
"""

from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.service.parallel.done import Done


class Before:
    """What is known of the leases of before this run."""

    def __init__(self, run: int, end: Offset, grace_until: Milliseconds, longest_until: Milliseconds) -> None:
        """Others gave nothing at or above `end`.

        Ids that were given in the run before are good until `grace_until`. The longest leases of then may last until
        `longest_until`; it counts when exactly-once delivery is switched on before anything is given.
        """
        self._is_first = run == 1
        self.end = end
        self._topic_end = end
        self.grace_until = grace_until
        self._longest_until = longest_until
        self._withheld_below = Offset(0)
        self._withheld_until = Milliseconds(0)

    def grow(self, end: Offset) -> bool:
        """Note where the topic ends by now; return whether that is farther than was known."""
        before, self._topic_end = self._topic_end, max(self._topic_end, end)
        return self._topic_end > before

    def may_have_given(self, offset: Offset) -> bool:
        """Whether a message was there, so that another process may have given it that did not know of this run yet."""
        return offset < self._topic_end

    def is_out_until(self, done: Done, *, has_given: bool) -> Milliseconds:
        """Return until when messages may be out, as far as that counts; 0: none is.

        `has_given`: whether this run has given anything.
        """
        left = self.end - done.floor
        if self._is_first or left <= 0 or left == done.count(done.floor, self.end):
            return Milliseconds(0)
        return self.grace_until if has_given else max(self.grace_until, self._longest_until)

    def withhold(self, below: Offset, until: Milliseconds) -> None:
        """Give nothing below an offset until a time, as it may be out (exactly-once)."""
        self._withheld_below, self._withheld_until = below, until

    def withhold_longest(self) -> None:
        """Give nothing that may be out as long as the longest leases may last, and let their ids be good until then."""
        self.grace_until = self._longest_until
        self.withhold(self.end, self._longest_until)

    def withholds_from(self, offset: Offset) -> bool:
        """Whether some at or above an offset was withheld, perhaps no more."""
        return offset < self._withheld_below

    def withheld_until(self, offset: Offset, now: Milliseconds) -> Milliseconds | None:
        """Return until when a message is withheld; None: it is not."""
        return self._withheld_until if offset < self._withheld_below and now < self._withheld_until else None
