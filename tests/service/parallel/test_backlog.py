"""The backlog of a parallel subscription, against a naive model that keeps a state for each message, and its ids.

Of ids: those of this run and of the run before, those that finished a message, and those that failed.
"""

from dataclasses import dataclass

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
from ams.service.parallel.hand_out_ids import FinalIds
from ams.service.parallel.message_state import Done, Failures, Rules
from ams.storage.cursors.acks import Progress
from tests.service.parallel.site import grouped

DEADLINE = 1000  # milliseconds of a lease
RULES = Rules(200, 3000)
GRACE = 2000  # until when ids of the run before are good
X = "1.1.2.1.abcdef"  # a hand-out of the run before
NOW = 1


def after_a_restart(rules: Rules = RULES) -> Backlog:
    """Return a subscription of four messages, in its third run, that may all be out by now."""
    progress = Progress(0, 1, 3, BitMap64(), {}, None)
    return Backlog(progress, "abcdef", rules, end=4, grace_until=GRACE)


def exactly_once() -> Backlog:
    """Return a subscription of messages that were never given, with exactly-once delivery."""
    progress = Progress(0, 1, 3, BitMap64(), {}, None)
    rules = RULES._replace(exactly_once=True)
    return Backlog(progress, "abcdef", rules, end=0, grace_until=0)


def give(backlog: Backlog, now: int, *offsets: int) -> dict[str, list[Offset]]:
    """Give messages, whatever was said of them; return their ids."""
    given = list(offsets)
    backlog.done.scanned(max(offsets) + 1)
    text = backlog.give(list(given), backlog.failures.attempt_of(given[0]), 10, now + DEADLINE, "somebody")
    return {text: given}


def store(backlog: Backlog, settling: Settling, now: int = NOW) -> Settling:
    """Let what is to be stored be on disk."""
    backlog.stored(settling, now)
    return settling


def looked_at(backlog: Backlog, key: str = "", now: int = NOW) -> list[Offset]:
    """Look at all that was not seen yet; return what may be given."""
    here = backlog.undone(backlog.scan, 4)
    found = [each for each in here if backlog.may_give(each, key, now)]
    backlog.done.scanned(4)
    return found


def ids_of(text: str, *numbers: int) -> AckIds:
    return {text: list(numbers)}


seldom = st.sampled_from([False, False, False, True])


@dataclass
class Given:
    offset: int
    text: str
    deadline: int
    attempt: int


def key_of(offset: int, keyed: bool) -> str:
    return "" if not keyed or offset % 4 == 3 else f"k{offset % 4}"


