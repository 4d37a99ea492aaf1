"""State of the messages of one subscription: done, leased, waiting for a retry, failed, blocked by an ordering key.

Ordering keys are known only for messages that are not done. After a restart their state is rebuilt while messages are
read; no topic is scanned for it.

Expiry uses a timer wheel with slots of 100 ms, so no scan looks for expired leases. A lease costs one dictionary entry
and its share of a hand-out. A slot may hold messages that were settled or extended since; that is checked when it is
due.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.core.offsets import Range, first_missing
from ams.storage.cursors.acks import AckProgress

MAX_OUT_OF_KEY = 10_000  # messages of one ordering key on lease together: all are taken back when the first one fails
NO_DEADLINE = Milliseconds(2**62)  # deadline of a lease whose acknowledgement is held
SLOT_MS = 100  # slot of the timer wheel: leases and backoffs that end within one are handled together


class Done:
    """Messages that are done: all below the floor, and some above it."""

    def __init__(self, progress: AckProgress) -> None:
        self.floor = progress.floor  # the oldest message that is not done
        self.scan = progress.floor  # the next offset to scan
        self._above: BitMap64 = progress.done.copy()
        self.being_stored: set[Offset] = set()  # their acknowledgement is being written: not leased, not yet done
        self.passed: list[Range] = []  # ranges that the filter skipped, not stored yet; after a crash, skipped again

    def __contains__(self, offset: Offset) -> bool:
        return offset < self.floor or offset in self._above

    @property
    def above(self) -> int:
        """Number of done messages above the floor."""
        return len(self._above)

    def count(self, begin: Offset, end: Offset) -> int:
        """Return how many messages from `begin` to `end` are done; counts only those above the floor."""
        return int(self._above.range_cardinality(begin, end))

    def note_scanned(self, end: Offset) -> None:
        """Move the scan up to `end`."""
        self.scan = max(self.scan, end)

    def add(self, offsets: Sequence[Offset]) -> None:
        """Mark messages as done."""
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
        """Move the floor up to an offset, and past the done messages that follow."""
        floor = first_missing(self._above, floor)
        if self._above:
            self._above.remove_range(0, floor)
        self.floor = floor
        self.scan = max(self.scan, floor)

    def pass_over(self, begin: Offset, end: Offset) -> None:
        """Mark unseen offsets as done: filtered out, damaged, or removed by retention."""
        goes_on = self.passed and self.passed[-1][1] == begin
        self.passed.append((self.passed.pop()[0] if goes_on else begin, end))
        if begin == self.floor:
            self.raise_floor(end)
        else:
            self._above.add_range(begin, end)

    def add_unstored(self, offsets: Sequence[Offset]) -> None:
        """Mark messages as done; it is stored with the next skipped ranges."""
        self.passed += [(each, Offset(each + 1)) for each in offsets]
        self.add(offsets)

    def take_passed(self) -> list[Range]:
        """Return the skipped ranges, to be stored."""
        passed, self.passed = self.passed, []
        return passed


class RetryRules(NamedTuple):
    """Retry policy, dead letter policy and delivery guarantee of a subscription."""

    least_wait: Milliseconds = Milliseconds(0)  # after the first failure of a message; doubled after each further one
    most_wait: Milliseconds = Milliseconds(0)
    most_attempts: int = 0  # failures after which a message becomes a dead letter; 0: never
    exactly_once: bool = False


class Failures:
    """Failures of messages that are not done."""

    def __init__(self, counts: Mapping[Offset, int], rules: RetryRules) -> None:
        self.rules = rules
        self.counts = Counter(counts)  # 0 of a message that has not failed
        self.being_stored: set[Offset] = set()  # their failure is being written: not leased, not ready
        self.being_taken: Counter[Offset] = Counter()  # messages behind those in their keys, with how many are before
        self.dead: list[Offset] = []  # messages to dead-letter; the sweeper takes them from here
        self.to_dead_letter: set[Offset] = set()  # those in `dead`, and those that the sweeper works on; not ready
        self.stored_dead_letters: set[Offset] = set()  # in the dead letter topic, but their end is not stored yet

    def attempt_of(self, offset: Offset) -> int:
        """Return the number of a message's next delivery, from 1."""
        return self.counts[offset] + 1

    def wait_of(self, offset: Offset) -> Milliseconds:
        """Retry backoff: return how long a message waits that has failed."""
        doublings = min(self.counts.get(offset, 1) - 1, 32)
        return Milliseconds(min(self.rules.least_wait << doublings, self.rules.most_wait))

    def is_exhausted(self, offset: Offset) -> bool:
        """Return whether a message has used up its attempts."""
        return 0 < self.rules.most_attempts <= self.counts[offset]

    def queue_dead_letter(self, offset: Offset) -> None:
        """Queue a message for the dead letter topic."""
        self.dead.append(offset)
        self.to_dead_letter.add(offset)

    def is_unavailable(self, offset: Offset) -> bool:
        """Return whether a message is unavailable: its failure is being stored, or it is to be dead-lettered."""
        return offset in self.being_stored or offset in self.to_dead_letter or offset in self.being_taken

    def end_taking_back(self, offsets: Collection[Offset]) -> None:
        """Note that the failure before these messages is stored, or cannot be."""
        self.being_taken -= Counter([*offsets])  # drops those that are 0 now

    def has_any(self, offsets: Collection[int]) -> bool:
        """Return whether any of these is unavailable. They have no ordering keys."""
        return not (self.being_stored.isdisjoint(offsets) and self.to_dead_letter.isdisjoint(offsets))

    def forget_done(self, offsets: Sequence[Offset]) -> None:
        """Forget messages that are done."""
        if self.counts:
            for offset in offsets:
                self.counts.pop(offset, None)
        if self.to_dead_letter or self.stored_dead_letters:
            self.to_dead_letter.difference_update(offsets)
            self.stored_dead_letters.difference_update(offsets)

    def retain(self, oldest: Offset) -> None:
        """Forget messages below an offset."""
        known = {*self.counts, *self.stored_dead_letters, *self.to_dead_letter}
        self.forget_done([offset for offset in known if offset < oldest])


