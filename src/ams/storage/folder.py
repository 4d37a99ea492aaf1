"""The data folder: one process owns it, and it is never mistaken for another folder.

The lock is on the folder itself, which cannot be removed while there is something in it. The file `lock` is locked
besides: it is what earlier versions look at, and what is left where a file system cannot lock a folder.
"""

import errno
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass

from ams.core.errors import Unusable
from ams.storage.files import NEW, Disk, write_whole

MARKER = "ams-data"
"""A file of this name makes a folder ours; its content is the version of the layout."""
VERSION = "1"
LOCK = "lock"
_NO_FOLDER_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
"""How file systems say that they cannot lock a folder."""
CERTIFICATE_SERVICE = "authn"
"""What the names of all begin with that `ams authn serve` keeps; it may have our folder for its own."""
RESTORING = "restore-unfinished"
"""A restore that has not come to its end keeps a file of this name in the folder it makes."""


@dataclass(slots=True)
class Folder:
    """A locked data folder and the places in it."""

    path: str
    _locks: tuple[int, ...] = ()

    @classmethod
    def look(cls, path: str) -> "Folder":
        """Return the places in a folder without taking it."""
        return cls(os.path.abspath(path))

    @classmethod
    def take(cls, path: str) -> "Folder":
        """Make or open the folder and lock it.

        Raises `Unusable` with one line when another process has it, when it holds something else or what a restore did
        not finish, or when it was written by a newer version.
        """
        path = os.path.abspath(path)
        try:
            _make(path)
            _check_whole(path)
            _check_not_foreign(path)
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

    @property
    def log(self) -> str:
        """The folder of the log."""
        return self.place("log")

    @property
    def registry(self) -> str:
        """The registry's database."""
        return self.place("registry.db")

    @property
    def cursors(self) -> str:
        """The cursors' database."""
        return self.place("cursors.db")

    @property
    def history(self) -> str:
        """The database of what was measured in the last day."""
        return self.place("history.db")

    @property
    def token_key(self) -> str:
        """The key that encrypts stored tokens."""
        return self.place("token.key")

    @property
    def audit(self) -> str:
        """The file of the audit log."""
        return self.place("audit.jsonl")

    @property
    def issuers(self) -> str:
        """The folder of what issuers said last, so that a start needs none of them."""
        return self.place("issuers")

    @property
    def admin_token(self) -> str:
        """Where the first start leaves the token of `admin`."""
        return self.place("admin.token")

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
    """Return the handles that hold a folder; raises `Unusable` as `locked` does."""
    handle = locked(path, LOCK, "another process")
    try:
        return (handle, *_locked_itself(path))
    except BaseException:
        os.close(handle)
        raise


def _locked_itself(path: str) -> tuple[int, ...]:
    """Return a handle that holds the lock of the folder itself; none where the file system has no such locks (NFS)."""
    try:
        return (_flocked(path, path, os.O_RDONLY | os.O_DIRECTORY, "another process"),)
    except Unusable as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_FOLDER_LOCKS:
            return ()
        raise


def locked(path: str, name: str, other: str) -> int:
    """Return a handle that holds the lock of this name in a folder, until it is closed.

    Raises `Unusable` with one line, also when it is held by `another process` or however `other` calls it.
    """
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
    """Raise `Unusable` for a folder with unknown files; `ours` says which are known."""
    if others := sorted(name for name in os.listdir(path) if not ours(name)):
        raise Unusable(f"{path} holds other files ({others[0]}, ...); choose an empty folder with --data")


def _cannot_be_used(path: str, error: OSError) -> Unusable:
    return Unusable(f"data folder {path}: {error.strerror}; choose another with --data")


def is_in_use(path: str) -> bool:
    """Whether a process has taken this folder."""
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
    """Whether this is a data folder of ours."""
    return os.path.isfile(os.path.join(path, MARKER))


def is_being_restored(path: str) -> bool:
    """Whether a restore into this folder goes on, or was cut short."""
    return any(os.path.exists(os.path.join(path, RESTORING + end)) for end in ("", NEW))


def _make(path: str) -> None:
    """Make the folder, its own name as durable as what it will hold."""
    if not os.path.isdir(path):
        os.makedirs(path, mode=0o700)
        Disk().sync_folder(os.path.dirname(path))


def _check_whole(path: str) -> None:
    """Raise `Unusable` for a part of a folder, or for none of it, which would look like a first start."""
    if is_being_restored(path):
        raise Unusable(f"{path} holds a restore that was not finished; restore into it again, or remove it")


def _check_not_foreign(path: str) -> None:
    """Raise `Unusable` for a folder of another program.

    A first start that was cut short left a lock, or half a mark; the certificate service may have been there first.
    """
    if not is_ours(path):
        check_not_foreign(path, lambda name: name in (LOCK, MARKER + NEW) or name.startswith(CERTIFICATE_SERVICE))


def _mark(path: str) -> None:
    """Make the folder ours, or see that it is of this version."""
    marker = os.path.join(path, MARKER)
    if not os.path.exists(marker):
        # Torn, it would make the folder foreign after a crash.
        write_whole(Disk(), marker, f"{VERSION}\n".encode())
        return
    with open(marker) as file:
        version = file.read().strip()
    if version != VERSION:
        raise Unusable(f"data folder {path} has layout {version!r}, this program reads {VERSION!r}; upgrade it")
