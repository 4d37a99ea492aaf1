"""Ack ids of one subscription: which ones are valid, and which one settled each message.

The ack id of a message's newest hand-out is valid until its deadline. An ack id of the previous run is valid until the
message is given again, and no longer than its lease could last: using it renews the lease. Ids of older runs are
invalid.

With exactly-once delivery an acknowledgement by an older id is refused even if the message is done. Otherwise two
consumers would both believe that they acknowledged it. Most messages need no record for this: given once in this run,
they were settled by that one id. Only messages that failed before, or were settled by an id of the previous run, are
recorded. A repeated nack succeeds again, as clients repeat calls that got no answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ams.core.ack_ids import AckId, AckIds, HandOutId, NeverGiven, read_hand_out
from ams.core.cache import LruCache
from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.service.parallel.message_state import Done, Failures, HandOut, MessageLeases
from ams.storage.cursors.acks import AckProgress, Mark

MAX_REMEMBERED_IDS = 100_000  # messages whose ids are remembered; of settled ones at least the newer half


class RestartGrace:
    """Leases granted by the previous run. Their ack ids stay valid for a grace period after a restart."""

    def __init__(self, run: int, end: Offset, grace_until: Milliseconds, longest_until: Milliseconds) -> None:
        """`end`: other processes gave nothing at or above it.

        Ids of the previous run are valid until `grace_until`. Its longest leases may last until `longest_until`, which
        matters when exactly-once delivery is switched on before this run gives anything.
        """
        self._is_first = run == 1
        self.end, self.topic_end, self.grace_until, self.longest_until = end, end, grace_until, longest_until
        self.withheld_below = Offset(0)
        self._withheld_until = Milliseconds(0)

    def grow(self, end: Offset) -> bool:
        """Note the present end of the topic; return whether it has grown."""
        before, self.topic_end = self.topic_end, max(self.topic_end, end)
        return self.topic_end > before

    def is_out_until(self, done: Done, *, has_given: bool) -> Milliseconds:
        """Return when the last lease of the previous run expires, or 0. `has_given`: this run gave messages."""
        left = self.end - done.floor
        if self._is_first or left <= 0 or left == done.count(done.floor, self.end):
            return Milliseconds(0)
        return self.grace_until if has_given else max(self.grace_until, self.longest_until)

    def withhold(self, below: Offset, until: Milliseconds) -> None:
        """Give nothing below an offset until a time: it may be on lease (exactly-once)."""
        self.withheld_below, self._withheld_until = below, until

    def withheld_until(self, offset: Offset, now: Milliseconds) -> Milliseconds | None:
        """Return until when a message is withheld; None: not at all."""
        return self._withheld_until if offset < self.withheld_below and now < self._withheld_until else None


class FinalIds:
    """Ack id that settled each message in this run, for exactly-once: a later id for the same message is rejected."""

    def __init__(self, before: AckProgress, grace_until: Milliseconds) -> None:
        """`before`: messages done before the run, by leases that last until `grace_until` at most."""
        self._before, self._grace_until = before, grace_until
        self._newer: dict[Offset, str] = {}
        self._older: dict[Offset, str] = {}
        self._older_until = 0  # number of the newest hand-out when the last entry of `_older` was recorded
        self._unknown_until = 0  # same for forgotten entries: up to this hand-out, an id without an entry is unknown

    def note(self, offsets: Iterable[Offset], text: str, number: int) -> None:
        """Record the hand-out that settled messages, empty for none; `number` is that of the newest hand-out."""
        self._newer.update(dict.fromkeys(offsets, text))
        if len(self._newer) >= MAX_REMEMBERED_IDS // 2:
            self._unknown_until, self._older_until = self._older_until, number
            self._older, self._newer = self._newer, {}

    def forget(self, offsets: Iterable[Offset]) -> None:
        """Forget messages whose end could not be stored."""
        for offset in offsets:
            self._newer.pop(offset, None)
            self._older.pop(offset, None)

    def forget_all(self, number: int) -> None:
        """Forget all hand-outs up to a number."""
        self._newer, self._older = {}, {}
        self._unknown_until = self._older_until = number

    def is_final_id(self, ack_id: AckId, given: HandOutId, now: Milliseconds) -> bool:
        """Return whether this id settled a done message, or one being stored as done, as far as is known."""
        offset, text = ack_id
        if offset < self._before.floor or offset in self._before.done:
            return now <= self._grace_until
        if (noted := self._newer.get(offset, self._older.get(offset))) is not None:
            return noted == text
        return given.run == self._before.run and given.attempt == 1 and given.number > self._unknown_until


@dataclass(slots=True)
class NamedLeases:
    """Result of looking up ack ids."""

    leases: list[tuple[HandOut, list[Offset]]] = field(default_factory=list)
    from_before: dict[Offset, str] = field(default_factory=dict)  # hand-outs of the previous run, not taken over yet
    late: list[AckId] = field(default_factory=list)
    never_given: list[AckId] = field(default_factory=list)
    finished: list[AckId] = field(default_factory=list)  # their messages are done by them: a repeat succeeds
    unsure: dict[str, list[Offset]] = field(default_factory=dict)  # another call settles them: retry when it is done


class HandOutIds:
    """Looks up ack ids, and makes new ones."""

    def __init__(
        self, progress: AckProgress, identity: str, before: RestartGrace,
        leases: MessageLeases, done: Done, failures: Failures,
    ) -> None:  # fmt: skip
        self._epoch, self._run, self._identity = progress.epoch, progress.run, identity
        self.number = 0
        self._before, self._leases, self._done, self._failures = before, leases, done, failures
        # Messages whose older ids are invalid without a failure: released, or leased by an id of the previous run.
        self.overtaken: set[Offset] = set()
        self.taken_back = dict(progress.taken_back)  # behind a failed one of their key: ids up to the mark are invalid
        self.finishers = FinalIds(progress, before.grace_until)
        self.nacks: LruCache[Offset, str] = LruCache(MAX_REMEMBERED_IDS)  # last nack of each: repeating it succeeds

    def new(self, attempt: int) -> str:
        """Return the text of a new hand-out, for the ack ids of its messages."""
        self.number += 1
        return HandOutId(attempt, self._epoch, self._run, self.number, self._identity).text

    def find_and_renew(self, ids: AckIds, now: Milliseconds, holder: str) -> NamedLeases:
        """Look up leases as `find_leases`; renew those of the previous run for `holder`, as 0 bytes (unknown)."""
        named = self.find_leases(ids, now)
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

    def find_leases(self, ids: AckIds, now: Milliseconds) -> NamedLeases:
        """Look up leases, also of the previous run. Raises `NeverGiven` and `InvalidInput`; changes nothing."""
        named = NamedLeases()
        for text, offsets in ids.items():
            lease = self._leases.get(offsets[0])
            # The fast path of most requests: one lease of all offsets, with no offset twice.
            are_all_of_it = len(set(offsets)) == len(offsets) == [*map(self._leases.get, offsets)].count(lease)
            if lease is not None and lease.text == text and now <= lease.deadline and are_all_of_it:
                named.leases.append((lease, list(offsets)))
            else:
                self._find_each(named, text, offsets, now)
        if named.never_given:
            raise NeverGiven(named.never_given)
        return named

    def _find_each(self, named: NamedLeases, text: str, offsets: Sequence[Offset], now: Milliseconds) -> None:
        by_lease: dict[HandOut, list[Offset]] = {}
        for offset in dict.fromkeys(offsets):
            lease = self._leases.get(offset)
            if lease is None or lease.text != text:
                self._sort_without_lease(named, AckId(offset, text), now)
            elif now > lease.deadline:
                named.late.append(AckId(offset, text))
            else:
                by_lease.setdefault(lease, []).append(offset)
        named.leases += by_lease.items()

    def _sort_without_lease(self, named: NamedLeases, ack_id: AckId, now: Milliseconds) -> None:
        offset, text = ack_id
        given = read_hand_out(text)
        newest = self._epoch, self._run, self.number
        if given.identity != self._identity or (given.epoch, given.run, given.number) > newest:
            named.never_given.append(ack_id)
        elif given.epoch != self._epoch:
            named.late.append(ack_id)
        elif (is_being_stored := offset in self._done.being_stored) or offset in self._done:
            if self._failures.rules.exactly_once and not self.finishers.is_final_id(ack_id, given, now):
                named.late.append(ack_id)
            elif is_being_stored:
                named.unsure.setdefault(text, []).append(offset)
            else:
                named.finished.append(ack_id)
        elif offset >= self._done.scan and (given.run == self._run or offset >= self._before.topic_end):
            named.never_given.append(ack_id)
        elif self._is_takeable(offset, given, now) and offset not in named.from_before:
            named.from_before[offset] = text
        else:
            named.late.append(ack_id)

    def _is_takeable(self, offset: Offset, given: HandOutId, now: Milliseconds) -> bool:
        return (
            given.run == self._run - 1  # an id of an older run may be superseded in the same attempt
            and offset < self._before.end  # else a former owner gave it after it had lost the subscription
            and now <= self._before.grace_until
            and given.attempt == self._failures.attempt_of(offset)
            and not (self._failures.is_exhausted(offset) and offset < self._done.scan)  # it is being dead-lettered
            and offset not in self._leases
            and offset not in self._failures.being_stored
            and offset not in self._failures.being_taken
            and offset not in self.overtaken
            and (given.run, given.number) > self.taken_back.get(offset, Mark(0, 0))
        )

    def finish(self, leases: Iterable[tuple[HandOut, list[Offset]]]) -> None:
        """Record which id settled each message that had several (exactly-once)."""
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

    def is_from_previous_run(self, lease: HandOut) -> bool:
        """Return whether a lease was renewed from the previous run."""
        return read_hand_out(lease.text).run != self._run

    def late_ids(self, named: NamedLeases) -> list[AckId]:
        """Return late ids for a nack or an extension: with exactly-once also those of done messages."""
        return [*named.late, *named.finished] if self._failures.rules.exactly_once else named.late
