"""The data folder: one process owns it, it is never mistaken for another folder, and it is checked while in use.

The lock is on the folder itself, which cannot be removed while there is something in it. The file `lock` is locked
besides: earlier versions look at it, and it is left where a file system cannot lock a folder.

Files that were deleted or replaced under a running process go on working for it and are gone with it, and a database
that another process locks shows only when something is written. So a thread looks (`DataCheck`), also without requests.
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

MARKER = "ams-data"  # a file of this name makes a folder ours; its content is the version of the layout
VERSION = "1"
LOCK = "lock"
_NO_FOLDER_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
CERTIFICATE_SERVICE = "authn"  # prefix of the names that `ams authn serve` keeps, perhaps in our folder
OLD_CURSORS = "cursors.db"
RESTORING = "restore-unfinished"  # a file of this name in a folder: its restore has not ended


class Folder:
    """A locked data folder and the places in it."""

    def __init__(self, path: str, locks: tuple[int, ...] = ()) -> None:
        self.path, self._locks = path, locks
        self.log = self.place("log")
        self.registry = self.place("registry.db")
        self.cursors = self.place("cursors")  # of a service whose messages are on Kafka
        self.history = self.place("history.db")
        self.reserve = self.place("reserve")  # without a log in the folder, which has one of its own
        self.token_key = self.place("token.key")
        self.audit = self.place("audit.jsonl")
        self.issuers = self.place("issuers")  # answers of issuers, so that a start needs none of them
        self.admin_token = self.place("admin.token")  # where the first start leaves the token of `admin`

    @classmethod
    def look(cls, path: str) -> "Folder":
        """Return the places in a folder without taking it."""
        return cls(os.path.abspath(path))

    @classmethod
    def take(cls, path: str) -> "Folder":
        """Make or open the folder and lock it; raises `Unusable`, in one line, when it cannot be this process's."""
        path = os.path.abspath(path)
        if os.path.exists(os.path.join(path, OLD_CURSORS)):
            raise Unusable(
                f"{path} holds {OLD_CURSORS}: a version made it that kept positions there; export it with that version,"
                " and import it into a new folder"
            )
        try:
            if not os.path.isdir(path):
                os.makedirs(path, mode=0o700)
                Disk().sync_folder(os.path.dirname(path))  # its own name as durable as its content
            if is_being_restored(path):  # a part of a folder, or none of it, which would look like a first start
                raise Unusable(f"{path} holds a restore that was not finished; restore into it again, or remove it")
            if not is_ours(path):
                # A first start that was cut short left a lock, or half a mark.
                first = (LOCK, MARKER + NEW)
                check_not_foreign(path, lambda name: name in first or name.startswith(CERTIFICATE_SERVICE))
        except OSError as error:
            raise _cannot_be_used(path, error) from error
        folder = cls(path, _locked_folder(path))
        try:
            _mark(path)
        except BaseException as error:
            folder.release()
            if isinstance(error, OSError):
                raise _cannot_be_used(path, error) from error
            raise
        return folder

    def place(self, name: str) -> str:
        """Return the path of something in the folder."""
        return os.path.join(self.path, name)

    def keep_admin_token(self, token: str) -> None:
        """Write the first administrator's token, durably, where only the owner can read it."""
        write_whole(Disk(), self.admin_token, f"{token}\n".encode())

    def forget_admin_token(self) -> None:
        """Remove a token that no user has."""
        Disk().unlink(self.admin_token)

    def release(self) -> None:
        """Let the next process have it."""
        for lock in self._locks:
            os.close(lock)
        self._locks = ()


def _locked_folder(path: str) -> tuple[int, ...]:
    """Return the handles that hold a folder: the file's, and the folder's where the file system has such locks."""
    handle = locked(path, LOCK, "another process")
    try:
        return handle, _flocked(path, path, os.O_RDONLY | os.O_DIRECTORY, "another process")
    except Unusable as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_FOLDER_LOCKS:  # NFS
            return (handle,)
        os.close(handle)
        raise


