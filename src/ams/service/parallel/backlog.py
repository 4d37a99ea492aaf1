"""Backlog of one parallel subscription: what is done, what is on lease, what comes again, and when.

A pure state machine: no I/O and no clock. Times are milliseconds of a monotonic clock and are given. Methods return the
changes to store. The caller says when they are on disk (`stored`) or cannot be (`not_stored`).

Every offset from the floor on is in one of these states:

    unseen      at or above `scan`: never looked at since this process took the subscription over. It may be leased or
                settling all the same, by an id of before: then it is passed by, and its key is under way
    leased      given to a consumer, until a deadline
    settling    its acknowledgement, or its failure, is being stored
    waiting     it failed, and its time has not come; or it may be out since before the last start (exactly-once)
    ready       to be given again
    blocked     an earlier message of its ordering key is not done
    done        acknowledged, passed over by the filter, or put aside as a dead letter

Laws, walked by Hypothesis against a naive model (`tests/service/parallel/test_backlog.py`):

- What is done does not come again, unless it is sought; what is not done comes again, unless retention takes it.
- A message is leased to one consumer at a time. Only the id of its newest hand-out settles it, and only until its
  deadline.
- An id of the run before this one is the newest until the message is given again, for the time that leases of then may
  last at most. Ids of older runs count no more.
- The number of failures is stored before the message is given again, and never falls.
- Of an ordering key one message is under way at a time, in order.

Each consumer has a fair share of what may be on lease and of what may be held back. So no consumer, also one that never
comes back, leaves nothing to others.
"""

import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from ams.core.ack_ids import AckId, AckIds
from ams.core.clock import Milliseconds
from ams.core.fair_share import fair_room
from ams.core.names import Offset
from ams.service.parallel.hand_out_ids import HandOutIds, RestartGrace
from ams.service.parallel.message_state import Done, Failures, HandOut, LeaseTable, OrderingKeys, Rules, Window
from ams.storage.cursors.acks import Progress

MAX_OUT = 100_000
"""Messages that may be given and not settled; each takes about as much memory as a tuple in a dictionary."""
MAX_OUT_BYTES = 2**30
MAX_HELD_BACK = 200_000
"""Messages that wait, are ready again, or are blocked by their key, before no new ones are looked at."""
MAX_SPAN = 2**24
"""Offsets from the floor to the newest that was given: one message that is never settled holds the others up then."""
DEAD_LETTER_RETRY_MS = Milliseconds(10_000)
"""A message that could not be put aside waits at least so long."""
UNKNOWN_HOLDER = "a consumer of before the restart"
"""Holder of a lease of the previous run, until its consumer extends it."""


