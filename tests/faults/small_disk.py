"""A small real disk: a file system mounted for a test, and a foreign file that fills it."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

MIB = 2**20
LOG_LINES_PER_PAGE = 80
"""Standard error is a file on the small disk; its last page has room when the disk has none."""
_CHUNK = b"\0" * 65_536


class SmallDisk:
    """A mounted file system, and a foreign file that can fill it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._strangers = folder, folder / "strangers"

    @property
    def free_bytes(self) -> int:
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Grow the foreign file until no more than `leave` bytes are free."""
        with contextlib.suppress(OSError), self._strangers.open("ab", buffering=0) as file:
            while self.free_bytes > leave:
                file.write(_CHUNK[: max(1, self.free_bytes - leave)])

    def clear(self) -> None:
        """Remove the foreign file."""
        self._strangers.unlink(missing_ok=True)


@contextlib.contextmanager
def mount_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """Mount a disk of `size` bytes on a folder; raises `OSError` or `CalledProcessError` where that is not allowed."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True, capture_output=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", folder], check=True)
