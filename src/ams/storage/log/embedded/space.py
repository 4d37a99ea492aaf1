"""Free space: when to refuse appends, and the reserve that lets others commit on a full disk."""

import os
import threading

import structlog

from ams.core.clock import Clock
from ams.storage.files import Files, opened
from ams.storage.log.embedded.options import LogOptions

_TRUST_MS = 50
"""How long a measured amount of free space is believed, less what we write meanwhile."""
_EMPTY = 1024 * 1024
"""Less than this, or than half of `min_free_bytes`, is a full disk: SQLite needs about as much to commit."""

logger = structlog.get_logger("ams.log")


class Space:
    """Watches the file system of one folder."""

    def __init__(self, files: Files, folder: str, clock: Clock, options: LogOptions) -> None:
        self._files = files
        self._folder = folder
        self._clock = clock
        self._min_free = options.min_free_bytes
        self._reserve_bytes = options.reserve_bytes
        self._reserve = os.path.join(folder, "reserve")
        self._empty = min(_EMPTY, options.min_free_bytes // 2)
        self._held = False
        self._lock = threading.Lock()
        self._believed = 0
        self._measured = -_TRUST_MS

    @property
    def reserved(self) -> int:
        """Bytes held in reserve now."""
        return self._reserve_bytes if self._held else 0

    def refusal(self, size: int) -> str | None:
        """Return why `size` more bytes are refused now; None when there is enough space."""
        now = self._clock.monotonic()
        if self._believed - size < self._min_free or now - self._measured >= _TRUST_MS:
            self._believed, self._measured = self._measure(), now
        self._believed -= size
        if self._believed >= self._min_free:
            return None
        return f"free space is below min_free_bytes ({self._min_free})"

    def keep_reserve(self) -> None:
        """Make the reserve, or make it again, when the disk has space for it and for `min_free_bytes` beside it."""
        with self._lock:
            if self._held or not self._reserve_bytes:
                return
            try:
                if self._files.exists(self._reserve) and self._reserve_size() == self._reserve_bytes:
                    self._held = True  # an earlier run left it
                elif self._files.free_bytes(self._folder) >= self._min_free + self._reserve_bytes:
                    self._allocate()
            except OSError as error:
                logger.warning("log.no_reserve", reason=error.strerror)
                self._discard()

    def release_reserve(self) -> bool:
        """Give the reserve back to the file system; return whether there was one. Callable from every thread."""
        with self._lock:
            if not self._held:
                return False
            self._held = False
            self._discard()
        logger.warning("log.reserve_released", bytes=self._reserve_bytes)
        return True

    def _measure(self) -> int:
        free = self._files.free_bytes(self._folder)
        if free <= self._empty and self.release_reserve():
            free = self._files.free_bytes(self._folder)
        return free

    def _reserve_size(self) -> int:
        with opened(self._files, self._reserve) as handle:
            return self._files.size(handle)

    def _allocate(self) -> None:
        self._files.unlink(self._reserve)
        with opened(self._files, self._reserve, create=True) as handle:
            self._files.allocate(handle, self._reserve_bytes)
        self._held = True

    def _discard(self) -> None:
        try:
            self._files.unlink(self._reserve)
        except OSError as error:
            logger.warning("log.reserve_stuck", reason=error.strerror)
