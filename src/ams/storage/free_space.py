"""Free space of the data folder's file system: one rule for the log, the registry, the cursors and the audit log.

What grows is refused while less than `min_free_bytes` is free: messages by the log, what people make by the registry.
The rest is for what must go on then: acknowledgements, deletions and audit events. The log keeps a reserve for these
besides, in a file of its own.
"""

from ams.storage.files import Disk


class FreeSpace:
    """Watches the file system of one folder. Callable from every thread."""

    def __init__(self, files: Disk, folder: str, min_free_bytes: int) -> None:
        self._files = files
        self._folder = folder
        self._min_free = min_free_bytes

    def growth_refusal(self) -> str | None:
        """Return why nothing may grow now; None when there is enough space."""
        try:
            free = self._free_for_growth()
        except OSError as error:
            return f"free space is unknown: {error.strerror}"
        return None if free >= self._min_free else self._too_little()

    def release_reserve(self) -> bool:
        """Give the reserve to others after a write failed for want of space; return whether there was one."""
        return False

    def _free_for_growth(self) -> int:
        return self._files.free_bytes(self._folder)

    def _too_little(self) -> str:
        return f"free space is below min_free_bytes ({self._min_free})"


class UnlimitedSpace(FreeSpace):
    """For what is kept elsewhere, or by a program of its own: nothing is refused."""

    def __init__(self) -> None:
        super().__init__(Disk(), "/", 0)

    def growth_refusal(self) -> None:
        """Refuse nothing."""


UNLIMITED = UnlimitedSpace()