class Walk(RuleBasedStateMachine):
    """Consumers, a disk that fails, a clock, restarts, retention and seeks, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.end = 0
        self.keyed = False
        self.given: list[Given] = []  # all that ever was, of all runs
        self.newest: dict[int, Given] = {}  # who has a message on lease, or had it last, in this run
        self.hand_outs: dict[int, set[str]] = {}
        """By which hand-outs of this run messages were given since they failed last."""
        self.heirs: dict[int, set[str]] = {}
        """Likewise of the run before, of messages that nobody was given since, nor has used an id of then."""
        self.grace_until = 0
        self.reserved: dict[int, int] = {}
        """Until when messages are on lease, with exactly-once delivery also of runs before."""
        self.farthest = 0  # until when the last lease of all ends
        self.found: list[Offset] = []  # what a slow pull is about to give
        self.done: set[int] = set()
        self.failures: dict[int, int] = {}
        self.floor_by_retention = 0
        self.epoch = 0
        self.run_number = 0
        self.open: list[Settling] = []
        self.exactly_once = False
        self.finished_by: dict[int, set[str]] = {}  # of what was acknowledged in this run: the ids that did
        self.nacked_by: dict[int, str] = {}  # of what was given back in this run: the id that did last

    @initialize(keyed=st.booleans(), exactly_once=st.booleans())
    def begin(self, keyed: bool, exactly_once: bool) -> None:
        self.keyed, self.exactly_once = keyed, exactly_once
        self.restart()

    def _floor(self) -> int:
        floor = self.floor_by_retention
        while floor in self.done:
            floor += 1
        return floor

    @rule()
    def restart(self) -> None:
        """Forget what is in memory alone; what is being stored is or is not there, here: it is not."""
        self.run_number += 1
        floor = self._floor()
        progress = Progress(
            floor, self.epoch, self.run_number, BitMap64([each for each in self.done if each >= floor]),
            {each: count for each, count in self.failures.items() if each not in self.done and each >= floor}, None,
        )  # fmt: skip
        rules = RULES._replace(exactly_once=self.exactly_once)
        self.grace_until = max(self.farthest, self.now) if self.exactly_once else self.now + GRACE
        until = self.grace_until
        self.backlog = Backlog(progress, "abcdef", rules, end=self.end, grace_until=until)
        if self.exactly_once:
            self.backlog.restart_grace.withhold(self.end, until)
        else:
            self.reserved = {}
        self.open, self.found = [], []
        self.newest = {}
        self.heirs, self.hand_outs = self.hand_outs, {}
        self.finished_by, self.nacked_by = {}, {}

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        self.end += count

    @precondition(lambda self: not self.found)
    @rule(most=st.integers(1, 5), slow=seldom)
    def pull(self, most: int, slow: bool) -> None:
        """Give what is ready again, and behind it what was not seen yet; a slow one gives it later."""
        offsets = self.backlog.again(most)
        if len(offsets) < most and self.backlog.may_scan("somebody"):
            begin, end = self.backlog.scan, min(self.backlog.scan + most - len(offsets), self.end)
            offsets += self._new(begin, end)
            self.backlog.done.scanned(max(begin, end))
        self.found = sorted(offsets)
        if not slow:
            self.finish_pull(fails=False)

    def _new(self, begin: Offset, end: Offset) -> list[Offset]:
        if begin < end and not self.keyed and self.backlog.may_give_all(begin, end):
            return list(range(begin, end))
        now = self.now
        return [e for e in self.backlog.undone(begin, end) if self.backlog.may_give(e, key_of(e, self.keyed), now)]

    @precondition(lambda self: self.found)
    @rule(fails=seldom)
    def finish_pull(self, fails: bool) -> None:
        """Give what a pull found, but what was taken meanwhile; or nothing, as its consumer cannot get it."""
        offsets, self.found = self.found, []
        if fails:
            self.backlog.give_back(offsets)
            return
        taken = self.backlog.taken_of(offsets) if offsets else ()
        self._give([each for each in offsets if each not in taken])

    def _give(self, offsets: list[Offset]) -> None:
        by_attempt: dict[int, list[Offset]] = {}
        for offset in offsets:
            by_attempt.setdefault(self.backlog.failures.attempt_of(offset), []).append(offset)
        for attempt, group in by_attempt.items():
            deadline = self.now + DEADLINE
            text = self.backlog.give(list(group), attempt, 10 * len(group), deadline, "somebody")
            for offset in group:
                assert offset not in self.done, "what is done came again"
                assert offset >= self.floor_by_retention
                before = self.newest.get(offset)
                assert before is None or before.deadline < self.now, "given to two consumers"
                assert self.reserved.get(offset, 0) <= self.now, "given while it was on lease"
                assert attempt == self.failures.get(offset, 0) + 1
                self._check_order(offset)
                given = Given(offset, text, deadline, attempt)
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
        if key:
            earlier = [e for e in range(self.floor_by_retention, offset) if key_of(e, self.keyed) == key]
            assert all(each in self.done for each in earlier), "a key is out of order"

    @precondition(lambda self: self.given)
    @rule(data=st.data(), fails=seldom, later=seldom)
    def acknowledge(self, data: st.DataObject, fails: bool, later: bool) -> None:
        ids = self._some(data)
        good = self._good(ids)
        settling = self.backlog.acknowledge(grouped(ids), self.now)
        assert sorted(settling.done) == sorted(each.offset for each in good)
        if self.exactly_once:
            self._check_repeated(ids, settling)
        for offset in settling.done:
            self.finished_by[offset] = {each.hand_out for each in ids if each.offset == offset}
        self._finish(settling, fails, later)

    def _check_repeated(self, ids: list[AckId], settling: Settling) -> None:
        """What one id finished in this run no other one did, and that one may say so again."""
        for each in ids:
            by = self.finished_by.get(each.offset)
            if each.offset not in self.done or each.offset < self.floor_by_retention or by is None:
                continue
            assert len(by) > 1 or (each in settling.late) == (each.hand_out not in by)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), fails=seldom, later=seldom, waits=st.sampled_from([None, 0, 900]))
    def nack(self, data: st.DataObject, fails: bool, later: bool, waits: int | None) -> None:
        ids = self._some(data)
        good = self._good(ids)
        wait = None if waits is None else waits
        settling = self.backlog.nack(grouped(ids), self.now, wait)
        assert sorted(settling.failures) == sorted(each.offset for each in good)
        if self.exactly_once:
            self._check_nacked(ids, good, settling)
        self._finish(settling, fails, later)

    def _check_nacked(self, ids: list[AckId], good: list[Given], settling: Settling) -> None:
        """The id that gave a message back last may say so again; no id gives back what is done."""
        counted = {(each.offset, each.text) for each in good}
        for each in ids:
            if each in counted:
                continue
            if self.nacked_by.get(each.offset) == each.hand_out:
                assert each not in settling.late, "a nack that was done is refused"
            elif each.offset in self.done:
                assert each in settling.late, "what is done was given back"
        self.nacked_by.update(counted)

    def _some(self, data: st.DataObject) -> list[AckId]:
        out = [g for g in self.given if g.text in self.heirs.get(g.offset, ()) or self.newest.get(g.offset) is g]
        some = st.sampled_from(out or self.given) | st.sampled_from(self.given)
        chosen = data.draw(st.lists(some, min_size=1, max_size=5))
        return [AckId(each.offset, each.text) for each in chosen]

    def _good(self, ids: list[AckId]) -> list[Given]:
        """Return what the ids name that count; those of the run before are leases again then."""
        good: list[Given] = []
        unsettled = [
            AckId(offset, text)
            for text, offsets in grouped(ids).items()
            for offset in dict.fromkeys(offsets)
            if offset >= self.floor_by_retention and offset not in self.done | self._being_settled()
        ]
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
        return {offset for each in self.open for offset in [*each.done, *each.failures]}

    def _finish(self, settling: Settling, fails: bool, later: bool) -> None:
        if settling.is_empty:
            return
        if later:
            self.open.append(settling)
        else:
            self._store(settling, fails)

    def _store(self, settling: Settling, fails: bool) -> None:
        if fails:
            self.backlog.not_stored(settling)
            for offset in settling.done:
                self.finished_by.pop(offset, None)
            for offset in settling.failures:
                self.nacked_by.pop(offset, None)
            return
        self.done.update(settling.done)
        for offset, count in settling.failures.items():
            assert count > self.failures.get(offset, 0), "attempts count down"
            self.failures[offset] = count
            self._end(offset)
            self.hand_outs.pop(offset, None)
        self.backlog.stored(settling, self.now)

    def _end(self, offset: int) -> None:
        self.newest[offset].deadline = -1
        self.reserved.pop(offset, None)

    @precondition(lambda self: self.open)
    @rule(fails=seldom)
    def disk(self, fails: bool) -> None:
        """Let the disk answer the oldest of what is being stored."""
        self._store(self.open.pop(0), fails)

    @rule(by=st.integers(1, 400) | st.integers(1, 2500), fails=seldom, later=seldom)
    def time_goes_by(self, by: int, fails: bool, later: bool) -> None:
        self.now += by
        settling = self.backlog.expire(self.now)
        assert all(self.newest[each].deadline < self.now for each in settling.failures), "a lease ended too soon"
        self._finish(settling, fails, later)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), seconds=st.integers(0, 3))
    def extend(self, data: st.DataObject, seconds: int) -> None:
        ids = self._some(data)
        deadline = self.now + seconds * 1000
        good = self._good(ids)
        late = self.backlog.extend(grouped(ids), deadline, self.now)
        self._check_late(ids, good, late)
        self._check_extended(ids, late)
        for each in good:
            each.deadline = deadline
            self._reserve(each.offset, deadline)

    def _check_late(self, ids: list[AckId], good: list[Given], late: list[AckId]) -> None:
        """Ids count or are late, but for those of what is done or about to be."""
        taken = {(each.offset, each.text) for each in good}
        assert not taken & set(late), "a good id is late"
        acknowledged = {offset for each in self.open for offset in each.done} | self.done
        for each in ids:
            is_past = each.offset in acknowledged or each.offset < self.floor_by_retention
            assert each in taken or each in late or is_past, "a late id counts"

    def _check_extended(self, ids: list[AckId], late: list[AckId]) -> None:
        """With exactly-once delivery nobody extends the lease of what is done."""
        done = self.done if self.exactly_once else frozenset()
        assert {each for each in ids if each.offset in done} <= set(late)

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Let some of what was ever given be given again at once, as nobody has worked on it."""
        ids = self._some(data)
        good = self._good(ids)
        self._check_late(ids, good, self.backlog.release(grouped(ids), self.now))
        for each in good:
            self._end(each.offset)

    @rule(by=st.integers(1, 4))
    def retention(self, by: int) -> None:
        oldest = min(self.floor_by_retention + by, self.end)
        floor = self._floor()
        expected = len([each for each in range(floor, oldest) if each not in self.done])
        acknowledging = {offset for each in self.open for offset in each.done}
        lost = self.backlog.retain(oldest)
        assert lost == expected or acknowledging
        self.floor_by_retention = max(self.floor_by_retention, oldest)

    @invariant()
    def floor_and_done_are_those_of_the_model(self) -> None:
        if self.run_number == 0:
            return
        assert self.backlog.floor == self._floor()
        assert {each for each in range(self.end) if each in self.backlog.done} >= self.done
        assert self.backlog.done.above == len([each for each in self.done if each >= self._floor()])
        live = sum(self.backlog.leases.holders.values())
        assert live == len(self.backlog.leases)

    @precondition(lambda self: self.end > 10)
    @rule()
    def drain(self) -> None:
        """Nothing unacknowledged is forgotten: in the end a patient consumer gets all that is left."""
        while self.open:
            self.disk(fails=True)
        self.finish_pull(fails=False)
        for _ in range(4 * self.end + 20):
            self.now += 4000
            settling = self.backlog.expire(self.now)
            self._finish(settling, fails=False, later=False)
            before = len(self.given)
            self.pull(50, slow=False)
            news = self.given[before:]
            ids = [AckId(each.offset, each.text) for each in news]
            self._finish(self.backlog.acknowledge(grouped(ids), self.now), fails=False, later=False)
        assert self._floor() == self.end


