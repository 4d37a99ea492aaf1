"""Acknowledgements of a parallel subscription as stored entries: deltas and checkpoints (images).

An entry has a byte for kind and format, a checksum (CRC-32 of the rest, lowest byte first), and a MessagePack array. A
*delta* holds one change. An *image* holds the whole state and replaces all entries before. Floor and run are in the
cursor's row, written in the same step. Each entry has its epoch. Entries of another epoch than the cursor's are from
before a seek and are ignored, so a seek writes nothing here.

    3  delta   [epoch, ranges, failures, horizon, taken back]     ranges: gap, length, gap, length, ... upwards from 0
    4  image   [epoch, bitmap, failures, horizon, taken back]     bitmap: `ams.core.offsets.encode_bitmap`

    failures     gap, count, gap, count, ... upwards from 0, the gap from the offset before
    horizon      [below, until], or null: unchanged in a delta, none in an image
    taken back   one list for each mark: run, number, and its messages as ranges
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.core.offsets import Range, decode_bitmap, encode_bitmap, ranges_of
from ams.storage.cursors import acks
from ams.storage.cursors.acks import AckProgress, AckUpdate, Horizon, Mark

MAX_DELTAS = 256
MAX_DELTA_BYTES = 256 << 10
"""Compaction: beyond this number or size an image replaces the deltas. It bounds the time of a start."""
_DELTA, _IMAGE = b"\x03", b"\x04"
_HEAD = 5
T = TypeVar("T")
Done = TypeVar("Done", list[int], bytes)


class _Entry(msgspec.Struct, Generic[Done], array_like=True, frozen=True):
    epoch: int
    done: Done
    failures: list[int]
    horizon: tuple[int, int] | None
    taken_back: list[list[int]]


_TYPES: Mapping[bytes, Any] = {_DELTA: _Entry[list[int]], _IMAGE: _Entry[bytes]}  # ranges; a bitmap


class StoredProgress(NamedTuple):
    """A progress and statistics of its stored entries."""

    progress: AckProgress
    entries: int = 0  # including those of other epochs
    number: int = 0  # sequence number of the newest one
    size: int = 0  # bytes of the deltas
    is_stale: bool = False  # whether there are entries of another epoch


class EntryUpdate(NamedTuple):
    """Rows to delete and insert so that the store matches the new progress."""

    clears: bool  # whether to delete all earlier entries
    entry: bytes | None  # `after` has its number
    after: StoredProgress


def next_write(kept: StoredProgress, progress: AckProgress) -> EntryUpdate:
    """Return the rows to write: a delta, or by compaction an image."""
    if acks.is_empty(progress):
        return EntryUpdate(kept.entries > 0, None, StoredProgress(progress, number=kept.number))
    number = kept.number + 1
    is_due = kept.entries >= MAX_DELTAS or kept.size >= MAX_DELTA_BYTES
    if is_due or kept.is_stale or kept.progress.epoch != progress.epoch:
        return EntryUpdate(kept.entries > 0, image(progress), StoredProgress(progress, 1, number))
    data = delta(kept.progress, progress)
    if data is None:
        return EntryUpdate(False, None, kept._replace(progress=progress))
    after = StoredProgress(progress, kept.entries + 1, number, kept.size + len(data))
    return EntryUpdate(False, data, after)


def replay_entries(start: AckProgress, entries: Sequence[bytes], number: int = 0) -> StoredProgress:
    """Apply entries, up to this number, to floor, epoch and run of `start`. Raises `ValueError` for damaged entries."""
    progress, size, is_stale = start, 0, False
    deltas: list[AckUpdate] = []
    for data in entries:
        found = _decode_entry(data)
        if found.epoch != start.epoch:
            is_stale = True
        elif isinstance(found.done, bytes):
            above = acks.apply_seek(start, start.floor, start.epoch, decode_bitmap(found.done))
            progress = acks.apply_update(above, _change((), found))
            deltas = []
        else:
            deltas.append(_change(_ranges(found.done), found))
            size += len(data)
    progress = acks.apply_update(progress, acks.join_changes(deltas))
    return StoredProgress(progress, len(entries), number, size, is_stale)


def image(progress: AckProgress) -> bytes:
    """Encode the whole state."""
    return _encode_entry(_IMAGE, encode_bitmap(progress.done), progress)


def delta(before: AckProgress, after: AckProgress) -> bytes | None:
    """Encode the difference of two progresses; None if the cursor's row already has it."""
    added = after.done - before.done
    failures = _changed_values(before.failures, after.failures)
    taken_back = _changed_values(before.taken_back, after.taken_back)
    horizon = after.horizon if after.horizon != before.horizon else None
    if not (added or failures or horizon or taken_back):
        return None
    changed = after._replace(failures=failures, horizon=horizon, taken_back=taken_back)
    return _encode_entry(_DELTA, _gaps(added), changed)


