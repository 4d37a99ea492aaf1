"""Sets of offsets as Roaring bitmaps: compact for ranges, single offsets and alternating ones.

A range is `[begin, end)`.
"""

import zlib
from collections.abc import Iterable

from pyroaring import BitMap64

from ams.core.names import Offset

Range = tuple[Offset, Offset]  # the end is exclusive
_CRC_BYTES = 4  # bytes
_CONTAINER_OFFSETS = 2**16  # offsets per container of the library: those with the same upper bits


def bitmap_of(ranges: Iterable[Range]) -> BitMap64:
    """Return the union of ranges, which may overlap and be in any order."""
    bitmap = BitMap64()
    for begin, end in ranges:
        bitmap.add_range(begin, end)
    return bitmap


def ranges_of(bitmap: BitMap64) -> list[Range]:
    """Return the maximal ranges of a set, in order."""
    # An offset is an edge if exactly one of it and its predecessor is in the set.
    edges = iter(bitmap ^ bitmap.shift(1))
    return [(Offset(begin), Offset(end)) for begin, end in zip(edges, edges, strict=True)]


def first_missing(bitmap: BitMap64, start: Offset) -> Offset:
    """Return the first offset from `start` on that is not in the set."""
    # The library can only test ranges, which is fast: double the range, then halve it (galloping search).
    known, step = start, 1
    while _holds(bitmap, known, step):
        known, step = Offset(known + step), min(step * 2, _CONTAINER_OFFSETS - (known + step) % _CONTAINER_OFFSETS)
    while step > 1:
        step //= 2
        if _holds(bitmap, known, step):
            known = Offset(known + step)
    return known


def _holds(bitmap: BitMap64, first: Offset, count: int) -> bool:
    """Return whether the set has `count` offsets from `first` on. They must be in one container.

    For several containers the library may wrongly return True (CRoaring 5.2).
    """
    return bool(bitmap.contains_range(first, first + count))


def encode_bitmap(bitmap: BitMap64) -> bytes:
    """Encode a set: CRC-32 (4 bytes, little-endian), then the portable format of Roaring bitmaps."""
    small = bitmap.copy()
    small.run_optimize()
    data = small.serialize()
    return zlib.crc32(data).to_bytes(_CRC_BYTES, "little") + data


def decode_bitmap(data: bytes) -> BitMap64:
    """Decode a set. Raises `ValueError` for a wrong checksum: the library itself trusts the lengths it reads."""
    content = data[_CRC_BYTES:]
    if len(data) <= _CRC_BYTES or zlib.crc32(content).to_bytes(_CRC_BYTES, "little") != data[:_CRC_BYTES]:
        raise ValueError("a set of offsets that does not match its checksum")
    return BitMap64.deserialize(content)