def locked(path: str, name: str, other: str) -> int:
    """Return a handle that holds the lock of this name in a folder; raises `Unusable` when `other` holds it."""
    return _flocked(path, os.path.join(path, name), os.O_RDWR | os.O_CREAT, other)


def _flocked(folder: str, path: str, flags: int, other: str) -> int:
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
    """Raise `Unusable` for a folder with files that are not `ours`."""
    if others := sorted(name for name in os.listdir(path) if not ours(name)):
        raise Unusable(f"{path} holds other files ({others[0]}, ...); choose an empty folder with --data")


def _cannot_be_used(path: str, error: OSError) -> Unusable:
    return Unusable(f"data folder {path}: {error.strerror}; choose another with --data")


def is_in_use(path: str) -> bool:
    """Return whether a process has taken this folder."""
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
    """Return whether this is a data folder of ours."""
    return os.path.isfile(os.path.join(path, MARKER))


def is_being_restored(path: str) -> bool:
    """Return whether a restore into this folder goes on, or was cut short."""
    return any(os.path.exists(os.path.join(path, RESTORING + end)) for end in ("", NEW))


def _mark(path: str) -> None:
    marker = os.path.join(path, MARKER)
    if not os.path.exists(marker):
        write_whole(Disk(), marker, f"{VERSION}\n".encode())  # torn, it would make the folder foreign after a crash
        return
    with open(marker) as file:
        version = file.read().strip()
    if version != VERSION:
        raise Unusable(f"data folder {path} has layout {version!r}, this program reads {VERSION!r}; upgrade it")


LOOK_SECONDS = 1.0
BUSY_SECONDS = 0.5  # how long a look waits for a locked database
LOCKED_SECONDS = 4.0  # before a locked database is reported: our own writes lock it too, for much less
SILENT_SECONDS = 15.0  # a look that takes longer hangs: the disk does not answer


class DataCheck:
    """Looks at folders and SQLite databases that are to stay what they were when this was made."""

    def __init__(
        self, folders: Sequence[str], databases: Sequence[str], files: Callable[[], Sequence[str]] = tuple
    ) -> None:
        """Remember what there is; `files` names those that must be there now. Raises `OSError` for what is missing."""
        self._files, self._databases = files, databases
        self._gone: set[str] = set()  # missing at the last look: one that is being removed may still be named
        self._before = {path: _identity(path) for path in (*folders, *databases)}
        self._found: str | None = None
        self._looked_at = time.monotonic()
        self._busy_since: dict[str, float] = {}
        self._stop = threading.Event()

    @property
    def trouble(self) -> str | None:
        """Why nothing can be stored as it should, as of the last look; None: nothing is wrong."""
        if time.monotonic() - self._looked_at > SILENT_SECONDS:
            return "the data folder does not answer"
        return self._found

    @contextlib.asynccontextmanager
    async def running(self, supervisor: Supervisor) -> AsyncIterator[None]:
        """Look until the block ends."""
        thread = supervisor.thread("check of the data folder", "ams-data-check", self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            await asyncio.to_thread(thread.join, 2 * BUSY_SECONDS)  # longer only on a disk that does not answer

    def look(self) -> None:
        """Look once. May block as long as the disk does."""
        before, self._gone = self._gone, {path for path in self._files() if not os.path.exists(path)}
        missing = [f"{path}: {os.strerror(errno.ENOENT)}" for path in sorted(before & self._gone)]
        troubles = (*map(self._missing, self._before), *map(self._locked, self._databases), *missing)
        self._found = next(filter(None, troubles), None)
        self._looked_at = time.monotonic()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self.look()

    def _missing(self, path: str) -> str | None:
        try:
            same = _identity(path) == self._before[path]
        except OSError as error:
            return f"{path}: {error.strerror}"
        return None if same else f"{path} was replaced while it was in use"

    def _locked(self, path: str) -> str | None:
        """Begin what any write begins with; a database with another fault fails at once."""
        uri = f"file:{quote(path)}?mode=rw"  # never made anew
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
