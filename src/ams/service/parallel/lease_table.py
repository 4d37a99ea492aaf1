"""The lease table: who has which messages until when, and which ones wait after a failure.

Ends are looked for in slots of a tenth of a second, so that a lease costs one entry in a dictionary and its share of a
hand-out, and nothing is ever scanned to find those that have ended. A slot may hold what was settled or extended since:
that is found out when its time comes.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.names import Offset

SLOT = 100
"""Milliseconds: what ends within so much of each other is looked at together."""
_MOSTLY_GONE = 4
"""A hand-out of which less than this part is left forgets the others."""


class Window:
    """How much one stream of a consumer may have on lease at a time, and how much of that is free."""

    __slots__ = ("bytes", "freed", "messages")

    def __init__(self, messages: int, size: int) -> None:
        """Let so many messages be out at a time, of so many bytes together."""
        self.messages = messages
        """Free ones; less than nothing after the extension of leases that were about to end."""
        self.bytes = size
        """Free ones; less than nothing when the last message was larger than what was left."""
        self.freed: Callable[[], None] = _nothing
        """Is called when leases have ended."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be given."""
        return self.messages <= 0 or self.bytes <= 0


def _nothing() -> None:
    return None


class HandOut:
    """Messages that were given by one answer, as long as their leases are the same."""

    __slots__ = ("bytes_each", "deadline", "holder", "live", "offsets", "slot", "text", "window")

    def __init__(
        self,
        text: str,
        offsets: list[Offset],
        deadline: Milliseconds,
        bytes_each: int,
        holder: str,
        window: Window | None = None,
    ) -> None:
        self.text = text
        """What ids of its messages have behind the dash (`ams.core.ack_ids`)."""
        self.offsets = offsets
        """Those that were leased by it once; `live` of them are."""
        self.live = len(offsets)
        self.deadline = deadline
        self.bytes_each = bytes_each
        self.holder = holder
        self.window = window
        """Of the stream that has them; None: they are not on a stream."""
        self.slot = -1
        """Where its end is looked for."""


class _Wait(NamedTuple):
    """A message that is to be given again later."""

    until: Milliseconds
    holder: str | None
    """Who had it when it failed; None: nobody did."""


