"""The backlog of a parallel subscription, and its ids, against a naive model with a state for each message.

For ordering keys the model is the law of decision 61: the current holder of each message, and messages acknowledged
before earlier ones. For ids it knows those of this run and of the run before, those that settled a message, and those
that failed.
"""

from dataclasses import dataclass
from itertools import groupby, takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyroaring import BitMap64

from ams.core.ack_ids import AckId, AckIds, HandOutId
from ams.core.errors import InvalidInput
from ams.core.names import Offset
from ams.service.parallel import hand_out_ids
from ams.service.parallel.backlog import DEAD_LETTER_RETRY_MS, Backlog, Settling
from ams.service.parallel.hand_out_ids import FinalIds, RestartGrace
from ams.service.parallel.message_state import Done, Failures, KeyConsumer, RetryRules
from ams.storage.cursors.acks import AckProgress, Mark
from tests.service.parallel.site import group_ids

DEADLINE = 1000  # milliseconds of a lease
RULES = RetryRules(200, 3000)
GRACE = 2000  # until then ids of the previous run are valid
PREVIOUS_HAND_OUT = "1.1.2.1.abcdef"  # a hand-out of the previous run
NOW = 1
END_OF_TIME_MS = 2**40


def after_a_restart(rules: RetryRules = RULES) -> Backlog:
    """Return a subscription of four messages in its third run; all may be on lease from the run before."""
    progress = AckProgress(0, 1, 3, BitMap64(), {}, None)
    return Backlog(progress, "abcdef", rules, RestartGrace(3, 4, GRACE, GRACE))


def exactly_once() -> Backlog:
    """Return a subscription of unleased messages, with exactly-once delivery."""
    progress = AckProgress(0, 1, 3, BitMap64(), {}, None)
    return Backlog(progress, "abcdef", RULES._replace(exactly_once=True), RestartGrace(3, 0, 0, 0))


def give(backlog: Backlog, now: int, *offsets: int) -> dict[str, list[Offset]]:
    """Lease messages, including filtered ones; return their ids."""
    given = list(offsets)
    backlog.done.note_scanned(max(offsets) + 1)
    text = backlog.give(list(given), backlog.failures.attempt_of(given[0]), 10, now + DEADLINE, "somebody")
    return {text: given}


def store(backlog: Backlog, settling: Settling, now: int = NOW) -> Settling:
    """Write pending changes to disk."""
    backlog.note_stored(settling, now)
    return settling


def looked_at(backlog: Backlog, key: str = "", now: int = NOW) -> list[Offset]:
    """Scan all new messages; return those that may be given."""
    left = [each for each in range(backlog.done.scan, 4) if each not in backlog.done]
    found = [each for each in left if backlog.may_give(each, key, now)]
    backlog.done.note_scanned(4)
    return found


def ids_of(text: str, *numbers: int) -> AckIds:
    return {text: list(numbers)}


rare_booleans = st.sampled_from([False, False, False, True])
rarely = st.sampled_from([False] * 15 + [True])


@dataclass
class GivenLease:
    offset: int
    text: str
    deadline: int
    attempt: int


def key_of(offset: int, keyed: bool) -> str:
    return "" if not keyed or offset % 5 == 4 else f"k{offset % 2}"


