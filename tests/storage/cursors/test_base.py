"""The laws of a cursor, against a plain model of contract 10 and 11 and the lines of 17.1 and 17.2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ams.core.errors import AckTimeout, AmsError, InvalidInput
from ams.storage.cursors import base
from ams.storage.cursors.base import MAX_HANDED, Cursor, CursorHandOut, Grace

TOPIC = b"t" * 16
OTHER = b"o" * 16
DEADLINE = 10_000


def handed_out(offset: int, *pairs: tuple[int, int]) -> Cursor:
    cursor = Cursor(TOPIC, offset)
    for end, time in pairs:
        cursor = base.hand_out(cursor, end, time)
    return cursor


PENDING, WRONG = (InvalidInput, "no ack pending"), (InvalidInput, "wrong ack")
TIMEOUT = (AckTimeout, "ack timeout")
RESTARTED, SOUGHT = Cursor(TOPIC, 2, grace=Grace(9, 0, 60_000)), Cursor(TOPIC, 2, grace=Grace(9, 0, 10_000))


@pytest.mark.parametrize(("handed", "last", "deadline", "now", "outcome"), [
    pytest.param([(5, 0)], 4, 10_000, 1, 5, id="past the largest id"),
    pytest.param([], 0, 10_000, 0, PENDING, id="11.1 nothing was handed out"),
    pytest.param([(5, 0)], 5, 10_000, 0, WRONG, id="11.1 beyond what was handed out"),
    pytest.param([(5, 0)], 4, 10_000, 10_000, 5, id="11.1 at the deadline"),
    pytest.param([(5, 0)], 4, 10_000, 10_001, TIMEOUT, id="11.1 later than the deadline"),
    pytest.param([(5, 0), (5, 20_000)], 4, 10_000, 30_000, 5, id="11.2 the next pull restarts the clock"),
    pytest.param([(5, 700)], 4, 0, 700, 5, id="A2 no deadline, at once"),
    pytest.param([(5, 700)], 4, 0, 701, TIMEOUT, id="A2 no deadline, a millisecond later"),
    pytest.param([(10, 0), (3, 5_000)], 9, 10_000, 9_000, 10, id="M12 beside a smaller pull of another"),
    pytest.param([(10, 0), (3, 9_000)], 2, 10_000, 15_000, 3, id="M12 the smaller pull by its own time"),
    pytest.param([(10, 0), (3, 9_000)], 9, 10_000, 15_000, TIMEOUT, id="M12 the larger pull by its own time"),
    pytest.param([(10, 0), (0, 5_000)], 9, 10_000, 10_001, TIMEOUT, id="M12 an empty pull changes nothing"),
    pytest.param(RESTARTED, 8, 10_000, 10_000, 9, id="pulled before a restart, for one deadline"),
    pytest.param(RESTARTED, 8, 10_000, 10_001, PENDING, id="pulled before a restart, a millisecond later"),
    pytest.param(RESTARTED, 9, 10_000, 1, WRONG, id="not pulled before a restart"),
    pytest.param(SOUGHT, 8, 10_000, 1, PENDING, id="sought within its deadline before a restart"),
])  # fmt: skip
def test_an_acknowledgement_moves_the_cursor_or_is_refused(
    handed: list[tuple[int, int]] | Cursor, last: int, deadline: int, now: int,
    outcome: int | tuple[type[AmsError], str],
) -> None:  # fmt: skip
    cursor = handed if isinstance(handed, Cursor) else handed_out(0, *handed)

    if isinstance(outcome, int):
        assert base.acknowledge(cursor, last, deadline, now).offset == outcome
    else:
        with pytest.raises(outcome[0], match=outcome[1]):
            base.acknowledge(cursor, last, deadline, now)


def test_a1_an_id_acknowledged_before_is_a_success_without_change() -> None:
    cursor = base.acknowledge(handed_out(0, (5, 0)), 4, DEADLINE, 1)
    assert cursor.handed == ()
    for last in (4, 0):
        assert base.acknowledge(cursor, last, DEADLINE, 99_999) == cursor


def test_a_partial_ack_leaves_larger_hand_outs_valid() -> None:
    cursor = base.acknowledge(handed_out(0, (10, 0)), 3, DEADLINE, 1)
    assert (cursor.offset, base.acknowledge(cursor, 9, DEADLINE, 2).offset) == (4, 10)


def test_11_5_a_seek_makes_earlier_batches_unacknowledgeable() -> None:
    cursor = base.seek(handed_out(0, (10, 0)), 2)
    assert cursor.generation == 1
    with pytest.raises(InvalidInput, match="no ack pending"):
        base.acknowledge(cursor, 9, DEADLINE, 1)


def test_10_4_retention_moves_the_cursor_up_and_counts_the_loss() -> None:
    cursor = base.retain(handed_out(3, (10, 0)), 8)
    assert (cursor.offset, cursor.lost, cursor.handed, cursor.generation) == (8, 5, (), 1)
    assert base.retain(cursor, 4) == cursor


def test_a9_another_identity_of_the_topic_restarts_at_its_beginning() -> None:
    cursor = base.follow_topic(handed_out(7, (10, 0)), OTHER)
    assert (cursor.topic, cursor.offset, cursor.handed, cursor.generation) == (OTHER, 0, (), 1)
    assert base.follow_topic(cursor, OTHER) == cursor


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100)), max_size=40))
def test_hand_outs_stay_few_and_newer_ones_are_smaller(pairs: list[tuple[int, int]]) -> None:
    times = sorted(time for _, time in pairs)
    cursor = handed_out(0, *((end, time) for (end, _), time in zip(pairs, times, strict=True)))

    ends = [pair.end for pair in cursor.handed]
    assert len(ends) <= MAX_HANDED
    assert ends == sorted(ends, reverse=True)
    assert len(set(ends)) == len(ends)
    if pairs:
        assert max(end for end, _ in pairs) == ends[0]


class CursorMachine(RuleBasedStateMachine):
    """Several consumers pull and acknowledge; a model remembers all hand-outs."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = Cursor(TOPIC, 0)
        self.now = 0
        self.batches: list[CursorHandOut] = []
        self.acknowledged = 0

    @rule(milliseconds=st.integers(0, 6_000))
    def time_passes(self, milliseconds: int) -> None:
        self.now += milliseconds

    @rule(count=st.integers(0, 20))
    def a_consumer_pulls(self, count: int) -> None:
        end = self.cursor.offset + count
        self.cursor = base.hand_out(self.cursor, end, self.now)
        if count:
            self.batches.append(CursorHandOut(end, self.now))

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def a_correct_consumer_acknowledges_its_own_batch_in_time(self, data: st.DataObject) -> None:
        batch = data.draw(st.sampled_from(self.batches))
        if self.now - batch.time > DEADLINE:
            return
        moved = base.acknowledge(self.cursor, batch.end - 1, DEADLINE, self.now)
        assert moved.offset >= batch.end
        self.remember(moved)

    @rule(last=st.integers(0, 80))
    def anybody_acknowledges_anything(self, last: int) -> None:
        try:
            moved = base.acknowledge(self.cursor, last, DEADLINE, self.now)
        except AmsError:
            return
        was_handed_out = any(batch.end > last for batch in self.batches)
        assert moved == self.cursor or was_handed_out
        self.remember(moved)

    @rule(offset=st.integers(0, 60))
    def an_operator_seeks(self, offset: int) -> None:
        self.cursor = base.seek(self.cursor, offset)
        self.batches, self.acknowledged = [], offset

    def remember(self, moved: Cursor) -> None:
        assert moved.offset >= self.cursor.offset
        self.cursor, self.acknowledged = moved, moved.offset

    @invariant()
    def the_cursor_stands_where_the_last_acknowledgement_or_seek_left_it(self) -> None:
        assert self.cursor.offset == self.acknowledged


TestCursorMachine = CursorMachine.TestCase
