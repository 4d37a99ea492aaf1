"""Backlog of one parallel subscription: the state of each message that is not acknowledged.

A pure state machine: no I/O and no clock. The caller passes times, in milliseconds of a monotonic clock. Methods return
the changes to store; the caller reports the outcome with `note_stored` or `note_not_stored`.

Every offset from the floor on is in one of these states:

    unseen      at or above `scan`: not looked at since this process took the subscription over. A lease of the previous
                run may cover it: then the scan skips it, and its ordering key counts as under way
    leased      given to a consumer, until a deadline
    held        acknowledged, while an earlier message of its ordering key is out: leased without a deadline
    settling    its acknowledgement, or its failure, is being stored
    waiting     it failed and its backoff goes on; or it may be out since before the last start (exactly-once)
    ready       to be redelivered
    blocked     an earlier message of its ordering key is not done, and not out to the same consumer
    done        acknowledged, skipped by the filter, or dead-lettered

Laws, checked by Hypothesis against a naive model (`tests/service/parallel/test_backlog.py`):

- A done message is not redelivered, except after a seek. A message that is not done is redelivered until retention
  removes it.
- A message is leased to one consumer at a time. Only the ack id of its newest hand-out settles it, and only until the
  deadline.
- An ack id of the previous run stays valid until the message is given again, and no longer than its lease could last.
  Ids of older runs are invalid.
- The failure count is stored before the message is redelivered, and never falls.
- Messages of an ordering key are out to one consumer together, in order. When one fails, those behind it are taken
  back, held ones too. They did not fail; their ids become invalid, and they are redelivered behind it (decision 61).
- Messages of an ordering key are done in order. With exactly-once delivery none is held: an acknowledgement out of
  order is refused, and may be repeated later.

Each consumer has a fair share of the leases and of the waiting messages, so that none starves the others.
"""

import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from ams.core.ack_ids import AckId, AckIds
from ams.core.clock import Milliseconds
from ams.core.fair_share import fair_room
from ams.core.names import Offset
from ams.service.parallel import message_state
from ams.service.parallel.hand_out_ids import HandOutIds, NamedLeases, RestartGrace
from ams.service.parallel.message_state import FlowWindow, HandOut, KeyConsumer, KeyQueue, RetryRules
from ams.storage.cursors.acks import AckProgress, Mark

MAX_OUT = 100_000  # messages on lease or being settled; each costs about the memory of a tuple in a dictionary
MAX_OUT_BYTES = 2**30
MAX_HELD_BACK = 200_000  # back-pressure: with so many messages waiting, ready or blocked, no new ones are scanned
MAX_SPAN = 2**24  # offsets from the floor to the scan: one message that is never settled stops the subscription there
DEAD_LETTER_RETRY_MS = Milliseconds(10_000)  # backoff of a message whose dead letter could not be stored, at least
UNKNOWN_HOLDER = "a consumer of before the restart"  # holder of a previous run's lease, until its consumer extends it


@dataclass(slots=True)
class Settling:
    """Messages that one call settles. They are in no other state until `note_stored` or `note_not_stored`."""

    done: list[Offset] = field(default_factory=list)
    failures: dict[Offset, int] = field(default_factory=dict)
    waits: Milliseconds | None = None  # backoff of the failed messages; None: by the retry policy
    late: list[AckId] = field(default_factory=list)  # ids that are not valid any more: they change nothing
    out_of_order: set[AckId] = field(default_factory=set)  # late ids that may be repeated (exactly-once)
    unsure: dict[str, list[Offset]] = field(default_factory=dict)  # another call settles them: retry when it is done
    leases: list[tuple[HandOut, list[Offset]]] = field(default_factory=list)
    taken_back: dict[Offset, Mark] = field(default_factory=dict)  # messages behind the failed ones, of the same keys


