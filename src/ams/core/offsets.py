"""Sets of offsets, kept as Roaring bitmaps: small for long ranges, for single offsets, and for every second one.

All that the service does with the library beyond reading and joining sets is here. A range is `[begin, end)`.
"""

import zlib
from collections.abc import Iterable

from pyroaring import BitMap64

from ams.core.names import Offset

Range = tuple[Offset, Offset]  # the second one is not in it
_CHECKSUM = 4  # bytes
_CONTAINER = 2**16  # offsets that the library keeps together: those that differ in their last 16 bits


def bitmap_of(ranges: Iterable[Range]) -> BitMap64:
    """Return the set of all offsets in ranges, which may be in any order and overlap."""
    bitmap = BitMap64()
    for begin, end in ranges:
        bitmap.add_range(begin, end)
    return bitmap


def ranges_of(bitmap: BitMap64) -> list[Range]:
    """Return the ranges that a set is made of, in their order, as few as there can be."""
    # An offset is an edge when it is in the set and the one before is not, or the other way round.
    edges = iter(bitmap ^ bitmap.shift(1))
    return [(Offset(begin), Offset(end)) for begin, end in zip(edges, edges, strict=True)]


def first_missing(bitmap: BitMap64, start: Offset) -> Offset:
    """Return the first offset from `start` on that is not in the set."""
    # The library has no such question. It says quickly whether a range is in: the range is doubled, then halved.
    known, step = start, 1
    while _holds(bitmap, known, step):
        known, step = Offset(known + step), min(step * 2, _CONTAINER - (known + step) % _CONTAINER)
    while step > 1:
        step //= 2
        if _holds(bitmap, known, step):
            known = Offset(known + step)
    return known


def _holds(bitmap: BitMap64, first: Offset, count: int) -> bool:
    """Return whether the set has `count` offsets from the first on, all of one container.

    Asked of more than one container, the library may say wrongly that it has all of them (CRoaring 5.2).
    """
    return bool(bitmap.contains_range(first, first + count))


def packed(bitmap: BitMap64) -> bytes:
    """Write a set: a checksum (CRC-32, 4 bytes, the lowest first), then the portable format of Roaring bitmaps."""
    small = bitmap.copy()
    small.run_optimize()
    data = small.serialize()
    return zlib.crc32(data).to_bytes(_CHECKSUM, "little") + data


def unpacked(data: bytes) -> BitMap64:
    """Read what `packed` wrote; raise `ValueError` for a wrong checksum: the library trusts the lengths it reads."""
    content = data[_CHECKSUM:]
    if len(data) <= _CHECKSUM or zlib.crc32(content).to_bytes(_CHECKSUM, "little") != data[:_CHECKSUM]:
        raise ValueError("a set of offsets that does not match its checksum")
    return BitMap64.deserialize(content)