@dataclass(slots=True, eq=False)
class KeyConsumer:
    """A stream or a pull. An ordering key is bound to it while it has messages of that key on lease."""

    ready: list[Offset] = field(default_factory=list, init=False)
    """A heap of the next messages of its keys. It may hold one twice, or one that is leased or done by now."""
    freed: Callable[[], None] = field(default=lambda: None, kw_only=True)  # also called when leases of a stream end


@dataclass(slots=True, eq=False)
class KeyQueue:
    """Scanned messages of an ordering key that are not done, in offset order: first `out`, then `rest`."""

    key: str
    out: dict[Offset, None] = field(default_factory=dict)  # messages that a consumer has, or is about to get
    rest: deque[Offset] = field(default_factory=deque)  # some may be done by ack ids of the previous run
    consumer: KeyConsumer | None = None  # of `out`; None: `out` is empty, or it takes one message at a time

    @property
    def next(self) -> Offset | None:
        """The next message to give."""
        return self.rest[0] if self.rest else None

    def takes(self, consumer: KeyConsumer | None) -> bool:
        """Return whether a consumer may get the next message: no other one is bound, and its `out` is not full."""
        if not self.out:
            return True
        return consumer is not None and consumer is self.consumer and len(self.out) < MAX_OUT_OF_KEY

    def behind(self, offset: Offset) -> list[Offset]:
        """Return the messages out behind a message; empty if it is not out."""
        if offset not in self.out:
            return []
        return [*takewhile(lambda each: each != offset, reversed(self.out))][::-1]


