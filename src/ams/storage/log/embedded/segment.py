"""The segment: a file of a header and records, named by its sequence number.

The format is in `docs/reference/log-format.md`. Topics with similar retention share segments (a retention class), so
that no topic keeps another's space occupied. Each class has one open segment. After a failed write or sync a segment is
never written again. The file of an open segment may be longer than its records: it reuses a spare (the file of an
expired segment), or is preallocated with zeros (`docs/decisions/0034-group-commit.md`).
"""

import asyncio
import contextlib
import os
import struct
import threading
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from ams.core.clock import Milliseconds
from ams.core.errors import Unusable
from ams.storage.files import NEW, FileHandle, open_file
from ams.storage.log.embedded.options import LogPlace
from ams.storage.log.embedded.record import Stamp

logger = structlog.get_logger("ams.log")
_HOUR = 3_600_000
_DAY = 24 * _HOUR
SEAL_PART = 8  # sealed when its first record is 1/8 of its class's age old: bounds the delay of freeing space
SEGMENT_MAGIC = b"\xffAMSlog\n"
VERSION = 1
HEAD_BYTES = 128  # two copies of the header, then records
_HEAD = struct.Struct("<8sBBHIQQQQQ4x")
_COPY_BYTES = 64
MAX_SPARES = 2
_SPARES_SHARE = 8  # spares take at most 1/8 of the data folder's limit
_SEED_PERIOD = 1 << 32  # segment numbers repeat in the checksum seed after this many segments
_MAX_SEGMENT_BYTES = 1 << 30  # positions are 32 bits, and one large append may exceed this
STEPS = 8  # writes of zeros that make up the preallocated size
_SEGMENT_SHARE = 4  # preallocate at most 1/4 of a full segment
_FOLDER_SHARE = 64  # preallocate at most 1/64 of the data folder's limit
_MIN_FREE_FACTOR = 8  # preallocate only while free disk space exceeds this multiple of the preallocated size
_STEADY_MS = 10_000  # a segment is busy if it grows by half a step in this time
_MAX_WRITE_BYTES = 128 * 1024  # with larger writes, preallocation costs more than it saves
_RETRY_STEPS = 64  # steps until the next attempt in a segment whose writes overtook preallocation


class RetentionClass(NamedTuple):
    """A class of segments. A segment is deleted when its newest message is older than `age`."""

    code: int
    name: str  # the folder of its segments
    age: Milliseconds
    segment_bytes: int = _MAX_SEGMENT_BYTES  # maximum size before a segment is sealed


CLASSES = (
    RetentionClass(0, "1h", Milliseconds(_HOUR)),
    RetentionClass(1, "1d", Milliseconds(_DAY)),
    RetentionClass(2, "7d", Milliseconds(7 * _DAY)),
    RetentionClass(3, "30d", Milliseconds(30 * _DAY)),
    RetentionClass(4, "1y", Milliseconds(365 * _DAY)),
)
CURSORS = RetentionClass(5, "cursors", Milliseconds(2**62), 16 << 20)
"""The chain of cursors, for groups that are written without messages. An image replaces its segments."""
CHAINS = (*CLASSES, CURSORS)
IMAGE_SUFFIX = ".img"  # ending of an image of cursors, in the folder of their chain


def class_of(retention: Milliseconds) -> RetentionClass:
    """Return the class with the smallest age that covers `retention`, or the last class."""
    return next((each for each in CLASSES if each.age >= retention), CLASSES[-1])


class Cut(NamedTuple):
    """A segment with a failed write or sync, and the length of its valid part."""

    sequence: int
    length: int


class SegmentHead(NamedTuple):
    """The header of a segment."""

    class_code: int
    sequence: int
    created: Milliseconds
    cut: Cut | None = None
    held: int = 0  # length of the reused spare: up to here old bytes may follow the records


def encode_head(header: SegmentHead) -> bytes:
    """Encode the header, twice."""
    cut = header.cut or Cut(0, 0)
    own = (header.sequence, header.created, *cut, header.held)
    fields = _HEAD.pack(SEGMENT_MAGIC, VERSION, header.class_code, 0, 0, *own)
    return 2 * (fields + zlib.crc32(fields).to_bytes(4, "little"))


def decode_head(data: bytes) -> SegmentHead | None:
    """Decode the first undamaged copy, or return None. Raises `Unusable` for another version."""
    return _decode_copy(data[:_COPY_BYTES]) or _decode_copy(data[_COPY_BYTES:HEAD_BYTES])


def head_is_whole(data: bytes) -> bool:
    """Return whether both copies are undamaged."""
    return all(_decode_copy(data[start : start + _COPY_BYTES]) for start in (0, _COPY_BYTES))


