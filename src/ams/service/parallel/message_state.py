"""State of the messages of one subscription: done, leased, waiting for a retry, failed, blocked by an ordering key.

Ordering keys are known only of messages that are not done. So their state comes back with the messages, and no topic
is ever scanned for it.

Lease ends are looked for in slots of a tenth of a second. So a lease costs one entry in a dictionary and its share of a
hand-out, and nothing is ever scanned to find those that have ended. A slot may hold messages that were settled or
extended since: that is found out when its time comes.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.core.offsets import Range, first_missing
from ams.storage.cursors.acks import Progress

MAX_OUT_OF_KEY = 10_000
"""Messages of one ordering key that are out together: all of them are taken back when the first one fails."""
NO_DEADLINE = Milliseconds(2**62)
"""Of leases whose messages are acknowledged, while that is held."""
SLOT = 100
"""Milliseconds: leases and waits that end within one slot are looked at together."""


class Done:
    """Messages that are done: all below the floor, and some above it."""

    def __init__(self, progress: Progress) -> None:
        self.floor = progress.floor
        """The oldest message that is not done."""
        self.scan = progress.floor
        """Where to look for messages that were not given yet."""
        self._above: BitMap64 = progress.done.copy()
        self.being_stored: set[Offset] = set()
        """Offsets whose acknowledgement is being written. Not leased, not yet done."""
        self._passed: list[Range] = []
        """Ranges that were passed over and are not stored yet. They may be lost: they are passed over again."""

    def __contains__(self, offset: Offset) -> bool:
        return offset < self.floor or offset in self._above

    @property
    def above(self) -> int:
        """Number of done messages above the floor."""
        return len(self._above)

    def count(self, begin: Offset, end: Offset) -> int:
        """Return how many messages from `begin` to `end` are done, of those above the floor."""
        return int(self._above.range_cardinality(begin, end))

    def scanned(self, end: Offset) -> None:
        """Note that everything below `end` was looked at."""
        self.scan = max(self.scan, end)

    def add(self, offsets: Sequence[Offset]) -> None:
        """Note that messages are done."""
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

    def pass_over(self, begin: Offset, end: Offset) -> None:
        """Note that the unseen offsets from `begin` to `end` are done: nothing there is for this subscription."""
        goes_on = self._passed and self._passed[-1][1] == begin
        self._passed.append((self._passed.pop()[0] if goes_on else begin, end))
        if begin == self.floor:
            self.raise_floor(end)
        else:
            self._above.add_range(begin, end)

    def add_unstored(self, offsets: Sequence[Offset]) -> None:
        """Note that messages are done, and store it with what was passed over."""
        self._passed += [(each, Offset(each + 1)) for each in offsets]
        self.add(offsets)

    @property
    def has_passed(self) -> bool:
        """True if ranges were passed over that are not stored."""
        return bool(self._passed)

    def take_passed(self) -> list[Range]:
        """Return the ranges that were passed over, to be stored."""
        passed, self._passed = self._passed, []
        return passed

    def passed_again(self, passed: Sequence[Range]) -> None:
        """Take back what `take_passed` returned: it could not be stored."""
        self._passed[:0] = passed


class Rules(NamedTuple):
    """Retry policy, dead letter policy and delivery guarantee of a subscription."""

    least_wait: Milliseconds = Milliseconds(0)
    """After the first failure of a message; doubled after each further one."""
    most_wait: Milliseconds = Milliseconds(0)
    most_attempts: int = 0
    """Failures after which a message becomes a dead letter; 0: never."""
    exactly_once: bool = False

    def wait(self, failures: int) -> Milliseconds:
        """Return the backoff of a message that has failed so often."""
        return Milliseconds(min(self.least_wait << min(failures - 1, 32), self.most_wait))


class Failures:
    """Failures of messages that are not done."""

    def __init__(self, counts: Mapping[Offset, int], rules: Rules) -> None:
        self.rules = rules
        self.counts = dict(counts)
        self.being_stored: set[Offset] = set()
        """Messages whose failure is being written; nobody has them until that is known."""
        self.being_taken: Counter[Offset] = Counter()
        """Messages behind some whose failure is being written, of their ordering key, by how many: nobody has them."""
        self.dead: list[Offset] = []
        """Messages to be put aside as dead letters. The sweeper takes them from here."""
        self.dying: set[Offset] = set()
        """These, and those that are being put aside: nobody has them."""
        self.letters: set[Offset] = set()
        """Messages that are in the dead letter topic, while that is not stored."""

    def of(self, offset: Offset) -> int:
        """Return how often a message has failed."""
        return self.counts.get(offset, 0)

    def attempt_of(self, offset: Offset) -> int:
        """Return the number of a message's next delivery, from 1."""
        return self.counts.get(offset, 0) + 1

    def wait_of(self, offset: Offset) -> Milliseconds:
        """Return the backoff of a message that has failed."""
        return self.rules.wait(self.counts.get(offset, 1))

    def has_failed_out(self, offset: Offset) -> bool:
        """Return whether a message has failed as often as it may."""
        return 0 < self.rules.most_attempts <= self.of(offset)

    def begin(self, offsets: Sequence[Offset]) -> Mapping[Offset, int]:
        """Return the new failure counts of messages, to be stored."""
        self.being_stored.update(offsets)
        return {each: self.attempt_of(each) for each in offsets}

    def die(self, offset: Offset) -> None:
        """Let a message be put aside."""
        self.dead.append(offset)
        self.dying.add(offset)

    def has(self, offset: Offset) -> bool:
        """Return whether nobody may have a message: a failure is being stored, or it is to be put aside."""
        return offset in self.being_stored or offset in self.dying or offset in self.being_taken

    def end_taking(self, offsets: Collection[Offset]) -> None:
        """Note that the failure is stored, or cannot be, for which messages are being taken back."""
        for offset in offsets:
            self.being_taken[offset] -= 1
            if not self.being_taken[offset]:
                del self.being_taken[offset]

    def has_any(self, offsets: Collection[int]) -> bool:
        """Return whether `has` holds for one of these, which have no ordering keys."""
        return not (self.being_stored.isdisjoint(offsets) and self.dying.isdisjoint(offsets))

    def are_done(self, offsets: Sequence[Offset]) -> None:
        """Forget messages that are done."""
        if self.counts:
            for offset in offsets:
                self.counts.pop(offset, None)
        if self.dying or self.letters:
            self.dying.difference_update(offsets)
            self.letters.difference_update(offsets)

    def retain(self, oldest: Offset) -> None:
        """Forget messages below an offset."""
        self.counts = {offset: count for offset, count in self.counts.items() if offset >= oldest}
        self.letters = {offset for offset in self.letters if offset >= oldest}
        self.dying = {offset for offset in self.dying if offset >= oldest}