class LeaseTable:
    """The leases and waits of one subscription."""

    def __init__(self) -> None:
        self._by_offset: dict[Offset, HandOut] = {}
        self._held_by: Counter[str] = Counter()
        self._bytes_held_by: Counter[str] = Counter()
        self._waiting: dict[Offset, _Wait] = {}
        self._waits_of: Counter[str] = Counter()
        self._due: dict[int, list[HandOut | Offset]] = {}
        self._slots: list[int] = []
        """A heap of the keys of `_due`."""
        self.bytes = 0
        """Of all messages that are leased, about."""
        self._fill_windows = True
        """Whether leases take room of the streams that have them."""

    def __len__(self) -> int:
        return len(self._by_offset)

    def __contains__(self, offset: Offset) -> bool:
        return offset in self._by_offset

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return len(self._waiting)

    @property
    def holders(self) -> Mapping[str, int]:
        """How many messages each consumer has."""
        return self._held_by

    def holder_of(self, offset: Offset) -> str | None:
        """Return who has a message, None: nobody."""
        hand_out = self._by_offset.get(offset)
        return None if hand_out is None else hand_out.holder

    def bytes_held_by(self, holder: str) -> int:
        """Return how many bytes a consumer has, about."""
        return self._bytes_held_by[holder]

    def waits_of(self, holder: str) -> int:
        """Return how many messages wait that failed with a consumer."""
        return self._waits_of[holder]

    @property
    def most_waits(self) -> int:
        """How many messages wait that failed with the consumer of which most do."""
        return max(self._waits_of.values(), default=0)

    @property
    def latest(self) -> Milliseconds | None:
        """When the last lease ends; None while there is none. Looks at all hand-outs."""
        return max((each.deadline for each in set(self._by_offset.values())), default=None)

    def get(self, offset: Offset) -> HandOut | None:
        """Return the hand-out by which a message is leased now."""
        return self._by_offset.get(offset)

    def lease(self, hand_out: HandOut) -> None:
        """Lease the messages of a hand-out."""
        self._by_offset.update(dict.fromkeys(hand_out.offsets, hand_out))
        self._held_by[hand_out.holder] += hand_out.live
        size = hand_out.live * hand_out.bytes_each
        self.bytes += size
        self._bytes_held_by[hand_out.holder] += size
        if not self._fill_windows:
            hand_out.window = None
        if hand_out.window is not None:
            hand_out.window.messages -= hand_out.live
            hand_out.window.bytes -= size
        self._watch(hand_out)

    def lease_again(self, hand_out: HandOut, offsets: list[Offset], deadline: Milliseconds) -> None:
        """Lease some of a hand-out's messages that are not leased now, until another time."""
        self.lease(HandOut(hand_out.text, offsets, deadline, hand_out.bytes_each, hand_out.holder, hand_out.window))

    def end(self, hand_out: HandOut, offsets: Sequence[Offset]) -> None:
        """End the leases of some of a hand-out's messages."""
        for offset in offsets:
            del self._by_offset[offset]
        hand_out.live -= len(offsets)
        size = len(offsets) * hand_out.bytes_each
        self.bytes -= size
        self._held_by[hand_out.holder] -= len(offsets)
        self._bytes_held_by[hand_out.holder] -= size
        if not self._held_by[hand_out.holder]:
            del self._held_by[hand_out.holder], self._bytes_held_by[hand_out.holder]
        if hand_out.window is not None:
            hand_out.window.messages += len(offsets)
            hand_out.window.bytes += size
            hand_out.window.freed()
        if hand_out.live * _MOSTLY_GONE < len(hand_out.offsets):
            hand_out.offsets = self._live(hand_out)

    def free_windows(self) -> None:
        """Let no stream be filled by these leases any more: nobody looks after them from now on."""
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

    def has_any(self, offsets: Collection[int]) -> bool:
        """Whether one of these is leased or waits."""
        return not (self._by_offset.keys().isdisjoint(offsets) and self._waiting.keys().isdisjoint(offsets))

    def below(self, offset: Offset) -> Mapping[HandOut, list[Offset]]:
        """Return the messages below an offset that are leased."""
        found: dict[HandOut, list[Offset]] = {}
        for each, hand_out in self._by_offset.items():
            if each < offset:
                found.setdefault(hand_out, []).append(each)
        return found

    def is_waiting(self, offset: Offset) -> bool:
        """Whether a message waits."""
        return offset in self._waiting

    def wait(self, offset: Offset, until: Milliseconds, holder: str | None = None) -> None:
        """Let a message wait until a time, in the place of the one it waited for.

        `holder` is who had it when it failed, None: nobody.
        """
        self.stop_waiting(offset)
        self._waiting[offset] = _Wait(until, holder)
        if holder is not None:
            self._waits_of[holder] += 1
        self._add(-(-until // SLOT), offset)

    def stop_waiting(self, offset: Offset) -> None:
        """Let a message wait no more, if it does."""
        wait = self._waiting.pop(offset, None)
        if wait is None or wait.holder is None:
            return
        self._waits_of[wait.holder] -= 1
        if not self._waits_of[wait.holder]:
            del self._waits_of[wait.holder]

    def stop_waiting_below(self, offset: Offset) -> None:
        """Let no message below an offset wait."""
        for each in [each for each in self._waiting if each < offset]:
            self.stop_waiting(each)

    def next_due(self) -> Milliseconds | None:
        """Return when there may be something to `take_due`; None while there is nothing to wait for."""
        return Milliseconds(self._slots[0] * SLOT) if self._slots else None

    def take_due(self, now: Milliseconds) -> Iterator[tuple[HandOut, list[Offset]] | Offset]:
        """Yield leases that have ended, with their messages, and messages whose wait is over; they are gone then."""
        while self._slots and self._slots[0] * SLOT <= now:
            slot = heapq.heappop(self._slots)
            for each in self._due.pop(slot):
                if isinstance(each, HandOut):
                    if each.slot == slot and each.live and not self._goes_on(each, now):
                        offsets = self._live(each)
                        self.end(each, offsets)
                        yield each, offsets
                elif each in self._waiting and self._waiting[each].until <= now:
                    self.stop_waiting(each)
                    yield each

    def _goes_on(self, hand_out: HandOut, now: Milliseconds) -> bool:
        """Whether leases have not ended after all, as they were extended."""
        if hand_out.deadline < now:
            return False
        hand_out.slot = -1
        self._watch(hand_out)
        return True

    def _live(self, hand_out: HandOut) -> list[Offset]:
        return [each for each in hand_out.offsets if self._by_offset.get(each) is hand_out]

    def _watch(self, hand_out: HandOut) -> None:
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
