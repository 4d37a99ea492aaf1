"""The files of a backup: its draft, copies synced as they go, the manifest; and a new data folder made of them."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from ams.app.maintenance import FolderReport, check_folder
from ams.core.clock import Milliseconds
from ams.core.errors import Damaged, Unusable
from ams.storage.files import Disk, make_private, write_whole
from ams.storage.folder import MARKER, RESTORING, VERSION, is_being_restored, is_in_use

MANIFEST = "backup.json"
FORMAT = 1  # the version of the manifest and of what it means
PARTIAL = ".partial"  # ending of a folder that is no backup yet
SLICE = 2 << 20  # bytes that are synced at once: more would hold up the service's own syncs
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
    """Description of a backup."""

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
    disk, path = Disk(), os.path.join(folder, name)
    with open(source, "rb") as reader:
        disk.make_folder(os.path.dirname(path))
        target = disk.open(path, create=True)
        try:
            while data := reader.read(SLICE if length is None else min(SLICE, length - copied)):
                digest.update(data)
                disk.write(target, data, copied)
                disk.sync(target)
                copied += len(data)
                get_on()
        finally:
            disk.close(target)
    if length is not None and copied < length:
        raise Unusable(f"{source} ends at {copied} instead of {length}; `ams check` tells more")
    return Entry(name, copied, digest.hexdigest())


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
        name = each.name
        if os.path.isabs(name) or os.path.normpath(name) != name or name.split(os.sep)[0] == os.pardir:
            raise Unusable(f"{folder} is not a whole backup: {MANIFEST} names {name!r}")
    return manifest


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
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Unusable(f"another backup is writing to {path}") from None
        try:
            for entry in os.scandir(path):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)
            yield path
            os.rename(path, target)
            Disk().sync_folder(os.path.dirname(target))
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
    finally:
        os.close(lock)


class Restored(NamedTuple):
    """A data folder made of a backup."""

    folder: str
    manifest: Manifest
    report: FolderReport  # what a check of the new folder found


def restore(backup: str, data: str) -> Restored:
    """Make the data folder `data`, which must be new or empty, of a backup; blocking.

    Raises `Unusable` with one line, `Damaged` when a file of the backup is not what was written. A restore that failed
    or was killed leaves a mark in the folder, so that no service takes it for a new one; another restore does.
    """
    backup, data = os.path.abspath(backup), os.path.abspath(data)
    made = read_manifest(backup)
    if made.layout != VERSION:
        raise Unusable(f"{backup} holds layout {made.layout!r}, this program reads {VERSION!r}; upgrade it")
    try:
        _make_empty(data)
        _fill(backup, data, made)
        report = check_folder(data)
        Disk().unlink(os.path.join(data, RESTORING))  # from here on the folder may be served
        Disk().sync_folder(data)
    except OSError as error:
        raise Unusable(f"{data} could not be restored: {error.strerror}; no service takes it as it is") from error
    return Restored(data, made, report)


def _make_empty(data: str) -> None:
    if is_in_use(data):
        raise Unusable(f"data folder {data} is in use by another process; name a new folder with --data")
    Disk().make_folder(data)
    if is_being_restored(data):
        _clear(data)
    elif os.listdir(data):
        raise Unusable(f"{data} is not empty; name a new folder with --data")
    write_whole(Disk(), os.path.join(data, RESTORING), b"")
    Disk().sync_folder(os.path.dirname(data))


def _fill(backup: str, data: str, made: Manifest) -> None:
    try:
        for each in made.files:
            if copy_file(os.path.join(backup, each.name), data, each.name) != each:
                raise Damaged(f"{os.path.join(backup, each.name)} is not what was backed up; use another backup")
        sync_folders(data)
        write_whole(Disk(), os.path.join(data, MARKER), f"{VERSION}\n".encode())
    except BaseException:
        _clear(data)
        raise


def _clear(data: str) -> None:
    """Remove what was copied, not the folder, which may be a mounted one, nor its mark."""
    for entry in os.scandir(data):
        if entry.name == RESTORING:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
