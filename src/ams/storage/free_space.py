"""Free disk space: growth stops before the disk is full, and reserved space serves writes that must succeed."""

import threading

import structlog

from ams.storage.files import Disk, open_file

logger = structlog.get_logger("ams.storage")


class FreeSpace:
    """Free space on the file system of a folder. Thread safe.

    Growth is refused while less than `min_free_bytes` is free. The rest is for acknowledgements, deletions and audit
    events. For them there may also be a preallocated file, `reserve`, which is removed when the disk is full.
    """

    def __init__(
        self, files: Disk, folder: str, min_free_bytes: int, reserve: str = "", reserve_bytes: int = 0
    ) -> None:
        self._files, self._folder, self._min_free = files, folder, min_free_bytes
        self._reserve, self._reserve_bytes = reserve, reserve_bytes
        self._is_held = False
        self._lock = threading.Lock()

    def growth_refusal(self) -> str | None:
        """Return why growth is refused now; None if there is enough space."""
        try:
            free = self._free_for_growth()
        except OSError as error:
            return f"free space is unknown: {error.strerror}"
        return None if free >= self._min_free else self._too_little()

    @property
    def reserved_bytes(self) -> int:
        """Bytes held in reserve now."""
        return self._reserve_bytes if self._is_held else 0

    def keep_reserve(self) -> None:
        """Create the reserve if it is missing and the disk has space for it and for `min_free_bytes`."""
        with self._lock:
            if self._is_held or not self._reserve_bytes:
                return
            try:
                if self._files.exists(self._reserve):  # from an earlier run
                    with open_file(self._files, self._reserve) as handle:
                        self._is_held = self._files.size(handle) == self._reserve_bytes
                if not self._is_held and self._files.free_bytes(self._folder) >= self._min_free + self._reserve_bytes:
                    self._files.unlink(self._reserve)
                    with open_file(self._files, self._reserve, create=True) as handle:
                        self._files.allocate(handle, self._reserve_bytes)
                    self._is_held = True
            except OSError as error:
                logger.warning("reserve.missing", file=self._reserve, reason=error.strerror)
                self._discard()

    def release_reserve(self) -> bool:
        """Free the reserve after a write failed with a full disk; return whether there was one."""
        with self._lock:
            if not self._is_held:
                return False
            self._is_held = False
            self._discard()
        logger.warning("reserve.released", file=self._reserve, bytes=self._reserve_bytes)
        return True

    def _free_for_growth(self) -> int:
        return self._files.free_bytes(self._folder)

    def _too_little(self) -> str:
        return f"free space is below min_free_bytes ({self._min_free})"

    def _discard(self) -> None:
        try:
            self._files.unlink(self._reserve)
        except OSError as error:
            logger.warning("reserve.stuck", file=self._reserve, reason=error.strerror)


UNLIMITED = FreeSpace(Disk(), "/", 0)  # never refuses growth: for databases on another machine