class BacklogMachine(RuleBasedStateMachine):
    """Consumers, a failing disk, a clock, restarts, retention and seeks, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.end = 0
        self.keyed = False
        self.given: list[GivenLease] = []  # all leases of all runs
        self.newest: dict[int, GivenLease] = {}  # current or last lease of each message in this run
        self.hand_outs: dict[int, set[str]] = {}
        """Hand-outs of this run that gave each message since its last failure."""
        self.heirs: dict[int, set[str]] = {}
        """Likewise of the previous run, for messages not given since, and whose ids from then were not used."""
        self.grace_until = 0
        self.reserved: dict[int, int] = {}
        """End of each message's lease; with exactly-once delivery also of leases from earlier runs."""
        self.farthest = 0  # end of the last lease of all
        self.found: list[Offset] = []  # messages that a slow pull is about to give
        self.done: set[int] = set()
        self.failures: dict[int, int] = {}
        self.taken_back: dict[int, Mark] = {}  # as stored
        self.floor_by_retention = 0
        self.epoch = 0
        self.run_number = 0
        self.open: list[Settling] = []
        self.exactly_once = False
        self.finished_by: dict[int, set[str]] = {}  # of what was acknowledged in this run: the ids that did
        self.nacked_by: dict[int, str] = {}  # the last id that nacked each message in this run
        self.out: dict[int, KeyConsumer | None] = {}
        """Holders of messages with keys that were given in this run, and not failed, returned or acknowledged since."""
        self.streams = [KeyConsumer(), KeyConsumer()]
        self.held: set[int] = set()  # acknowledged, behind others on lease
        self.asks: KeyConsumer | None = None  # consumer of the found messages
        self.unleased: set[int] = set()  # could not be settled while being taken back: without a lease for now

    @initialize(keyed=st.sampled_from([True, True, False]), exactly_once=st.booleans())
    def begin(self, keyed: bool, exactly_once: bool) -> None:
        self.keyed, self.exactly_once = keyed, exactly_once
        self._restart()
        self.publish(12)

    def _floor(self) -> int:
        floor = self.floor_by_retention
        while floor in self.done:
            floor += 1
        return floor

    @rule(count=st.integers(1, 6), restarts=rarely, oldest=rarely)
    def change(self, count: int, restarts: bool, oldest: bool) -> None:
        """Publish, and rarely apply retention or restart."""
        self.publish(count)
        if oldest:
            self._retain(count)
        if restarts:
            self._restart()

    def _restart(self) -> None:
        """Drop memory-only state; a change that is being written may be lost: here, it is."""
        self.run_number += 1
        floor = self._floor()
        progress = AckProgress(
            floor, self.epoch, self.run_number, BitMap64([each for each in self.done if each >= floor]),
            {each: count for each, count in self.failures.items() if each not in self.done and each >= floor}, None,
            {each: mark for each, mark in self.taken_back.items() if each not in self.done and each >= floor},
        )  # fmt: skip
        rules = RULES._replace(exactly_once=self.exactly_once)
        self.grace_until = max(self.farthest, self.now) if self.exactly_once else self.now + GRACE
        until = self.grace_until
        grace = RestartGrace(self.run_number, self.end, until, until)
        self.backlog = Backlog(progress, "abcdef", rules, grace)
        if self.exactly_once:
            self.backlog.restart_grace.withhold(self.end, until)
        else:
            self.reserved = {}
        self.open, self.found = [], []
        self.newest = {}
        self.heirs, self.hand_outs = self.hand_outs, {}
        self.finished_by, self.nacked_by = {}, {}
        self.out, self.unleased, self.streams = {}, set(), [KeyConsumer(), KeyConsumer()]
        self.held = set()

    def publish(self, count: int) -> None:
        self.end += count

    @precondition(lambda self: not self.found)
    @rule(most=st.integers(1, 8), slow=rare_booleans, who=st.sampled_from([0, 0, 0, 0, 1, 2, 3]))
    def pull(self, most: int, slow: bool, who: int) -> None:
        """Give returned messages, then new ones; a slow pull gives them later.

        Two streams pull, and others: once each, or for one message of each key.
        """
        self.asks = (*self.streams, KeyConsumer(), None)[who]
        offsets = self.backlog.ready_messages(most, self.asks)
        if len(offsets) < most and self.backlog.may_scan("somebody"):
            begin, end = self.backlog.done.scan, min(self.backlog.done.scan + most - len(offsets), self.end)
            offsets += self._new(begin, end)
            self.backlog.done.note_scanned(max(begin, end))
        self.found = sorted(offsets)
        if not slow:
            self.finish_pull(fails=False)

    def _new(self, begin: Offset, end: Offset) -> list[Offset]:
        if begin < end and not self.keyed and self.backlog.may_give_all(begin, end):
            return list(range(begin, end))
        return [each for each in range(begin, end) if each not in self.backlog.done and self._may_give(each)]

    def _may_give(self, offset: int) -> bool:
        may = self.backlog.may_give(offset, key_of(offset, self.keyed), self.now, self.asks)
        self.backlog.done.note_scanned(offset + 1)
        return may

    @precondition(lambda self: self.found)
    @rule(fails=rare_booleans)
    def finish_pull(self, fails: bool) -> None:
        """Give the messages that a pull found, except those taken meanwhile; or none, as its consumer is gone."""
        offsets, self.found = self.found, []
        if fails:
            self.backlog.give_back(offsets)
            return
        taken = self.backlog.find_taken(offsets) if offsets else ()
        self._give([each for each in offsets if each not in taken])

    def _give(self, offsets: list[Offset]) -> None:
        for attempt, same in groupby(offsets, self.backlog.failures.attempt_of):
            deadline, group = self.now + DEADLINE, list(same)
            text = self.backlog.give(list(group), attempt, 10 * len(group), deadline, "somebody")
            for offset in group:
                assert offset not in self.done, "what is done came again"
                assert offset >= self.floor_by_retention
                before = self.newest.get(offset)
                assert before is None or before.deadline < self.now, "given to two consumers"
                assert self.reserved.get(offset, 0) <= self.now, "given while it was on lease"
                assert attempt == self.failures.get(offset, 0) + 1
                self._check_order(offset)
                if key_of(offset, self.keyed):
                    self.out[offset] = self.asks
                given = GivenLease(offset, text, deadline, attempt)
                self.newest[offset] = given
                self.given.append(given)
                self.heirs.pop(offset, None)
                self.hand_outs.setdefault(offset, set()).add(text)
                self._reserve(offset, deadline)

    def _reserve(self, offset: int, deadline: int) -> None:
        self.reserved[offset] = deadline
        self.farthest = max(self.farthest, deadline)

    def _check_order(self, offset: int) -> None:
        key = key_of(offset, self.keyed)
        earlier = [e for e in range(self.floor_by_retention, offset) if key and key_of(e, self.keyed) == key]
        failing = {each for settling in self.open for each in (*settling.failures, *settling.taken_back)}
        for each in earlier:
            is_with_same = self.asks is not None and self.out.get(each) is self.asks and each not in failing
            assert each in self.done or is_with_same, "a key is out of order"

    def _check_taken_back(self, settling: Settling, *, together: bool) -> None:
        """Check that all messages of the key on lease behind the failed one were taken back; of expired leases one has
        failed."""
        expected = {each for failed in settling.failures for each in self._behind(failed)} - set(settling.failures)
        assert expected <= set(settling.taken_back) <= expected | set(self.found)
        firsts = {key_of(each, self.keyed) for each in settling.failures if each in self.out}
        assert not together or len(firsts) == len([each for each in settling.failures if each in self.out])

    def _behind(self, offset: int) -> list[int]:
        key = key_of(offset, self.keyed) if offset in self.out else ""
        return [each for each in self.out if key and each > offset and key_of(each, self.keyed) == key]

    @precondition(lambda self: self.given)
    @rule(data=st.data(), fails=rare_booleans, later=st.booleans())
    def acknowledge(self, data: st.DataObject, fails: bool, later: bool) -> None:
        self._acknowledge(self._draw_ids(data), fails, later)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), fails=rare_booleans, later=st.booleans(), verb=st.sampled_from("aaaaanr"))
    def settle_of_a_key(self, data: st.DataObject, fails: bool, later: bool, verb: str) -> None:
        """Acknowledge some leased messages of one key, mostly the first or others; or nack or release them."""
        free = [each for each in sorted(self.out) if each not in self._being_settled()]
        keys = sorted({key_of(each, self.keyed) for each in free})
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        here = [self.newest[each] for each in free if key_of(each, self.keyed) == key]
        begin = min(data.draw(st.sampled_from([0, 0, 1])), len(here) - 1)
        ids = [AckId(each.offset, each.text) for each in here[begin : begin + data.draw(st.integers(1, 3))]]
        if verb == "a":
            self._acknowledge(ids, fails, later)
        elif verb == "n":
            self._nack(ids, fails, later, None)
        else:
            self._release(ids)

    def _acknowledge(self, ids: list[AckId], fails: bool, later: bool) -> None:
        good = self._choose_valid(ids)
        done, behind = self._in_order({each.offset for each in good})
        settling = self.backlog.acknowledge(group_ids(ids), self.now)
        assert sorted(settling.done) == sorted(done)
        if self.exactly_once:
            self._check_repeated(ids, settling)
            assert settling.out_of_order == {AckId(g.offset, g.text) for g in good if g.offset in behind}
            assert settling.out_of_order <= {*settling.late}
        else:
            self._hold(behind)
        for offset in settling.done:
            self.finished_by[offset] = {each.hand_out for each in ids if each.offset == offset}
        self._finish(settling, fails, later)

    def _in_order(self, acknowledged: set[int]) -> tuple[set[int], set[int]]:
        """Return which of these are settled, with held ones, and which are behind others on lease."""
        done = {each for each in acknowledged if each not in self.out}
        for key in {key_of(each, self.keyed) for each in acknowledged - done}:
            done |= self._first_of(key, acknowledged)
        return done, acknowledged - done

    def _first_of(self, key: str, acknowledged: set[int]) -> set[int]:
        """Return the first leased messages of a key, up to an unacknowledged one, without those being written."""
        being_stored = {offset for each in self.open for offset in each.done}
        taken = {offset for each in self.open for offset in (*each.failures, *each.taken_back)}
        here = sorted(each for each in self.out if key_of(each, self.keyed) == key)
        known = (acknowledged | self.held | being_stored) - taken
        return {*takewhile(known.__contains__, here)} - being_stored

    def _hold(self, offsets: set[int]) -> None:
        self.held |= offsets
        for offset in offsets:
            self.newest[offset].deadline = self.reserved[offset] = END_OF_TIME_MS

    def _check_repeated(self, ids: list[AckId], settling: Settling) -> None:
        """Check that only the id that settled a message in this run may repeat its acknowledgement."""
        for each in ids:
            by = self.finished_by.get(each.offset)
            if each.offset not in self.done or each.offset < self.floor_by_retention or by is None:
                continue
            assert len(by) > 1 or (each in settling.late) == (each.hand_out not in by)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), fails=rare_booleans, later=rare_booleans, waits=st.sampled_from([None, 0, 900]))
    def nack(self, data: st.DataObject, fails: bool, later: bool, waits: int | None) -> None:
        self._nack(self._draw_ids(data), fails, later, waits)

    def _nack(self, ids: list[AckId], fails: bool, later: bool, waits: int | None) -> None:
        good = self._choose_valid(ids)
        settling = self.backlog.nack(group_ids(ids), self.now, waits)
        assert sorted(settling.failures) == sorted(each.offset for each in good)
        self._check_taken_back(settling, together=False)
        if self.exactly_once:
            self._check_nacked(ids, good, settling)
        self._finish(settling, fails, later)

    def _check_nacked(self, ids: list[AckId], good: list[GivenLease], settling: Settling) -> None:
        """Check that only the last id that nacked a message may repeat that, and that no id nacks a settled message."""
        counted = {(each.offset, each.text) for each in good}
        for each in ids:
            if each in counted:
                continue
            if self.nacked_by.get(each.offset) == each.hand_out:
                assert each not in settling.late, "a nack that was done is refused"
            elif each.offset in self.done:
                assert each in settling.late, "what is done was given back"
        self.nacked_by.update(counted)

    def _draw_ids(self, data: st.DataObject) -> list[AckId]:
        out = [g for g in self.given if g.text in self.heirs.get(g.offset, ()) or self.newest.get(g.offset) is g]
        of_keys = [self.newest[each] for each in sorted(self.out) if each not in self._being_settled()]
        several = [each for each in (of_keys, of_keys[:3], out, self.given) if each]
        some = st.sampled_from(data.draw(st.sampled_from(several)))
        return [AckId(each.offset, each.text) for each in data.draw(st.lists(some, min_size=1, max_size=5))]

    def _choose_valid(self, ids: list[AckId]) -> list[GivenLease]:
        """Return the valid ones of the ids, except held ones; those of the previous run become leases again."""
        good: list[GivenLease] = []
        unsettled = [
            AckId(offset, text) for text, offsets in group_ids(ids).items() for offset in dict.fromkeys(offsets)
            if offset >= self.floor_by_retention and offset not in self.done | self.held | self._being_settled()
        ]  # fmt: skip
        for each in unsettled:
            newest = self.newest.get(each.offset)
            if newest is None and each.hand_out in self.heirs.get(each.offset, ()) and self.now <= self.grace_until:
                newest = next(g for g in self.given if (g.offset, g.text) == each)
                newest.deadline = self.grace_until
                self.newest[each.offset] = newest
                del self.heirs[each.offset]
            if newest is not None and newest.text == each.hand_out and self.now <= newest.deadline:
                good.append(newest)
        return good

    def _being_settled(self) -> set[Offset]:
        return {offset for each in self.open for offset in [*each.done, *each.failures, *each.taken_back]}

    def _finish(self, settling: Settling, fails: bool, later: bool) -> None:
        if not (settling.done or settling.failures):
            return
        if later:
            self.open.append(settling)
        else:
            self._store(settling, fails)

    def _store(self, settling: Settling, fails: bool) -> None:
        if fails:
            self.backlog.note_not_stored(settling)
            self._go_on()
            for offset in settling.done:
                self.finished_by.pop(offset, None)
            for offset in settling.failures:
                self.nacked_by.pop(offset, None)
            taken = {offset for each in self.open if each is not settling for offset in each.taken_back}
            self.unleased |= taken.intersection(offset for _, offsets in settling.leases for offset in offsets)
            for offset in self.unleased.intersection(settling.taken_back) - taken:
                self._end(offset)
            return
        self.done.update(settling.done)
        for offset, count in settling.failures.items():
            assert count > self.failures.get(offset, 0), "attempts count down"
            self.failures[offset] = count
            self._end(offset)
            self.hand_outs.pop(offset, None)
        for offset, mark in settling.taken_back.items():
            self.taken_back[offset] = mark
            if offset in self.out:
                self._end(offset)
                self.hand_outs.pop(offset, None)
        for offset in settling.done:
            self.out.pop(offset, None)
            self.held.discard(offset)
        self.backlog.note_stored(settling, self.now)

    def _go_on(self) -> None:
        """Settle held messages after retention deleted all leased ones before them."""
        freed = set[int]().union(*[self._first_of(key_of(each, self.keyed), set()) for each in self.held])
        passed = [each for begin, end in self.backlog.done.take_passed() for each in range(begin, end)]
        assert sorted(passed) == sorted(freed)
        self.done |= freed
        self.held -= freed
        self.out = {each: who for each, who in self.out.items() if each not in freed}

    def _end(self, offset: int) -> None:
        self.newest[offset].deadline = -1
        self.reserved.pop(offset, None)
        self.out.pop(offset, None)
        self.unleased.discard(offset)
        self.held.discard(offset)

    @precondition(lambda self: self.open)
    @rule(fails=rare_booleans)
    def disk(self, fails: bool) -> None:
        """Let the disk complete the oldest pending write."""
        self._store(self.open.pop(0), fails)

    @rule(by=st.sampled_from([1, 100, 200, 400, 1000, 2500]), fails=rare_booleans, later=rare_booleans)
    def time_goes_by(self, by: int, fails: bool, later: bool) -> None:
        self.now += by
        settling = self.backlog.expire(self.now)
        assert all(self.newest[each].deadline < self.now for each in settling.failures), "a lease ended too soon"
        self._check_taken_back(settling, together=True)
        self._finish(settling, fails, later)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), seconds=st.integers(0, 3))
    def extend(self, data: st.DataObject, seconds: int) -> None:
        ids = self._draw_ids(data)
        deadline = self.now + seconds * 1000
        good = self._choose_valid(ids)
        late = self.backlog.extend(group_ids(ids), deadline, self.now)
        self._check_late(ids, good, late)
        self._check_extended(ids, late)
        for each in good:
            each.deadline = deadline
            self._reserve(each.offset, deadline)

    def _check_late(self, ids: list[AckId], good: list[GivenLease], late: list[AckId]) -> None:
        """Check that each id is valid or late, except ids of settled messages and of those being written."""
        taken = {(each.offset, each.text) for each in good}
        assert not taken & set(late), "a good id is late"
        acknowledged = {offset for each in self.open for offset in each.done} | self.done | self.held
        for each in ids:
            is_past = each.offset in acknowledged or each.offset < self.floor_by_retention
            assert each in taken or each in late or is_past, "a late id counts"

    def _check_extended(self, ids: list[AckId], late: list[AckId]) -> None:
        """Check that with exactly-once delivery nobody extends the lease of a settled message."""
        done = self.done if self.exactly_once else frozenset()
        assert {each for each in ids if each.offset in done} <= set(late)

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Release some messages ever given: they may be given again at once."""
        self._release(self._draw_ids(data))

    def _release(self, ids: list[AckId]) -> None:
        good = self._choose_valid(ids)
        self._check_late(ids, good, self.backlog.release(group_ids(ids), self.now))
        behind = [offset for each in good for offset in self._behind(each.offset)]
        for offset in {*(each.offset for each in good), *behind}:
            self._end(offset)

    def _retain(self, by: int) -> None:
        oldest = min(self.floor_by_retention + by, self.end)
        expected = len([each for each in range(self._floor(), oldest) if each not in self.done])
        acknowledging = {offset for each in self.open for offset in each.done}
        lost = self.backlog.retain(oldest)
        self.out = {each: who for each, who in self.out.items() if each >= oldest}
        assert lost == expected or acknowledging
        self.floor_by_retention = max(self.floor_by_retention, oldest)
        self.held = {each for each in self.held if each >= oldest}
        self._go_on()

    @invariant()
    def floor_and_done_are_those_of_the_model(self) -> None:
        if self.run_number == 0:
            return
        assert self.backlog.done.floor == self._floor()
        assert {each for each in range(self.end) if each in self.backlog.done} >= self.done
        assert self.backlog.done.above == len([each for each in self.done if each >= self._floor()])
        assert sum(self.backlog.leases.holders.values()) == len(self.backlog.leases)

    def teardown(self) -> None:
        """Nothing unacknowledged is forgotten: in the end a patient consumer gets the rest."""
        while self.open:
            self.disk(fails=True)
        self.finish_pull(fails=False)
        for _ in range(self.end + 20):
            if self._floor() == self.end:
                break
            self.now += 4000
            self._finish(self.backlog.expire(self.now), fails=False, later=False)
            before = len(self.given)
            self.pull(50, slow=False, who=2)
            ids = [AckId(each.offset, each.text) for each in self.given[before:]]
            self._finish(self.backlog.acknowledge(group_ids(ids), self.now), fails=False, later=False)
        assert self._floor() == self.end


BacklogMachine.TestCase.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
TestWalk = BacklogMachine.TestCase


END = 40
PROGRESS_FROM_FLOOR = AckProgress(3, 0, 1, BitMap64([5, 7]), {})


def spans_of_offsets() -> st.SearchStrategy[list[Offset]]:
    """Generate offsets that are settled together."""
    return st.sets(st.integers(3, END - 1), min_size=1, max_size=8).map(lambda some: [*some])


@given(st.lists(spans_of_offsets(), max_size=12), st.integers(0, END))
def test_what_is_done_is_known_and_the_floor_is_the_first_that_is_not(added: list[list[Offset]], oldest: int) -> None:
    done, model = Done(PROGRESS_FROM_FLOOR), {0, 1, 2, 5, 7}
    for some in added:
        new = [each for each in some if each not in model]
        done.add(new)
        model.update(new)
    if oldest > done.floor:
        done.raise_floor(oldest)
        model.update(range(oldest))

    floor = next(each for each in range(END + 1) if each not in model)
    assert done.floor == floor
    assert [each for each in range(END) if each in done] == sorted(model)
    assert done.above == len(model) - floor
    assert done.above - done.count(0, max(floor, 20)) == len([each for each in model if each >= max(floor, 20)])
    assert done.scan == floor


def test_what_is_passed_over_is_done_and_told_once_in_as_few_ranges_as_were_met() -> None:
    done = Done(PROGRESS_FROM_FLOOR)
    done.pass_over(8, 10)
    done.pass_over(10, 11)
    done.pass_over(20, 21)
    passed = done.take_passed()

    assert passed == [(8, 11), (20, 21)]
    assert 10 in done
    assert not done.passed
    done.pass_over(3, 5)
    done.passed[:0] = passed
    assert (done.floor, done.take_passed()) == (6, [*passed, (3, 5)])


def test_an_id_of_a_message_that_another_one_is_about_to_finish_waits_for_that_or_is_late() -> None:
    backlog = exactly_once()
    first = give(backlog, 0, 0)
    store(backlog, backlog.nack(first, NOW, 0))
    second = give(backlog, 1, *backlog.ready_messages(1))
    storing = backlog.acknowledge(second, NOW)

    assert backlog.acknowledge(second, NOW).unsure == second
    assert len(backlog.acknowledge(first, NOW).late) == 1
    backlog.note_not_stored(storing)
    assert backlog.acknowledge(second, NOW).done == [0]


def test_an_id_that_an_owner_gave_of_a_message_published_since_it_was_overtaken_is_late() -> None:
    backlog = after_a_restart()
    given = {"1.1.2.9.abcdef": [3, 4, 7]}
    with pytest.raises(InvalidInput, match="Invalid ack id"):
        backlog.acknowledge(given, NOW)
    assert backlog.restart_grace.grow(8)
    assert not backlog.restart_grace.grow(8)
    settling = backlog.acknowledge(given, NOW)

    assert (settling.done, [each.offset for each in settling.late]) == ([3], [4, 7])
    with pytest.raises(InvalidInput, match="Invalid ack id"):
        backlog.acknowledge({"1.1.3.0.abcdef": [4]}, NOW)


def given_of_a_key(backlog: Backlog, count: int) -> tuple[KeyConsumer, dict[str, list[Offset]]]:
    """Give the first messages, all of one key, to a stream; return it, and their ids."""
    stream = KeyConsumer()
    assert all(backlog.may_give(each, "k", NOW, stream) for each in range(count))
    return stream, give(backlog, NOW, *range(count))


def test_an_id_of_the_run_before_counts_at_once_while_an_earlier_message_of_its_key_is_out() -> None:
    backlog = after_a_restart()
    stream, _ = given_of_a_key(backlog, 1)
    assert backlog.may_give(1, "k", NOW, stream)  # a slow pull found it

    assert backlog.acknowledge(ids_of(PREVIOUS_HAND_OUT, 1), NOW).done == [1]


def test_an_acknowledgement_does_not_wait_for_earlier_ones_that_are_being_stored() -> None:
    backlog = after_a_restart()
    _, given = given_of_a_key(backlog, 3)
    [text] = given
    assert backlog.acknowledge(ids_of(text, 0), NOW).done == [0]
    assert backlog.acknowledge(ids_of(text, 2), NOW).done == []
    assert sorted(backlog.acknowledge(ids_of(text, 1), NOW).done) == [1, 2]


def test_what_is_taken_back_is_leased_no_more_when_its_own_nack_could_not_be_stored() -> None:
    backlog = after_a_restart()
    stream, given = given_of_a_key(backlog, 2)
    [text] = given
    own = backlog.nack(ids_of(text, 1), NOW)
    first = backlog.nack(ids_of(text, 0), NOW, 0)
    assert [*first.taken_back] == [1]
    backlog.note_not_stored(own)
    store(backlog, first)

    assert backlog.acknowledge(ids_of(text, 1), NOW).late == [AckId(1, text)]
    assert backlog.ready_messages(4, stream) == [0, 1]


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_nack_is_a_failure_that_is_stored_and_waits(is_seen: bool) -> None:
    backlog = after_a_restart()
    if is_seen:
        backlog.restart_grace.withhold(4, GRACE)
        looked_at(backlog)
    settling = backlog.nack(ids_of(PREVIOUS_HAND_OUT, 1), NOW, 5 * GRACE)
    assert settling.failures == {1: 1}
    backlog.note_stored(settling, NOW)
    assert 1 not in looked_at(backlog)
    backlog.expire(2 * GRACE)
    assert 1 not in backlog.ready_messages(4)

    backlog.expire(5 * GRACE + 100)
    assert (backlog.ready_messages(4), backlog.failures.attempt_of(1)) == ([1], 2)


def test_what_is_nacked_while_it_waits_to_be_given_comes_after_its_delay() -> None:
    backlog = after_a_restart()
    backlog.give_back(looked_at(backlog))  # as its consumer could not get it
    store(backlog, backlog.nack(ids_of(PREVIOUS_HAND_OUT, 1), NOW, 500))

    assert (backlog.find_taken([0, 1]), backlog.ready_messages(4)) == ({1}, [0, 2, 3])


def test_a_nack_of_the_last_attempt_puts_a_message_aside_once() -> None:
    backlog = after_a_restart(RULES._replace(most_attempts=1))
    store(backlog, backlog.nack(ids_of(PREVIOUS_HAND_OUT, 1), NOW))
    assert backlog.failures.dead == []
    assert looked_at(backlog) == [0, 2, 3]

    assert backlog.failures.dead == [1]


def test_what_the_dead_letter_topic_has_was_finished_by_nobody() -> None:
    backlog = exactly_once()
    backlog.set_rules(backlog.failures.rules._replace(most_attempts=1))
    ids = give(backlog, 0, 0)
    store(backlog, backlog.nack(ids, NOW))
    store(backlog, backlog.put_aside(backlog.failures.dead.pop()))

    assert len(backlog.acknowledge(ids, NOW).late) == 1


def test_what_was_finished_before_exactly_once_delivery_began_is_known_to_nobody() -> None:
    backlog = exactly_once()
    backlog.set_rules(RULES)
    ids = give(backlog, 0, 0)
    store(backlog, backlog.acknowledge(ids, NOW))
    backlog.set_rules(RULES._replace(exactly_once=True))
    later = give(backlog, 1, 1)
    store(backlog, backlog.acknowledge(later, NOW))

    assert len(backlog.acknowledge(ids, NOW).late) == 1
    assert not backlog.acknowledge(later, NOW).late


def test_what_was_finished_before_a_restart_is_believed_while_leases_of_then_may_last() -> None:
    progress = AckProgress(2, 1, 3, BitMap64([3]), {}, None)
    backlog = Backlog(progress, "abcdef", RULES._replace(exactly_once=True), RestartGrace(3, 4, GRACE, GRACE))
    ids = {"1.1.2.7.abcdef": [1, 3]}

    assert not backlog.acknowledge(ids, GRACE).late
    assert len(backlog.acknowledge(ids, GRACE + 1).late) == 2


def test_only_the_newer_finishers_are_remembered_and_older_ids_are_refused_then() -> None:
    known = FinalIds(AckProgress(0, 1, 3, BitMap64(), {}, None), 0)
    half = hand_out_ids.MAX_REMEMBERED_IDS // 2

    def is_final_id(offset: int, number: int, attempt: int = 1) -> bool:
        given = HandOutId(attempt, 1, 3, number, "abcdef")
        return known.is_final_id(AckId(offset, given.text), given, 0)

    def note(begin: int, number: int) -> None:
        text = HandOutId(2, 1, 3, number, "abcdef").text
        known.note(range(begin, begin + half), text, number)

    note(0, 10)
    assert is_final_id(0, 10, attempt=2)
    assert not is_final_id(0, 5)
    note(half, 20)
    assert not is_final_id(0, 5), "it is not known any more"
    assert is_final_id(half, 20, attempt=2)
    assert is_final_id(10 * half, 11), "given and finished once"


def failed_out() -> Backlog:
    """Return a subscription whose message 0 has reached its maximum of failures."""
    backlog = exactly_once()
    backlog.set_rules(RULES._replace(most_attempts=1))
    store(backlog, backlog.nack(give(backlog, 0, 0), NOW))
    return backlog


def test_a_message_in_the_dead_letter_topic_is_given_to_nobody_when_that_could_not_be_stored() -> None:
    backlog = failed_out()
    offset = backlog.failures.dead.pop()
    backlog.note_not_stored(backlog.put_aside(offset))
    backlog.retry_dead_letter(offset, NOW)
    backlog.expire(DEAD_LETTER_RETRY_MS + 100)

    assert not backlog.has_ready
    assert backlog.failures.dead == [0]
    store(backlog, backlog.put_aside(backlog.failures.dead.pop()), DEAD_LETTER_RETRY_MS)
    assert backlog.done.floor == 1


def test_retention_forgets_failures_of_what_it_takes_and_no_others() -> None:
    failures = Failures({Offset(each): each + 1 for each in range(4)}, RetryRules(most_attempts=9))
    for each in (1, 3):
        failures.queue_dead_letter(Offset(each))
    failures.stored_dead_letters.update(map(Offset, (0, 2)))

    failures.retain(Offset(2))

    assert failures.counts == {2: 3, 3: 4}
    assert (failures.stored_dead_letters, failures.to_dead_letter) == ({2}, {3})