@dataclass(slots=True, eq=False)
class KeyConsumer:
    """Consumer to which ordering keys are bound while it has messages of them: a stream, or one pull."""

    ready: list[Offset] = field(default_factory=list, init=False)
    """A heap: the next messages of its keys, for it alone. One may be there twice, or be given or done by now."""

    def notify(self) -> None:
        """Hear that something is ready for it alone."""


@dataclass(slots=True, eq=False)
class KeyQueue:
    """Messages of an ordering key that were looked at and are not done, in two parts that are in offset order."""

    key: str
    out: dict[Offset, None] = field(default_factory=dict)
    """Those that its consumer has, or is about to get."""
    rest: deque[Offset] = field(default_factory=deque)
    """Those behind: the first is the next to be given. Some may be done, by ids of before a restart."""
    consumer: KeyConsumer | None = None
    """Who has `out`; None: nobody, or somebody who takes one message at a time."""

    @property
    def next(self) -> Offset | None:
        """The next message to be given."""
        return self.rest[0] if self.rest else None

    def takes(self, consumer: KeyConsumer | None) -> bool:
        """Return whether a consumer may have the next message, as far as others have none and it has not too many."""
        if not self.out:
            return True
        return consumer is not None and consumer is self.consumer and len(self.out) < MAX_OUT_OF_KEY

    def behind(self, offset: Offset) -> list[Offset]:
        """Return what is out behind a message; nothing for one that is not out."""
        if offset not in self.out:
            return []
        found = [*takewhile(lambda each: each != offset, reversed(self.out))]
        return found[::-1]


