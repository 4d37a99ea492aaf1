"""The segment: a file that begins with a header and goes on with records; its name is its sequence number.

The format is in `docs/reference/log-format.md`. Topics that are kept about as long share segments (a retention class),
so that no topic pins another's space. One segment of a class is open at a time, and one in which a write or sync failed
is never written again. The file of an open segment may be longer than its records: it is made of a spare, the file of a
segment that retention took, or zeros were written ahead (`docs/decisions/0031-pages-written-before.md`).
"""

import contextlib
import os
import struct
import threading
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import structlog

from ams.core.clock import Milliseconds
from ams.core.errors import Unusable
from ams.storage.files import NEW, Disk, FileHandle, opened
from ams.storage.log.embedded.options import LogOptions

logger = structlog.get_logger("ams.log")

_HOUR = 3_600_000
_DAY = 24 * _HOUR
SEAL_PART = 8  # sealed when its first record is 1/8 of its class's age old: space is freed at most so late
SEGMENT_MAGIC = b"\xffAMSlog\n"
VERSION = 1
HEAD_BYTES = 128  # both copies of the header: records begin here
_HEAD = struct.Struct("<8sBBHIQQQQQ4x")
_COPY_BYTES = 64
MAX_SPARES = 2
_SPARES_SHARE = 8  # spares have at most this part of the size to which a data folder is limited
_SEED_PERIOD = 1 << 32  # segment numbers repeat in the checksum seed after this many segments
_MAX_SEGMENT_BYTES = 1 << 30  # positions are 32 bits, and one large append may go over the size


class RetentionClass(NamedTuple):
    """Segments whose messages may go when the newest of them is older than `age`."""

    code: int
    name: str  # the folder of its segments
    age: Milliseconds
    segment_bytes: int = _MAX_SEGMENT_BYTES  # size at which a segment is sealed at the latest


CLASSES = (
    RetentionClass(0, "1h", Milliseconds(_HOUR)),
    RetentionClass(1, "1d", Milliseconds(_DAY)),
    RetentionClass(2, "7d", Milliseconds(7 * _DAY)),
    RetentionClass(3, "30d", Milliseconds(30 * _DAY)),
    RetentionClass(4, "1y", Milliseconds(365 * _DAY)),
)


CURSORS = RetentionClass(5, "cursors", Milliseconds(2**62), 16 << 20)
"""The chain of cursors, for those that go to the disk when no messages do. Its segments go by an image."""
CHAINS = (*CLASSES, CURSORS)
IMAGE = ".img"  # ending of an image of cursors, in the folder of their chain


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
    held: int = 0  # length of the spare it was made of: up to there other bytes may be behind the records


def encode_head(header: SegmentHead) -> bytes:
    """Return both copies."""
    cut = header.cut or Cut(0, 0)
    own = (header.sequence, header.created, *cut, header.held)
    fields = _HEAD.pack(SEGMENT_MAGIC, VERSION, header.class_code, 0, 0, *own)
    return 2 * (fields + zlib.crc32(fields).to_bytes(4, "little"))


def decode_head(data: bytes) -> SegmentHead | None:
    """Return what the first undamaged copy says, or None. Raises `Unusable` for another version."""
    return _decode_copy(data[:_COPY_BYTES]) or _decode_copy(data[_COPY_BYTES:HEAD_BYTES])


def head_is_whole(data: bytes) -> bool:
    """Return whether both copies are undamaged."""
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


def image_path(folder: str, commit: int) -> str:
    """Return the path of the image that was begun after a commit."""
    return os.path.join(folder, CURSORS.name, f"{commit:016d}{IMAGE}")


def sequence_of(name: str) -> int | None:
    """Read the sequence number from the name of a segment or index; None for other names."""
    stem, dot, kind = name.partition(".")
    return int(stem) if dot and kind in ("log", "idx") and len(stem) == 16 and stem.isdecimal() else None


class Spare(NamedTuple):
    """A file that waits to become a segment of the class in whose folder it is."""

    code: int
    sequence: int  # of the segment it was: all that is in it was written as that one
    path: str
    length: int