class OrderingKeys:
    """Queues of all ordering keys of one subscription."""

    def __init__(self) -> None:
        self._queues: dict[str, KeyQueue] = {}
        self._queue_of: dict[Offset, KeyQueue] = {}  # queue of each scanned message that is not done
        self._resting = 0
        self._bound = 0  # number of queues with messages out

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def blocked_messages(self) -> int:
        """Number of messages behind others of their keys."""
        return self._resting - (len(self._queues) - self._bound)

    def get(self, offset: Offset) -> KeyQueue | None:
        """Return the queue of a message; None: it has no key, is unseen, or is done."""
        return self._queue_of.get(offset)

    def queues_of(self, offsets: Iterable[Offset]) -> set[KeyQueue]:
        """Return the queues of messages."""
        return {self._queue_of[each] for each in offsets if each in self._queue_of}

    def queue_if_out(self, offset: Offset) -> KeyQueue | None:
        """Return the queue of a message that is out; None: it is not out, or has no key."""
        queue = self._queue_of.get(offset)
        return queue if queue is not None and offset in queue.out else None

    def add(self, offset: Offset, key: str) -> KeyQueue:
        """Append an unseen message to the queue of its key; return the queue."""
        queue = self._queues.get(key) or self._queues.setdefault(key, KeyQueue(key))
        queue.rest.append(offset)
        self._queue_of[offset] = queue
        self._resting += 1
        return queue

    def take(self, queue: KeyQueue, consumer: KeyConsumer | None, is_done: Callable[[Offset], bool]) -> None:
        """Move the next message of a key to `out`, for a consumer."""
        if not queue.out:
            self._bound += 1
            queue.consumer = consumer
        queue.out[queue.rest.popleft()] = None
        self._resting -= 1
        self._find_next(queue, is_done)

    def take_back(self, offset: Offset) -> None:
        """Move a message that is out, and those out behind it, back to `rest`."""
        queue = self.queue_if_out(offset)
        if queue is None:
            return
        taken = [offset, *queue.behind(offset)]
        for each in taken:
            del queue.out[each]
        queue.rest.extendleft(reversed(taken))
        self._resting += len(taken)
        self._unbind(queue)

    def end(self, offset: Offset, is_done: Callable[[Offset], bool]) -> KeyQueue | None:
        """Forget a done message; return its queue if another message of it may be ready now."""
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
        """Return the messages below an offset. Scans all messages."""
        return sorted([each for each in self._queue_of if each < offset])

    def largest_blocker(self) -> tuple[Offset, str, int] | None:
        """Return the message that blocks most others, its key, and how many it blocks. Scans all keys."""
        if not self.blocked_messages:
            return None
        count, offset, key = max(  # the first message of a key that has none out is not blocked
            (len(each.rest) - (not each.out), next(iter(each.out or each.rest)), each.key)
            for each in self._queues.values()
        )
        return offset, key, count

    def _unbind(self, queue: KeyQueue) -> None:
        if not queue.out:
            self._bound -= 1
            queue.consumer = None

    def _find_next(self, queue: KeyQueue, is_done: Callable[[Offset], bool]) -> None:
        while queue.rest and is_done(queue.rest[0]):  # by ack ids of the previous run
            self._queue_of.pop(queue.rest.popleft(), None)
            self._resting -= 1


@dataclass(slots=True, eq=False)
class FlowWindow(KeyConsumer):
    """Flow control of one stream: how many messages and bytes it may still have on lease."""

    messages: int  # messages left; negative after an extension of expired leases
    bytes: int  # bytes left; negative when the last message was larger than the rest of the window

    @property
    def is_full(self) -> bool:
        """True if the stream may lease nothing more."""
        return self.messages <= 0 or self.bytes <= 0


@dataclass(slots=True, eq=False)
class HandOut:
    """Messages leased by one response, while they share a deadline."""

    text: str  # the part of their ack ids behind the dash (`ams.core.ack_ids`)
    offsets: list[Offset]  # messages that it leased; `live` of them still are on lease
    live: int
    deadline: Milliseconds
    bytes_each: int
    holder: str
    window: FlowWindow | None = None  # flow control of the stream that has them; None: no stream
    slot: int = -1

    @property
    def is_held(self) -> bool:
        """True if its messages are acknowledged while earlier ones of their ordering keys are out."""
        return self.deadline == NO_DEADLINE


