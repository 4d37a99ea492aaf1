"""Copying: files in small slices that are synced as they go, and one state of a database others write to."""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from ams.app.backup.manifest import Entry
from ams.core.errors import Unusable
from ams.storage.files import Disk, FileHandle, make_private

SLICE = 2 << 20
"""Bytes of a copy that wait for the disk at once: more would keep the service's own syncs waiting behind them."""
PAGES = 512
"""Pages of a database that are copied at once."""
LOCK_SECONDS = 10
"""How long a database may be locked by somebody else."""


def _nothing() -> None:
    """Tell nobody."""


class Snapshot:
    """One state of a SQLite database, held while others go on writing to it."""

    def __init__(self, path: str) -> None:
        """Take the state of now. Raises `sqlite3.Error`."""
        self._connection = connect(path)
        self._connection.execute("BEGIN")
        self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()

    def scalar(self, query: str) -> object:
        """Ask for one value in this state."""
        row = self._connection.execute(query).fetchone()
        return row[0] if row else None

    def write_to(self, path: str, get_on: Callable[[], None] = _nothing) -> None:
        """Write it as a database of its own; `get_on` is called after each part."""
        make_private(path)
        with closing(connect(path)) as target:
            self._connection.backup(target, pages=PAGES, progress=lambda *_: get_on())

    def close(self) -> None:
        """Let go of the state."""
        self._connection.close()


def connect(path: str) -> sqlite3.Connection:
    """Open a database that is there, for statements of the caller's own transactions."""
    uri = Path(path).absolute().as_uri() + "?mode=rw"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=LOCK_SECONDS, check_same_thread=False)


@contextlib.contextmanager
def nothing_changes(path: str) -> Iterator[None]:
    """Let nobody change a database until the block ends; they wait, and so it must be short."""
    with closing(connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def copy_file(
    source: str, folder: str, name: str, length: int | None = None, get_on: Callable[[], None] = _nothing
) -> Entry:
    """Copy a file, or its first `length` bytes, to `folder`/`name`, durably; return what was copied.

    `get_on` is called after each slice. Raises `OSError`, and `Unusable` when the file is shorter than that.
    """
    digest, copied = hashlib.sha256(), 0
    # Plainly opened: a backup may lie where nothing can be written, and the seam opens for writing too.
    with open(source, "rb") as reader, _new_file(os.path.join(folder, name)) as (disk, target):
        while data := reader.read(SLICE if length is None else min(SLICE, length - copied)):
            digest.update(data)
            disk.write(target, data, copied)
            disk.sync(target)
            copied += len(data)
            get_on()
    if length is not None and copied < length:
        raise Unusable(f"{source} ends at {copied} instead of {length}; `ams check` tells more")
    return Entry(name, copied, digest.hexdigest())


@contextlib.contextmanager
def _new_file(path: str) -> Iterator[tuple[Disk, FileHandle]]:
    disk = Disk()
    disk.make_folder(os.path.dirname(path))
    handle = disk.open(path, create=True)
    try:
        yield disk, handle
    finally:
        disk.close(handle)


def entry_of(folder: str, name: str) -> Entry:
    """Return the entry of a file that is there, which is put on stable storage."""
    with open(os.path.join(folder, name), "rb+") as file:
        digest = hashlib.file_digest(file, "sha256")
        os.fsync(file.fileno())
        return Entry(name, file.tell(), digest.hexdigest())


def sync_folders(folder: str) -> None:
    """Put all names in a folder and below on stable storage."""
    for path, _, _ in os.walk(folder):
        Disk().sync_folder(path)