Walk.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestWalk = Walk.TestCase


END = 40
FROM_FLOOR = Progress(3, 0, 1, BitMap64([5, 7]), {})


def spans() -> st.SearchStrategy[list[Offset]]:
    """Return offsets that are done together."""
    return st.sets(st.integers(3, END - 1), min_size=1, max_size=8).map(lambda some: [*some])


@given(st.lists(spans(), max_size=12), st.integers(0, END))
def test_what_is_done_is_known_and_the_floor_is_the_first_that_is_not(added: list[list[Offset]], oldest: int) -> None:
    done, model = Done(FROM_FLOOR), {0, 1, 2, 5, 7}
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
    done = Done(FROM_FLOOR)
    done.pass_over(8, 10)
    done.pass_over(10, 11)
    done.pass_over(20, 21)
    passed = done.take_passed()

    assert passed == [(8, 11), (20, 21)]
    assert 10 in done
    assert not done.has_passed
    done.pass_over(3, 5)
    done.passed_again(passed)
    assert done.floor == 6
    assert done.take_passed() == [*passed, (3, 5)]


def test_an_id_of_a_message_that_another_one_is_about_to_finish_waits_for_that_or_is_late() -> None:
    backlog = exactly_once()
    first = give(backlog, 0, 0)
    store(backlog, backlog.nack(first, NOW, 0))
    second = give(backlog, 1, *backlog.again(1))
    storing = backlog.acknowledge(second, NOW)

    assert backlog.acknowledge(second, NOW).unsure == second
    assert len(backlog.acknowledge(first, NOW).late) == 1
    backlog.not_stored(storing)
    assert backlog.acknowledge(second, NOW).done == [0]