@dataclass(slots=True)
class Settling:
    """Messages that one call is about to settle. Nobody has them until `stored` or `not_stored` is called."""

    done: list[Offset] = field(default_factory=list)
    failures: dict[Offset, int] = field(default_factory=dict)
    failed_with: dict[Offset, str] = field(default_factory=dict)
    waits: Milliseconds | None = None
    """How long those that failed are to wait; None: as the rules say."""
    late: list[AckId] = field(default_factory=list)
    unsure: dict[str, list[Offset]] = field(default_factory=dict)
    """Ids whose messages another call is settling: they count no more, or are to be settled yet."""
    leases: list[tuple[HandOut, list[Offset]]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to store."""
        return not (self.done or self.failures)


class Backlog:
    """One subscription's messages, from its floor on."""

    def __init__(
        self,
        progress: Progress,
        identity: str,
        rules: Rules,
        *,
        end: Offset,
        grace_until: Milliseconds,
        longest_until: Milliseconds | None = None,
    ) -> None:
        """Take a subscription over; the times are those of `RestartGrace`, `longest_until` absent: as `grace_until`."""
        self.epoch, self.run = progress.epoch, progress.run
        self.done = Done(progress)
        self.leases = LeaseTable()
        self.keys = OrderingKeys()
        self.failures = Failures(progress.failures, rules)
        longest_until = grace_until if longest_until is None else longest_until
        self.restart_grace = RestartGrace(progress.run, end, grace_until, longest_until)
        self._ids = HandOutIds(progress, identity, self.restart_grace, self.leases, self.done, self.failures)
        self._ready: list[Offset] = []
        """A heap. An offset may be there twice, or be given or done by now."""

    def go_by(self, rules: Rules) -> None:
        """Let other rules hold from now on."""
        if rules.exactly_once and not self.failures.rules.exactly_once:
            self._ids.finishers.forget_all(self._ids.number)
            if self._before_until > self.restart_grace.grace_until:
                self.restart_grace.withhold_longest()
        self.failures.rules = rules

    # Counts and times

    @property
    def floor(self) -> Offset:
        """The oldest message that is not done."""
        return self.done.floor

    @property
    def scan(self) -> Offset:
        """Where to look for messages that were not given yet."""
        return self.done.scan

    @property
    def out(self) -> int:
        """How many messages are given and not settled."""
        return len(self.leases) + len(self.done.being_stored) + len(self.failures.being_stored)

    @property
    def waiting(self) -> int:
        """How many messages wait to be given again, or may be by now."""
        return len(self.leases.waiting) + len(self._ready)

    @property
    def held_back(self) -> int:
        """How many wait, are ready again, or are blocked."""
        return self.waiting + self.keys.blocked

    @property
    def is_again_ready(self) -> bool:
        """True if something is to be given again."""
        while self._ready and not self._is_free(self._ready[0]):
            heapq.heappop(self._ready)
        return bool(self._ready)

    def room(self, holder: str) -> int:
        """Return how many messages a consumer may be given now."""
        if not self.room_bytes(holder):
            return 0
        return fair_room(MAX_OUT, self.out, self.leases.holders.get(holder, 0))

    def room_bytes(self, holder: str) -> int:
        """Return how many bytes of messages a consumer may be given now."""
        return fair_room(MAX_OUT_BYTES, self.leases.bytes, self.leases.bytes_held_by[holder])

    def may_scan(self, holder: str) -> bool:
        """Return whether a consumer may be given new messages: too many held back, or waits of its own, stop it."""
        room = fair_room(MAX_HELD_BACK, self.held_back, self.leases.waits_of[holder])
        return bool(room) and self.scan - self.floor < MAX_SPAN

    def out_until(self, now: Milliseconds) -> Milliseconds:
        """Return when the last lease ends, also of those of the previous run."""
        return max(now, self.restart_grace.grace_until, self.leases.latest or now)

    def may_be_out(self, now: Milliseconds) -> tuple[Offset, Milliseconds] | None:
        """Return below which offset messages may be on lease, with whomever, and until when; None: nothing is."""
        before = self._before_until
        until = max(before, self.leases.latest or now)
        return (max(self.scan, self.restart_grace.end if before else self.scan), until) if until > now else None

    @property
    def _before_until(self) -> Milliseconds:
        return self.restart_grace.is_out_until(self.done, has_given=self._ids.number > 0)

    def next_due(self) -> Milliseconds | None:
        """Return when `expire` has something to do; None while it has not."""
        return self.leases.next_due()

    # Giving

    def again(self, most: int) -> list[Offset]:
        """Take up to so many messages that are to be given again, oldest first: `give` them, or `give_back`."""
        found: list[Offset] = []
        while self._ready and len(found) < most:
            offset = heapq.heappop(self._ready)
            if self._is_free(offset) and found[-1:] != [offset]:
                found.append(offset)
        return found

    def give_back(self, offsets: Iterable[Offset]) -> None:
        """Let messages be given again that were taken by `again`, or leased and not sent."""
        for offset in offsets:
            if offset < self.scan and offset not in self.done:  # unseen ones are found when they are looked at
                heapq.heappush(self._ready, offset)

    def undone(self, begin: Offset, end: Offset) -> Sequence[Offset]:
        """Return which of the unseen offsets from `begin` to `end` are not done."""
        found = cast("Sequence[Offset]", range(max(begin, self.floor), end))
        if begin >= self.restart_grace.end or not self.done.count(begin, end):
            return found
        return [each for each in found if each not in self.done]

    def may_give_all(self, begin: Offset, end: Offset) -> bool:
        """Return whether all unseen messages from `begin` to `end` may be given that have no ordering keys."""
        if begin >= self.restart_grace.end:  # none was given before the restart
            return True
        if self.restart_grace.withholds_from(begin):
            return False
        here = range(begin, end)
        return self._are_free(here) and self.failures.counts.keys().isdisjoint(here)

    def may_give(self, offset: Offset, key: str, now: Milliseconds) -> bool:
        """Return whether an unseen message with a key (empty: none) may be given; it is held back otherwise."""
        if key and not self.keys.begin(offset, key):
            return False
        if not self._is_free(offset):  # by an id of before the restart
            return False
        if self.failures.has_failed_out(offset):  # the process ended before it was put aside
            self.failures.die(offset)
            return False
        withheld_until = self.restart_grace.withheld_until(offset, now)
        if withheld_until is not None:
            self.leases.wait(offset, withheld_until)
            return False
        return True

    def taken_of(self, offsets: Sequence[Offset]) -> Collection[Offset]:
        """Return which of the messages that are about to be given ids of the previous run have taken meanwhile."""
        if offsets[0] >= max(self.floor, self.restart_grace.end) or self._are_free(offsets):
            return ()
        return {each for each in offsets if not self._is_free(each)}

    def give(
        self,
        offsets: list[Offset],
        attempt: int,
        size: int,
        deadline: Milliseconds,
        holder: str,
        window: Window | None = None,
    ) -> str:
        """Lease messages of one attempt, `size` bytes together; return the text of the hand-out for their ids."""
        text = self._ids.new(attempt)
        count = len(offsets)
        self.leases.lease(HandOut(text, offsets, count, deadline, size // count, holder, window))
        return text

    # Settling

    def check(self, ids: AckIds, now: Milliseconds) -> bool:
        """Return whether one of these has a lease, and change nothing; raises as `acknowledge`."""
        named = self._ids.named(ids, now)
        return bool(named.leases or named.from_before)

    def acknowledge(self, ids: AckIds, now: Milliseconds) -> Settling:
        """Return what is to be stored for an acknowledgement of these.

        Raises `NeverGiven` for all that were never given by this subscription, as far as is known of the end of the
        topic, `InvalidInput` for one that cannot be read; nothing is changed then.
        """
        named = self._ids.leased(ids, now, UNKNOWN_HOLDER)
        settling = Settling(late=named.late, unsure=named.unsure, leases=named.leases)
        for lease, offsets in settling.leases:
            self.leases.end(lease, offsets)
            settling.done += offsets
        if self.failures.rules.exactly_once:
            self._ids.finish(settling.leases)
        self.done.being_stored.update(settling.done)
        return settling

    def nack(self, ids: AckIds, now: Milliseconds, waits: Milliseconds | None = None) -> Settling:
        """Return what is to be stored as consumers cannot process these; raises as `acknowledge`.

        They come again after `waits`, None: as the rules say. With exactly-once delivery a nack that was done may come
        again: it changes nothing, and is not late.
        """
        named = self._ids.leased(ids, now, UNKNOWN_HOLDER)
        settling = Settling(unsure=named.unsure, leases=named.leases, waits=waits)
        for each in self._ids.late_of(named):
            if self._ids.nacks.peek(each.offset) != each.hand_out:
                settling.late.append(each)
            elif each.offset in self.failures.being_stored:  # by the nack that this one repeats: that may fail
                settling.unsure.setdefault(each.hand_out, []).append(each.offset)
        for lease, offsets in settling.leases:
            if self.failures.rules.exactly_once:
                for offset in offsets:
                    self._ids.nacks.put(offset, lease.text)
            self.leases.end(lease, offsets)
            self._fail(settling, lease, offsets)
        return settling

    def release(self, ids: AckIds, now: Milliseconds) -> list[AckId]:
        """Let messages be given again without a failure, storing nothing; return late ids. Raises as `acknowledge`."""
        named = self._ids.leased(ids, now, UNKNOWN_HOLDER)
        for lease, offsets in named.leases:
            self.leases.end(lease, offsets)
            self._ids.overtaken.update(offsets)
            self.give_back(offsets)
        return named.late

    def extend(
        self, ids: AckIds, deadline: Milliseconds, now: Milliseconds, holder: str = UNKNOWN_HOLDER
    ) -> list[AckId]:
        """Let leases end at `deadline`, taken over by `holder`; return late ids. Raises as `acknowledge`."""
        named = self._ids.leased(ids, now, holder)
        for lease, offsets in named.leases:
            self.leases.extend(lease, offsets, deadline)
        return self._ids.late_of(named)

    def expire(self, now: Milliseconds) -> Settling:
        """Return what is to be stored as leases have ended by `now`; let those be given again whose wait is over."""
        settling = Settling()
        for each in self.leases.take_due(now):
            if isinstance(each, tuple):
                settling.leases.append(each)
                self._fail(settling, *each)
            elif each in self.failures.letters:
                self.failures.die(each)
            else:
                self.give_back([each])
        return settling

    def put_aside(self, offset: Offset) -> Settling:
        """Return what is to be stored as a dead message was put aside: nobody is given it any more."""
        self.failures.dying.discard(offset)
        self.failures.letters.add(offset)
        self.done.being_stored.add(offset)
        if self.failures.rules.exactly_once:
            self._ids.finishers.note([offset], "", self._ids.number)
        return Settling(done=[offset])

    def keep(self, offset: Offset, now: Milliseconds) -> None:
        """Let a dead message come again after a while: to be given, or to be put aside if only that was not stored."""
        self.failures.dying.discard(offset)
        if offset not in self.done:
            self._hold_back(offset, max(self.failures.wait_of(offset), DEAD_LETTER_RETRY_MS), now)

    def _fail(self, settling: Settling, lease: HandOut, offsets: Sequence[Offset]) -> None:
        settling.failures.update(self.failures.begin(offsets))
        settling.failed_with.update(dict.fromkeys(offsets, lease.holder))

    # Outcomes

    def stored(self, settling: Settling, now: Milliseconds) -> None:
        """Note that it is on disk."""
        if settling.done:
            self.done.add(settling.done)
            self._forget(settling.done)
        if not settling.failures:
            return
        self.failures.being_stored.difference_update(settling.failures)
        for offset, failures in settling.failures.items():
            if offset in self.done:  # retention took it meanwhile
                continue
            self.failures.counts[offset] = failures
            if not self.failures.has_failed_out(offset):
                wait = self.failures.wait_of(offset) if settling.waits is None else settling.waits
                self._hold_back(offset, wait, now, settling.failed_with[offset])
            elif offset < self.scan:  # else it is found dead when it is looked at
                self.failures.die(offset)

    def not_stored(self, settling: Settling) -> None:
        """Let leases go on as they were: nothing of it is on disk."""
        self.done.being_stored.difference_update(settling.done)
        self._ids.finishers.forget(settling.done)
        for offset in settling.failures:
            self._ids.nacks.discard(offset)
        self.failures.being_stored.difference_update(settling.failures)
        for lease, offsets in settling.leases:
            kept = [each for each in offsets if each not in self.done]
            if kept:
                self.leases.lease_again(lease, kept, lease.deadline)

    def lose(self, offsets: Sequence[Offset]) -> None:
        """Note that messages do not exist any more."""
        self.done.lose(offsets)
        self._forget(offsets)

    def retain(self, oldest: Offset) -> int:
        """Move the floor up to the oldest message that is kept; return how many were lost."""
        if oldest <= self.floor:
            return 0
        lost = oldest - self.floor - self.done.count(self.floor, oldest)
        for lease, offsets in self.leases.below(oldest).items():
            self.leases.end(lease, offsets)
        for offset in [each for each in self.leases.waiting if each < oldest]:
            self.leases.stop_waiting(offset)
        self.failures.retain(oldest)
        self._ids.overtaken = {offset for offset in self._ids.overtaken if offset >= oldest}
        self.done.raise_floor(oldest)
        for offset in self.keys.below(oldest):
            self._free_key(offset)
        return lost

    def _hold_back(self, offset: Offset, wait: Milliseconds, now: Milliseconds, holder: str | None = None) -> None:
        if wait > 0:
            self.leases.wait(offset, Milliseconds(now + wait), holder)
        else:
            self.give_back([offset])

    def _forget(self, offsets: Sequence[Offset]) -> None:
        self.failures.are_done(offsets)
        if self._ids.overtaken:
            self._ids.overtaken.difference_update(offsets)
        if self.keys:
            for offset in offsets:
                self._free_key(offset)

    def _free_key(self, offset: Offset) -> None:
        following = self.keys.end(offset, self.done.__contains__)
        if following is not None:
            heapq.heappush(self._ready, following)

    def _is_free(self, offset: Offset) -> bool:
        in_hands = offset in self.leases or offset in self.done.being_stored or self.failures.has(offset)
        return not (in_hands or offset in self.done or offset in self.leases.waiting)

    def _are_free(self, offsets: Sequence[int]) -> bool:
        """Return whether all messages, in their order, are free, and nothing between is done."""
        begin, end = Offset(offsets[0]), Offset(offsets[-1] + 1)
        if begin < self.floor or self.done.count(begin, end) or self.leases.has_any(offsets):
            return False
        return self.done.being_stored.isdisjoint(offsets) and not self.failures.has_any(offsets)
