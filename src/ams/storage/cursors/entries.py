"""Acknowledgements of a parallel subscription, as the entries that a store keeps.

An entry is a byte that says its kind and format, a checksum (CRC-32 of the rest, the lowest byte first), and a
MessagePack array. A *delta* holds what a change added; an
*image* holds everything and takes the place of all entries before. Floor and run stand in the cursor's row, which is
written together with them. Each entry names its epoch: one of another epoch than the cursor's is of before a seek and
counts for nothing, so a seek needs to write nothing here.

    3  delta   [epoch, ranges, failures, horizon, taken back]     ranges: gap, length, gap, length, ... upwards from 0
    4  image   [epoch, bitmap, failures, horizon, taken back]     bitmap: `ams.core.offsets.packed`

    failures     gap, count, gap, count, ... upwards from 0, the gap from the offset before
    horizon      [below, until], or null: as before in a delta, none in an image
    taken back   of each newest hand-out one list: run, number, and the messages taken back then, as ranges
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

import msgspec
from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.core.offsets import Range, packed, ranges_of, unpacked
from ams.storage.cursors import acks
from ams.storage.cursors.acks import Change, Horizon, Mark, Progress

MAX_DELTAS = 256
MAX_DELTA_BYTES = 256 << 10
"""With more deltas than that, or more bytes of them, an image is written in their place: a start is to read little."""
_DELTA, _IMAGE = b"\x03", b"\x04"
_HEAD = 5
T = TypeVar("T")


class _Delta(msgspec.Struct, array_like=True, frozen=True):
    epoch: int
    ranges: list[int]
    failures: list[int]
    horizon: tuple[int, int] | None
    taken_back: list[list[int]]


class _Image(msgspec.Struct, array_like=True, frozen=True):
    epoch: int
    bitmap: bytes
    failures: list[int]
    horizon: tuple[int, int] | None
    taken_back: list[list[int]]


class Entry(NamedTuple):
    """An entry and its place among those of its subscription."""

    number: int
    data: bytes


class Kept(NamedTuple):
    """A progress and the entries that a store keeps of it."""

    progress: Progress
    entries: int = 0  # also those that count for nothing
    number: int = 0  # of the newest one
    size: int = 0  # bytes of the deltas
    is_stale: bool = False  # whether there are entries of another epoch


class Write(NamedTuple):
    """Rows to write so that a store keeps a progress."""

    clears: bool  # whether all entries before go
    entry: Entry | None
    after: Kept


def written(kept: Kept, progress: Progress, *, anew: bool = False) -> Write:
    """Return the write after `kept`; with `anew` nothing of what was kept belongs to `progress`."""
    if acks.remembers_nothing(progress):
        return Write(kept.entries > 0, None, Kept(progress, number=kept.number))
    number = kept.number + 1
    is_due = kept.entries >= MAX_DELTAS or kept.size >= MAX_DELTA_BYTES
    if anew or is_due or kept.is_stale or kept.progress.epoch != progress.epoch:
        entry = Entry(number, image(progress))
        return Write(kept.entries > 0, entry, Kept(progress, 1, number))
    data = delta(kept.progress, progress)
    if data is None:
        return Write(False, None, kept._replace(progress=progress))
    return Write(False, Entry(number, data), Kept(progress, kept.entries + 1, number, kept.size + len(data)))


def replayed(start: Progress, entries: Iterable[Entry]) -> Kept:
    """Return the progress in entries of a cursor with this floor, epoch and run. Raises `ValueError`."""
    progress, count, newest, size, is_stale = start, 0, 0, 0, False
    deltas: list[Change] = []
    for number, data in entries:
        count, newest = count + 1, number
        found = _read(data)
        if found.epoch != start.epoch:
            is_stale = True
        elif isinstance(found, _Image):
            above = acks.sought(start, start.floor, start.epoch, unpacked(found.bitmap))
            progress = acks.settled(above, _change((), found))
            deltas = []
        else:
            deltas.append(_change(_ranges(found.ranges), found))
            size += len(data)
    return Kept(acks.settled(progress, acks.joined(deltas)), count, newest, size, is_stale)


def image(progress: Progress) -> bytes:
    """Write everything."""
    counts = _gaps_of_failures(progress.failures)
    taken_back = _lists_of_marks(progress.taken_back)
    return _framed(_IMAGE, _Image(progress.epoch, packed(progress.done), counts, progress.horizon, taken_back))


def delta(before: Progress, after: Progress) -> bytes | None:
    """Write what a progress has more than the one before it; None when the cursor's row says it all."""
    added = after.done - before.done
    failures = _news(before.failures, after.failures)
    taken_back = _news(before.taken_back, after.taken_back)
    horizon = after.horizon if after.horizon != before.horizon else None
    if not (added or failures or horizon or taken_back):
        return None
    counts, marks = _gaps_of_failures(failures), _lists_of_marks(taken_back)
    return _framed(_DELTA, _Delta(after.epoch, _gaps(added), counts, horizon, marks))


def _framed(kind: bytes, array: _Delta | _Image) -> bytes:
    content = msgspec.msgpack.encode(array)
    return kind + _checksum(content) + content


def _read(data: bytes) -> _Delta | _Image:
    kind, checksum, content = data[:1], data[1:_HEAD], data[_HEAD:]
    if checksum != _checksum(content):
        raise ValueError("an entry that does not match its checksum")
    try:
        if kind == _DELTA:
            return msgspec.msgpack.decode(content, type=_Delta)
        if kind == _IMAGE:
            return msgspec.msgpack.decode(content, type=_Image)
    except msgspec.DecodeError as error:
        raise ValueError(f"an entry that cannot be read: {error}") from None
    raise ValueError(f"an entry of kind {kind.hex()}, which another version wrote")


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "little")


def _change(done: Sequence[Range], found: _Delta | _Image) -> Change:
    horizon = found.horizon and Horizon(Offset(found.horizon[0]), Milliseconds(found.horizon[1]))
    offset, failures = 0, dict[Offset, int]()
    for gap, count in _twos(found.failures):
        offset += gap
        failures[Offset(offset)] = count
    taken_back = {
        Offset(each): Mark(run, number)
        for run, number, *gaps in found.taken_back
        for begin, end in _ranges(gaps)
        for each in range(begin, end)
    }
    return Change(done, failures, horizon, taken_back)


def _news(before: Mapping[Offset, T], after: Mapping[Offset, T]) -> Mapping[Offset, T]:
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
    for gap, length in _twos(gaps):
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


def _twos(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(numbers[::2], numbers[1::2], strict=True)
