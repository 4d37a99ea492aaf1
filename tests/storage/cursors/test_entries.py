"""Entries: readable by any later store of the same version, and refused from another version."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.names import Offset
from ams.core.offsets import bitmap_of
from ams.storage.cursors import acks, entries
from ams.storage.cursors.acks import AckProgress, AckUpdate, Horizon, Mark
from ams.storage.cursors.entries import StoredProgress
from tests.storage.cursors.naive import NaiveCursor, changes, offsets, settle

PROGRESS = AckProgress(
    7, 3, 2, bitmap_of([(9, 12), (70_000, 70_001), (2**40, 2**40 + 500)]), {8: 1, 300: 12},
    Horizon(2**40 + 600, 1_790_000_000_123), {8: Mark(2, 70), 12: Mark(2, 70), 13: Mark(2, 70), 300: Mark(1, 5)},
)  # fmt: skip
IMAGE = bytes.fromhex(
    "0430d98a7b9503c438b997f2c20200000000000000000000003b300100010000020001000000010009000200701100010000"
    "3b300000010000f30101000000f301940801cd01240c92cf0000010000000258cf000001a0c4506c7b929602460801030294"
    "0105cd012c01"
)
DELTA = bytes.fromhex(
    "03f16a17599503960903ce0001116401cf000000fffffeee8fcd01f4940801cd01240c92cf0000010000000258cf000001a0"
    "c4506c7b9296024608010302940105cd012c01"
)


def test_an_image_of_this_version_stays_readable_and_is_written_so() -> None:
    start = acks.empty_progress(PROGRESS.floor, PROGRESS.epoch, PROGRESS.run)
    assert entries.replay_entries(start, [IMAGE], 5) == StoredProgress(PROGRESS, 1, 5)
    assert entries.image(PROGRESS) == IMAGE


def test_a_delta_of_this_version_stays_readable_and_is_written_so() -> None:
    start = acks.empty_progress(PROGRESS.floor, PROGRESS.epoch, PROGRESS.run)
    assert entries.replay_entries(start, [DELTA], 5) == StoredProgress(PROGRESS, 1, 5, len(DELTA))
    assert entries.delta(start, PROGRESS) == DELTA


@given(every=st.lists(st.tuples(changes, st.sampled_from(["", "", "", "seek", "reopen"])), max_size=20))
def test_what_is_written_after_each_change_is_read_as_it_was(every: list[tuple[AckUpdate, str]]) -> None:
    kept = StoredProgress(acks.empty_progress(0, 0, 1))
    stored: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "MAX_DELTAS", 4)
        for change, what in every:
            progress = acks.apply_update(kept.progress, change)
            if what == "seek":  # of the cursor alone, as in PostgreSQL
                progress = acks.apply_seek(progress, 5, progress.epoch + 1)
                kept = entries.replay_entries(progress, stored, kept.number)
                assert kept.progress == progress
                continue
            write = entries.next_write(kept, progress)
            stored = ([] if write.clears else stored) + ([write.entry] if write.entry else [])
            kept = write.after
            assert kept.progress == progress
            start = acks.empty_progress(progress.floor, progress.epoch, progress.run)
            found = entries.replay_entries(start, stored, kept.number)
            assert found.progress._replace(horizon=progress.horizon) == progress
            # An entry does not record the end of a horizon, so a later one may restore it with the later time of both.
            assert acks.join_horizons(found.progress.horizon, progress.horizon) == found.progress.horizon
            assert found.entries == kept.entries == len(stored) <= 5
            if what == "reopen":
                kept = found


def test_an_image_takes_the_place_of_all_entries_before() -> None:
    start = acks.empty_progress(0, 0, 1)
    before = acks.apply_update(start, AckUpdate([(4, 6)], {1: 1}))
    after = start._replace(failures={1: 2})
    delta = entries.delta(start, before)

    assert entries.replay_entries(start, [delta, entries.image(after)]).progress == after


def test_when_all_is_done_nothing_is_kept_but_the_row_of_the_cursor() -> None:
    kept = entries.next_write(StoredProgress(acks.empty_progress(0, 0, 1)), PROGRESS._replace(epoch=0)).after
    write = entries.next_write(kept, acks.empty_progress(2**50, 0, 1))
    assert (write.clears, write.entry, write.after.entries) == (True, None, 0)


def test_a_subscription_that_is_worked_on_in_order_writes_no_entries() -> None:
    kept = StoredProgress(acks.empty_progress(0, 0, 1))

    for end in range(10, 100, 10):
        write = entries.next_write(kept, acks.apply_update(kept.progress, AckUpdate([(kept.progress.floor, end)])))
        assert (write.clears, write.entry) == (False, None)
        kept = write.after


def test_an_image_is_written_when_there_are_many_bytes_of_deltas() -> None:
    kept = StoredProgress(acks.empty_progress(0, 0, 1))
    sizes = []
    for part in range(12):
        odd = [(at, at + 1) for at in range(part * 100_000 + 1, part * 100_000 + 40_000, 2)]
        write = entries.next_write(kept, acks.apply_update(kept.progress, AckUpdate(odd)))
        assert write.entry is not None
        kept = write.after
        sizes.append(kept.size)

    assert max(sizes) < entries.MAX_DELTA_BYTES * 2
    assert 0 in sizes


@pytest.mark.parametrize("entry", [IMAGE, DELTA])
@given(place=st.integers(0), bit=st.integers(0, 7))
def test_one_wrong_bit_is_an_error(entry: bytes, place: int, bit: int) -> None:
    data = bytearray(entry)
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(ValueError, match="checksum|another version"):
        entries.replay_entries(acks.empty_progress(7, 0, 1), [bytes(data)])


@given(data=st.binary(max_size=60))
def test_garbage_is_an_error(data: bytes) -> None:
    for entry in (data, b"\x03" + data, b"\x03" + zlib.crc32(data).to_bytes(4, "little") + data):
        with pytest.raises(ValueError):
            entries.replay_entries(acks.empty_progress(0, 0, 1), [entry])


@pytest.mark.parametrize("kind", ["01", "09"], ids=["older", "newer"])
def test_an_entry_of_another_version_is_an_error_that_says_so(kind: str) -> None:
    with pytest.raises(ValueError, match=f"kind {kind}, which another version wrote"):
        entries.replay_entries(acks.empty_progress(7, 3, 1), [bytes.fromhex(kind) + IMAGE[1:]])


@given(every=st.lists(changes, max_size=6), end=offsets)
def test_beyond_the_end_nothing_is_done(every: list[AckUpdate], end: Offset) -> None:
    progress, model = acks.empty_progress(0, 0, 1), NaiveCursor(run=1)
    for change in every:
        progress = acks.apply_update(progress, change)
        settle(change).expect(model)

    ended = acks.drop_from(progress, end)

    assert ended.floor == min(model.floor, end)
    assert set(ended.done) == {each for each in model.done if each < end}
    assert set(ended.failures) == {each for each in model.failures if each < end}
    assert set(ended.taken_back) == {each for each in model.taken_back if each < end}
    assert (ended is progress) == (ended == progress)
