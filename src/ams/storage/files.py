"""File access: all disk calls for files of the log and beside the databases.

Production uses `Disk`. Tests use a double that loses, tears or reorders unsynced writes, fails a sync, or runs out of
space (`tests/support/unreliable_disk.py`). Positions are explicit, so a handle has no state.
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence

FileHandle = int

_IOV_MAX = os.sysconf("SC_IOV_MAX")
_SHORTAGE_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

NEW = ".new"  # suffix of an unfinished file, which is renamed when complete


class Disk:
    """Disk calls. All raise `OSError` as the operating system does."""

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        """Open for reading and writing; `create` makes a new file (mode 0600) and fails if it exists."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return os.open(path, flags, 0o600)

    def close(self, handle: FileHandle) -> None:
        """Close a handle."""
        os.close(handle)

    def write(self, handle: FileHandle, data: bytes, position: int) -> None:
        """Write all of `data` at `position`. Short writes are continued, so a full disk raises ENOSPC."""
        written = os.pwrite(handle, data, position)
        while written < len(data):
            written += os.pwrite(handle, memoryview(data)[written:], position + written)

    def write_through(self, handle: FileHandle, parts: Sequence[bytes], position: int) -> None:
        """Write all parts consecutively at `position`; durable on return, as after `sync`.

        Uses one system call (RWF_DSYNC) if possible, as each call must re-acquire the GIL.
        """
        if len(parts) > _IOV_MAX:  # all parts must be in one durable call
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
        """Read `size` bytes at `position`, fewer only at the end of the file. May block on the disk."""
        data = os.pread(handle, size, position)
        while len(data) < size:
            more = os.pread(handle, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def read_now(self, handle: FileHandle, size: int, position: int) -> bytes | None:
        """Like `read`, but return None unless the bytes are in the page cache (RWF_NOWAIT)."""
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
        """Flush data and length of the file to stable storage (fdatasync)."""
        os.fdatasync(handle)

    def sync_folder(self, path: str) -> None:
        """Flush created, renamed and removed names of a folder to stable storage."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: str, target: str) -> None:
        """Rename a file atomically, replacing the target."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def make_folder(self, path: str) -> None:
        """Make a folder and missing parents (mode 0700)."""
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
        """Return whether a file exists."""
        return os.path.exists(path)

    def free_bytes(self, path: str) -> int:
        """Return the free space for unprivileged users on a folder's file system."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def used_bytes(self, path: str) -> int:
        """Return the total size of files in a folder, recursively. Files removed meanwhile do not count."""
        total = 0
        for folder, _, names in os.walk(path):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    total += os.lstat(os.path.join(folder, name)).st_size
        return total


def is_shortage(error: OSError) -> bool:
    """Return whether a call failed for lack of memory or file descriptors, not because of the file."""
    return error.errno in _SHORTAGE_ERRORS


@contextlib.contextmanager
def open_file(files: Disk, path: str, *, create: bool = False) -> Iterator[FileHandle]:
    """Open a file while the block runs."""
    handle = files.open(path, create=create)
    try:
        yield handle
    finally:
        files.close(handle)


def write_whole(files: Disk, path: str, data: bytes) -> None:
    """Write a file atomically and durably (mode 0600). A crash may leave a file with the suffix `NEW`."""
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
    """Create an empty file with mode 0600 if missing, before a library creates it world-readable."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


@contextlib.contextmanager
def short_path(folder: str, name: str) -> Iterator[str]:
    """Yield a short path of a socket in a folder at any depth: a socket's path may have 107 bytes."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)
