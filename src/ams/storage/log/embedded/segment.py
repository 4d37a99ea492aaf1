"""The segment: a file that begins with a header and goes on with records; its name is its sequence number.

Topics that are kept about as long share segments (a retention class), so that no topic pins another's space. One
segment of a class is open at a time, and one in which a write or sync failed is never written again.

The file of an open segment may be longer than what was written to it: a segment that is made of a spare
(`ams.storage.log.embedded.spares`) has that one's bytes behind its own, and one in which pages are written ahead
(`ams.storage.log.embedded.ahead`) has zeros. They are cut off when it is sealed.

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
      48    8  held                length of the spare it was made of, or 0: up to there it may hold other bytes
      56    4  0
      60    4  checksum            CRC-32 over bytes 0..59
"""

import contextlib
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.errors import Unusable
from ams.storage.files import Disk, FileHandle
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.spares import Spares

_HOUR = 3_600_000
_DAY = 24 * _HOUR
SEAL_PART = 8
"""A segment is sealed when its first record is 1/8 of its class's age old, so space is freed at most 1/8 late."""
SEGMENT_MAGIC = b"\xffAMSlog\n"
VERSION = 1
HEAD_BYTES = 128
"""Both copies of the header: records begin here."""
_HEAD = struct.Struct("<8sBBHIQQQQQ4x")
_COPY_BYTES = 64
_MAX_SEGMENT_BYTES = 1 << 30
"""Positions in a segment are 32 bits, and one large append may go over the size at which it is sealed."""


class RetentionClass(NamedTuple):
    """Segments whose messages may go when the newest of them is older than `age`."""

    code: int
    """The number written in headers."""
    name: str
    """The folder of its segments."""
    age: Milliseconds


CLASSES = (
    RetentionClass(0, "1h", Milliseconds(_HOUR)),
    RetentionClass(1, "1d", Milliseconds(_DAY)),
    RetentionClass(2, "7d", Milliseconds(7 * _DAY)),
    RetentionClass(3, "30d", Milliseconds(30 * _DAY)),
    RetentionClass(4, "1y", Milliseconds(365 * _DAY)),
)


def class_of(retention: Milliseconds) -> RetentionClass:
    """Return the class with the smallest age that covers `retention`; nothing longer than the last can be set."""
    return next((each for each in CLASSES if each.age >= retention), CLASSES[-1])


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
    held: int = 0
    """How long its file was before it became this segment: up to there other bytes may be behind the records."""


def encode_head(header: SegmentHead) -> bytes:
    """Return both copies."""
    cut = header.cut or Cut(0, 0)
    fields = _HEAD.pack(
        SEGMENT_MAGIC, VERSION, header.class_code, 0, 0, header.sequence, header.created, *cut, header.held
    )
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
    magic, version, class_code, _, _, sequence, created, cut_sequence, cut_length, held = _HEAD.unpack_from(data)
    if magic != SEGMENT_MAGIC:
        return None
    if version != VERSION:
        raise Unusable(f"the log was written in format {version}, this program reads {VERSION}; upgrade it")
    cut = Cut(cut_sequence, cut_length) if cut_sequence else None
    return SegmentHead(class_code, sequence, Milliseconds(created), cut, held)


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


class Look(NamedTuple):
    """How far an open segment was at some moment."""

    time: Milliseconds
    """Monotonic."""
    length: int
    writes: int


