"""A disk that stores nothing while it is held, for tests of waiting requests; and a database locked by another
process."""

import contextlib
import errno
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from ams.storage.files import Disk, FileHandle

_SECONDS = 30


class HeldDisk(Disk):
    def __init__(self) -> None:
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self.is_broken = False  # whether all writes fail

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


@contextlib.contextmanager
def lock_database(database: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
