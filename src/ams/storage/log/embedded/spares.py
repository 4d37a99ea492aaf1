"""Spares: files of segments that retention took, of which the next segments are made.

A disk stores bytes over pages that were written before with one step; a file that grows needs its new length and the
place of its new pages stored too, with every sync. So a few of the files that would go are kept, by another name,
until their class begins a segment. They are no part of the log: a start removes them, and so does want of space.
"""

import contextlib
import os
import threading
from collections.abc import Collection
from typing import NamedTuple

import structlog

from ams.storage.files import NEW, Disk, opened
from ams.storage.log.embedded.options import LogOptions

logger = structlog.get_logger("ams.log")

MOST = 2
"""Spares of one log."""
_SHARE = 8
"""Spares have at most this part of the size to which a data folder is limited: they count, and hold no message."""
_SEEDS = 1 << 32
"""Checksums of segments whose numbers are so far apart begin alike."""


class Spare(NamedTuple):
    """A file that waits to become a segment."""

    code: int
    """Of the class in whose folder it is."""
    sequence: int
    """Of the segment it was: all that is in it was written as that one."""
    path: str
    length: int


class Spares:
    """The spares of one log. The upkeep brings them, the committer takes them; callable from every thread."""

    def __init__(self, files: Disk, options: LogOptions) -> None:
        self._files = files
        limit = MOST * options.segment_bytes
        self._limit = limit if options.max_bytes is None else min(limit, options.max_bytes // _SHARE)
        self._lock = threading.Lock()
        self._kept: list[Spare] = []

    @property
    def bytes(self) -> int:
        """Bytes of all spares."""
        return sum(each.length for each in list(self._kept))

    def keep(self, code: int, sequence: int, path: str, length: int) -> bool:
        """Make a spare of a segment's file, whose name is then gone for good; False: there are enough, or it failed.

        After False the file, if it is still there, is to be removed.
        """
        with self._lock:
            if len(self._kept) >= MOST or self.bytes + length > self._limit:
                return False
        spare = Spare(code, sequence, os.path.splitext(path)[0] + NEW, length)
        try:
            self._rename(path, spare)
        except OSError as error:
            logger.warning("log.no_spare", reason=error.strerror)
            self.discard(spare)
            return False
        with self._lock:
            self._kept.append(spare)
        return True

    def take(self, code: int, sequence: int) -> Spare | None:
        """Hand out the longest spare of a class, for the segment of this number; None when there is none for it.

        Records in it can never pass for records of the segment: their checksums begin with another number.
        """
        with self._lock:
            fit = [each for each in self._kept if each.code == code and 0 < sequence - each.sequence < _SEEDS]
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

    def _rename(self, path: str, spare: Spare) -> None:
        with opened(self._files, path) as handle:
            if self._files.size(handle) > spare.length:  # of a failed write: bytes of other segments may be there
                self._files.truncate(handle, spare.length)
        self._files.rename(path, spare.path)
        # Before it is written to: a segment that is back after a power loss must be what it was.
        self._files.sync_folder(os.path.dirname(path))
