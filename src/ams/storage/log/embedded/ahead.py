"""Writing ahead: zeros behind the records of a segment that is steadily written to, so that these meet written pages.

A thread of its own does it, step by step; only a write that overtakes it waits, for the step under way. Where it fails,
the file grows with its records (`docs/decisions/0031-pages-written-before.md`).
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import structlog

from ams.core.clock import Clock
from ams.storage.files import Disk, FileHandle, opened
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.segment import HEAD_BYTES, Look, Open, Writer

logger = structlog.get_logger("ams.log")

STEPS = 8  # writes of zeros that make up all that is written ahead
_PART = 4  # it is at most this part of a full segment
_SHARE = 64  # it is at most this part of the size to which a data folder is limited
_MIN_FREE_FACTOR = 8  # write ahead only while free disk space exceeds this multiple of what is written ahead
_STEADY_MS = 10_000  # a segment that grows by half a step in this time is steadily written to
_MAX_WRITE_BYTES = 128 * 1024  # larger writes take so long that zeros beside them cost more than they save
_REST = 64  # steps until it is tried again in a segment whose writes were faster


class Ahead:
    """Writes pages ahead in the open segments of one log; `run` is its background task."""

    def __init__(
        self, writers: Mapping[int, Writer], files: Disk, folder: str, clock: Clock, options: LogOptions
    ) -> None:
        self._writers = writers
        self._files, self._folder, self._clock = files, folder, clock
        limits = [options.ahead_bytes, options.segment_bytes // _PART]
        if options.max_bytes is not None:
            limits.append(options.max_bytes // _SHARE)
        most = self._most = min(limits) if options.sync == "always" else 0
        self._step = most // STEPS
        self._zeros = bytes(self._step)
        self._segment_bytes = options.segment_bytes
        self._room = options.min_free_bytes + _MIN_FREE_FACTOR * most
        self._wanted: asyncio.Queue[Open] = asyncio.Queue(len(writers))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ams-log-ahead")
        self._closed = False
        self._is_failure_logged = False

    def look(self, code: int) -> None:
        """Decide whether to write pages ahead, after a write to the open segment of a class."""
        segment = self._writers[code].open
        if segment is None or segment.length < segment.look_at or not self._step:
            return
        before, now = segment.looked, Look(self._clock.monotonic(), segment.length, segment.writes)
        segment.looked, segment.look_at = now, now.length + self._step // 2
        if before is None or now.time - before.time > _STEADY_MS:
            return
        if now.length - before.length > (now.writes - before.writes) * _MAX_WRITE_BYTES:
            return
        if segment.was_ahead and not segment.tail:
            # The thread that writes ahead may set it at the same time: whichever stays, only speed depends on it.
            segment.was_ahead = False
            segment.look_at += _REST * self._step
            return
        if not self._wanted.full():  # else it is wanted again half a step later
            self._wanted.put_nowait(segment)

    async def run(self, survive: Callable[[str], None]) -> None:
        """Write ahead where it is wanted, until cancelled; `survive` is called after an unexpected exception."""
        loop = asyncio.get_running_loop()
        while True:
            segment = await self._wanted.get()
            try:
                await loop.run_in_executor(self._thread, self._fill, segment)
            except OSError as error:
                if not segment.sealed and not self._is_failure_logged:  # the file of a sealed one may be gone already
                    self._is_failure_logged = True
                    logger.warning("log.not_ahead", reason=error.strerror)
            except Exception:  # a defect here is to cost speed only
                survive("writing ahead in the log")

    async def close(self) -> None:
        """Wait for the step under way; `run` has ended."""
        self._closed = True
        await asyncio.to_thread(self._thread.shutdown)

    def _fill(self, segment: Open) -> None:
        # A handle of its own: the system tells each one once that something could not be written to the disk, and the
        # committer's must hear it of its bytes.
        with opened(self._files, segment.path) as handle:
            while self._is_wanted(segment) and self._write_step(segment, handle):
                pass

    def _is_wanted(self, segment: Open) -> bool:
        return (
            not self._closed
            and segment.tail + self._step <= min(self._most, segment.length - HEAD_BYTES)
            and segment.size + self._step <= self._segment_bytes
            and self._files.free_bytes(self._folder) >= self._room
        )

    def _write_step(self, segment: Open, handle: FileHandle) -> bool:
        """Write zeros, durably, behind all that was written; False when the segment is sealed, or writes overtake."""
        with segment.lock:
            if segment.sealed or (segment.was_ahead and not segment.tail):
                return False
            try:
                self._files.write_through(handle, (self._zeros,), segment.size)
            finally:  # what failed may be there in part, and is to be cut off at the end too
                segment.size += self._step
            segment.was_ahead = True
            return True
