"""What is done of one subscription: everything below its floor, and some of what is above."""

from collections.abc import Sequence

from pyroaring import BitMap64

from ams.core.names import Offset
from ams.core.offsets import Range, first_missing
from ams.storage.cursors.acks import Progress


class Done:
    """The floor, what is done above it, and how far messages were looked at."""

    def __init__(self, progress: Progress) -> None:
        self.floor = progress.floor
        """Of the oldest message that is not done."""
        self.scan = progress.floor
        """Where to look for messages that were not given yet."""
        self._above: BitMap64 = progress.done.copy()
        self.being_stored: set[Offset] = set()
        """Messages of which it is being stored that they are done; they are in nobody's hands until it is known."""
        self._passed: list[Range] = []
        """What was passed over and is not stored."""

    def __contains__(self, offset: Offset) -> bool:
        return offset < self.floor or offset in self._above

    @property
    def above(self) -> int:
        """How many messages above the floor are done."""
        return len(self._above)

    def count(self, begin: Offset, end: Offset) -> int:
        """Return how many messages from `begin` to `end` are done, of those above the floor."""
        return int(self._above.range_cardinality(begin, end))

    def count_from(self, offset: Offset) -> int:
        """Return how many messages at or above an offset are done, which is not below the floor."""
        return len(self._above) - self.count(Offset(0), offset)

    def scanned(self, end: Offset) -> None:
        """Note that everything below `end` was looked at."""
        self.scan = max(self.scan, end)

    def add(self, offsets: Sequence[Offset]) -> None:
        """Take note that messages are done."""
        if not offsets:
            return
        self.being_stored.difference_update(offsets)
        last = max(offsets)
        if not self._above and last - self.floor + 1 == len(offsets) and min(offsets) == self.floor:
            self.raise_floor(Offset(last + 1))
        else:
            self._above.update(offsets)
            self.raise_floor(self.floor)

    def raise_floor(self, floor: Offset) -> None:
        """Move the floor up to an offset, and over what is done from there on."""
        floor = first_missing(self._above, floor)
        if self._above:
            self._above.remove_range(0, floor)
        self.floor = floor
        self.scan = max(self.scan, floor)

    # What was passed over: it is stored at times, as it can be passed over again

    def pass_over(self, begin: Offset, end: Offset) -> None:
        """Take note that the unseen offsets from `begin` to `end` are done: nothing there is for this subscription."""
        goes_on = self._passed and self._passed[-1][1] == begin
        self._passed.append((self._passed.pop()[0] if goes_on else begin, end))
        if begin == self.floor:
            self.raise_floor(end)
        else:
            self._above.add_range(begin, end)

    def lose(self, offsets: Sequence[Offset]) -> None:
        """Take note that messages are not there any more."""
        self._passed += [(each, Offset(each + 1)) for each in offsets]
        self.add(offsets)

    @property
    def has_passed(self) -> bool:
        """Whether something was passed over that is not stored."""
        return bool(self._passed)

    def take_passed(self) -> list[Range]:
        """Return what was passed over and has to be stored; it need not be soon."""
        passed, self._passed = self._passed, []
        return passed

    def passed_again(self, passed: Sequence[Range]) -> None:
        """Take back what `take_passed` returned: it could not be stored."""
        self._passed[:0] = passed
