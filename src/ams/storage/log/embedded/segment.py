"""The segment: a file that begins with a header and goes on with records; its name is its sequence number.

The header is 64 bytes, written twice so that no single damaged place loses it (little-endian, unsigned):

    offset size
       0    8  magic               ff 41 4d 53 6c 6f 67 0a
       8    1  version             1
       9    1  retention class     0..4 (1h, 1d, 7d, 30d, 1y)
      10    2  0
      12    4  0
      16    8  sequence            of this segment; grows over all classes
      24    8  created             milliseconds since the epoch
      32    8  cut                 sequence of the previous segment of the class if a write or sync failed in it, or 0
      40    8  cut length          bytes of that segment that are good: all that follows was refused and must not return
      48   12  0
      60    4  checksum            CRC-32 over bytes 0..59
"""

import os
import struct
import zlib
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.errors import Unusable
from ams.storage.log.embedded.classes import RetentionClass

SEGMENT_MAGIC = b"\xffAMSlog\n"
VERSION = 1
HEAD_BYTES = 128
"""Both copies of the header: records begin here."""

_HEAD = struct.Struct("<8sBBHIQQQQ12x")
_COPY_BYTES = 64


class Cut(NamedTuple):
    """A segment in which a write or sync failed, and how many of its bytes are good."""

    sequence: int
    length: int


class SegmentHead(NamedTuple):
    """What a segment says of itself."""

    class_code: int
    sequence: int
    created: Milliseconds
    cut: Cut | None = None


def encode_head(header: SegmentHead) -> bytes:
    """Return both copies."""
    cut = header.cut or Cut(0, 0)
    fields = _HEAD.pack(SEGMENT_MAGIC, VERSION, header.class_code, 0, 0, header.sequence, header.created, *cut)
    return 2 * (fields + zlib.crc32(fields).to_bytes(4, "little"))


def decode_head(data: bytes) -> SegmentHead | None:
    """Return what the first undamaged copy says; None when there is none.

    Raises `Unusable` for a segment of another version.
    """
    return _decode_copy(data[:_COPY_BYTES]) or _decode_copy(data[_COPY_BYTES:HEAD_BYTES])


def head_is_whole(data: bytes) -> bool:
    """Whether both copies are undamaged."""
    return all(_decode_copy(data[start : start + _COPY_BYTES]) for start in (0, _COPY_BYTES))


def _decode_copy(data: bytes) -> SegmentHead | None:
    if len(data) < _COPY_BYTES or zlib.crc32(data[:60]).to_bytes(4, "little") != data[60:]:
        return None
    magic, version, class_code, _, _, sequence, created, cut_sequence, cut_length = _HEAD.unpack_from(data)
    if magic != SEGMENT_MAGIC:
        return None
    if version != VERSION:
        raise Unusable(f"the log was written in format {version}, this program reads {VERSION}; upgrade it")
    cut = Cut(cut_sequence, cut_length) if cut_sequence else None
    return SegmentHead(class_code, sequence, Milliseconds(created), cut)


def seed_of(sequence: int) -> int:
    """Return what the checksums of a segment's records begin with."""
    return sequence & 0xFFFFFFFF


def log_path(folder: str, kind: RetentionClass, sequence: int) -> str:
    """Return the path of a segment."""
    return os.path.join(folder, kind.name, f"{sequence:016d}.log")


def index_path(folder: str, kind: RetentionClass, sequence: int) -> str:
    """Return the path of a segment's index."""
    return os.path.join(folder, kind.name, f"{sequence:016d}.idx")


def sequence_of(name: str) -> int | None:
    """Read the sequence number from the name of a segment or index; None for other names."""
    stem, dot, kind = name.partition(".")
    return int(stem) if dot and kind in ("log", "idx") and len(stem) == 16 and stem.isdecimal() else None