class Backlog:
    """Messages of one subscription, from its floor on."""

    def __init__(self, progress: AckProgress, identity: str, rules: RetryRules, grace: RestartGrace) -> None:
        self.epoch, self.run, self.restart_grace = progress.epoch, progress.run, grace
        self.done = message_state.Done(progress)
        self.leases = message_state.MessageLeases()
        self.keys = message_state.OrderingKeys()
        self.failures = message_state.Failures(progress.failures, rules)
        self._ids = HandOutIds(progress, identity, grace, self.leases, self.done, self.failures)
        self._ready: list[Offset] = []  # a heap; it may hold an offset twice, or one that is leased or done by now

    def set_rules(self, rules: RetryRules) -> None:
        """Replace retry policy, dead letter policy and delivery guarantee."""
        if rules.exactly_once and not self.failures.rules.exactly_once:
            self._ids.finishers.forget_all(self._ids.number)
            if self._previous_run_until > self.restart_grace.grace_until:
                self.restart_grace.grace_until = self.restart_grace.longest_until
                self.restart_grace.withhold(self.restart_grace.end, self.restart_grace.longest_until)
        self.failures.rules = rules

    @property
    def out(self) -> int:
        """Number of messages on lease or being settled."""
        return len(self.leases) + len(self.done.being_stored) + len(self.failures.being_stored)

    @property
    def waiting(self) -> int:
        """Number of messages that wait for redelivery or are ready for it."""
        return len(self.leases.waiting) + len(self._ready)

    @property
    def held_back(self) -> int:
        """Number of messages that wait, are ready, or are blocked."""
        return self.waiting + self.keys.blocked_messages

    @property
    def has_ready(self) -> bool:
        """True if a message is ready that any consumer may get."""
        while self._ready and not self._may_take(self._ready[0], self.keys.get(self._ready[0]), None):
            heapq.heappop(self._ready)
        return bool(self._ready)

    def room(self, holder: str) -> int:
        """Return how many more messages a consumer may lease."""
        return fair_room(MAX_OUT, self.out, self.leases.holders[holder]) if self.room_bytes(holder) else 0

    def room_bytes(self, holder: str) -> int:
        """Return how many more bytes of messages a consumer may lease."""
        return fair_room(MAX_OUT_BYTES, self.leases.bytes, self.leases.bytes_held_by[holder])

    def may_scan(self, holder: str) -> bool:
        """Return whether to scan new messages for a consumer; its share of `MAX_HELD_BACK` may be used up."""
        room = fair_room(MAX_HELD_BACK, self.held_back, self.leases.waits_of[holder])
        return bool(room) and self.done.scan - self.done.floor < MAX_SPAN

    def out_until(self, now: Milliseconds) -> Milliseconds:
        """Return when the last lease ends, leases of the previous run included."""
        return max(now, self.restart_grace.grace_until, self.leases.latest or now)

    def end_of_leases(self, now: Milliseconds) -> tuple[Offset, Milliseconds]:
        """Return the offset below which messages may be on lease, and when the last lease ends; `now`: no leases."""
        before = self._previous_run_until
        below = max(self.done.scan, self.restart_grace.end) if before else self.done.scan
        return below, max(before, self.leases.latest or now)

    @property
    def _previous_run_until(self) -> Milliseconds:
        return self.restart_grace.is_out_until(self.done, has_given=self._ids.number > 0)

    # Giving

    def ready_messages(self, most: int, consumer: KeyConsumer | None = None) -> list[Offset]:
        """Take up to `most` messages for redelivery, oldest first. The caller must `give` them or `give_back`.

        `consumer` gets several messages of an ordering key; None: one of each key.
        """
        found: list[Offset] = []
        own = consumer.ready if consumer is not None else []
        while (own or self._ready) and len(found) < most:
            is_own = bool(own) and not (self._ready and self._ready[0] < own[0])
            offset = heapq.heappop(own if is_own else self._ready)
            queue = self.keys.get(offset)
            if is_own and queue is None:  # from before the subscription was reopened
                continue
            if not self._may_take(offset, queue, consumer) or found[-1:] == [offset]:
                continue
            found.append(offset)
            if queue is not None:
                self.keys.take(queue, consumer, self.done.__contains__)
                self._offer(queue, asks=consumer)
        return found

    def give_back(self, offsets: Iterable[Offset]) -> None:
        """Make messages ready again: taken by `ready_messages` or `may_give`, or whose backoff is over."""
        for offset in offsets:
            if offset >= self.done.scan or offset in self.done:  # the scan finds unseen ones
                continue
            queue = self.keys.get(offset)
            if queue is None:
                heapq.heappush(self._ready, offset)
                continue
            self.keys.take_back(offset)
            if queue.next == offset:
                self._offer(queue)

    def may_give_all(self, begin: Offset, end: Offset) -> bool:
        """Return whether all unseen messages from `begin` to `end` may be given. They have no ordering keys."""
        if begin >= self.restart_grace.end:  # none was given before the restart
            return True
        if begin < self.restart_grace.withheld_below:
            return False
        here = range(begin, end)
        return self._are_free(here) and self.failures.counts.keys().isdisjoint(here)

    def may_give(self, offset: Offset, key: str, now: Milliseconds, consumer: KeyConsumer | None = None) -> bool:
        """Return whether an unseen message may be given; otherwise it waits or is blocked. An empty key means none.

        `consumer` is as in `ready_messages`. When True, the caller must `give` the message or `give_back`.
        """
        queue = self.keys.add(offset, key) if key else None
        if not self._is_free(offset):  # leased by an ack id of the previous run
            return False
        if self.failures.is_exhausted(offset):  # the process ended before it was dead-lettered
            self.failures.queue_dead_letter(offset)
            return False
        if (withheld_until := self.restart_grace.withheld_until(offset, now)) is not None:
            self.leases.wait(offset, withheld_until)
            return False
        if queue is None:
            return True
        if queue.next == offset and self._takes(queue, consumer):
            self.keys.take(queue, consumer, self.done.__contains__)
            return True
        if queue.next == offset:
            self._offer(queue)
        return False

    def find_taken(self, offsets: Sequence[Offset]) -> Collection[Offset]:
        """Return messages not to give after all: leased by an older ack id, or taken back, since they were taken."""
        if not self.keys:
            if offsets[0] >= max(self.done.floor, self.restart_grace.end) or self._are_free(offsets):
                return ()
            return {each for each in offsets if not self._is_free(each)}
        taken: set[Offset] = set()
        for offset in offsets:
            queue = self.keys.get(offset)
            is_free = self._is_free(offset)
            if is_free and (queue is None or offset in queue.out):
                continue
            taken.add(offset)
            if not is_free and offset not in self.done:
                self.keys.take_back(offset)  # those behind it wait for it
        return taken

    def give(
        self, offsets: list[Offset], attempt: int, size: int, deadline: Milliseconds, holder: str,
        window: FlowWindow | None = None,
    ) -> str:  # fmt: skip
        """Lease messages of one attempt, `size` bytes in all; return the hand-out part of their ack ids."""
        text = self._ids.new(attempt)
        count = len(offsets)
        self.leases.lease(HandOut(text, offsets, count, deadline, size // count, holder, window))
        return text

    # Settling

    def check(self, ids: AckIds, now: Milliseconds) -> bool:
        """Return whether any of these ids has a lease. Changes nothing. Raises as `acknowledge`."""
        named = self._ids.find_leases(ids, now)
        return bool(named.leases or named.from_before)

    def acknowledge(self, ids: AckIds, now: Milliseconds) -> Settling:
        """Acknowledge messages, and those held behind them; return the change to store.

        Raises `NeverGiven` with all ids that this subscription never gave, by the known end of the topic, and
        `InvalidInput` for an unreadable id. Nothing is changed then.
        """
        named = self._ids.find_and_renew(ids, now, UNKNOWN_HOLDER)
        settling = Settling(late=named.late, unsure=named.unsure, leases=named.leases)
        if self.keys:
            self._hold(settling)
        for lease, offsets in settling.leases:
            self.leases.end(lease, offsets)
            settling.done += offsets
        if self.failures.rules.exactly_once:
            self._ids.finish(settling.leases)
        self.done.being_stored.update(settling.done)
        return settling

    def nack(self, ids: AckIds, now: Milliseconds, waits: Milliseconds | None = None) -> Settling:
        """Count a failure of each message; return the change to store. Raises as `acknowledge`.

        They are redelivered after `waits`; None: by the retry policy. With exactly-once delivery a repeated nack
        changes nothing and is not late.
        """
        named = self._not_held(ids, now, UNKNOWN_HOLDER)
        settling = Settling(unsure=named.unsure, leases=named.leases, waits=waits)
        for each in self._ids.late_ids(named):
            if self._ids.nacks.peek(each.offset) != each.hand_out:
                settling.late.append(each)
            elif each.offset in self.failures.being_stored:  # by the nack that this one repeats, which may fail
                settling.unsure.setdefault(each.hand_out, []).append(each.offset)
        for lease, offsets in settling.leases:
            if self.failures.rules.exactly_once:
                for offset in offsets:
                    self._ids.nacks.put(offset, lease.text)
            self.leases.end(lease, offsets)
            self._fail(settling, offsets)
        if self.keys:
            self._take_back(settling)
        return settling

    def release(self, ids: AckIds, now: Milliseconds) -> list[AckId]:
        """End leases and those behind them without a failure; return late ids. Raises as `acknowledge`."""
        named = self._not_held(ids, now, UNKNOWN_HOLDER)
        released = [offset for _, offsets in named.leases for offset in offsets]
        for lease, offsets in named.leases:
            self.leases.end(lease, offsets)
        self._ids.overtaken.update(released, self._end_behind(released)[0] if self.keys else ())
        self.give_back(sorted(released))
        return named.late

    def extend(
        self, ids: AckIds, deadline: Milliseconds, now: Milliseconds, holder: str = UNKNOWN_HOLDER
    ) -> list[AckId]:
        """Move leases to another deadline and to `holder`; return late ids. Raises as `acknowledge`."""
        named = self._not_held(ids, now, holder)
        for lease, offsets in named.leases:
            self.leases.extend(lease, offsets, deadline)
        return self._ids.late_ids(named)

    def expire(self, now: Milliseconds) -> Settling:
        """Lease expiry: end leases and backoffs that are over by `now`; return the change to store."""
        settling = Settling()
        for each in self.leases.take_due(now):
            if isinstance(each, tuple):
                settling.leases.append(each)
            elif each in self.failures.stored_dead_letters:
                self.failures.queue_dead_letter(each)
            else:
                self.give_back([each])
        # Only the first expired message of an ordering key counts as failed.
        firsts = self._firsts([offset for _, offsets in settling.leases for offset in offsets]) if self.keys else {}
        for _, offsets in settling.leases:
            behind = {each for each in offsets if (queue := self.keys.queue_if_out(each)) and firsts[queue] != each}
            self._fail(settling, [each for each in offsets if each not in behind])
        if self.keys:
            self._take_back(settling)
        return settling

    def put_aside(self, offset: Offset) -> Settling:
        """Settle a message whose dead letter is stored; return the change to store."""
        self.failures.to_dead_letter.discard(offset)
        self.failures.stored_dead_letters.add(offset)
        self.done.being_stored.add(offset)
        if self.failures.rules.exactly_once:
            self._ids.finishers.note([offset], "", self._ids.number)
        return Settling(done=[offset])

    def retry_dead_letter(self, offset: Offset, now: Milliseconds) -> None:
        """Retry a dead message later: redeliver it, or store the end of it if its dead letter is there already."""
        self.failures.to_dead_letter.discard(offset)
        if offset not in self.done:
            self._hold_back(offset, max(self.failures.wait_of(offset), DEAD_LETTER_RETRY_MS), now)

    def _not_held(self, ids: AckIds, now: Milliseconds, holder: str) -> NamedLeases:
        """Find leases that are not held: only an acknowledgement may touch held ones."""
        named = self._ids.find_and_renew(ids, now, holder)
        named.leases = [each for each in named.leases if not each[0].is_held]
        return named

    def _hold(self, settling: Settling) -> None:
        """Hold acknowledgements that are out of order in their key; release those held behind the others."""
        acked = {each for _, offsets in settling.leases for each in offsets}
        first = {each for queue in self._firsts(acked) for each in self._acknowledged_prefix(queue, acked)}
        leases, settling.leases = settling.leases, []
        for lease, offsets in leases:
            behind = [each for each in offsets if each not in first and self.keys.queue_if_out(each) is not None]
            if not behind or self._ids.is_from_previous_run(lease):
                settling.leases.append((lease, offsets))
                continue
            if self.failures.rules.exactly_once:
                refused = [AckId(each, lease.text) for each in behind]
                settling.late += refused
                settling.out_of_order.update(refused)
            else:
                self.leases.extend(lease, behind, message_state.NO_DEADLINE)
            if others := set(offsets).difference(behind):
                settling.leases.append((lease, sorted(others)))
        settling.leases += self.leases.of(first - acked).items()

    def _acknowledged_prefix(self, queue: KeyQueue, acked: Collection[Offset] = ()) -> Iterable[Offset]:
        """Return the leading messages out of a key that are acknowledged: in `acked`, held, or being stored."""

        def is_acknowledged(offset: Offset) -> bool:
            lease = self.leases.get(offset)
            return (lease is not None and lease.is_held) or offset in acked or offset in self.done.being_stored

        return takewhile(is_acknowledged, queue.out)

    def _fail(self, settling: Settling, offsets: Sequence[Offset]) -> None:
        self.failures.being_stored.update(offsets)
        settling.failures.update({each: self.failures.attempt_of(each) for each in offsets})

    def _take_back(self, settling: Settling) -> None:
        behind, leases = self._end_behind(settling.failures)
        settling.leases += leases
        settling.taken_back = dict.fromkeys(behind, Mark(self.run, self._ids.number))
        self.failures.being_taken.update(behind)

    def _end_behind(self, offsets: Collection[Offset]) -> tuple[list[Offset], list[tuple[HandOut, list[Offset]]]]:
        """End leases of messages out behind others in their keys; return these messages and their leases."""
        firsts = self._firsts(offsets).items()
        behind = [each for queue, first in firsts for each in queue.behind(first) if each not in offsets]
        leases = [*self.leases.of(behind).items()]
        for lease, leased in leases:
            self.leases.end(lease, leased)
        return behind, leases

    def _firsts(self, offsets: Iterable[Offset]) -> dict[KeyQueue, Offset]:
        firsts: dict[KeyQueue, Offset] = {}
        for offset in offsets:
            if (queue := self.keys.queue_if_out(offset)) is not None:
                firsts[queue] = min(offset, firsts.get(queue, offset))
        return firsts

    # Outcomes

    def note_stored(self, settling: Settling, now: Milliseconds) -> None:
        """Apply a change that is on disk."""
        if settling.done:
            self.done.add(settling.done)
            self._forget(settling.done)
        if not settling.failures:
            return
        self.failures.being_stored.difference_update(settling.failures)
        if settling.taken_back:
            self.failures.end_taking_back(settling.taken_back)
            self._ids.taken_back |= {each: mark for each, mark in settling.taken_back.items() if each not in self.done}
        if self.keys:
            for offset in sorted((*settling.failures, *settling.taken_back)):
                self.keys.take_back(offset)
        holders = {offset: lease.holder for lease, offsets in settling.leases for offset in offsets}
        for offset, failures in settling.failures.items():
            if offset in self.done:  # retention took it meanwhile
                continue
            self.failures.counts[offset] = failures
            if not self.failures.is_exhausted(offset):
                wait = self.failures.wait_of(offset) if settling.waits is None else settling.waits
                self._hold_back(offset, wait, now, holders[offset])
            elif offset < self.done.scan:  # else the scan finds it dead
                self.failures.queue_dead_letter(offset)
        if settling.taken_back:
            self._go_on(self.keys.queues_of(settling.taken_back))  # retention may have taken the failed ones

    def note_not_stored(self, settling: Settling) -> None:
        """Restore the leases of a change that could not be stored."""
        self.done.being_stored.difference_update(settling.done)
        self._ids.finishers.forget(settling.done)
        for offset in settling.failures:
            self._ids.nacks.discard(offset)
        self.failures.being_stored.difference_update(settling.failures)
        self.failures.end_taking_back(settling.taken_back)
        for lease, offsets in settling.leases:
            if kept := [each for each in offsets if each not in self.done and not self._is_back(lease, each)]:
                self.leases.lease_again(lease, kept, lease.deadline)
        for offset in sorted(settling.taken_back):
            if self.keys.queue_if_out(offset) is not None and self._is_free(offset):  # nor could it be settled itself
                self._ids.overtaken.add(offset)
                self.keys.take_back(offset)
        if self.keys:
            settled = [offset for _, offsets in settling.leases for offset in offsets]
            self._go_on(self.keys.queues_of([*settled, *settling.taken_back]))

    def note_lost(self, offsets: Sequence[Offset]) -> None:
        """Treat messages as done: the log does not have them any more, or they are held and no longer blocked."""
        self.done.add_unstored(offsets)
        self._forget(offsets)

    def retain(self, oldest: Offset) -> int:
        """Move the floor up to the oldest kept message; return how many unacknowledged messages were lost."""
        if oldest <= self.done.floor:
            return 0
        lost = oldest - self.done.floor - self.done.count(self.done.floor, oldest)
        for lease, offsets in self.leases.below(oldest).items():
            self.leases.end(lease, offsets)
        for offset in [each for each in self.leases.waiting if each < oldest]:
            self.leases.stop_waiting(offset)
        self.failures.retain(oldest)
        self._ids.retain(oldest)
        self.done.raise_floor(oldest)
        below = self.keys.below(oldest)
        queues = self.keys.queues_of(below)
        for offset in below:
            self._free_key(offset)
        self._go_on(queues)
        return lost

    def _hold_back(self, offset: Offset, wait: Milliseconds, now: Milliseconds, holder: str | None = None) -> None:
        if wait > 0:
            self.leases.wait(offset, Milliseconds(now + wait), holder)
        else:
            self.give_back([offset])

    def _forget(self, offsets: Sequence[Offset]) -> None:
        self.failures.forget_done(offsets)
        if self._ids.overtaken or self._ids.taken_back:
            self._ids.forget(offsets)
        if self.keys:
            for offset in offsets:
                self._free_key(offset)

    def _free_key(self, offset: Offset) -> None:
        if (queue := self.keys.end(offset, self.done.__contains__)) is not None:
            self._offer(queue)

    def _offer(self, queue: KeyQueue, asks: KeyConsumer | None = None) -> None:
        """Make the next message of an ordering key ready. `asks` is not notified: it is pulling now."""
        offset = queue.next
        if offset is None or not self._is_free(offset):
            return
        if not queue.out:
            heapq.heappush(self._ready, offset)
        elif queue.consumer is not None and self._takes(queue, queue.consumer):
            heapq.heappush(queue.consumer.ready, offset)
            if queue.consumer is not asks:
                queue.consumer.freed()

    def _go_on(self, queues: Iterable[KeyQueue]) -> None:
        """Continue ordering keys after messages were taken back or lost; acknowledgements held behind them are done."""
        for queue in queues:
            for lease, held in self.leases.of([*self._acknowledged_prefix(queue)]).items():
                self.leases.end(lease, held)
                self.note_lost(held)
            self._offer(queue)

    def _may_take(self, offset: Offset, queue: KeyQueue | None, consumer: KeyConsumer | None) -> bool:
        is_its_turn = queue is None or (queue.next == offset and self._takes(queue, consumer))
        return is_its_turn and self._is_free(offset)

    def _takes(self, queue: KeyQueue, consumer: KeyConsumer | None) -> bool:
        """Return whether a consumer may get the next message of a key: not while a failure in it is being stored."""
        return queue.takes(consumer) and not (queue.out and self.failures.is_unavailable(next(reversed(queue.out))))

    def _is_back(self, lease: HandOut, offset: Offset) -> bool:
        """Return whether a message was taken back, or is, while a lease of this run settled it."""
        queue = self.keys.get(offset)
        if queue is None or self._ids.is_from_previous_run(lease):
            return False
        return offset not in queue.out or offset in self.failures.being_taken

    def _is_free(self, offset: Offset) -> bool:
        in_hands = offset in self.leases or offset in self.done.being_stored or self.failures.is_unavailable(offset)
        return not (in_hands or offset in self.done or offset in self.leases.waiting)

    def _are_free(self, offsets: Sequence[int]) -> bool:
        """Return whether all messages are free and none between them is done. They are in offset order."""
        begin, end = Offset(offsets[0]), Offset(offsets[-1] + 1)
        if begin < self.done.floor or self.done.count(begin, end) or self.leases.has_any(offsets):
            return False
        return self.done.being_stored.isdisjoint(offsets) and not self.failures.has_any(offsets)