class Spares:
    """The spares of one log, which are no part of it: a start removes them, and so does want of space. Thread-safe."""

    def __init__(self, files: Disk, options: LogOptions) -> None:
        self._files = files
        limit = MAX_SPARES * options.segment_bytes
        self._limit = limit if options.max_bytes is None else min(limit, options.max_bytes // _SPARES_SHARE)
        self._lock = threading.Lock()
        self._kept: list[Spare] = []

    @property
    def bytes(self) -> int:
        """Bytes of all spares."""
        return sum(each.length for each in list(self._kept))

    def keep(self, code: int, sequence: int, path: str, length: int) -> bool:
        """Make a spare of a segment's file, which then has another name; False: the file is to be removed."""
        with self._lock:
            if len(self._kept) >= MAX_SPARES or self.bytes + length > self._limit:
                return False
        spare = Spare(code, sequence, os.path.splitext(path)[0] + NEW, length)
        try:
            with opened(self._files, path) as handle:
                if self._files.size(handle) > length:  # of a failed write: bytes of other segments may be there
                    self._files.truncate(handle, length)
            self._files.rename(path, spare.path)
            # Before it is written to: a segment that is back after a power loss must be what it was.
            self._files.sync_folder(os.path.dirname(path))
        except OSError as error:
            logger.warning("log.no_spare", reason=error.strerror)
            self.discard(spare)
            return False
        with self._lock:
            self._kept.append(spare)
        return True

    def take(self, code: int, sequence: int) -> Spare | None:
        """Hand out a class's longest spare whose old records cannot pass for this segment's; None: there is none."""
        with self._lock:
            fit = [each for each in self._kept if each.code == code and 0 < sequence - each.sequence < _SEED_PERIOD]
            if not fit:
                return None
            spare = max(fit, key=lambda each: each.length)
            self._kept.remove(spare)
            return spare

    def give_up(self, *, but: Collection[int] = ()) -> bool:
        """Free the space of all spares, but not of these classes; return whether there were any."""
        with self._lock:
            given_up = [each for each in self._kept if each.code not in but]
            self._kept = [each for each in self._kept if each.code in but]
        for spare in given_up:
            self.discard(spare)
        return bool(given_up)

    def discard(self, spare: Spare) -> None:
        """Remove the file of a spare that was taken; one that cannot be removed goes at the next start."""
        with contextlib.suppress(OSError):
            self._files.unlink(spare.path)


class Look(NamedTuple):
    """How far an open segment was at a moment, by the monotonic clock."""

    time: Milliseconds
    length: int
    writes: int


@dataclass(slots=True)
class Open:
    """The segment being written."""

    sequence: int
    path: str
    handle: FileHandle
    length: int  # bytes that readers may see: the next write goes here
    durable: int  # bytes known to be on stable storage
    first_time: Milliseconds | None = None  # time of its first record
    marked: int = HEAD_BYTES  # the length at which a mark said that all was durable
    keys: int = 0  # appends in it that have an idempotency key
    reached: int = 0  # where the last write ends, or would have ended
    size: int = 0  # bytes of its file, with pages that wait to be written; grows under the lock only
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while pages are written ahead, and while the file grows in another way."""
    sealed: bool = False
    writes: int = 0
    look_at: int = 0  # the length at which to look next whether pages are to be written ahead
    looked: Look | None = None  # what that look found last
    was_ahead: bool = False  # whether pages were written ahead since writes were faster than that

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
    """The open segment of a class, on the committer's thread. Every call may raise `OSError`."""

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
        self._folder, self._files = folder, files
        self._sequences, self._spares = sequences, spares
        self._segment_bytes = min(options.segment_bytes, kind.segment_bytes)
        self._segment_keys = options.segment_keys
        self._cut: Cut | None = None  # the failed segment whose successor does not name it yet

    def is_due(self, size: int, now: Milliseconds) -> bool:
        """Return whether the open segment must be sealed before `size` more bytes: large, old or full of keys."""
        segment = self.open
        if segment is None or segment.length == HEAD_BYTES:
            return False
        is_full = segment.length + size > self._segment_bytes or segment.keys >= self._segment_keys
        return is_full or self.is_old(now)

    def is_old(self, now: Milliseconds) -> bool:
        """Return whether the open segment's first record is so old that it must be sealed for retention."""
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
        """Create the next segment, name and header durable. The header cuts the segment that failed before it."""
        sequence = next(self._sequences)
        path = log_path(self._folder, self.kind, sequence)
        reused = self._reuse(sequence, path, now)
        handle, held = reused or (self._files.open(path, create=True), 0)
        try:
            if reused is None:
                self._write_head(handle, SegmentHead(self.kind.code, sequence, now, self._cut))
            self._files.sync_folder(os.path.dirname(path))
        except OSError:
            self._take_back(handle, path)
            raise
        self._cut = None
        self.open = Open(sequence, path, handle, HEAD_BYTES, HEAD_BYTES, size=held)
        return self.open

    def _reuse(self, sequence: int, path: str, now: Milliseconds) -> tuple[FileHandle, int] | None:
        """Make a segment's file of a spare, if there is one; the header is durable before the file gets its name."""
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
        """Write parts durably behind the end of the open segment, up to `end` at last, where `join` will find them."""
        segment = self.open
        assert segment is not None
        if end > segment.size:
            segment.grow(end)
        self._files.write_through(segment.handle, parts, position)

    def join(self, filler: bytes, end: int) -> None:
        """Append a filler durably up to what was written behind the end: the segment then goes up to `end`."""
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
        """True if a failed segment waits for a successor that names it."""
        return self._cut is not None

    def _close(self, handle: FileHandle) -> None:
        with contextlib.suppress(OSError):
            self._files.close(handle)


def writers(
    open_segments: Mapping[int, Open], sequence: int, folder: str, files: Disk, options: LogOptions, spares: Spares
) -> dict[int, Writer]:
    """Return a writer for each chain, by its code; `open_segments` go on, `sequence` is the last number given."""
    sequences = count(sequence + 1)
    made = {}
    for kind in CHAINS:
        made[kind.code] = Writer(kind, folder, files, sequences, options, spares)
        made[kind.code].open = open_segments.get(kind.code)
    return made
