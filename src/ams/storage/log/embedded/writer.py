"""Writing the segments of one retention class: one is open at a time, and a failed one is never written again."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass

from ams.core.clock import Milliseconds
from ams.storage.files import FileHandle, Files
from ams.storage.log.embedded.classes import CLASSES, SEAL_PART, RetentionClass
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.segment import HEAD_BYTES, Cut, SegmentHead, encode_head, log_path
from ams.storage.log.embedded.sequences import Sequences

_MAX_SEGMENT_BYTES = 1 << 30
"""Positions in a segment are 32 bits, and one large append may go over the size at which it is sealed."""


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


class Writer:
    """The open segment of a class. Used by the committer's thread alone; every call may raise `OSError`."""

    def __init__(
        self,
        kind: RetentionClass,
        folder: str,
        files: Files,
        sequences: Sequences,
        segment_bytes: int,
        segment_keys: int = 2**32,
    ) -> None:
        self.kind = kind
        self.open: Open | None = None
        self._folder = folder
        self._files = files
        self._sequences = sequences
        self._segment_bytes = min(segment_bytes, _MAX_SEGMENT_BYTES)
        self._segment_keys = segment_keys
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
        """Whether the open segment's first record is so old that retention wants it sealed."""
        first = self.open.first_time if self.open else None
        return first is not None and now - first >= self.kind.age // SEAL_PART

    def finish(self) -> Open | None:
        """Let go of the open segment, synced; return it."""
        segment = self.open
        if segment is None:
            return None
        if segment.durable < segment.length:
            self.sync()
        self.open = None
        self._close(segment.handle)
        return segment

    def begin(self, now: Milliseconds) -> Open:
        """Create the next segment and make it durable, name and header, before anything is written to it.

        Its header names the good length of a segment that failed before it: from then on those bytes cannot return.
        """
        sequence = self._sequences.take()
        path = log_path(self._folder, self.kind, sequence)
        handle = self._files.open(path, create=True)
        try:
            self._files.write(handle, encode_head(SegmentHead(self.kind.code, sequence, now, self._cut)), 0)
            self._files.sync(handle)
            self._files.sync_folder(os.path.dirname(path))
        except OSError:
            self._close(handle)
            # Tried again with every group while the disk is full: each try must not leave a file behind.
            with contextlib.suppress(OSError):
                self._files.unlink(path)
            raise
        self._cut = None
        self.open = Open(sequence, path, handle, HEAD_BYTES, HEAD_BYTES)
        return self.open

    def write(self, data: bytes, *, sync: bool) -> None:
        """Append bytes to the open segment; with `sync`, return when they are on stable storage."""
        segment = self.open
        assert segment is not None
        if sync:
            self.sync()
        segment.reached = segment.length + len(data)
        if sync:
            self._files.write_through(segment.handle, data, segment.length)
            segment.durable = segment.length + len(data)
        else:
            self._files.write(segment.handle, data, segment.length)
        segment.length += len(data)

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
        self._close(segment.handle)
        return segment

    @property
    def must_tell(self) -> bool:
        """Whether a failed segment waits for a successor that names it."""
        return self._cut is not None

    def _close(self, handle: FileHandle) -> None:
        """Close a file nothing more is expected of: all that counts was synced, or has failed already."""
        with contextlib.suppress(OSError):
            self._files.close(handle)


def writers(
    open_segments: Mapping[int, Open], sequence: int, folder: str, files: Files, options: LogOptions
) -> dict[int, Writer]:
    """Return a writer for each class, by its code; `open_segments` go on, `sequence` is the last number given."""
    sequences = Sequences(sequence)
    made = {}
    for kind in CLASSES:
        made[kind.code] = Writer(kind, folder, files, sequences, options.segment_bytes, options.segment_keys)
        made[kind.code].open = open_segments.get(kind.code)
    return made
