"""The step by which acknowledgements one by one are stored, against sets of numbers."""

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from ams.core.names import Offset
from ams.storage.cursors import acks
from ams.storage.cursors.acks import Change, Horizon, Progress
from tests.storage.cursors.naive import Naive, changes, facts_of, offsets, settle

bitmaps = st.sets(offsets).map(BitMap64)


def walked(every: list[Change]) -> tuple[Progress, Naive]:
    progress, model = acks.unsettled(0, 0, 1), Naive(run=1)
    for change in every:
        before = acks.copied(progress)
        after = acks.settled(progress, change)
        assert progress == before
        settle(change).expect(model)
        progress = after
    return progress, model


@given(every=st.lists(changes, max_size=12))
def test_changes_one_after_the_other_are_what_sets_say_and_change_nothing_that_others_hold(every: list[Change]) -> None:
    progress, model = walked(every)

    assert facts_of(progress, 0) == model.facts()
    assert all(acks.settled(progress, change) is progress for change in every[-1:] if not change.failures)


@given(every=st.lists(changes, max_size=6), oldest=offsets)
def test_retention_loses_what_was_not_done(every: list[Change], oldest: Offset) -> None:
    progress, model = walked(every)
    before = acks.copied(progress)

    assert acks.lost(progress, oldest) == len(set(range(model.floor, oldest)) - model.done)
    moved = acks.retained(progress, oldest)

    model.floor = max(model.floor, oldest)
    model.tidy()
    assert facts_of(moved, 0) == model.facts()
    assert (progress, moved.epoch) == (before, progress.epoch)


@given(every=st.lists(changes, max_size=6), end=offsets)
def test_beyond_the_end_nothing_is_done(every: list[Change], end: Offset) -> None:
    progress, model = walked(every)

    ended = acks.ended(progress, end)

    assert ended.floor == min(model.floor, end)
    assert set(ended.done) == {each for each in model.done if each < end}
    assert set(ended.failures) == {each for each in model.failures if each < end}
    assert (ended is progress) == (ended == progress)


@given(floor=offsets, done=bitmaps)
def test_a_snapshot_stands_at_what_is_not_done_first(floor: Offset, done: BitMap64) -> None:
    given_done = set(done)

    progress = acks.sought(acks.unsettled(3, 4, 2), floor, 5, done)

    left = {each for each in given_done if each >= floor}
    assert {*range(floor, progress.floor), *progress.done} == left
    assert progress.floor not in left
    assert (progress.epoch, progress.run, set(done)) == (5, 2, given_done)


def test_a_change_of_what_is_done_already_is_no_change() -> None:
    progress = acks.settled(acks.unsettled(0, 0, 1), Change([(0, 3), (5, 6)]))

    assert acks.settled(progress, Change([(1, 2), (5, 6)], {5: 2})) is progress


def test_a_horizon_below_which_all_is_done_is_forgotten() -> None:
    horizon = Horizon(4, 7)
    progress = acks.settled(acks.unsettled(0, 0, 1), Change(horizon=horizon))
    assert progress.horizon == horizon
    assert not acks.remembers_nothing(progress)

    assert acks.remembers_nothing(acks.settled(progress, Change([(0, 4)])))