def _decode_copy(data: bytes) -> SegmentHead | None:
    """Return the head; None: not valid. Raises `Unusable` for another format version."""
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
    """Return the start value of the checksums of a segment's records."""
    return sequence & 0xFFFFFFFF


def log_path(folder: str, kind: RetentionClass, sequence: int) -> str:
    """Return the path of a segment."""
    return os.path.join(folder, kind.name, f"{sequence:016d}.log")


def index_path(path: str) -> str:
    """Return the path of the index of a segment."""
    return os.path.splitext(path)[0] + ".idx"


def image_path(folder: str, commit: int) -> str:
    """Return the path of the image with this commit number."""
    return os.path.join(folder, CURSORS.name, f"{commit:016d}{IMAGE_SUFFIX}")


def sequence_of(name: str) -> int | None:
    """Return the sequence number in the file name of a segment or index; None for other names."""
    stem, dot, kind = name.partition(".")
    return int(stem) if dot and kind in ("log", "idx") and len(stem) == 16 and stem.isdecimal() else None


class Spare(NamedTuple):
    """A file that will be reused as a segment of the same class."""

    code: int
    sequence: int  # of the former segment
    path: str
    length: int


class Spares:
    """The spares of one log. They hold no data: a start, or a shortage of space, deletes them. Thread-safe."""

    def __init__(self, place: LogPlace) -> None:
        self._files, options = place.files, place.options
        limit = MAX_SPARES * options.segment_bytes
        self._limit = limit if options.max_bytes is None else min(limit, options.max_bytes // _SPARES_SHARE)
        self._lock = threading.Lock()
        self._kept: list[Spare] = []

    @property
    def bytes(self) -> int:
        """Bytes of all spares."""
        return sum(each.length for each in list(self._kept))

    def keep(self, code: int, sequence: int, path: str, length: int) -> bool:
        """Rename a segment's file to make it a spare. Returns False if the caller must delete the file."""
        with self._lock:
            if len(self._kept) >= MAX_SPARES or self.bytes + length > self._limit:
                return False
        spare = Spare(code, sequence, os.path.splitext(path)[0] + NEW, length)
        try:
            with open_file(self._files, path) as handle:
                if self._files.size(handle) > length:  # after a failed write there may be bytes of other segments
                    self._files.truncate(handle, length)
            self._files.rename(path, spare.path)
            # Make the rename durable before reuse: a segment that reappears after a power loss must be unchanged.
            self._files.sync_folder(os.path.dirname(path))
        except OSError as error:
            logger.warning("log.no_spare", reason=error.strerror)
            self.discard(spare)
            return False
        with self._lock:
            self._kept.append(spare)
        return True

    def take(self, code: int, sequence: int) -> Spare | None:
        """Take a class's longest spare whose old checksums cannot match this segment, or None."""
        with self._lock:
            fit = [each for each in self._kept if each.code == code and 0 < sequence - each.sequence < _SEED_PERIOD]
            if not fit:
                return None
            spare = max(fit, key=lambda each: each.length)
            self._kept.remove(spare)
            return spare

    def give_up(self, *, but: Collection[int] = ()) -> bool:
        """Delete all spares except of the classes in `but`; return whether there were any."""
        with self._lock:
            given_up = [each for each in self._kept if each.code not in but]
            self._kept = [each for each in self._kept if each.code in but]
        for spare in given_up:
            self.discard(spare)
        return bool(given_up)

    def discard(self, spare: Spare) -> None:
        """Delete the file of a taken spare. If that fails, the next start deletes it."""
        with contextlib.suppress(OSError):
            self._files.unlink(spare.path)


class GrowthSample(NamedTuple):
    """Progress of an open segment at a monotonic time."""

    time: Milliseconds
    length: int
    writes: int


@dataclass(slots=True)
class OpenSegment:
    """An open segment."""

    sequence: int
    path: str
    handle: FileHandle
    length: int  # bytes visible to readers; the next write goes here
    durable: int  # bytes on stable storage
    first_time: Milliseconds | None = None  # time of its first record
    marked: int = HEAD_BYTES  # the length at the last mark, which confirms that all before is durable
    keys: int = 0  # appends with an idempotency key
    reached: int = 0  # end of the last write, also of a failed one
    size: int = 0  # file size, with preallocated pages; grows under the lock only
    lock: threading.Lock = field(default_factory=threading.Lock)  # held while the file grows, also by preallocation
    sealed: bool = False  # set under the lock: no more preallocation
    writes: int = 0
    look_at: int = 0  # the length for the next decision on preallocation
    looked: GrowthSample | None = None  # progress at the last decision
    was_ahead: bool = False  # whether it was preallocated since writes last overtook preallocation

    def __post_init__(self) -> None:
        self.size = max(self.size, self.length)

    @property
    def tail(self) -> int:
        """Preallocated bytes behind its records."""
        return max(self.size - max(self.length, self.reached), 0)

    def stamp(self, commit: int) -> Stamp:
        """Return the common fields of the records of a commit."""
        return Stamp(commit, self.durable, seed_of(self.sequence))

    def grow(self, end: int) -> None:
        """Claim the file up to `end` for records: preallocation never writes there again."""
        with self.lock:
            self.size = max(self.size, end)


class Writer:
    """Writes the open segment of a class. Committer thread only. Every call may raise `OSError`."""

    def __init__(
        self, kind: RetentionClass, place: LogPlace, sequences: Iterator[int], spares: Spares,
        segment: OpenSegment | None = None,
    ) -> None:  # fmt: skip
        """`sequences` numbers the segments of all writers. An open `segment` is continued."""
        self.kind, self.open = kind, segment
        self._folder, self._files = place.folder, place.files
        self._sequences, self._spares = sequences, spares
        self._segment_bytes = min(place.options.segment_bytes, kind.segment_bytes)
        self._segment_keys = place.options.segment_keys
        self._cut: Cut | None = None  # the failed segment, until the header of its successor names it

    @property
    def segment(self) -> OpenSegment:
        """The open segment; there must be one."""
        assert self.open is not None
        return self.open

    def is_due(self, size: int, now: Milliseconds) -> bool:
        """Return whether the open segment must be sealed before `size` more bytes: too large, old, or many keys."""
        segment = self.open
        if segment is None or segment.length == HEAD_BYTES:
            return False
        is_full = segment.length + size > self._segment_bytes or segment.keys >= self._segment_keys
        return is_full or self.is_old(now)

    def is_old(self, now: Milliseconds) -> bool:
        """Return whether the open segment must be sealed because of the age of its first record."""
        first = self.open.first_time if self.open else None
        return first is not None and now - first >= self.kind.age // SEAL_PART

    def finish(self) -> OpenSegment | None:
        """Truncate, sync and close the open segment; return it."""
        segment = self.open
        if segment is None:
            return None
        with segment.lock:
            segment.sealed = True
        if segment.tail:
            self._files.truncate(segment.handle, segment.length)
            self._files.sync(segment.handle)
            segment.durable = segment.size = segment.length
        self.sync()
        self.open = None
        self._close(segment.handle)
        return segment

    def begin(self, now: Milliseconds) -> OpenSegment:
        """Create the next segment, or reuse a spare, durably. Its header cuts off a failed one. Raises `OSError`."""
        sequence = next(self._sequences)
        path = log_path(self._folder, self.kind, sequence)
        reused = self._reuse(sequence, path, now)
        handle, held = reused or (self._files.open(path, create=True), 0)
        try:
            if reused is None:
                self._write_head(handle, SegmentHead(self.kind.code, sequence, now, self._cut))
            self._files.sync_folder(os.path.dirname(path))
        except OSError:
            with contextlib.suppress(OSError):
                if self._files.size(handle) > HEAD_BYTES:  # a spare: if a power loss brings it back it must be empty
                    self._files.truncate(handle, HEAD_BYTES)
                    self._files.sync(handle)
            self._close(handle)
            with contextlib.suppress(OSError):
                self._files.unlink(path)
            raise
        self._cut = None
        self.open = OpenSegment(sequence, path, handle, HEAD_BYTES, HEAD_BYTES, size=held)
        return self.open

    def _reuse(self, sequence: int, path: str, now: Milliseconds) -> tuple[FileHandle, int] | None:
        """Reuse a spare, if any, as the next segment. The header is durable before the rename."""
        spare, handle = self._spares.take(self.kind.code, sequence), None
        if spare is None:
            return None
        try:
            handle = self._files.open(spare.path)
            self._write_head(handle, SegmentHead(self.kind.code, sequence, now, self._cut, spare.length))
            self._files.rename(spare.path, path)
        except OSError:
            if handle is not None:
                self._close(handle)
            self._spares.discard(spare)
            return None
        return handle, spare.length

    def _write_head(self, handle: FileHandle, head: SegmentHead) -> None:
        self._files.write(handle, encode_head(head), 0)
        self._files.sync(handle)

    def write(self, parts: Sequence[bytes], *, sync: bool) -> None:
        """Append parts to the open segment; with `sync`, return when they are durable."""
        segment = self.segment
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
        """Write parts durably behind the end of the open segment, for a later `join`; `end` is their final end."""
        segment = self.segment
        if end > segment.size:
            segment.grow(end)
        self._files.write_through(segment.handle, parts, position)

    def join(self, filler: bytes, end: int) -> None:
        """Close the gap before the parts of `write_behind` with a durable filler: the segment then ends at `end`."""
        segment = self.segment
        segment.reached = end
        self._files.write_through(segment.handle, [filler], segment.length)
        segment.length = segment.durable = end

    def sync(self) -> None:
        """Sync all writes to stable storage."""
        segment = self.open
        if segment is not None and segment.durable < segment.length:
            self._files.sync(segment.handle)
            segment.durable = segment.length

    def abandon(self) -> OpenSegment | None:
        """Close the open segment at its valid length, after a failed write or sync."""
        segment = self.open
        if segment is None:
            return None
        self._cut = Cut(segment.sequence, segment.length)
        self.open = None
        with segment.lock:
            segment.sealed = True
        if segment.tail:  # if this fails, the next start truncates it, or the reuse as a spare
            with contextlib.suppress(OSError):
                self._files.truncate(segment.handle, segment.length)
        self._close(segment.handle)
        return segment

    @property
    def needs_successor(self) -> bool:
        """True if a failed segment has no successor yet."""
        return self._cut is not None

    def _close(self, handle: FileHandle) -> None:
        with contextlib.suppress(OSError):
            self._files.close(handle)


class Ahead:
    """Preallocation: writes zeros behind the records of busy open segments, so that appends meet allocated pages.

    `run` is its background task. It writes in steps, on its own thread: only a write that overtakes it waits, for the
    current step. If preallocation fails, the file grows with its records.
    """

    def __init__(self, writers: Mapping[int, Writer], place: LogPlace) -> None:
        self._writers, options = writers, place.options
        self._files, self._folder, self._clock = place.files, place.folder, place.clock
        limits = [options.ahead_bytes, options.segment_bytes // _SEGMENT_SHARE]
        if options.max_bytes is not None:
            limits.append(options.max_bytes // _FOLDER_SHARE)
        most = self._most = min(limits) if options.sync == "always" else 0
        self._step = most // STEPS
        self._zeros = bytes(self._step)
        self._segment_bytes = options.segment_bytes
        self._room = options.min_free_bytes + _MIN_FREE_FACTOR * most
        self._wanted: asyncio.Queue[OpenSegment] = asyncio.Queue(len(writers))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ams-log-ahead")
        self._closed = False
        self._is_failure_logged = False

    def look(self, code: int) -> None:
        """Decide whether to preallocate, after a write to the open segment of a class."""
        segment = self._writers[code].open
        if segment is None or segment.length < segment.look_at or not self._step:
            return
        before, now = segment.looked, GrowthSample(self._clock.monotonic(), segment.length, segment.writes)
        segment.looked, segment.look_at = now, now.length + self._step // 2
        if before is None or now.time - before.time > _STEADY_MS:
            return
        if now.length - before.length > (now.writes - before.writes) * _MAX_WRITE_BYTES:
            return
        if segment.was_ahead and not segment.tail:
            # Race with the preallocating thread: harmless, only speed depends on it.
            segment.was_ahead = False
            segment.look_at += _RETRY_STEPS * self._step
            return
        if not self._wanted.full():  # else it is requested again half a step later
            self._wanted.put_nowait(segment)

    async def run(self, log_failure: Callable[[str], None]) -> None:
        """Preallocate requested segments until cancelled; `log_failure` is called after an unexpected exception."""
        loop = asyncio.get_running_loop()
        while True:
            segment = await self._wanted.get()
            try:
                await loop.run_in_executor(self._thread, self._fill, segment)
            except OSError as error:
                if not segment.sealed and not self._is_failure_logged:  # a sealed segment's file may be deleted
                    self._is_failure_logged = True
                    logger.warning("log.not_ahead", reason=error.strerror)
            except Exception:  # a defect here must only cost speed
                log_failure("writing ahead in the log")

    async def close(self) -> None:
        """Wait for the current step; `run` has ended."""
        self._closed = True
        await asyncio.to_thread(self._thread.shutdown)

    def _fill(self, segment: OpenSegment) -> None:
        # Its own handle: the system reports a write error once per handle, and the committer must see its own errors.
        with open_file(self._files, segment.path) as handle:
            while (
                not self._closed
                and segment.tail + self._step <= min(self._most, segment.length - HEAD_BYTES)
                and segment.size + self._step <= self._segment_bytes
                and self._files.free_bytes(self._folder) >= self._room
                and self._write_step(segment, handle)
            ):
                pass

    def _write_step(self, segment: OpenSegment, handle: FileHandle) -> bool:
        """Write zeros durably at the end of the file. Returns False if the segment is sealed, or writes overtake."""
        with segment.lock:
            if segment.sealed or (segment.was_ahead and not segment.tail):
                return False
            try:
                self._files.write_through(handle, (self._zeros,), segment.size)
            finally:  # after a failure part of it may be there; it is cut off later too
                segment.size += self._step
            segment.was_ahead = True
            return True
