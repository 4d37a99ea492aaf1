"""Free space: what may still grow on the disk of a folder, and a reserve for what must go on when it is full."""

import os
import threading

import structlog

from ams.storage.files import Disk, opened

logger = structlog.get_logger("ams.storage")


class FreeSpace:
    """Watches the file system of one folder. Callable from every thread.

    Growth is refused while less than `min_free_bytes` is free. The rest is for acknowledgements, deletions and audit
    events, for which a `ReservedSpace` keeps a reserve besides.
    """

    def __init__(self, files: Disk, folder: str, min_free_bytes: int) -> None:
        self._files, self._folder = files, folder
        self._min_free = min_free_bytes

    def growth_refusal(self) -> str | None:
        """Return why nothing may grow now; None when there is enough space."""
        try:
            free = self._free_for_growth()
        except OSError as error:
            return f"free space is unknown: {error.strerror}"
        return None if free >= self._min_free else self._too_little()

    def keep_reserve(self) -> None:
        """Make the reserve, or make it again, when the disk has space for it and for `min_free_bytes` beside it."""

    def release_reserve(self) -> bool:
        """Give the reserve to others after a write failed for want of space; return whether there was one."""
        return False

    def _free_for_growth(self) -> int:
        return self._files.free_bytes(self._folder)

    def _too_little(self) -> str:
        return f"free space is below min_free_bytes ({self._min_free})"


class ReservedSpace(FreeSpace):
    """Keeps a reserve in a file, which is given up when something else has taken the last of the disk."""

    def __init__(self, files: Disk, reserve: str, reserve_bytes: int, min_free_bytes: int) -> None:
        super().__init__(files, os.path.dirname(reserve), min_free_bytes)
        self._reserve, self._reserve_bytes = reserve, reserve_bytes
        self._is_held = False
        self._lock = threading.Lock()

    @property
    def reserved(self) -> int:
        """Bytes held in reserve now."""
        return self._reserve_bytes if self._is_held else 0

    def keep_reserve(self) -> None:
        """Make the reserve, or make it again, when the disk has space for it and for `min_free_bytes` beside it."""
        with self._lock:
            if self._is_held or not self._reserve_bytes:
                return
            try:
                if self._files.exists(self._reserve):  # an earlier run left it
                    with opened(self._files, self._reserve) as handle:
                        is_whole = self._files.size(handle) == self._reserve_bytes
                    self._is_held = is_whole
                if not self._is_held and self._files.free_bytes(self._folder) >= self._min_free + self._reserve_bytes:
                    self._files.unlink(self._reserve)
                    with opened(self._files, self._reserve, create=True) as handle:
                        self._files.allocate(handle, self._reserve_bytes)
                    self._is_held = True
            except OSError as error:
                logger.warning("reserve.missing", file=self._reserve, reason=error.strerror)
                self._discard()

    def release_reserve(self) -> bool:
        """Give the reserve back to the file system; return whether there was one."""
        with self._lock:
            if not self._is_held:
                return False
            self._is_held = False
            self._discard()
        logger.warning("reserve.released", file=self._reserve, bytes=self._reserve_bytes)
        return True

    def _discard(self) -> None:
        try:
            self._files.unlink(self._reserve)
        except OSError as error:
            logger.warning("reserve.stuck", file=self._reserve, reason=error.strerror)


class UnlimitedSpace(FreeSpace):
    """Refuses nothing: for a database of another machine, or of a program of its own."""

    def __init__(self) -> None:
        super().__init__(Disk(), "/", 0)

    def growth_refusal(self) -> None:
        """Refuse nothing."""


UNLIMITED = UnlimitedSpace()
