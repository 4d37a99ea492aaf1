"""Ack ids of one subscription: which ones count, and which one settled each message.

An id of the newest hand-out of a message counts until its deadline. One of the previous run counts until the message is
given again, for the time that leases of then may last at most: whoever uses it has the lease again. Ids of older runs
count no more.

With exactly-once delivery an acknowledgement by an older id is refused although the message is done: else two consumers
would each believe that theirs counted. Mostly nothing has to be remembered for this: a message that was given by one id
in this run was settled by that one. Only messages that have failed before, or were settled by an id of the previous
run, are noted. A nack that was done and comes again is answered as done, as clients repeat calls without an answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ams.core.ack_ids import AckId, AckIds, HandOutId, NeverGiven, read_hand_out
from ams.core.cache import LruCache
from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.service.parallel.message_state import Done, Failures, HandOut, LeaseTable
from ams.storage.cursors.acks import Mark, Progress

MOST_NOTED = 100_000
"""Messages whose ids are remembered; of settled ones the newer half at least. Repeated calls come soon."""
NEVER = Mark(0, 0)


class RestartGrace:
    """Leases granted by the previous run. Their ack ids stay valid for a grace period after a restart."""

    def __init__(self, run: int, end: Offset, grace_until: Milliseconds, longest_until: Milliseconds) -> None:
        """Others gave nothing at or above `end`.

        Ids of the previous run are good until `grace_until`. Its longest leases may last until `longest_until`; that
        counts when exactly-once delivery is switched on before anything is given.
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
        """Return whether a message existed, so that a process may have given it that did not know of this run yet."""
        return offset < self._topic_end

    def is_out_until(self, done: Done, *, has_given: bool) -> Milliseconds:
        """Return when the last lease of the previous run expires, or 0. `has_given`: whether this run gave anything."""
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
        """Return whether some at or above an offset was withheld, perhaps no more."""
        return offset < self._withheld_below

    def withheld_until(self, offset: Offset, now: Milliseconds) -> Milliseconds | None:
        """Return until when a message is withheld; None: it is not."""
        return self._withheld_until if offset < self._withheld_below and now < self._withheld_until else None


class FinalIds:
    """Ack id that settled each message in this run, for exactly-once: a later id for the same message is rejected."""

    def __init__(self, before: Progress, grace_until: Milliseconds) -> None:
        """`before`: messages done before the run, by leases that last until `grace_until` at most."""
        self._before = before
        self._grace_until = grace_until
        self._newer: dict[Offset, str] = {}
        self._older: dict[Offset, str] = {}
        self._older_until = 0
        """Number of the newest hand-out when the last of the older ones was noted."""
        self._unknown_until = 0
        """Likewise of those that are forgotten: of hand-outs up to it, only noted ids are known."""

    def note(self, offsets: Iterable[Offset], text: str, number: int) -> None:
        """Note by which hand-out messages were finished, empty: by none; `number` is that of the newest there is."""
        self._newer.update(dict.fromkeys(offsets, text))
        if len(self._newer) >= MOST_NOTED // 2:
            self._unknown_until, self._older_until = self._older_until, number
            self._older, self._newer = self._newer, {}

    def forget(self, offsets: Iterable[Offset]) -> None:
        """Forget messages that are not finished after all."""
        for offset in offsets:
            self._newer.pop(offset, None)
            self._older.pop(offset, None)

    def forget_all(self, number: int) -> None:
        """Know nothing of hand-outs up to a number."""
        self._newer, self._older = {}, {}
        self._unknown_until = self._older_until = number

    def is_by(self, ack_id: AckId, given: HandOutId, now: Milliseconds) -> bool:
        """Return whether this id finished a message that is done, or is being stored as done, as far as is known."""
        offset, text = ack_id
        if offset < self._before.floor or offset in self._before.done:
            return now <= self._grace_until
        noted = self._newer.get(offset, self._older.get(offset))
        if noted is not None:
            return noted == text
        return given.run == self._before.run and given.attempt == 1 and given.number > self._unknown_until


@dataclass(slots=True)
class NamedLeases:
    """Leases that ids name, and ids that name none."""

    leases: list[tuple[HandOut, list[Offset]]] = field(default_factory=list)
    from_before: dict[Offset, str] = field(default_factory=dict)
    """Leases of the previous run that are not taken over yet: the text of their hand-outs."""
    late: list[AckId] = field(default_factory=list)
    never_given: list[AckId] = field(default_factory=list)
    finished: list[AckId] = field(default_factory=list)
    """Ids whose messages are done, and that may say so again: for an acknowledgement they are good."""
    unsure: dict[str, list[Offset]] = field(default_factory=dict)
    """Ids whose messages are being acknowledged by another call: they count no more, or are to be settled yet."""


