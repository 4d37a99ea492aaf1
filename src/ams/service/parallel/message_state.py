"""State of single messages of one subscription: what is done, what has failed, and which ordering keys are under way.

Only ordering keys of messages that are not done are known. So their state comes back with the messages, and no topic is
ever scanned for it.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from ams.core.clock import Milliseconds
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


class Rules(NamedTuple):
    """What a subscription's options say of failures."""

    least_wait: Milliseconds = Milliseconds(0)
    """After the first failure of a message; twice as long after each further one."""
    most_wait: Milliseconds = Milliseconds(0)
    most_attempts: int = 0
    """After so many failures a message is put aside; 0: never."""
    exactly_once: bool = False
    """Whether no id counts as the acknowledgement of a message that another one has finished."""

    def wait(self, failures: int) -> Milliseconds:
        """Return how long a message waits that has failed so often."""
        return Milliseconds(min(self.least_wait << min(failures - 1, 32), self.most_wait))


class Failures:
    """The failures of messages that are not done."""

    def __init__(self, counts: Mapping[Offset, int], rules: Rules) -> None:
        self.rules = rules
        self._counts = dict(counts)
        self.being_stored: set[Offset] = set()
        """Messages of which a failure is being stored; they are in nobody's hands until it is known."""
        self.dead: list[Offset] = []
        """Messages that have failed as often as they may, and are to be put aside. Who does takes them from here."""
        self._dying: set[Offset] = set()
        """These, and those that are being put aside: they are in nobody's hands until `put_aside` or `keep`."""
        self._letters: set[Offset] = set()
        """Messages that are in the dead letter topic, and wait for that to be stored."""

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __contains__(self, offset: Offset) -> bool:
        return offset in self._counts

    @property
    def counts(self) -> Mapping[Offset, int]:
        """How often messages have failed; only those that did."""
        return self._counts

    def of(self, offset: Offset) -> int:
        """Return how often a message has failed."""
        return self._counts.get(offset, 0)

    def attempt_of(self, offset: Offset) -> int:
        """Return the number of a message's next delivery, from 1."""
        return self._counts.get(offset, 0) + 1

    def wait_of(self, offset: Offset) -> Milliseconds:
        """Return how long a message waits that has failed."""
        return self.rules.wait(self._counts.get(offset, 1))

    def has_failed_out(self, offset: Offset) -> bool:
        """Whether a message has failed as often as it may."""
        return 0 < self.rules.most_attempts <= self.of(offset)

    def begin(self, offsets: Sequence[Offset]) -> Mapping[Offset, int]:
        """Return how often messages have failed now, which is to be stored."""
        self.being_stored.update(offsets)
        return {each: self.attempt_of(each) for each in offsets}

    def stored(self, offset: Offset, count: int) -> None:
        """Take note that it is on disk how often a message has failed."""
        self._counts[offset] = count

    # Those that are to be put aside

    def die(self, offset: Offset) -> None:
        """Let a message be put aside."""
        self.dead.append(offset)
        self._dying.add(offset)

    def put_aside(self, offset: Offset) -> None:
        """Take note that the dead letter topic has a message."""
        self._dying.discard(offset)
        self._letters.add(offset)

    def keep(self, offset: Offset) -> None:
        """Take note that a message could not be put aside."""
        self._dying.discard(offset)

    def is_letter(self, offset: Offset) -> bool:
        """Whether the dead letter topic has a message, and that is not stored."""
        return offset in self._letters

    # All of them

    def has(self, offset: Offset) -> bool:
        """Whether a message is in nobody's hands: its failure is being stored, or it is to be put aside."""
        return offset in self.being_stored or offset in self._dying

    def has_any(self, offsets: Collection[int]) -> bool:
        """Whether one of these is."""
        return not (self.being_stored.isdisjoint(offsets) and self._dying.isdisjoint(offsets))

    def are_done(self, offsets: Sequence[Offset]) -> None:
        """Forget messages that are done."""
        if self._counts:
            for offset in offsets:
                self._counts.pop(offset, None)
        if self._dying or self._letters:
            self._dying.difference_update(offsets)
            self._letters.difference_update(offsets)

    def retain(self, oldest: Offset) -> None:
        """Forget messages below an offset."""
        self._counts = {offset: count for offset, count in self._counts.items() if offset >= oldest}
        self._letters = {offset for offset in self._letters if offset >= oldest}
        self._dying = {offset for offset in self._dying if offset >= oldest}


class Blocking(NamedTuple):
    """A message that is under way, and those of its key behind it."""

    offset: Offset
    key: str
    blocked: int
    """How many it blocks."""


class OrderingKeys:
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