def test_an_id_that_an_owner_gave_of_a_message_published_since_it_was_overtaken_is_late() -> None:
    backlog = after_a_restart()
    given = {"1.1.2.9.abcdef": [3, 4, 7]}
    with pytest.raises(InvalidInput, match="Invalid ack id"):
        backlog.acknowledge(given, NOW)
    assert backlog.restart_grace.grow(8)
    assert not backlog.restart_grace.grow(8)
    settling = backlog.acknowledge(given, NOW)

    assert settling.done == [3]
    assert [each.offset for each in settling.late] == [4, 7]
    with pytest.raises(InvalidInput, match="Invalid ack id"):
        backlog.acknowledge({"1.1.3.0.abcdef": [4]}, NOW)


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_nack_is_a_failure_that_is_stored_and_waits(is_seen: bool) -> None:
    backlog = after_a_restart()
    if is_seen:
        backlog.restart_grace.withhold(4, GRACE)
        looked_at(backlog)
    settling = backlog.nack(ids_of(X, 1), NOW, 5 * GRACE)
    assert settling.failures == {1: 1}
    backlog.stored(settling, NOW)
    assert 1 not in looked_at(backlog)
    backlog.expire(2 * GRACE)
    assert 1 not in backlog.again(4)

    backlog.expire(5 * GRACE + 100)
    assert backlog.again(4) == [1]
    assert backlog.failures.attempt_of(1) == 2


