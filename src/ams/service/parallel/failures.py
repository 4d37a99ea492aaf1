"""How often messages of one subscription have failed, and which of them are to be put aside."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.names import Offset


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
