"""Preallocation: writes zeros behind the records of a busy segment, so that appends meet allocated pages.

Runs on its own thread, in steps. Only a write that overtakes it waits, for the current step. If preallocation fails,
the file grows with its records (`docs/decisions/0034-group-commit.md`).
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import structlog

from ams.core.clock import Clock
from ams.storage.files import Disk, FileHandle, open_file
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.segment import HEAD_BYTES, GrowthSample, OpenSegment, Writer

logger = structlog.get_logger("ams.log")

STEPS = 8  # writes of zeros that make up the preallocated size
_SEGMENT_SHARE = 4  # preallocate at most 1/4 of a full segment
_FOLDER_SHARE = 64  # preallocate at most 1/64 of the data folder's limit
_MIN_FREE_FACTOR = 8  # preallocate only while free disk space exceeds this multiple of the preallocated size
_STEADY_MS = 10_000  # a segment is busy if it grows by half a step in this time
_MAX_WRITE_BYTES = 128 * 1024  # with larger writes, preallocation costs more than it saves
_RETRY_STEPS = 64  # steps until the next attempt in a segment whose writes overtook preallocation


class Ahead:
    """Preallocates the open segments of one log; `run` is its background task."""

    def __init__(
        self, writers: Mapping[int, Writer], files: Disk, folder: str, clock: Clock, options: LogOptions
    ) -> None:
        self._writers = writers
        self._files, self._folder, self._clock = files, folder, clock
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
            while self._is_wanted(segment) and self._write_step(segment, handle):
                pass

    def _is_wanted(self, segment: OpenSegment) -> bool:
        return (
            not self._closed
            and segment.tail + self._step <= min(self._most, segment.length - HEAD_BYTES)
            and segment.size + self._step <= self._segment_bytes
            and self._files.free_bytes(self._folder) >= self._room
        )

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
