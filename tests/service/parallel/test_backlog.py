"""The backlog of a parallel subscription, against a naive model that keeps a state for each message."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyroaring import BitMap64

from ams.core.ack_ids import AckId
from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.service.parallel.backlog import Backlog, Rules, Settling
from ams.storage.cursors.acks import Progress

DEADLINE = 1000
RULES = Rules(Milliseconds(200), Milliseconds(3000))
GRACE = 2000


@dataclass
class Given:
    """A message as a consumer has it."""

    offset: int
    text: str
    deadline: int
    attempt: int


def grouped(ids: list[AckId]) -> dict[str, list[Offset]]:
    """Return ids by their hand-outs, as requests name them."""
    found: dict[str, list[Offset]] = {}
    for each in ids:
        found.setdefault(each.hand_out, []).append(each.offset)
    return found


def key_of(offset: int, keyed: bool) -> str:
    """Return the ordering key of a message: one of three, or none."""
    return "" if not keyed or offset % 4 == 3 else f"k{offset % 4}"


class Walk(RuleBasedStateMachine):
    """Consumers, a disk that fails, a clock, restarts, retention and seeks, in any order."""

    def __init__(self) -> None:
        """Begin with an empty topic."""
        super().__init__()
        self.now = 1000
        self.end = 0
        self.keyed = False
        self.given: list[Given] = []
        self.newest: dict[int, Given] = {}
        self.done: set[int] = set()
        self.failures: dict[int, int] = {}
        self.floor_by_retention = 0
        self.epoch = 0
        self.run_number = 0
        self.open: list[Settling] = []

    @initialize(keyed=st.booleans())
    def begin(self, keyed: bool) -> None:
        """Take the subscription over for the first time."""
        self.keyed = keyed
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
            Offset(floor),
            self.epoch,
            self.run_number,
            BitMap64([each for each in self.done if each >= floor]),
            {Offset(each): count for each, count in self.failures.items() if each not in self.done and each >= floor},
            None,
        )
        self.backlog = Backlog(
            progress, "abcdef", RULES, end=Offset(self.end), grace_until=Milliseconds(self.now + GRACE)
        )
        self.open = []
        self.newest = {}

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        """Let the topic grow."""
        self.end += count

    @rule(most=st.integers(1, 5))
    def pull(self, most: int) -> None:
        """Give what is ready again, and behind it what was not seen yet."""
        offsets = self.backlog.again(most)
        if len(offsets) < most and self.backlog.may_scan:
            begin, end = self.backlog.scan, min(self.backlog.scan + most - len(offsets), self.end)
            for offset in self.backlog.undone(begin, Offset(end)):
                if self.backlog.may_give(offset, key_of(offset, self.keyed), Milliseconds(self.now)):
                    offsets.append(offset)
            self.backlog.scanned(Offset(max(begin, end)))
        self._give(offsets)

    def _give(self, offsets: list[Offset]) -> None:
        by_attempt: dict[int, list[Offset]] = {}
        for offset in offsets:
            by_attempt.setdefault(self.backlog.attempt_of(offset), []).append(offset)
        for attempt, group in by_attempt.items():
            deadline = self.now + DEADLINE
            text = self.backlog.give(list(group), attempt, 10 * len(group), Milliseconds(deadline), "somebody")
            for offset in group:
                assert offset not in self.done, "what is done came again"
                assert offset >= self.floor_by_retention
                before = self.newest.get(offset)
                assert before is None or before.deadline < self.now, "given to two consumers"
                assert attempt == self.failures.get(offset, 0) + 1
                self._check_order(offset)
                given = Given(offset, text, deadline, attempt)
                self.newest[offset] = given
                self.given.append(given)

    def _check_order(self, offset: int) -> None:
        key = key_of(offset, self.keyed)
        if key:
            earlier = [e for e in range(self.floor_by_retention, offset) if key_of(e, self.keyed) == key]
            assert all(each in self.done for each in earlier), "a key is out of order"

    @precondition(lambda self: self.given)
    @rule(data=st.data(), fails=st.booleans(), later=st.booleans())
    def acknowledge(self, data: st.DataObject, fails: bool, later: bool) -> None:
        """Acknowledge some of what was ever given."""
        ids = self._some(data)
        settling = self.backlog.acknowledge(grouped(ids), Milliseconds(self.now))
        for offset in settling.done:
            self._check_may_settle(offset, [each for each in ids if each.offset == offset])
        self._finish(settling, fails, later)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), fails=st.booleans(), later=st.booleans())
    def nack(self, data: st.DataObject, fails: bool, later: bool) -> None:
        """Give some of what was ever given back."""
        self._finish(self.backlog.nack(grouped(self._some(data)), Milliseconds(self.now)), fails, later)

    def _some(self, data: st.DataObject) -> list[AckId]:
        chosen = data.draw(st.lists(st.sampled_from(self.given), min_size=1, max_size=5))
        return [AckId(Offset(each.offset), each.text) for each in chosen]

    def _check_may_settle(self, offset: int, ids: list[AckId]) -> None:
        newest = self.newest.get(offset)
        if newest is None:  # from before the restart
            return
        assert newest.text in [each.hand_out for each in ids], "an older id acknowledged"
        assert newest.deadline >= self.now, "a late id acknowledged"

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
            return
        self.done.update(settling.done)
        for offset, count in settling.failures.items():
            assert count > self.failures.get(offset, 0), "attempts count down"
            self.failures[offset] = count
            if offset in self.newest:
                self.newest[offset].deadline = -1
        self.backlog.stored(settling, Milliseconds(self.now))

    @precondition(lambda self: self.open)
    @rule(fails=st.booleans())
    def disk(self, fails: bool) -> None:
        """Let the disk answer the oldest of what is being stored."""
        self._store(self.open.pop(0), fails)

    @rule(by=st.integers(1, 2500), fails=st.booleans(), later=st.booleans())
    def time_goes_by(self, by: int, fails: bool, later: bool) -> None:
        """Let leases end and waits be over."""
        self.now += by
        self._finish(self.backlog.expire(Milliseconds(self.now)), fails, later)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), seconds=st.integers(0, 3))
    def extend(self, data: st.DataObject, seconds: int) -> None:
        """Move deadlines."""
        ids = self._some(data)
        deadline = self.now + seconds * 1000
        late = self.backlog.extend(grouped(ids), Milliseconds(deadline), Milliseconds(self.now))
        settling = {offset for each in self.open for offset in [*each.done, *each.failures]}
        for each in ids:
            newest = self.newest.get(each.offset)
            if newest is None or newest.text != each.hand_out or each.offset in settling | self.done:
                continue
            if each not in late:
                newest.deadline = deadline

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Let some of what was ever given be given again at once, as nobody has worked on it."""
        ids = self._some(data)
        out = {offset for each in self.open for offset in [*each.done, *each.failures]}
        self.backlog.release(grouped(ids), Milliseconds(self.now))
        for each in ids:
            newest = self.newest.get(each.offset)
            if newest is not None and newest.text == each.hand_out and each.offset not in out:
                newest.deadline = -1

    @rule(by=st.integers(1, 4))
    def retention(self, by: int) -> None:
        """Let the log forget its oldest messages."""
        oldest = min(self.floor_by_retention + by, self.end)
        floor = self._floor()
        expected = len([each for each in range(floor, oldest) if each not in self.done])
        acknowledging = {offset for each in self.open for offset in each.done}
        lost = self.backlog.retain(Offset(oldest))
        assert lost == expected or acknowledging
        self.floor_by_retention = max(self.floor_by_retention, oldest)

    @invariant()
    def floor_and_done_are_those_of_the_model(self) -> None:
        """Compare with the naive set."""
        if self.run_number == 0:
            return
        assert self.backlog.floor == self._floor()
        assert set(self.backlog.done_ranges()) == {each for each in self.done if each >= self._floor()}
        live = sum(self.backlog.holders.values())
        assert live == len(self.backlog._leases)

    @precondition(lambda self: self.end > 10)
    @rule()
    def drain(self) -> None:
        """Nothing unacknowledged is forgotten: in the end a patient consumer gets all that is left."""
        while self.open:
            self.disk(fails=True)
        for _ in range(4 * self.end + 20):
            self.now += 4000
            settling = self.backlog.expire(Milliseconds(self.now))
            self._finish(settling, fails=False, later=False)
            before = len(self.given)
            self.pull(50)
            news = self.given[before:]
            ids = [AckId(Offset(each.offset), each.text) for each in news]
            self._finish(self.backlog.acknowledge(grouped(ids), Milliseconds(self.now)), fails=False, later=False)
        assert self._floor() == self.end