def _encode_entry(kind: bytes, done: bytes | list[int], progress: AckProgress) -> bytes:
    counts, marks = _gaps_of_failures(progress.failures), _lists_of_marks(progress.taken_back)
    content = msgspec.msgpack.encode(_Entry(progress.epoch, done, counts, progress.horizon, marks))
    return kind + _checksum(content) + content


def _decode_entry(data: bytes) -> _Entry[Any]:
    """Raise `ValueError` for a damaged entry, or one of another version."""
    kind, checksum, content = data[:1], data[1:_HEAD], data[_HEAD:]
    if checksum != _checksum(content):
        raise ValueError("an entry that does not match its checksum")
    if kind not in _TYPES:
        raise ValueError(f"an entry of kind {kind.hex()}, which another version wrote")
    try:
        entry: _Entry[Any] = msgspec.msgpack.decode(content, type=_TYPES[kind])
    except msgspec.DecodeError as error:
        raise ValueError(f"an entry that cannot be read: {error}") from None
    return entry


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "little")


def _change(done: Sequence[Range], found: _Entry[Any]) -> AckUpdate:
    horizon = found.horizon and Horizon(Offset(found.horizon[0]), Milliseconds(found.horizon[1]))
    offset, failures = 0, dict[Offset, int]()
    for gap, count in _pairs(found.failures):
        offset += gap
        failures[Offset(offset)] = count
    taken_back = {
        Offset(each): Mark(run, number)
        for run, number, *gaps in found.taken_back
        for begin, end in _ranges(gaps)
        for each in range(begin, end)
    }
    return AckUpdate(done, failures, horizon, taken_back)


def _changed_values(before: Mapping[Offset, T], after: Mapping[Offset, T]) -> Mapping[Offset, T]:
    if after is before:
        return {}
    return {each: value for each, value in after.items() if before.get(each) != value}


def _gaps(offsets: BitMap64) -> list[int]:
    last, gaps = 0, list[int]()
    for begin, end in ranges_of(offsets):
        gaps += (begin - last, end - begin)
        last = end
    return gaps


def _ranges(gaps: Sequence[int]) -> list[Range]:
    last, ranges = 0, []
    for gap, length in _pairs(gaps):
        begin = last + gap
        last = begin + length
        ranges.append((Offset(begin), Offset(last)))
    return ranges


def _lists_of_marks(taken_back: Mapping[Offset, Mark]) -> list[list[int]]:
    by_mark: dict[Mark, list[Offset]] = {}
    for offset, mark in taken_back.items():
        by_mark.setdefault(mark, []).append(offset)
    return [[*mark, *_gaps(BitMap64(offsets))] for mark, offsets in by_mark.items()]


def _gaps_of_failures(failures: Mapping[Offset, int]) -> list[int]:
    offsets = sorted(failures)
    gaps = [offset - before for before, offset in zip(chain([0], offsets), offsets, strict=False)]
    return list(chain.from_iterable(zip(gaps, (failures[each] for each in offsets), strict=True)))


def _pairs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(numbers[::2], numbers[1::2], strict=True)
