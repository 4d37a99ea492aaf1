"""The data folder: locked by one process, marked as ours, and checked while in use.

The lock is on the folder itself, which cannot be removed while it has files. The file `lock` is locked too, for file
systems that cannot lock folders.

Deleted or replaced files keep working for a running process until it ends, and a foreign lock on a database shows only
at a write. So a thread checks files and databases (`DataCheck`), also without requests.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from urllib.parse import quote

from ams.core.errors import Unusable
from ams.core.supervisor import Supervisor
from ams.storage.files import NEW, Disk, write_whole

MARKER = "ams-data"  # file that marks a data folder; it contains the layout version
VERSION = "1"
LOCK = "lock"
_NO_FOLDER_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
CERTIFICATE_SERVICE = "authn"  # prefix of files of `ams authn serve`, which may use the same folder
RESTORING = "restore-unfinished"  # file that marks an unfinished restore


class Folder:
    """The paths in a data folder, which `take` locks."""

    def __init__(self, path: str, locks: tuple[int, ...] = ()) -> None:
        self.path, self._locks = os.path.abspath(path), locks
        self.log = self.place("log")
        self.registry = self.place("registry.db")
        self.cursors = self.place("cursors")  # of a service whose messages are on Kafka
        self.history = self.place("history.db")
        self.reserve = self.place("reserve")  # unused if the log is in the folder: it has its own
        self.token_key = self.place("token.key")
        self.audit = self.place("audit.jsonl")
        self.issuers = self.place("issuers")  # cached documents of issuers, so that a start needs no issuer
        self.admin_token = self.place("admin.token")  # token of `admin`, written at the first start

    @classmethod
    def take(cls, path: str) -> "Folder":
        """Create or open the folder and lock it. Raises `Unusable` if that is not possible."""
        path = os.path.abspath(path)
        try:
            if not os.path.isdir(path):
                os.makedirs(path, mode=0o700)
                Disk().sync_folder(os.path.dirname(path))  # makes the folder's name durable
            if is_being_restored(path):  # an incomplete folder would look like a first start
                raise Unusable(f"{path} holds a restore that was not finished; restore into it again, or remove it")
            if not is_ours(path):
                # An interrupted first start may leave a lock or half a marker.
                first = (LOCK, MARKER + NEW)
                check_not_foreign(path, lambda name: name in first or name.startswith(CERTIFICATE_SERVICE))
        except OSError as error:
            raise _cannot_be_used(path, error) from error
        folder = cls(path, _locked_folder(path))
        try:
            _mark_or_check_layout(path)
        except BaseException as error:
            folder.release()
            if isinstance(error, OSError):
                raise _cannot_be_used(path, error) from error
            raise
        return folder

    def place(self, name: str) -> str:
        """Return the path of a file or folder in the data folder."""
        return os.path.join(self.path, name)

    def keep_admin_token(self, token: str) -> None:
        """Write the first administrator's token, durably (mode 0600)."""
        write_whole(Disk(), self.admin_token, f"{token}\n".encode())

    def forget_admin_token(self) -> None:
        """Remove the administrator's token, which is no longer valid."""
        Disk().unlink(self.admin_token)

    def release(self) -> None:
        """Unlock the folder."""
        for lock in self._locks:
            os.close(lock)
        self._locks = ()


def _locked_folder(path: str) -> tuple[int, ...]:
    """Lock a folder; return the handles of the lock file and, where the file system allows it, of the folder."""
    handle = lock_folder(path, LOCK, "another process")
    try:
        return handle, _flock(path, path, os.O_RDONLY | os.O_DIRECTORY, "another process")
    except Unusable as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_FOLDER_LOCKS:  # NFS
            return (handle,)
        os.close(handle)
        raise


def lock_folder(path: str, name: str, other: str) -> int:
    """Lock the file `name` in a folder and return its handle. Raises `Unusable`, naming `other`, if it is locked."""
    return _flock(path, os.path.join(path, name), os.O_RDWR | os.O_CREAT, other)