Walk.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestWalk = Walk.TestCase


def before_restarts() -> Backlog:
    """Return a subscription of four messages that may all be out by now."""
    progress = Progress(Offset(0), 1, 3, BitMap64(), {}, None)
    return Backlog(progress, "abcdef", RULES, end=Offset(4), grace_until=Milliseconds(GRACE))


def test_a_message_that_ids_of_two_runs_name_is_acknowledged_once() -> None:
    backlog = before_restarts()
    ids = {"1.1.1.1.abcdef": [Offset(0), Offset(1), Offset(3)], "1.1.2.1.abcdef": [Offset(0)]}
    settling = backlog.acknowledge(ids, Milliseconds(1))
    backlog.stored(settling, Milliseconds(1))

    assert settling.done == [0, 1, 3]
    assert backlog.floor == 2


def test_an_id_of_before_a_restart_counts_no_more_once_the_message_was_given_and_released() -> None:
    backlog = before_restarts()
    text = backlog.give([Offset(0)], 1, 10, Milliseconds(DEADLINE), "somebody")
    backlog.scanned(Offset(1))
    backlog.release({text: [Offset(0)]}, Milliseconds(1))

    assert backlog.acknowledge({"1.1.1.1.abcdef": [Offset(0)]}, Milliseconds(1)).late
    assert backlog.again(1) == [0]
