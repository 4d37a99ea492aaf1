"""The file seam: every call by which log files and databases' neighbours touch a disk; and free space.

Production uses `Disk`. Tests put a double in its place that loses, tears or reorders writes that were not synced, fails
a sync, or runs out of space (`tests/support/unreliable_disk.py`). Paths are plain strings; positions are explicit, so
a handle has no state but the file it names.
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence

FileHandle = int

_IOV_MAX = os.sysconf("SC_IOV_MAX")
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

NEW = ".new"  # ending of a file that is being written, until it is whole and gets its name


class Disk:
    """The calls. All raise `OSError` as the operating system does."""

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        """Open for reading and writing; `create` makes a new file, for the owner only, and fails if one is there."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return os.open(path, flags, 0o600)

    def close(self, handle: FileHandle) -> None:
        """Let go of a handle."""
        os.close(handle)

    def write(self, handle: FileHandle, data: bytes, position: int) -> None:
        """Write all of `data` at `position`; a short write is continued, so that a full disk shows as ENOSPC."""
        written = os.pwrite(handle, data, position)
        while written < len(data):
            written += os.pwrite(handle, memoryview(data)[written:], position + written)

    def write_through(self, handle: FileHandle, parts: Sequence[bytes], position: int) -> None:
        """Write all parts, one after the other, at `position`; durable when it returns (as by `sync`).

        By one system call (RWF_DSYNC) if possible: after each a thread has to ask for the interpreter.
        """
        if len(parts) > _IOV_MAX:  # all must be in the one call that makes them durable
            some = -(-len(parts) // _IOV_MAX)
            parts = [b"".join(parts[start : start + some]) for start in range(0, len(parts), some)]
        try:
            written = os.pwritev(handle, parts, position, os.RWF_DSYNC)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            written = 0
        if written < sum(map(len, parts)):
            self.write(handle, b"".join(parts)[written:], position + written)
            self.sync(handle)

    def read(self, handle: FileHandle, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; shorter only at the end of the file. May block on the disk."""
        data = os.pread(handle, size, position)
        while len(data) < size:
            more = os.pread(handle, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def read_now(self, handle: FileHandle, size: int, position: int) -> bytes | None:
        """Read as `read` if the bytes are in the page cache (RWF_NOWAIT); None when the disk would have to be asked."""
        buffer = bytearray(size)
        try:
            count = os.preadv(handle, [buffer], position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                return None
            raise
        return bytes(buffer) if count == size else None

    def size(self, handle: FileHandle) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(handle).st_size

    def truncate(self, handle: FileHandle, size: int) -> None:
        """Cut or extend the file to `size` bytes."""
        os.ftruncate(handle, size)

    def allocate(self, handle: FileHandle, size: int) -> None:
        """Reserve real space for the first `size` bytes."""
        os.posix_fallocate(handle, 0, size)

    def sync(self, handle: FileHandle) -> None:
        """Return when data and length of the file are on stable storage (fdatasync)."""
        os.fdatasync(handle)

    def sync_folder(self, path: str) -> None:
        """Return when names created, renamed or removed in this folder are on stable storage."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what bore it, as one step."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name; no error when it is gone already."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents unless they are there, all for the owner only."""
        path = os.path.abspath(path)
        if os.path.isdir(path):
            return
        self.make_folder(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        """Return whether a file of this name is there."""
        return os.path.exists(path)

    def free_bytes(self, path: str) -> int:
        """Return the space left on the file system of this folder for unprivileged users."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def used_bytes(self, path: str) -> int:
        """Return the bytes of all files in this folder and below; what goes away meanwhile counts nothing."""
        total = 0
        for folder, _, names in os.walk(path):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    total += os.lstat(os.path.join(folder, name)).st_size
        return total


def is_shortage(error: OSError) -> bool:
    """Return whether a call failed for want of memory or file descriptors: it says nothing about the file."""
    return error.errno in _SHORTAGES


@contextlib.contextmanager
def opened(files: Disk, path: str, *, create: bool = False) -> Iterator[FileHandle]:
    """Open a file for the block."""
    handle = files.open(path, create=create)
    try:
        yield handle
    finally:
        files.close(handle)


def write_whole(files: Disk, path: str, data: bytes) -> None:
    """Write a file whole or not at all, durably, for the owner only. A crash may leave a draft beside it."""
    draft = path + NEW
    files.unlink(draft)
    handle = files.open(draft, create=True)
    try:
        files.write(handle, data, 0)
        files.sync(handle)
    finally:
        with contextlib.suppress(OSError):
            files.close(handle)
    files.rename(draft, path)
    files.sync_folder(os.path.dirname(path) or ".")


def make_private(path: str) -> None:
    """Make an empty file for the owner only, if there is none, before a library makes it for everybody to read."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


class FreeSpace:
    """Watches the file system of one folder. Callable from every thread.

    Growth is refused while less than `min_free_bytes` is free. The rest is for acknowledgements, deletions and audit
    events, for which the log keeps a reserve besides, in a file of its own.
    """

    def __init__(self, files: Disk, folder: str, min_free_bytes: int) -> None:
        self._files, self._folder, self._min_free = files, folder, min_free_bytes

    def growth_refusal(self) -> str | None:
        """Return why nothing may grow now; None when there is enough space."""
        try:
            free = self._free_for_growth()
        except OSError as error:
            return f"free space is unknown: {error.strerror}"
        return None if free >= self._min_free else self._too_little()

    def release_reserve(self) -> bool:
        """Give the reserve to others after a write failed for want of space; return whether there was one."""
        return False

    def _free_for_growth(self) -> int:
        return self._files.free_bytes(self._folder)

    def _too_little(self) -> str:
        return f"free space is below min_free_bytes ({self._min_free})"


class UnlimitedSpace(FreeSpace):
    """Refuses nothing: for a database of another machine, or of a program of its own."""

    def __init__(self) -> None:
        super().__init__(Disk(), "/", 0)

    def growth_refusal(self) -> None:
        """Refuse nothing."""


UNLIMITED = UnlimitedSpace()
