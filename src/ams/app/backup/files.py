"""The files of a backup: its draft, copies synced as they are written, the manifest, and the restore."""

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

from ams.app.maintenance import FolderReport, check_folder
from ams.core.clock import Milliseconds
from ams.core.errors import Damaged, Unusable
from ams.storage.files import Disk, make_private, write_whole
from ams.storage.folder import MARKER, RESTORING, VERSION, is_being_restored, is_in_use

MANIFEST = "backup.json"
FORMAT = 1  # version of the manifest's format
DRAFT_SUFFIX = ".partial"  # suffix of the folder of an unfinished backup
SYNC_SLICE_BYTES = 2 << 20  # bytes for each sync: more would delay the service's own syncs
LOCK_SECONDS = 10  # wait for another process's lock on a database


class BackupEntry(msgspec.Struct, frozen=True):
    """A file of a backup."""

    name: str  # path within the folder
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a backup."""

    format: int
    ams: str  # version of the program that made it
    layout: str  # version of the data folder's layout
    registry: str  # newest migration of its registry
    taken: str  # the moment it shows, UTC
    taken_ms: Milliseconds
    token_key: bool  # True: it has the key that decrypts the stored tokens
    files: Sequence[BackupEntry]

    @property
    def bytes(self) -> int:
        """Total size of all files."""
        return sum(each.bytes for each in self.files)


def connect(path: str) -> sqlite3.Connection:
    """Open an existing database; the caller controls its transactions."""
    uri = Path(path).absolute().as_uri() + "?mode=rw"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=LOCK_SECONDS, check_same_thread=False)


def snapshot_database(path: str) -> sqlite3.Connection:
    """Open a database in its present state, which the connection keeps while others write to it."""
    connection = connect(path)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return connection


@contextlib.contextmanager
def lock_database(path: str) -> Iterator[None]:
    """Lock a database against changes until the block ends. Writers wait, so the block must be short."""
    with closing(connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def copy_file(
    source: str, folder: str, name: str, length: int | None = None, get_on: Callable[[], None] = lambda: None
) -> BackupEntry:
    """Copy a file, or its first `length` bytes, durably to `folder`/`name`, and return its entry.

    `get_on` is called after each slice. Raises `OSError`, and `Unusable` if the file is shorter than `length`.
    """
    digest, copied = hashlib.sha256(), 0
    # Plain `open`: a backup may be on a read-only file system, and the seam opens for writing too.
    disk, path = Disk(), os.path.join(folder, name)
    with open(source, "rb") as reader:
        disk.make_folder(os.path.dirname(path))
        target = disk.open(path, create=True)
        try:
            while data := reader.read(SYNC_SLICE_BYTES if length is None else min(SYNC_SLICE_BYTES, length - copied)):
                digest.update(data)
                disk.write(target, data, copied)
                disk.sync(target)
                copied += len(data)
                get_on()
        finally:
            disk.close(target)
    if length is not None and copied < length:
        raise Unusable(f"{source} ends at {copied} instead of {length}; `ams check` tells more")
    return BackupEntry(name, copied, digest.hexdigest())


def copy_database(snapshot: sqlite3.Connection, folder: str, name: str, get_on: Callable[[], None]) -> BackupEntry:
    """Copy a snapshot durably to `folder`/`name`, and return its entry; `get_on` is called after each part."""
    path = os.path.join(folder, name)
    make_private(path)
    with closing(connect(path)) as target:
        snapshot.backup(target, pages=512, progress=lambda *_: get_on())
    with open(path, "rb+") as file:
        digest = hashlib.file_digest(file, "sha256")
        os.fsync(file.fileno())
        return BackupEntry(name, file.tell(), digest.hexdigest())


def sync_folders(folder: str) -> None:
    """Sync all names in a folder and below it."""
    for path, _, _ in os.walk(folder):
        Disk().sync_folder(path)


def read_manifest(folder: str) -> Manifest:
    """Return the manifest of a backup. Raises `Unusable` for an incomplete backup, or one of a newer program."""
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
    """Yield an empty folder, renamed to `target` if the block succeeds, removed if it fails.

    First removes the draft of a killed backup. Raises `Unusable` if `target` exists, its parent does not, or another
    backup is writing the draft.
    """
    path = target + DRAFT_SUFFIX
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
            _clear(path)
            yield path
            os.rename(path, target)
            Disk().sync_folder(os.path.dirname(target))
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def restore(backup: str, data: str) -> tuple[Manifest, FolderReport]:
    """Restore a backup into the folder `data`, which must be new or empty; blocking.

    Returns its manifest, and a check of the new folder. Raises `Unusable` with one line, `Damaged` if a file of the
    backup differs from its checksum. A failed or killed restore leaves a mark in the folder, so no service starts in
    it; another restore may.
    """
    backup, data = os.path.abspath(backup), os.path.abspath(data)
    made = read_manifest(backup)
    if made.layout != VERSION:
        raise Unusable(f"{backup} holds layout {made.layout!r}, this program reads {VERSION!r}; upgrade it")
    try:
        if is_in_use(data):
            raise Unusable(f"data folder {data} is in use by another process; name a new folder with --data")
        Disk().make_folder(data)
        if is_being_restored(data):
            _clear(data)
        elif os.listdir(data):
            raise Unusable(f"{data} is not empty; name a new folder with --data")
        write_whole(Disk(), os.path.join(data, RESTORING), b"")
        Disk().sync_folder(os.path.dirname(data))
        _fill(backup, data, made)
        report = check_folder(data)
        Disk().unlink(os.path.join(data, RESTORING))  # from here on a service may start in the folder
        Disk().sync_folder(data)
    except OSError as error:
        raise Unusable(f"{data} could not be restored: {error.strerror}; no service takes it as it is") from error
    return made, report


def _fill(backup: str, data: str, made: Manifest) -> None:
    try:
        for each in made.files:
            if copy_file(os.path.join(backup, each.name), data, each.name) != each:
                raise Damaged(f"{os.path.join(backup, each.name)} is not what was backed up; use another backup")
        sync_folders(data)
        write_whole(Disk(), os.path.join(data, MARKER), f"{VERSION}\n".encode())
    except BaseException:
        with contextlib.suppress(OSError):
            _clear(data)
        raise


def _clear(folder: str) -> None:
    """Remove what a folder has, but not the folder (it may be a mount point), nor the mark of a restore."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.name != RESTORING:
            os.unlink(entry.path)