@dataclass(slots=True)
class Open:
    """The segment being written."""

    sequence: int
    path: str
    handle: FileHandle
    length: int
    """Bytes that readers may see: the next write goes here."""
    durable: int
    """Bytes known to be on stable storage."""
    first_time: Milliseconds | None = None
    """Time of its first record."""
    marked: int = HEAD_BYTES
    """The length at which a mark said that all was durable."""
    keys: int = 0
    """Appends in it that have an idempotency key."""
    reached: int = 0
    """Where the last write ends, or would have ended: up to here there may be bytes of a failed one."""
    size: int = 0
    """Bytes of its file: records, and behind them pages that wait to be written. Grows under the lock only."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while pages are written ahead, and while the file grows in another way."""
    sealed: bool = False
    """Whether nothing more may be written ahead; set under the lock."""
    writes: int = 0
    look_at: int = 0
    """The length at which to look next whether pages are to be written ahead."""
    looked: Look | None = None
    """What that look found last."""
    was_ahead: bool = False
    """Whether pages were written ahead since writes were faster than that."""

    def __post_init__(self) -> None:
        self.size = max(self.size, self.length)

    @property
    def tail(self) -> int:
        """Bytes of its file behind what was written to it: pages that wait."""
        return max(self.size - max(self.length, self.reached), 0)

    def grow(self, end: int) -> None:
        """Take the file up to `end` for records. No step ahead is under way there any more, and none will begin."""
        with self.lock:
            self.size = max(self.size, end)

    def seal(self) -> None:
        """Let nothing be written ahead any more."""
        with self.lock:
            self.sealed = True


