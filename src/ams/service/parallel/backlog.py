"""The backlog of one parallel subscription: what is done, what is out, what comes again, and when.

A pure state machine: no I/O and no clock. Times are milliseconds of a monotonic clock and are given. What has to be on
disk is told by what its methods return, and taken in by a call when it is there (`stored`) or cannot be (`not_stored`).

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
  last at most: who uses it has the lease again. Ids of older runs count no more.
- The number of failures is stored before the message is given again, and never falls.
- Of an ordering key one message is under way at a time, in order.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from pyroaring import BitMap64

from ams.core.ack_ids import AckId, AckIds, HandOutId, NeverGiven, read_hand_out
from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.core.offsets import first_missing
from ams.service.parallel.finishers import Finishers
from ams.service.parallel.leases import HandOut, Leases, Window
from ams.service.parallel.ordering import Blocking, Keys
from ams.storage.cursors.acks import Progress

MAX_OUT = 100_000
"""Messages that may be given and not settled; each takes about as much memory as a tuple in a dictionary."""
MAX_OUT_BYTES = 2**30
"""Bytes of these."""
MAX_HELD_BACK = 200_000
"""Messages that wait, are ready again, or are blocked by their key, before no new ones are looked at."""
KEPT = Milliseconds(10_000)
"""For so long at least a message waits that could not be put aside."""
SOMEBODY = "a consumer of before the restart"
"""Who holds a lease of before a restart, until its consumer extends it."""
MAX_SPAN = 2**24
"""Offsets from the floor to the newest that was given: one message that is never settled holds the others up then."""


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


@dataclass(slots=True)
class Settling:
    """What one call is about to settle. It is in nobody's hands until `stored` or `not_stored` says what came of it."""

    done: list[Offset] = field(default_factory=list)
    failures: dict[Offset, int] = field(default_factory=dict)
    """How often each of these has failed now."""
    failed_with: dict[Offset, str] = field(default_factory=dict)
    """Who had them."""
    waits: Milliseconds | None = None
    """How long those that failed are to wait; None: as the rules say."""
    late: list[AckId] = field(default_factory=list)
    """Ids that count no more."""
    never_given: list[AckId] = field(default_factory=list)
    """Ids that never counted."""
    unsure: dict[str, list[Offset]] = field(default_factory=dict)
    """Ids whose messages are being acknowledged by another call: they count no more, or are to be settled yet."""
    leases: list[tuple[HandOut, list[Offset]]] = field(default_factory=list)
    """The leases they had."""
    from_before: dict[Offset, str] = field(default_factory=dict)
    """Those of before the restart that are no leases again yet: the text of their hand-outs."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
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
        """This process took the subscription over; others gave nothing at or above `end`.

        Ids that were given in the run before are good until `grace_until`. The longest leases of then may last until
        `longest_until`, absent: likewise; it counts when exactly-once delivery is switched on before anything is given.
        """
        self._rules = rules
        self._end_before = self._topic_end = end
        self.floor = progress.floor
        self.epoch, self.run = progress.epoch, progress.run
        self.scan = progress.floor
        """Where to look for messages that were not given yet."""
        self._identity = identity
        self._grace_until = grace_until
        self._longest_until = grace_until if longest_until is None else longest_until
        self._number = 0
        self._done: BitMap64 = progress.done.copy()
        self._failures = dict(progress.failures)
        self._leases = Leases()
        self._keys = Keys()
        self._acknowledging: set[Offset] = set()
        self._failing: set[Offset] = set()
        self._ready: list[Offset] = []
        """A heap. An offset may be there twice, or be given or done by now."""
        self.dead: list[Offset] = []
        """Messages that have failed as often as they may, and are to be put aside. Who does takes them from here."""
        self._dying: set[Offset] = set()
        """These, and those that are being put aside: they are in nobody's hands until `put_aside` or `keep`."""
        self._withheld_below = Offset(0)
        self._withheld_until = Milliseconds(0)
        self._overtaken: set[Offset] = set()
        """Messages of which older ids count no more though no failure says so: they were taken back unused, or an id of
        before the restart has the lease again."""
        self._finishers = Finishers(progress, grace_until)
        self._letters: set[Offset] = set()
        """Messages that are in the dead letter topic, and wait for that to be stored."""
        self._passed: list[tuple[Offset, Offset]] = []
        """What was passed over and is not stored."""

    @property
    def rules(self) -> Rules:
        """What holds for failures and acknowledgements."""
        return self._rules

    def go_by(self, rules: Rules) -> None:
        """Let other rules hold from now on."""
        if rules.exactly_once and not self._rules.exactly_once:
            self._finishers.forget_all(self._number)
            if self._before_until > self._grace_until:
                self._grace_until = self._longest_until
                self.withhold(self._end_before, self._longest_until)
        self._rules = rules

    def grow(self, end: Offset) -> bool:
        """Note where the topic ends by now; return whether that is farther than was known."""
        before, self._topic_end = self._topic_end, max(self._topic_end, end)
        return self._topic_end > before

    # What is there

    @property
    def out(self) -> int:
        """How many messages are given and not settled."""
        return len(self._leases) + len(self._acknowledging) + len(self._failing)

    @property
    def done_above(self) -> int:
        """How many messages above the floor are done."""
        return len(self._done)

    def done_from(self, offset: Offset) -> int:
        """Return how many messages at or above an offset are done, which is not below the floor."""
        return len(self._done) - int(self._done.range_cardinality(0, offset))

    @property
    def held_back(self) -> int:
        """How many wait, are ready again, or are blocked."""
        return self._leases.waiting + len(self._ready) + self._keys.blocked

    @property
    def held_back_most(self) -> int:
        """How many wait that failed with the consumer of which most do."""
        return self._leases.most_waits

    @property
    def leased(self) -> int:
        """How many messages consumers have on lease."""
        return len(self._leases)

    @property
    def waiting(self) -> int:
        """How many messages wait to be given again, or may be by now."""
        return self._leases.waiting + len(self._ready)

    @property
    def blocked(self) -> int:
        """How many messages are blocked by an earlier one of their key."""
        return self._keys.blocked

    @property
    def failures(self) -> Mapping[Offset, int]:
        """How often messages have failed that are not done; only those that did."""
        return self._failures

    @property
    def bytes_out(self) -> int:
        """How many bytes the messages on lease have, about."""
        return self._leases.bytes

    def holder_of(self, offset: Offset) -> str | None:
        """Return who has a message on lease, None: nobody."""
        lease = self._leases.get(offset)
        return None if lease is None else lease.holder

    def blocks_most(self) -> Blocking | None:
        """Return the message that blocks most others of its key; None while nothing is blocked."""
        return self._keys.blocks_most()

    @property
    def holders(self) -> Mapping[str, int]:
        """How many messages each consumer has on lease."""
        return self._leases.holders

    @property
    def is_again_ready(self) -> bool:
        """Whether something is to be given again."""
        while self._ready and not self._is_free(self._ready[0]):
            heapq.heappop(self._ready)
        return bool(self._ready)

    def room(self, holder: str) -> int:
        """Return how many messages a consumer may be given now.

        Each may hold as much as it leaves free: one alone half of all, each of two a third, and so on.
        """
        if not self.room_bytes(holder):
            return 0
        return max(MAX_OUT - self.out - self.holders.get(holder, 0), 0)

    def room_bytes(self, holder: str) -> int:
        """Return how many bytes of messages a consumer may be given now: as much as it leaves free, likewise."""
        return max(MAX_OUT_BYTES - self._leases.bytes - self._leases.bytes_held_by(holder), 0)

    def may_scan(self, holder: str) -> bool:
        """Whether a consumer may be given messages that were not given yet.

        Not when too many are held back already, or as many wait that failed with this consumer as are left to others.
        """
        free = MAX_HELD_BACK - self.held_back - self._leases.waits_of(holder)
        return free > 0 and self.scan - self.floor < MAX_SPAN

    def out_until(self, now: Milliseconds) -> Milliseconds:
        """Return when the last lease ends, also of those that may be out since before the restart."""
        return max(now, self._grace_until, self._leases.latest or now)

    def may_be_out(self, now: Milliseconds) -> tuple[Offset, Milliseconds] | None:
        """Return below which offset messages may be out, with whomever, and until when; None: nothing is."""
        before = self._before_until
        until = max(before, self._leases.latest or now)
        return (max(self.scan, self._end_before if before else self.scan), until) if until > now else None

    @property
    def _before_until(self) -> Milliseconds:
        """Until when messages may be out since before the last start, as far as that counts; 0: nothing is."""
        left = self._end_before - self.floor
        if self.run == 1 or left <= 0 or left == self._done.range_cardinality(self.floor, self._end_before):
            return Milliseconds(0)
        return self._grace_until if self._number else max(self._grace_until, self._longest_until)

    @property
    def has_failures(self) -> bool:
        """Whether some of the messages have failed."""
        return bool(self._failures)

    def failures_of(self, offset: Offset) -> int:
        """Return how often a message has failed."""
        return self._failures.get(offset, 0)

    def attempt_of(self, offset: Offset) -> int:
        """Return the number of a message's next delivery, from 1."""
        return self.failures_of(offset) + 1

    # Giving

    def withhold(self, below: Offset, until: Milliseconds) -> None:
        """Give nothing below an offset until a time, as it may be out since before the restart (exactly-once)."""
        self._withheld_below, self._withheld_until = below, until

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
            if offset < self.scan and not self.is_done(offset):  # unseen ones are found when they are looked at
                heapq.heappush(self._ready, offset)

    def undone(self, begin: Offset, end: Offset) -> Sequence[Offset]:
        """Return which of the unseen offsets from `begin` to `end` are not done."""
        found = cast("Sequence[Offset]", range(max(begin, self.floor), end))
        if begin >= self._end_before or not self._done.range_cardinality(begin, end):
            return found
        return [each for each in found if each not in self._done]

    def scanned(self, end: Offset) -> None:
        """Note that everything below `end` was looked at."""
        self.scan = max(self.scan, end)

    def may_give_all(self, begin: Offset, end: Offset) -> bool:
        """Whether all unseen messages from `begin` to `end` may be given that have no ordering keys."""
        if begin >= self._end_before:  # none was given before the restart
            return True
        if begin < self._withheld_below:
            return False
        here = range(begin, end)
        return self._are_free(here) and self._failures.keys().isdisjoint(here)

    def may_give(self, offset: Offset, key: str, now: Milliseconds) -> bool:
        """Whether an unseen message with an ordering key (empty: none) may be given; it is held back otherwise."""
        if key and not self._keys.begin(offset, key):
            return False
        if not self._is_free(offset):  # by an id of before the restart
            return False
        if self._has_failed_out(offset):  # the process ended before it was put aside
            self._die(offset)
            return False
        if offset < self._withheld_below and now < self._withheld_until:
            self._leases.wait(offset, self._withheld_until)
            return False
        return True

    def taken_of(self, offsets: Sequence[Offset]) -> Collection[Offset]:
        """Return which of the messages, in their order, that are about to be given are not free any more.

        That is done by ids of before the restart.
        """
        if offsets[0] >= max(self.floor, self._end_before) or self._are_free(offsets):
            return ()
        return {each for each in offsets if not self._is_free(each)}

    def pass_over(self, begin: Offset, end: Offset) -> None:
        """Take note that the unseen offsets from `begin` to `end` are done: nothing there is for this subscription."""
        goes_on = self._passed and self._passed[-1][1] == begin
        self._passed.append((self._passed.pop()[0] if goes_on else begin, end))
        if begin == self.floor:
            self._raise_floor(end)
        else:
            self._done.add_range(begin, end)

    def lose(self, offsets: Sequence[Offset]) -> None:
        """Take note that messages are not there any more."""
        self._passed += [(each, Offset(each + 1)) for each in offsets]
        self._are_done(offsets)

    @property
    def has_passed(self) -> bool:
        """Whether something was passed over that is not stored."""
        return bool(self._passed)

    def take_passed(self) -> list[tuple[Offset, Offset]]:
        """Return what was passed over and has to be stored; it need not be soon, as it can be passed over again."""
        passed, self._passed = self._passed, []
        return passed

    def passed_again(self, passed: Sequence[tuple[Offset, Offset]]) -> None:
        """Take back what `take_passed` returned: it could not be stored."""
        self._passed[:0] = passed

    def give(
        self,
        offsets: list[Offset],
        attempt: int,
        size: int,
        deadline: Milliseconds,
        holder: str,
        window: Window | None = None,
    ) -> str:
        """Lease messages that were all given so often before; return the text of the hand-out for their ids.

        `size` is in bytes, of all of them; `window` is that of the stream they go to.
        """
        self._number += 1
        text = HandOutId(attempt, self.epoch, self.run, self._number, self._identity).text
        self._leases.lease(HandOut(text, offsets, deadline, size // len(offsets), holder, window))
        return text

    # Settling

    def check(self, ids: AckIds, now: Milliseconds) -> bool:
        """Return whether one of these has a lease, and change nothing; raises as `acknowledge`."""
        named = self._named(ids, now)
        return bool(named.leases or named.from_before)

    def acknowledge(self, ids: AckIds, now: Milliseconds) -> Settling:
        """Return what is to be stored for an acknowledgement of these.

        Raises `NeverGiven` for all that were never given by this subscription, as far as is known of the end of the
        topic (`grow`), `InvalidInput` for one that cannot be read; nothing is changed then.
        """
        settling = self._leased(ids, now)
        for lease, offsets in settling.leases:
            self._leases.end(lease, offsets)
            settling.done += offsets
        if self._rules.exactly_once:
            self._note_finishers(settling)
        self._acknowledging.update(settling.done)
        return settling

    def _note_finishers(self, settling: Settling) -> None:
        """Note by which ids messages are finished that had several."""
        if not (self._failures or self._overtaken):
            return
        for lease, offsets in settling.leases:
            several = [each for each in offsets if each in self._failures or each in self._overtaken]
            self._finishers.note(several, lease.text, self._number)

    def nack(self, ids: AckIds, now: Milliseconds, waits: Milliseconds | None = None) -> Settling:
        """Return what is to be stored as consumers cannot do with these; raises as `acknowledge`.

        They come again after `waits`, None: as the rules say.
        """
        settling = self._leased(ids, now)
        settling.waits = waits
        for lease, offsets in settling.leases:
            self._leases.end(lease, offsets)
            self._fail(settling, lease, offsets)
        return settling

    def release(self, ids: AckIds, now: Milliseconds) -> list[AckId]:
        """Let messages be given again that nobody has worked on: it is no failure, and nothing is to be stored.

        Return the ids that count no more; raises as `acknowledge`.
        """
        named = self._leased(ids, now)
        for lease, offsets in named.leases:
            self._leases.end(lease, offsets)
            self._overtaken.update(offsets)
            self.give_back(offsets)
        return named.late

    def expire(self, now: Milliseconds) -> Settling:
        """Return what is to be stored as leases have ended by `now`; let those be given again whose wait is over."""
        settling = Settling()
        for each in self._leases.take_due(now):
            if isinstance(each, tuple):
                settling.leases.append(each)
                self._fail(settling, *each)
            elif each in self._letters:
                self._die(each)
            else:
                self.give_back([each])
        return settling

    def extend(self, ids: AckIds, deadline: Milliseconds, now: Milliseconds, holder: str = SOMEBODY) -> list[AckId]:
        """Let leases end at `deadline`; return the ids that count no more. Raises as `acknowledge`.

        `holder` has those of before the restart from now on.
        """
        named = self._leased(ids, now, holder)
        for lease, offsets in named.leases:
            self._leases.extend(lease, offsets, deadline)
        return named.late

    def stored(self, settling: Settling, now: Milliseconds) -> None:
        """Take note that it is on disk."""
        self._are_done(settling.done)
        for offset, failures in settling.failures.items():
            self._failing.discard(offset)
            if self.is_done(offset):  # retention took it meanwhile
                continue
            self._failures[offset] = failures
            if not self._has_failed_out(offset):
                wait = self._rules.wait(failures) if settling.waits is None else settling.waits
                self._hold_back(offset, wait, now, settling.failed_with[offset])
            elif offset < self.scan:  # else it is found dead when it is looked at
                self._die(offset)

    def not_stored(self, settling: Settling) -> None:
        """Let leases go on as they were: nothing of it is on disk."""
        self._acknowledging.difference_update(settling.done)
        self._finishers.forget(settling.done)
        self._failing.difference_update(settling.failures)
        for lease, offsets in settling.leases:
            kept = [each for each in offsets if not self.is_done(each)]
            if kept:
                self._leases.lease_again(lease, kept, lease.deadline)

    def put_aside(self, offset: Offset) -> Settling:
        """Return what is to be stored as a dead message was put aside: nobody is given it any more."""
        self._dying.discard(offset)
        self._acknowledging.add(offset)
        self._letters.add(offset)
        if self._rules.exactly_once:
            self._finishers.note([offset], "", self._number)
        return Settling(done=[offset])

    def keep(self, offset: Offset, now: Milliseconds) -> None:
        """Let a dead message come again after a while: to be given, or to be put aside if only that was not stored.

        It waits as its failures say, and for `KEPT` at least.
        """
        self._dying.discard(offset)
        if not self.is_done(offset):
            wait = self._rules.wait(self._failures.get(offset, 1))
            self._hold_back(offset, max(wait, KEPT), now)

    def retain(self, oldest: Offset) -> int:
        """Move the floor up to the oldest message that is kept; return how many were lost."""
        if oldest <= self.floor:
            return 0
        done: int = self._done.range_cardinality(self.floor, oldest)
        lost = oldest - self.floor - done
        for lease, offsets in self._leases.below(oldest).items():
            self._leases.end(lease, offsets)
        self._leases.stop_waiting_below(oldest)
        self._failures = {offset: failures for offset, failures in self._failures.items() if offset >= oldest}
        self._letters = {offset for offset in self._letters if offset >= oldest}
        self._overtaken = {offset for offset in self._overtaken if offset >= oldest}
        self._dying = {offset for offset in self._dying if offset >= oldest}
        self._raise_floor(oldest)
        for offset in self._keys.below(oldest):
            self._free_key(offset)
        return lost

    def next_due(self) -> Milliseconds | None:
        """Return when `expire` has something to do; None while it has not."""
        return self._leases.next_due()

    # Leases

    def _leased(self, ids: AckIds, now: Milliseconds, holder: str = SOMEBODY) -> Settling:
        """Find the leases that these name; raises as `acknowledge`.

        Those of before the restart are leases again then, of this holder and for as long as such leases may last. They
        count no bytes, as it is not known here how large their messages are.
        """
        settling = self._named(ids, now)
        if not settling.from_before:
            return settling
        by_text: dict[str, list[Offset]] = {}
        for offset, text in settling.from_before.items():
            self._leases.stop_waiting(offset)
            by_text.setdefault(text, []).append(offset)
        self._overtaken.update(settling.from_before)
        for text, offsets in by_text.items():
            lease = HandOut(text, list(offsets), self._grace_until, 0, holder)
            self._leases.lease(lease)
            settling.leases.append((lease, offsets))
        return settling

    def _named(self, ids: AckIds, now: Milliseconds) -> Settling:
        """Find the leases that these name, or had before the restart; changes nothing."""
        settling = Settling()
        for text, offsets in ids.items():
            lease = self._leases.get(offsets[0])
            if lease is not None and lease.text == text and now <= lease.deadline and self._are_all_of(lease, offsets):
                settling.leases.append((lease, list(offsets)))
            else:
                self._find_each(settling, text, offsets, now)
        if settling.never_given:
            raise NeverGiven(settling.never_given)
        return settling

    def _are_all_of(self, lease: HandOut, offsets: Sequence[Offset]) -> bool:
        """Whether each of the offsets is leased by it, and none is named twice: as consumers mostly send them."""
        return len(set(offsets)) == len(offsets) == [*map(self._leases.get, offsets)].count(lease)

    def _find_each(self, settling: Settling, text: str, offsets: Sequence[Offset], now: Milliseconds) -> None:
        """Find the leases of one hand-out's messages; those of before the restart may be in several, each is one."""
        by_lease: dict[HandOut, list[Offset]] = {}
        for offset in dict.fromkeys(offsets):
            lease = self._leases.get(offset)
            if lease is None or lease.text != text:
                if self._is_good_from_before(settling, AckId(offset, text), now):
                    settling.from_before[offset] = text
            elif now > lease.deadline:
                settling.late.append(AckId(offset, text))
            else:
                by_lease.setdefault(lease, []).append(offset)
        settling.leases += by_lease.items()

    def _is_good_from_before(self, settling: Settling, ack_id: AckId, now: Milliseconds) -> bool:
        """Whether an id that names no lease is the newest one of the run before, of a message not given again since."""
        offset, text = ack_id
        given = read_hand_out(text)
        newest = self.epoch, self.run, self._number
        if given.identity != self._identity or (given.epoch, given.run, given.number) > newest:
            settling.never_given.append(ack_id)
            return False
        if given.epoch != self.epoch:
            settling.late.append(ack_id)
            return False
        if offset in self._acknowledging or self.is_done(offset):
            if self._rules.exactly_once and not self._finishers.is_by(ack_id, given, now):
                settling.late.append(ack_id)
            elif offset in self._acknowledging:
                settling.unsure.setdefault(text, []).append(offset)
            return False
        if offset >= (self.scan if given.run == self.run else max(self._topic_end, self.scan)):
            settling.never_given.append(ack_id)
            return False
        is_good = (
            given.run == self.run - 1  # an older one may have been followed by another of the same attempt
            and offset < self._end_before  # else an owner gave it that did not know yet that it is none any more
            and now <= self._grace_until
            and given.attempt == self.attempt_of(offset)
            and not (self._has_failed_out(offset) and offset < self.scan)  # it is being put aside
            and offset not in self._leases
            and offset not in self._failing
            and offset not in self._overtaken
            and offset not in settling.from_before
        )
        if not is_good:
            settling.late.append(ack_id)
        return is_good

    def _fail(self, settling: Settling, lease: HandOut, offsets: Sequence[Offset]) -> None:
        settling.failures.update([(each, self._failures.get(each, 0) + 1) for each in offsets])
        settling.failed_with.update(dict.fromkeys(offsets, lease.holder))
        self._failing.update(offsets)

    def _has_failed_out(self, offset: Offset) -> bool:
        """Whether a message has failed as often as it may."""
        return 0 < self._rules.most_attempts <= self.failures_of(offset)

    def _die(self, offset: Offset) -> None:
        """Let a message be put aside."""
        self.dead.append(offset)
        self._dying.add(offset)

    # Waits and keys

    def _hold_back(self, offset: Offset, wait: Milliseconds, now: Milliseconds, holder: str | None = None) -> None:
        if wait > 0:
            self._leases.wait(offset, Milliseconds(now + wait), holder)
        else:
            self.give_back([offset])

    def _free_key(self, offset: Offset) -> None:
        """Let the next message of a key go, as this one is done."""
        following = self._keys.end(offset, self.is_done)
        if following is not None:
            heapq.heappush(self._ready, following)

    # What is done

    def _is_free(self, offset: Offset) -> bool:
        """Whether a message is not done, nobody has it, and it neither waits nor is to be put aside."""
        in_hands = offset in self._leases or offset in self._acknowledging or offset in self._failing
        return not (in_hands or offset in self._dying or self.is_done(offset) or self._leases.is_waiting(offset))

    def _are_free(self, offsets: Sequence[int]) -> bool:
        """Whether all messages, in their order, are free, and nothing between is done."""
        begin, end = offsets[0], offsets[-1] + 1
        if begin < self.floor or self._done.range_cardinality(begin, end) or self._leases.has_any(offsets):
            return False
        return all(some.isdisjoint(offsets) for some in (self._acknowledging, self._failing, self._dying))

    def is_done(self, offset: Offset) -> bool:
        """Whether a message is acknowledged, or was passed over."""
        return offset < self.floor or offset in self._done

    def _are_done(self, offsets: Sequence[Offset]) -> None:
        if not offsets:
            return
        self._acknowledging.difference_update(offsets)
        last = max(offsets)
        if not self._done and last - self.floor + 1 == len(offsets) and min(offsets) == self.floor:
            self._raise_floor(Offset(last + 1))
        else:
            self._done.update(offsets)
            self._raise_floor(self.floor)
        if self._failures:
            for offset in offsets:
                self._failures.pop(offset, None)
        for some in (self._letters, self._overtaken, self._dying):
            if some:
                some.difference_update(offsets)
        if self._keys:
            for offset in offsets:
                self._free_key(offset)

    def _raise_floor(self, floor: Offset) -> None:
        floor = first_missing(self._done, floor)
        if self._done:
            self._done.remove_range(0, floor)
        self.floor = floor
        self.scan = max(self.scan, floor)
