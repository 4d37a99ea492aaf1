"""The files of a backup: its draft, copies that are synced as they go, and the manifest that says what there is."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from ams.core.clock import Milliseconds
from ams.core.errors import Unusable
from ams.storage.files import Disk, FileHandle, make_private, write_whole

MANIFEST = "backup.json"
FORMAT = 1  # the version of the manifest and of what it means
PARTIAL = ".partial"  # ending of a folder that is no backup yet
SLICE = 2 << 20
"""Bytes of a copy that wait for the disk at once: more would keep the service's own syncs waiting behind them."""
PAGES = 512
LOCK_SECONDS = 10  # how long a database may be locked by another process


def _nothing() -> None:
    pass


class Entry(msgspec.Struct, frozen=True):
    """A file of a backup."""

    name: str  # its path within the folder
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup says of itself."""

    format: int
    ams: str  # version of the program that took it
    layout: str  # version of the data folder's layout
    registry: str  # the newest migration its registry has had
    taken: str  # the moment it shows, UTC
    taken_ms: Milliseconds
    token_key: bool  # whether the key that decrypts the stored tokens is in it
    files: Sequence[Entry]

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(each.bytes for each in self.files)


class Snapshot:
    """One state of a SQLite database, held while others go on writing to it."""

    def __init__(self, path: str) -> None:
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
    """Keep a database from being changed until the block ends; writers wait, and so it must be short."""
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


def write_manifest(folder: str, manifest: Manifest) -> None:
    """Write a manifest into the folder it is about, durably: when all the rest is on stable storage."""
    write_whole(Disk(), os.path.join(folder, MANIFEST), msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def read_manifest(folder: str) -> Manifest:
    """Read a backup's manifest; raise `Unusable` for a folder that is no whole backup, or one of a newer program."""
    try:
        with open(os.path.join(folder, MANIFEST), "rb") as file:
            manifest = msgspec.json.decode(file.read(), type=Manifest)
    except OSError as error:
        raise Unusable(f"{folder} is not a whole backup: {MANIFEST}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise Unusable(f"{folder} is not a whole backup: {MANIFEST} cannot be read ({error})") from error
    if manifest.format != FORMAT:
        raise Unusable(f"{folder} was taken in format {manifest.format}, this program reads {FORMAT}; upgrade it")
    for each in manifest.files:
        _check_name(folder, each.name)
    return manifest


def _check_name(folder: str, name: str) -> None:
    if os.path.isabs(name) or os.path.normpath(name) != name or name.split(os.sep)[0] == os.pardir:
        raise Unusable(f"{folder} is not a whole backup: {MANIFEST} names {name!r}")


@contextlib.contextmanager
def draft(target: str) -> Iterator[str]:
    """Give an empty folder that gets the name `target` when the block ends well, and goes when it does not.

    What a backup that was killed left there goes first. Raises `Unusable` when `target` exists, its parent does not,
    or another backup is writing the draft.
    """
    path = target + PARTIAL
    if os.path.lexists(target):
        raise Unusable(f"{target} exists; name a folder that does not")
    if not os.path.isdir(os.path.dirname(target)):
        raise Unusable(f"the folder {os.path.dirname(target)} does not exist")
    os.makedirs(path, mode=0o700, exist_ok=True)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(lock, path)
        _empty(path)
        yield path
        os.rename(path, target)
        Disk().sync_folder(os.path.dirname(target))
    except _DraftIsTaken:
        raise Unusable(f"another backup is writing to {path}") from None
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        os.close(lock)


class _DraftIsTaken(Exception):
    pass


def _lock(handle: int, path: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise _DraftIsTaken(path) from None


def _empty(path: str) -> None:
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
