"""A disk that stores nothing while it is held: for requests that wait for it."""

import errno
import threading
from collections.abc import Sequence

from ams.storage.files import Disk, FileHandle

_SECONDS = 30


class HeldDisk(Disk):
    """The real one, but for that."""

    def __init__(self) -> None:
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self.is_broken = False
        """Whether it stores nothing more, and says so."""

    def hold(self) -> None:
        self._may_go_on.clear()

    def release(self) -> None:
        self._may_go_on.set()

    def write_through(self, handle: FileHandle, parts: Sequence[bytes], position: int) -> None:
        self._wait()
        super().write_through(handle, parts, position)

    def sync(self, handle: FileHandle) -> None:
        self._wait()
        super().sync(handle)

    def _wait(self) -> None:
        self._may_go_on.wait(_SECONDS)
        if self.is_broken:
            raise OSError(errno.EIO, "broken")