def _flock(folder: str, path: str, flags: int, other: str) -> int:
    """Lock a file without waiting. Raises `Unusable` if another process has locked it, or it cannot be opened."""
    try:
        handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _cannot_be_used(folder, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise Unusable(f"data folder {folder} is in use by {other}; stop it or choose another with --data") from error
    return handle


def check_not_foreign(path: str, ours: Callable[[str], bool]) -> None:
    """Raise `Unusable` if a folder has files that are not `ours`."""
    if others := sorted(name for name in os.listdir(path) if not ours(name)):
        raise Unusable(f"{path} holds other files ({others[0]}, ...); choose an empty folder with --data")


def _cannot_be_used(path: str, error: OSError) -> Unusable:
    return Unusable(f"data folder {path}: {error.strerror}; choose another with --data")


def is_in_use(path: str) -> bool:
    """Return whether a process has locked this folder."""
    return any(map(_is_locked, (path, os.path.join(path, LOCK))))


def _is_locked(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _NO_FOLDER_LOCKS
    finally:
        os.close(handle)
    return False


def is_ours(path: str) -> bool:
    """Return whether this is a data folder of AMS."""
    return os.path.isfile(os.path.join(path, MARKER))


def is_being_restored(path: str) -> bool:
    """Return whether a restore into this folder is running or was interrupted."""
    return any(os.path.exists(os.path.join(path, RESTORING + end)) for end in ("", NEW))


def _mark_or_check_layout(path: str) -> None:
    """Write the marker of a new folder, else compare its layout version. Raises `Unusable` for another version."""
    marker = os.path.join(path, MARKER)
    if not os.path.exists(marker):
        write_whole(Disk(), marker, f"{VERSION}\n".encode())  # atomic: half a marker would make the folder foreign
        return
    with open(marker) as file:
        version = file.read().strip()
    if version != VERSION:
        raise Unusable(f"data folder {path} has layout {version!r}, this program reads {VERSION!r}; upgrade it")


LOOK_SECONDS = 1.0
BUSY_SECONDS = 0.5  # timeout of a check for a locked database
LOCKED_SECONDS = 4.0  # until a locked database is reported: our own writes also lock it, but briefly
SILENT_SECONDS = 15.0  # a check that takes longer hangs: the disk does not answer


class DataCheck:
    """Checks that folders and SQLite databases are still the same files, and that databases are not locked."""

    def __init__(
        self, folders: Sequence[str], databases: Sequence[str], files: Callable[[], Sequence[str]] = tuple
    ) -> None:
        """Note the current files; `files` returns paths required at each check. Raises `OSError` if one is missing."""
        self._files, self._databases = files, databases
        self._gone: set[str] = set()  # missing at the last check: `files` may name a file that is being removed
        self._before = {path: _identity(path) for path in (*folders, *databases)}
        self._found: str | None = None
        self._looked_at = time.monotonic()
        self._busy_since: dict[str, float] = {}
        self._stop = threading.Event()

    @property
    def trouble(self) -> str | None:
        """Problem found by the last check; None: no problem."""
        if time.monotonic() - self._looked_at > SILENT_SECONDS:
            return "the data folder does not answer"
        return self._found

    @contextlib.asynccontextmanager
    async def running(self, supervisor: Supervisor) -> AsyncIterator[None]:
        """Check periodically while the block runs."""
        thread = supervisor.thread("check of the data folder", "ams-data-check", self._look_until_stopped)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            await asyncio.to_thread(thread.join, 2 * BUSY_SECONDS)  # it takes longer only if the disk does not answer

    def look(self) -> None:
        """Check once. May block on the disk."""
        before, self._gone = self._gone, {path for path in self._files() if not os.path.exists(path)}
        missing = [f"{path}: {os.strerror(errno.ENOENT)}" for path in sorted(before & self._gone)]
        troubles = (*map(self._missing_trouble, self._before), *map(self._lock_trouble, self._databases), *missing)
        self._found = next(filter(None, troubles), None)
        self._looked_at = time.monotonic()

    def _look_until_stopped(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self.look()

    def _missing_trouble(self, path: str) -> str | None:
        try:
            same = _identity(path) == self._before[path]
        except OSError as error:
            return f"{path}: {error.strerror}"
        return None if same else f"{path} was replaced while it was in use"

    def _lock_trouble(self, path: str) -> str | None:
        """Begin an immediate transaction, as each write does; report faults other than a lock at once."""
        uri = f"file:{quote(path)}?mode=rw"  # never create it
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as one:
                one.execute("BEGIN IMMEDIATE")
                one.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                return f"{path}: {error}"
            since = self._busy_since.setdefault(path, time.monotonic())
            return f"{path} is locked by another process" if time.monotonic() - since >= LOCKED_SECONDS else None
        except sqlite3.Error as error:
            return f"{path}: {error}"
        self._busy_since.pop(path, None)
        return None


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