class MessageLeases:
    """Holder and deadline of each leased message, and the messages that wait for a retry."""

    def __init__(self) -> None:
        self._by_offset: dict[Offset, HandOut] = {}
        self.holders: Counter[str] = Counter()
        self.bytes_held_by: Counter[str] = Counter()  # approximate bytes on lease by consumer
        self.waiting: dict[Offset, tuple[Milliseconds, str | None]] = {}  # end of backoff, and the consumer that failed
        self.waits_of: Counter[str] = Counter()  # number of waiting messages by the consumer with which they failed
        self._due: dict[int, list[HandOut | Offset]] = {}
        self._slots: list[int] = []  # a heap of the keys of `_due`
        self.bytes = 0  # approximate bytes of all leased messages
        self._fill_windows = True

    def __len__(self) -> int:
        return len(self._by_offset)

    def __contains__(self, offset: Offset) -> bool:
        return offset in self._by_offset

    @property
    def latest(self) -> Milliseconds | None:
        """Latest deadline; None without leases. Scans all hand-outs."""
        return max((each.deadline for each in set(self._by_offset.values()) if not each.is_held), default=None)

    def get(self, offset: Offset) -> HandOut | None:
        """Return the hand-out that leases a message now."""
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
        """Lease some messages of a hand-out, which are not leased now, until another deadline."""
        self.lease(replace(hand_out, offsets=offsets, live=len(offsets), deadline=deadline, slot=-1))

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

    def release_windows(self) -> None:
        """Stop counting these leases in the flow control of streams: the subscription is closed here."""
        self._fill_windows = False
        for each in {*self._by_offset.values()}:
            window, each.window = each.window, None
            if window is not None:
                window.messages += each.live
                window.bytes += each.live * each.bytes_each
                window.freed()

    def extend(self, hand_out: HandOut, offsets: list[Offset], deadline: Milliseconds) -> None:
        """Move the deadline of some messages of a hand-out."""
        if hand_out.live == len(offsets):
            hand_out.deadline = deadline
            self._watch(hand_out)
            return
        self.end(hand_out, offsets)
        self.lease_again(hand_out, offsets, deadline)

    def has_any(self, offsets: Collection[int]) -> bool:
        """Return whether any of these is leased or waits."""
        return not (self._by_offset.keys().isdisjoint(offsets) and self.waiting.keys().isdisjoint(offsets))

    def of(self, offsets: Iterable[Offset]) -> Mapping[HandOut, list[Offset]]:
        """Return the leased ones of these messages, by hand-out."""
        found: dict[HandOut, list[Offset]] = {}
        for each in offsets:
            if (hand_out := self._by_offset.get(each)) is not None:
                found.setdefault(hand_out, []).append(each)
        return found

    def below(self, offset: Offset) -> Mapping[HandOut, list[Offset]]:
        """Return the leased messages below an offset, by hand-out."""
        return self.of([each for each in self._by_offset if each < offset])

    def wait(self, offset: Offset, until: Milliseconds, holder: str | None = None) -> None:
        """Start or replace the backoff of a message; `holder` had it when it failed."""
        self.stop_waiting(offset)
        self.waiting[offset] = until, holder
        if holder is not None:
            self.waits_of[holder] += 1
        self._add(-(-until // SLOT_MS), offset)

    def stop_waiting(self, offset: Offset) -> None:
        """End the backoff of a message, if any."""
        _, holder = self.waiting.pop(offset, (0, None))
        if holder is None:
            return
        self.waits_of[holder] -= 1
        if not self.waits_of[holder]:
            del self.waits_of[holder]

    def next_due(self) -> Milliseconds | None:
        """Return when to call `take_due`; None: nothing is due."""
        return Milliseconds(self._slots[0] * SLOT_MS) if self._slots else None

    def take_due(self, now: Milliseconds) -> Iterator[tuple[HandOut, list[Offset]] | Offset]:
        """Lease expiry: remove and yield leases with their messages, and messages whose backoff is over."""
        while self._slots and self._slots[0] * SLOT_MS <= now:
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
        slot = -(-(hand_out.deadline + 1) // SLOT_MS)
        if slot != hand_out.slot:
            hand_out.slot = slot
            self._add(slot, hand_out)

    def _add(self, slot: int, what: HandOut | Offset) -> None:
        if slot not in self._due:
            self._due[slot] = []
            heapq.heappush(self._slots, slot)
        self._due[slot].append(what)