def test_what_is_nacked_while_it_waits_to_be_given_comes_after_its_delay() -> None:
    backlog = after_a_restart()
    backlog.give_back(looked_at(backlog))  # as its consumer could not get it
    store(backlog, backlog.nack(ids_of(X, 1), NOW, 500))

    assert backlog.taken_of([0, 1]) == {1}
    assert backlog.again(4) == [0, 2, 3]


def test_a_nack_of_the_last_attempt_puts_a_message_aside_once() -> None:
    backlog = after_a_restart(RULES._replace(most_attempts=1))
    store(backlog, backlog.nack(ids_of(X, 1), NOW))
    assert backlog.failures.dead == []
    assert looked_at(backlog) == [0, 2, 3]

    assert backlog.failures.dead == [1]


def test_what_the_dead_letter_topic_has_was_finished_by_nobody() -> None:
    backlog = exactly_once()
    backlog.go_by(backlog.failures.rules._replace(most_attempts=1))
    ids = give(backlog, 0, 0)
    store(backlog, backlog.nack(ids, NOW))
    store(backlog, backlog.put_aside(backlog.failures.dead.pop()))

    assert len(backlog.acknowledge(ids, NOW).late) == 1


def test_what_was_finished_before_exactly_once_delivery_began_is_known_to_nobody() -> None:
    backlog = exactly_once()
    backlog.go_by(RULES)
    ids = give(backlog, 0, 0)
    store(backlog, backlog.acknowledge(ids, NOW))
    backlog.go_by(RULES._replace(exactly_once=True))
    later = give(backlog, 1, 1)
    store(backlog, backlog.acknowledge(later, NOW))

    assert len(backlog.acknowledge(ids, NOW).late) == 1
    assert not backlog.acknowledge(later, NOW).late


def test_what_was_finished_before_a_restart_is_believed_while_leases_of_then_may_last() -> None:
    progress = Progress(2, 1, 3, BitMap64([3]), {}, None)
    rules = RULES._replace(exactly_once=True)
    backlog = Backlog(progress, "abcdef", rules, end=4, grace_until=GRACE)
    ids = {"1.1.2.7.abcdef": [1, 3]}

    assert not backlog.acknowledge(ids, GRACE).late
    assert len(backlog.acknowledge(ids, GRACE + 1).late) == 2


def test_only_the_newer_finishers_are_remembered_and_older_ids_are_refused_then() -> None:
    known = FinalIds(Progress(0, 1, 3, BitMap64(), {}, None), 0)
    half = hand_out_ids.MOST_NOTED // 2

    def is_by(offset: int, number: int, attempt: int = 1) -> bool:
        given = HandOutId(attempt, 1, 3, number, "abcdef")
        return known.is_by(AckId(offset, given.text), given, 0)

    def note(begin: int, number: int) -> None:
        text = HandOutId(2, 1, 3, number, "abcdef").text
        known.note(range(begin, begin + half), text, number)

    note(0, 10)
    assert is_by(0, 10, attempt=2)
    assert not is_by(0, 5)
    note(half, 20)
    assert not is_by(0, 5), "it is not known any more"
    assert is_by(half, 20, attempt=2)
    assert is_by(10 * half, 11), "given and finished once"


def failed_out() -> Backlog:
    """Return a subscription whose message 0 has failed as often as it may."""
    backlog = exactly_once()
    backlog.go_by(RULES._replace(most_attempts=1))
    store(backlog, backlog.nack(give(backlog, 0, 0), NOW))
    return backlog


def test_a_message_in_the_dead_letter_topic_is_given_to_nobody_when_that_could_not_be_stored() -> None:
    backlog = failed_out()
    offset = backlog.failures.dead.pop()
    backlog.not_stored(backlog.put_aside(offset))
    backlog.keep(offset, NOW)
    backlog.expire(DEAD_LETTER_RETRY_MS + 100)

    assert not backlog.is_again_ready
    assert backlog.failures.dead == [0]
    store(backlog, backlog.put_aside(backlog.failures.dead.pop()), DEAD_LETTER_RETRY_MS)
    assert backlog.floor == 1


def test_retention_forgets_failures_of_what_it_takes_and_no_others() -> None:
    failures = Failures({Offset(each): each + 1 for each in range(4)}, Rules(most_attempts=9))
    for each in (1, 3):
        failures.die(Offset(each))
    failures.letters.update(map(Offset, (0, 2)))

    failures.retain(Offset(2))

    assert failures.counts == {2: 3, 3: 4}
    assert (failures.letters, failures.dying) == ({2}, {3})