class Writer:
    """The open segment of a class. Used by the committer's thread alone; every call may raise `OSError`.

    `sequences` gives the next number; also one whose segment could then not be made is used up.
    """

    def __init__(
        self,
        kind: RetentionClass,
        folder: str,
        files: Disk,
        sequences: Iterator[int],
        options: LogOptions,
        spares: Spares,
    ) -> None:
        self.kind = kind
        self.open: Open | None = None
        self._folder = folder
        self._files = files
        self._sequences = sequences
        self._spares = spares
        self._segment_bytes = min(options.segment_bytes, _MAX_SEGMENT_BYTES)
        self._segment_keys = options.segment_keys
        self._cut: Cut | None = None
        """The failed segment whose successor does not name it yet."""

    def is_due(self, size: int, now: Milliseconds) -> bool:
        """Whether the open segment must be sealed before `size` more bytes: too large, full of keys, or too old."""
        segment = self.open
        if segment is None or segment.length == HEAD_BYTES:
            return False
        is_full = segment.length + size > self._segment_bytes or segment.keys >= self._segment_keys
        return is_full or self.is_old(now)

    def is_old(self, now: Milliseconds) -> bool:
        """Whether the open segment's first record is so old that it must be sealed for retention."""
        first = self.open.first_time if self.open else None
        return first is not None and now - first >= self.kind.age // SEAL_PART

    def finish(self) -> Open | None:
        """Let go of the open segment, synced and without pages that wait behind its records; return it."""
        segment = self.open
        if segment is None:
            return None
        segment.seal()
        if segment.tail:
            self._files.truncate(segment.handle, segment.length)
            self._files.sync(segment.handle)
            segment.durable = segment.size = segment.length
        self.sync()
        self.open = None
        self._close(segment.handle)
        return segment

    def begin(self, now: Milliseconds) -> Open:
        """Create the next segment and make it durable, name and header, before anything is written to it.

        Its header names the good length of a segment that failed before it: from then on those bytes cannot return.
        """
        sequence = next(self._sequences)
        path = log_path(self._folder, self.kind, sequence)
        handle, held = self._reuse(sequence, path, now) or self._create(sequence, path, now)
        try:
            self._files.sync_folder(os.path.dirname(path))
        except OSError:
            self._take_back(handle, path)
            raise
        self._cut = None
        self.open = Open(sequence, path, handle, HEAD_BYTES, HEAD_BYTES, size=held)
        return self.open

    def _create(self, sequence: int, path: str, now: Milliseconds) -> tuple[FileHandle, int]:
        """Make the file of a segment, empty but for its header, which is durable."""
        handle = self._files.open(path, create=True)
        try:
            self._write_head(handle, SegmentHead(self.kind.code, sequence, now, self._cut))
        except OSError:
            self._take_back(handle, path)
            raise
        return handle, 0

    def _reuse(self, sequence: int, path: str, now: Milliseconds) -> tuple[FileHandle, int] | None:
        """Make the file of a segment of a spare; None when there is none, or it cannot be had.

        The header is durable before the file gets its name: what it held before never stands under that.
        """
        spare = self._spares.take(self.kind.code, sequence)
        if spare is None:
            return None
        try:
            handle = self._files.open(spare.path)
        except OSError:
            self._spares.discard(spare)
            return None
        try:
            self._write_head(handle, SegmentHead(self.kind.code, sequence, now, self._cut, spare.length))
            self._files.rename(spare.path, path)
        except OSError:
            self._close(handle)
            self._spares.discard(spare)
            return None
        return handle, spare.length

    def _write_head(self, handle: FileHandle, head: SegmentHead) -> None:
        self._files.write(handle, encode_head(head), 0)
        self._files.sync(handle)

    def _take_back(self, handle: FileHandle, path: str) -> None:
        """Leave no file behind of a segment that could not be made: it is tried again with every group."""
        with contextlib.suppress(OSError):
            if self._files.size(handle) > HEAD_BYTES:  # of a spare: were it back after a power loss, it holds nothing
                self._files.truncate(handle, HEAD_BYTES)
                self._files.sync(handle)
        self._close(handle)
        with contextlib.suppress(OSError):
            self._files.unlink(path)

    def write(self, parts: Sequence[bytes], *, sync: bool) -> None:
        """Append parts, one after the other, to the open segment; with `sync`, return when they are durable."""
        segment = self.open
        assert segment is not None
        if sync:
            self.sync()
        segment.reached = segment.length + sum(map(len, parts))
        segment.writes += 1
        if segment.reached > segment.size:
            segment.grow(segment.reached)
        if sync:
            self._files.write_through(segment.handle, parts, segment.length)
            segment.durable = segment.reached
        else:
            self._files.write(segment.handle, b"".join(parts), segment.length)
        segment.length = segment.reached

    def write_behind(self, parts: Sequence[bytes], position: int, end: int) -> None:
        """Write parts durably behind the end of the open segment, where `join` will find them.

        `end` is how long the segment will be then.
        """
        segment = self.open
        assert segment is not None
        if end > segment.size:
            segment.grow(end)
        self._files.write_through(segment.handle, parts, position)

    def join(self, filler: bytes, end: int) -> None:
        """Append a filler durably up to what was written behind the end, which is in the segment then: up to `end`."""
        segment = self.open
        assert segment is not None
        segment.reached = end
        self._files.write_through(segment.handle, [filler], segment.length)
        segment.length = segment.durable = end

    def sync(self) -> None:
        """Put what was written on stable storage."""
        segment = self.open
        if segment is not None and segment.durable < segment.length:
            self._files.sync(segment.handle)
            segment.durable = segment.length

    def abandon(self) -> Open | None:
        """Give the open segment up as it stands at its good length, after a write or sync failed in it."""
        segment = self.open
        if segment is None:
            return None
        self._cut = Cut(segment.sequence, segment.length)
        self.open = None
        segment.seal()
        if segment.tail:  # what is left is cut off by the next start, or when the file becomes a spare
            with contextlib.suppress(OSError):
                self._files.truncate(segment.handle, segment.length)
        self._close(segment.handle)
        return segment

    @property
    def needs_successor(self) -> bool:
        """Whether a failed segment waits for a successor that names it."""
        return self._cut is not None

    def _close(self, handle: FileHandle) -> None:
        """Close a file nothing more is expected of: all that counts was synced, or has failed already."""
        with contextlib.suppress(OSError):
            self._files.close(handle)


def writers(
    open_segments: Mapping[int, Open], sequence: int, folder: str, files: Disk, options: LogOptions, spares: Spares
) -> dict[int, Writer]:
    """Return a writer for each class, by its code; `open_segments` go on, `sequence` is the last number given."""
    sequences = count(sequence + 1)
    made = {}
    for kind in CLASSES:
        made[kind.code] = Writer(kind, folder, files, sequences, options, spares)
        made[kind.code].open = open_segments.get(kind.code)
    return made