class OrderingKeys:
    """Ordering keys: which message of each is next, and who may have it."""

    def __init__(self) -> None:
        self._queues: dict[str, KeyQueue] = {}
        self._queue_of: dict[Offset, KeyQueue] = {}
        """Of all messages that were looked at and are not done."""
        self._resting = 0
        self._bound = 0
        """How many queues have something out."""

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def blocked(self) -> int:
        """How many messages are behind others of their keys: all but those next in a key of which nothing is out."""
        return self._resting - (len(self._queues) - self._bound)

    def get(self, offset: Offset) -> KeyQueue | None:
        """Return the queue of a message; None: it has no key, was not looked at yet, or is done."""
        return self._queue_of.get(offset)

    def queues_of(self, offsets: Iterable[Offset]) -> set[KeyQueue]:
        """Return the queues of messages."""
        return {self._queue_of[each] for each in offsets if each in self._queue_of}

    def of_out(self, offset: Offset) -> KeyQueue | None:
        """Return the queue of a message that is out; None: it is not, or has no key."""
        queue = self._queue_of.get(offset)
        return queue if queue is not None and offset in queue.out else None

    def add(self, offset: Offset, key: str) -> KeyQueue:
        """Add a message that was not looked at before, behind all others of its key; return its queue."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = KeyQueue(key)
        queue.rest.append(offset)
        self._queue_of[offset] = queue
        self._resting += 1
        return queue

    def take(self, queue: KeyQueue, consumer: KeyConsumer | None, is_done: Callable[[Offset], bool]) -> None:
        """Let a consumer have the next message of a key."""
        if not queue.out:
            self._bound += 1
            queue.consumer = consumer
        queue.out[queue.rest.popleft()] = None
        self._resting -= 1
        self._find_next(queue, is_done)

    def take_back(self, offset: Offset) -> list[Offset]:
        """Let a message that is out be the next again, with what is out behind it; return these."""
        queue = self.of_out(offset)
        if queue is None:
            return []
        behind = queue.behind(offset)
        for each in (offset, *behind):
            del queue.out[each]
        queue.rest.extendleft(reversed((offset, *behind)))
        self._resting += 1 + len(behind)
        self._unbind(queue)
        return behind

    def end(self, offset: Offset, is_done: Callable[[Offset], bool]) -> KeyQueue | None:
        """Forget a message that is done; return its queue if the next one of it may have to be given now."""
        queue = self._queue_of.pop(offset, None)
        if queue is None:
            return None
        if offset in queue.out:
            was_full = len(queue.out) >= MAX_OUT_OF_KEY
            del queue.out[offset]
            self._unbind(queue)
            is_news = was_full or not queue.out
        else:
            is_news = queue.next == offset
        if is_news:
            self._find_next(queue, is_done)
        if not (queue.out or queue.rest):
            del self._queues[queue.key]
        return queue if is_news and queue.rest else None

    def below(self, offset: Offset) -> Sequence[Offset]:
        """Return the messages below an offset. Looks at all."""
        return sorted([each for each in self._queue_of if each < offset])

    def blocks_most(self) -> tuple[Offset, str, int] | None:
        """Return the message that blocks most, its key, and how many it blocks. Looks at all keys."""
        if not self.blocked:
            return None
        found = [(*_first_of(each), each.key) for each in self._queues.values()]
        count, offset, key = max(found)
        return offset, key, count

    def _unbind(self, queue: KeyQueue) -> None:
        if not queue.out:
            self._bound -= 1
            queue.consumer = None

    def _find_next(self, queue: KeyQueue, is_done: Callable[[Offset], bool]) -> None:
        """Pass by what is done, by ids of before a restart."""
        while queue.rest and is_done(queue.rest[0]):
            self._queue_of.pop(queue.rest.popleft(), None)
            self._resting -= 1


def _first_of(queue: KeyQueue) -> tuple[int, Offset]:
    """Return how many messages are blocked of a key, and the first one that is not done."""
    if queue.out:
        return len(queue.rest), next(iter(queue.out))
    return len(queue.rest) - 1, queue.rest[0]


@dataclass(slots=True, eq=False)
class Window(KeyConsumer):
    """Flow control of one stream: how many messages and bytes it may still have on lease."""

    messages: int
    """Negative after the extension of leases that were about to end."""
    bytes: int
    """Negative when the last message was larger than the rest of the window."""
    freed: Callable[[], None] = lambda: None
    """Is called when leases have ended, or something is ready for this stream alone."""

    def notify(self) -> None:
        """Hear that something is ready for it alone."""
        self.freed()

    @property
    def is_full(self) -> bool:
        """True if nothing more may be given."""
        return self.messages <= 0 or self.bytes <= 0


@dataclass(slots=True, eq=False)
class HandOut:
    """Messages that were given by one answer, as long as their leases are the same."""

    text: str
    """The part of their ids behind the dash (`ams.core.ack_ids`)."""
    offsets: list[Offset]
    """Messages that were leased by it once; `live` of them still are."""
    live: int
    deadline: Milliseconds
    bytes_each: int
    holder: str
    window: Window | None = None
    """Of the stream that has them; None: they are not on a stream."""
    slot: int = -1

    @property
    def is_held(self) -> bool:
        """True if its messages are acknowledged, while earlier ones of their ordering keys are out."""
        return self.deadline == NO_DEADLINE


class LeaseTable:
    """Lease table: who has which messages until when, and which messages wait for a retry."""

    def __init__(self) -> None:
        self._by_offset: dict[Offset, HandOut] = {}
        self.holders: Counter[str] = Counter()
        self.bytes_held_by: Counter[str] = Counter()
        """How many bytes each consumer has, about."""
        self.waiting: dict[Offset, tuple[Milliseconds, str | None]] = {}
        """Until when messages wait, and who had them when they failed (None: nobody)."""
        self.waits_of: Counter[str] = Counter()
        """How many messages wait that failed with each consumer."""
        self._due: dict[int, list[HandOut | Offset]] = {}
        self._slots: list[int] = []
        """A heap of the keys of `_due`."""
        self.bytes = 0
        """Of all messages that are leased, about."""
        self._fill_windows = True

    def __len__(self) -> int:
        return len(self._by_offset)

    def __contains__(self, offset: Offset) -> bool:
        return offset in self._by_offset

    @property
    def latest(self) -> Milliseconds | None:
        """When the last lease ends by time; None while there is none. Looks at all hand-outs."""
        return max((each.deadline for each in set(self._by_offset.values()) if not each.is_held), default=None)

    def get(self, offset: Offset) -> HandOut | None:
        """Return the hand-out by which a message is leased now."""
        return self._by_offset.get(offset)

    def lease(self, hand_out: HandOut) -> None:
        """Lease the messages of a hand-out."""
        self._by_offset.update(dict.fromkeys(hand_out.offsets, hand_out))
        self.holders[hand_out.holder] += hand_out.live
        size = hand_out.live * hand_out.bytes_each
        self.bytes += size
        self.bytes_held_by[hand_out.holder] += size
        if not self._fill_windows:
            hand_out.window = None
        if hand_out.window is not None:
            hand_out.window.messages -= hand_out.live
            hand_out.window.bytes -= size
        self._watch(hand_out)

    def lease_again(self, hand_out: HandOut, offsets: list[Offset], deadline: Milliseconds) -> None:
        """Lease some of a hand-out's messages that are not leased now, until another time."""
        text, size, holder, window = hand_out.text, hand_out.bytes_each, hand_out.holder, hand_out.window
        self.lease(HandOut(text, offsets, len(offsets), deadline, size, holder, window))

    def end(self, hand_out: HandOut, offsets: Sequence[Offset]) -> None:
        """End the leases of some of a hand-out's messages."""
        for offset in offsets:
            del self._by_offset[offset]
        hand_out.live -= len(offsets)
        size = len(offsets) * hand_out.bytes_each
        self.bytes -= size
        self.holders[hand_out.holder] -= len(offsets)
        self.bytes_held_by[hand_out.holder] -= size
        if not self.holders[hand_out.holder]:
            del self.holders[hand_out.holder], self.bytes_held_by[hand_out.holder]
        if hand_out.window is not None:
            hand_out.window.messages += len(offsets)
            hand_out.window.bytes += size
            hand_out.window.freed()
        if hand_out.live * 4 < len(hand_out.offsets):  # mostly gone: forget the others
            hand_out.offsets = self._live(hand_out)

    def free_windows(self) -> None:
        """Let no stream be filled by these leases any more: the subscription is let go of."""
        self._fill_windows = False
        for each in {*self._by_offset.values()}:
            window, each.window = each.window, None
            if window is not None:
                window.messages += each.live
                window.bytes += each.live * each.bytes_each
                window.freed()

    def extend(self, hand_out: HandOut, offsets: list[Offset], deadline: Milliseconds) -> None:
        """Let the leases of some of a hand-out's messages end at another time."""
        if hand_out.live == len(offsets):
            hand_out.deadline = deadline
            self._watch(hand_out)
            return
        self.end(hand_out, offsets)
        self.lease_again(hand_out, offsets, deadline)

    def hold(self, hand_out: HandOut, offsets: list[Offset]) -> None:
        """Let the leases of some of a hand-out's messages not end by time, as an acknowledgement of them is held."""
        self.end(hand_out, offsets)
        self.lease_again(hand_out, offsets, NO_DEADLINE)

    def has_any(self, offsets: Collection[int]) -> bool:
        """Return whether one of these is leased or waits."""
        return not (self._by_offset.keys().isdisjoint(offsets) and self.waiting.keys().isdisjoint(offsets))

    def of(self, offsets: Iterable[Offset]) -> Mapping[HandOut, list[Offset]]:
        """Return those of some messages that are leased, by their hand-outs."""
        found: dict[HandOut, list[Offset]] = {}
        for each in offsets:
            hand_out = self._by_offset.get(each)
            if hand_out is not None:
                found.setdefault(hand_out, []).append(each)
        return found

    def below(self, offset: Offset) -> Mapping[HandOut, list[Offset]]:
        """Return the messages below an offset that are leased."""
        return self.of([each for each in self._by_offset if each < offset])

    def wait(self, offset: Offset, until: Milliseconds, holder: str | None = None) -> None:
        """Let a message wait until a time, also one that waits; `holder` had it when it failed."""
        self.stop_waiting(offset)
        self.waiting[offset] = until, holder
        if holder is not None:
            self.waits_of[holder] += 1
        self._add(-(-until // SLOT), offset)

    def stop_waiting(self, offset: Offset) -> None:
        """Let a message wait no more, if it does."""
        _, holder = self.waiting.pop(offset, (0, None))
        if holder is None:
            return
        self.waits_of[holder] -= 1
        if not self.waits_of[holder]:
            del self.waits_of[holder]

    def next_due(self) -> Milliseconds | None:
        """Return when there may be something to `take_due`; None while there is nothing to wait for."""
        return Milliseconds(self._slots[0] * SLOT) if self._slots else None

    def take_due(self, now: Milliseconds) -> Iterator[tuple[HandOut, list[Offset]] | Offset]:
        """Yield leases that have ended, with their messages, and messages whose wait is over; they are gone then."""
        while self._slots and self._slots[0] * SLOT <= now:
            slot = heapq.heappop(self._slots)
            for each in self._due.pop(slot):
                if not isinstance(each, HandOut):
                    if each in self.waiting and self.waiting[each][0] <= now:
                        self.stop_waiting(each)
                        yield each
                elif each.slot == slot and each.live:
                    if each.deadline >= now:  # it was extended
                        each.slot = -1
                        self._watch(each)
                        continue
                    offsets = self._live(each)
                    self.end(each, offsets)
                    yield each, offsets

    def _live(self, hand_out: HandOut) -> list[Offset]:
        return [each for each in hand_out.offsets if self._by_offset.get(each) is hand_out]

    def _watch(self, hand_out: HandOut) -> None:
        if hand_out.is_held:
            return
        slot = -(-(hand_out.deadline + 1) // SLOT)
        if slot != hand_out.slot:
            hand_out.slot = slot
            self._add(slot, hand_out)

    def _add(self, slot: int, what: HandOut | Offset) -> None:
        due = self._due.get(slot)
        if due is None:
            self._due[slot] = [what]
            heapq.heappush(self._slots, slot)
        else:
            due.append(what)