class HandOutIds:
    """The ack ids that were given."""

    def __init__(
        self,
        progress: Progress,
        identity: str,
        before: RestartGrace,
        leases: LeaseTable,
        done: Done,
        failures: Failures,
    ) -> None:
        self._epoch, self._run = progress.epoch, progress.run
        self._identity = identity
        self.number = 0
        self._before = before
        self._leases = leases
        self._done = done
        self._failures = failures
        self.overtaken: set[Offset] = set()
        """Messages whose older ids count no more although no failure says so: they were taken back unused, or an id of
        the previous run has the lease again."""
        self.taken_back = dict(progress.taken_back)
        """Messages that were taken back as one before them in their ordering key failed: older ids count no more."""
        self.finishers = FinalIds(progress, before.grace_until)
        self.nacks: LruCache[Offset, str] = LruCache(MOST_NOTED)
        """Hand-out of the last nack of each message: the same nack again is answered as done."""

    def new(self, attempt: int) -> str:
        """Return the text of the next hand-out, for the ids of its messages."""
        self.number += 1
        return HandOutId(attempt, self._epoch, self._run, self.number, self._identity).text

    def leased(self, ids: AckIds, now: Milliseconds, holder: str) -> NamedLeases:
        """Find leases as `named`, and take over those of the previous run for this holder, for the grace period.

        They count no bytes, as the sizes of their messages are not known here.
        """
        named = self.named(ids, now)
        if not named.from_before:
            return named
        by_text: dict[str, list[Offset]] = {}
        for offset, text in named.from_before.items():
            self._leases.stop_waiting(offset)
            by_text.setdefault(text, []).append(offset)
        self.overtaken.update(named.from_before)
        for text, offsets in by_text.items():
            lease = HandOut(text, list(offsets), len(offsets), self._before.grace_until, 0, holder)
            self._leases.lease(lease)
            named.leases.append((lease, offsets))
        return named

    def named(self, ids: AckIds, now: Milliseconds) -> NamedLeases:
        """Find the leases that these name, also those of the previous run; changes nothing.

        Raises `NeverGiven` for ids beyond the known end of the topic or of others, `InvalidInput` for unreadable ones.
        """
        named = NamedLeases()
        for text, offsets in ids.items():
            lease = self._leases.get(offsets[0])
            if lease is not None and lease.text == text and now <= lease.deadline and self._are_all_of(lease, offsets):
                named.leases.append((lease, list(offsets)))
            else:
                self._find_each(named, text, offsets, now)
        if named.never_given:
            raise NeverGiven(named.never_given)
        return named

    def _are_all_of(self, lease: HandOut, offsets: Sequence[Offset]) -> bool:
        """Return whether each offset is leased by it, and none is named twice, as in most requests."""
        return len(set(offsets)) == len(offsets) == [*map(self._leases.get, offsets)].count(lease)

    def _find_each(self, named: NamedLeases, text: str, offsets: Sequence[Offset], now: Milliseconds) -> None:
        by_lease: dict[HandOut, list[Offset]] = {}
        for offset in dict.fromkeys(offsets):
            lease = self._leases.get(offset)
            if lease is None or lease.text != text:
                if self._is_good_from_before(named, AckId(offset, text), now):
                    named.from_before[offset] = text
            elif now > lease.deadline:
                named.late.append(AckId(offset, text))
            else:
                by_lease.setdefault(lease, []).append(offset)
        named.leases += by_lease.items()

    def _is_good_from_before(self, named: NamedLeases, ack_id: AckId, now: Milliseconds) -> bool:
        """Return whether an id without a lease is the newest of the previous run, of a message not given since."""
        offset, text = ack_id
        given = read_hand_out(text)
        newest = self._epoch, self._run, self.number
        if given.identity != self._identity or (given.epoch, given.run, given.number) > newest:
            named.never_given.append(ack_id)
            return False
        if given.epoch != self._epoch:
            named.late.append(ack_id)
            return False
        is_being_stored = offset in self._done.being_stored
        if is_being_stored or offset in self._done:
            if self._failures.rules.exactly_once and not self.finishers.is_by(ack_id, given, now):
                named.late.append(ack_id)
            elif is_being_stored:
                named.unsure.setdefault(text, []).append(offset)
            else:
                named.finished.append(ack_id)
            return False
        scan = self._done.scan
        if offset >= scan and (given.run == self._run or not self._before.may_have_given(offset)):
            named.never_given.append(ack_id)
            return False
        is_good = (
            given.run == self._run - 1  # an older one may have been followed by another of the same attempt
            and offset < self._before.end  # else an owner gave it that did not know yet that it is none any more
            and now <= self._before.grace_until
            and given.attempt == self._failures.attempt_of(offset)
            and not (self._failures.has_failed_out(offset) and offset < scan)  # it is being put aside
            and offset not in self._leases
            and offset not in self._failures.being_stored
            and offset not in self._failures.being_taken
            and offset not in self.overtaken
            and (given.run, given.number) > self.taken_back.get(offset, NEVER)
            and offset not in named.from_before
        )
        if not is_good:
            named.late.append(ack_id)
        return is_good

    def finish(self, leases: Iterable[tuple[HandOut, list[Offset]]]) -> None:
        """Note by which ids messages are finished that had several: exactly-once delivery."""
        counts, taken_back = self._failures.counts, self.taken_back
        if not (counts or self.overtaken or taken_back):
            return
        for lease, offsets in leases:
            several = [each for each in offsets if each in counts or each in self.overtaken or each in taken_back]
            self.finishers.note(several, lease.text, self.number)

    def forget(self, offsets: Iterable[Offset]) -> None:
        """Forget messages that are done."""
        self.overtaken.difference_update(offsets)
        for offset in offsets if self.taken_back else ():
            self.taken_back.pop(offset, None)

    def retain(self, oldest: Offset) -> None:
        """Forget messages below an offset."""
        self.overtaken = {offset for offset in self.overtaken if offset >= oldest}
        self.taken_back = {offset: mark for offset, mark in self.taken_back.items() if offset >= oldest}

    def is_of_before(self, lease: HandOut) -> bool:
        """Return whether a lease is one of the previous run that was taken over."""
        return read_hand_out(lease.text).run != self._run

    def late_of(self, named: NamedLeases) -> list[AckId]:
        """Return late ids, for other calls than acknowledgements: with exactly-once also finished ones."""
        return [*named.late, *named.finished] if self._failures.rules.exactly_once else named.late
