"""A SQLite VFS on the disks of a world (https://www.sqlite.org/vfs.html): they do all writes, syncs and deletions.

SQLite itself is real. Paths below a mounted folder are on its disk. So a power cut leaves of a commit only what was
synced, and SQLite meets a full or failing disk too. Other paths and temporary files go to the operating system. Locks
and the shared memory of the WAL are in memory and end with the process. A call takes time on a thread, and none on an
event loop.
"""

import contextlib
import ctypes
import errno
import functools
import os
from collections.abc import Callable, Iterator
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_double, c_int, c_int64, c_void_p, cast
from typing import Any

from ams.storage.files import Disk, make_private
from simulation.disk import UNTIMED, NodeDisk
from simulation.threads import pause

OK, BUSY, NOMEM, FULL, CANTOPEN, NOTFOUND = 0, 5, 7, 13, 14, 12
IOERR, READ, SHORT_READ, DELETE_NOENT = 10, 266, 522, 5898
MAIN_DB, CREATE, DELETE_ON_CLOSE = 0x100, 0x4, 0x8
SAFE_OVERWRITE = 0x1000  # as SQLite assumes of files of the operating system
SECTOR_BYTES = 4096
NONE, SHARED, RESERVED, PENDING, EXCLUSIVE = range(5)
SHM_UNLOCK, SHM_SHARED = 1, 4
WRITE_PAUSES = 0.05  # share of writes that take time; a sync always does
NAME = b"ams-world"
DATABASES = ("registry.db",)  # other databases of a folder may be lost


class _File(Structure):
    _fields_ = (("methods", c_void_p), ("number", c_int64))


_Callback = Callable[..., int]
_FILE, _VFS = POINTER(_File), c_void_p


def _prototype(*arguments: Any) -> Any:
    return CFUNCTYPE(c_int, *arguments)


_METHODS: dict[str, Any] = {
    "close": _prototype(_FILE), "read": _prototype(_FILE, c_void_p, c_int, c_int64),
    "write": _prototype(_FILE, c_void_p, c_int, c_int64), "truncate": _prototype(_FILE, c_int64),
    "sync": _prototype(_FILE, c_int), "size": _prototype(_FILE, POINTER(c_int64)),
    "lock": _prototype(_FILE, c_int), "unlock": _prototype(_FILE, c_int),
    "is_reserved": _prototype(_FILE, POINTER(c_int)), "control": _prototype(_FILE, c_int, c_void_p),
    "sector_size": _prototype(_FILE), "device": _prototype(_FILE),
    "shm_map": _prototype(_FILE, c_int, c_int, c_int, POINTER(c_void_p)),
    "shm_lock": _prototype(_FILE, c_int, c_int, c_int), "shm_barrier": CFUNCTYPE(None, _FILE),
    "shm_unmap": _prototype(_FILE, c_int),
}  # fmt: skip
"""Methods of a file, in the order of `sqlite3_io_methods`."""


class _IoMethods(Structure):
    _fields_ = (("version", c_int), *_METHODS.items())


_CALLS: dict[str, Any] = {
    "open": _prototype(_VFS, c_void_p, c_void_p, c_int, POINTER(c_int)),
    "delete": _prototype(_VFS, c_char_p, c_int), "access": _prototype(_VFS, c_char_p, c_int, POINTER(c_int)),
    "full_path": _prototype(_VFS, c_char_p, c_int, c_void_p), "dl_open": c_void_p, "dl_error": c_void_p,
    "dl_sym": c_void_p, "dl_close": c_void_p, "randomness": _prototype(_VFS, c_int, c_void_p),
    "sleep": _prototype(_VFS, c_int), "current_time": _prototype(_VFS, POINTER(c_double)), "last_error": c_void_p,
}  # fmt: skip
"""Calls of the VFS, in the order of `sqlite3_vfs`."""


class _Vfs(Structure):
    _fields_ = (
        ("version", c_int), ("file_size", c_int), ("max_path", c_int), ("next", c_void_p), ("name", c_char_p),
        ("data", c_void_p), *_CALLS.items(),
    )  # fmt: skip


class _Locks:
    """Locks and shared memory of one file in one process."""

    def __init__(self) -> None:
        self.levels: dict[int, int] = {}  # by number of the open file
        self.shared: dict[int, set[int]] = {}  # by slot of the shared memory
        self.exclusive: dict[int, int] = {}
        self.regions: list[Any] = []

    def may_have(self, number: int, level: int) -> bool:
        """Return whether an open file may take a lock level beside the others."""
        others = [had for other, had in self.levels.items() if other != number]
        if level == SHARED:
            return all(had < PENDING for had in others)
        if level == EXCLUSIVE:
            return not any(others)
        return all(had < RESERVED for had in others)

    def may_lock(self, number: int, slots: range, *, is_shared: bool) -> bool:
        """Return whether an open file may lock slots of the shared memory."""
        if any(self.exclusive.get(slot, number) != number for slot in slots):
            return False
        return is_shared or not any(self.shared.get(slot, set()) - {number} for slot in slots)

    def drop(self, number: int) -> None:
        """Release an open file's slots of the shared memory."""
        for holders in self.shared.values():
            holders.discard(number)
        self.exclusive = {slot: holder for slot, holder in self.exclusive.items() if holder != number}


class _Open:
    """An open database, WAL or journal."""

    def __init__(self, number: int, disk: NodeDisk, path: str, *, create: bool, is_temporary: bool) -> None:
        self.number, self.disk, self.path = number, disk, path
        self.process = disk.processes
        is_new = create and not disk.exists(path)
        self.handle = disk.open(path, create=is_new)
        if self.process != disk.processes:  # the process ended just now
            disk.forget(self.handle)
            raise OSError(errno.EIO, "the process has ended")
        self.is_name_safe = not is_new or path.endswith(".db")  # the service itself syncs the name of a database
        self.is_temporary = is_temporary
        self.locks: _Locks = disk.locks.setdefault(path, _Locks())

    @property
    def is_over(self) -> bool:
        """True once its process has ended."""
        return self.disk.is_stopped or self.process != self.disk.processes


class SqliteFiles:
    """The VFS, registered once a process. It is the default while a folder is mounted."""

    def __init__(self) -> None:
        library = ctypes.CDLL("libsqlite3.so.0")
        library.sqlite3_vfs_find.restype = c_void_p
        self._library = library
        self._system = library.sqlite3_vfs_find(None)
        self._system_calls = cast(self._system, POINTER(_Vfs)).contents
        self._folders: dict[str, NodeDisk] = {}
        self._files: dict[int, _Open] = {}
        self._numbers = 0
        self._methods = _IoMethods(2, *(kind(self._method(name)) for name, kind in _METHODS.items()))
        calls = [self._call(name, kind) for name, kind in _CALLS.items()]
        size = max(ctypes.sizeof(_File), self._system_calls.file_size)
        self._vfs = _Vfs(1, size, self._system_calls.max_path, None, NAME, None, *calls)

    @contextlib.contextmanager
    def mount(self, folder: str, disk: NodeDisk) -> Iterator[None]:
        """Keep all databases of a folder on a disk until the block ends."""
        self._folders[folder] = disk
        self._library.sqlite3_vfs_register(byref(self._vfs), 1)
        try:
            yield
        finally:
            del self._folders[folder]
            self._files = {number: each for number, each in self._files.items() if each.disk is not disk}
            if not self._folders:
                self._library.sqlite3_vfs_register(c_void_p(self._system), 1)

    def disk_of(self, path: str) -> NodeDisk | None:
        """Return the disk of a database, WAL or journal; None if it is on the operating system's."""
        folder, name = os.path.split(path)
        return self._folders.get(folder) if name.startswith(DATABASES) else None

    def make_file(self, path: str) -> None:
        """Make an empty database, as `ams.storage.files.make_private` does."""
        disk = self.disk_of(path)
        if disk is None:
            make_private(path)
        elif not disk.exists(path):
            disk.close(disk.open(path, create=True))

    def exists(self, path: str) -> bool:
        """Return whether a database exists."""
        disk = self.disk_of(path)
        return os.path.exists(path) if disk is None else disk.exists(path)

    def sync_folder(self, path: str) -> None:
        """Sync the names in a folder."""
        disk = self._folders.get(path)
        if disk is None:
            Disk().sync_folder(path)
        else:
            disk.sync_folder(path)

    # Called by SQLite. Exceptions must not pass through it.

    def _method(self, name: str) -> _Callback:
        act = getattr(self, f"_{name}")

        def call_method(file: Any, *given: Any) -> int:
            each = self._files.get(file.contents.number)
            if each is None or (each.is_over and name not in ("close", "unlock", "shm_unmap", "shm_barrier")):
                return OK if name in ("close", "unlock", "shm_unmap", "shm_barrier") else IOERR
            return _outcome(lambda: act(each, *given))

        return call_method

    def _call(self, name: str, kind: Any) -> Any:
        if kind is c_void_p:
            return getattr(self._system_calls, name)
        act = getattr(self, f"_{name}")
        return kind(lambda _, *given: _outcome(lambda: act(*given)))

    def _open_file(self, name: int, file: int, flags: int) -> int | None:
        path = ctypes.string_at(name).decode() if name else ""
        disk = self.disk_of(path)
        if disk is None:
            return None
        self._numbers += 1
        number = self._numbers
        # Without methods SQLite does not close a file that failed to open.
        made = cast(file, _FILE).contents
        made.methods, made.number = None, number
        disk.take_time()
        self._files[number] = _Open(
            number, disk, path, create=bool(flags & CREATE), is_temporary=bool(flags & DELETE_ON_CLOSE)
        )
        made.methods = ctypes.addressof(self._methods)
        return number

    def _open(self, name: int, file: int, flags: int, out: Any) -> int:
        try:
            number = self._open_file(name, file, flags)
        except OSError as error:
            return FULL if error.errno == errno.ENOSPC else CANTOPEN
        if number is None:
            return int(self._system_calls.open(self._system, name, file, flags, out))
        if out:
            out[0] = flags
        return OK

    def _delete(self, name: bytes, syncs: int) -> int:
        path = name.decode()
        disk = self.disk_of(path)
        if disk is None:
            return int(self._system_calls.delete(self._system, name, syncs))
        if not disk.exists(path):
            return DELETE_NOENT
        disk.unlink(path)
        if syncs:
            disk.sync_folder(os.path.dirname(path))
        return OK

    def _access(self, name: bytes, flags: int, found: Any) -> int:
        disk = self.disk_of(name.decode())
        if disk is None:
            return int(self._system_calls.access(self._system, name, flags, found))
        found[0] = int(disk.exists(name.decode()))
        return OK

    def _full_path(self, name: bytes, size: int, found: int) -> int:
        return int(self._system_calls.full_path(self._system, name, size, found))

    def _randomness(self, size: int, found: int) -> int:
        ctypes.memmove(found, b"\x17" * size, size)  # for SQLite's random generator, seeded once a process
        return size

    def _sleep(self, microseconds: int) -> int:
        pause(microseconds / 1e6)
        return microseconds

    def _current_time(self, found: Any) -> int:
        return int(self._system_calls.current_time(self._system, found))

    # Methods of an open file

    def _close(self, file: _Open) -> int:
        self._files.pop(file.number, None)
        file.locks.levels.pop(file.number, None)
        file.locks.drop(file.number)
        if not file.is_over:
            file.disk.forget(file.handle)
            if file.is_temporary:
                file.disk.unlink(file.path)
        return OK

    def _read(self, file: _Open, into: int, size: int, position: int) -> int:
        try:
            data = UNTIMED["read"](file.disk, file.handle, size, position)
        except OSError:
            return READ
        ctypes.memmove(into, data.ljust(size, b"\0"), size)
        return OK if len(data) == size else SHORT_READ

    def _write(self, file: _Open, data: int, size: int, position: int) -> int:
        if file.disk.draws(WRITE_PAUSES):
            file.disk.take_time()
        if file.is_over:
            return IOERR
        UNTIMED["write"](file.disk, file.handle, ctypes.string_at(data, size), position)
        return OK

    def _truncate(self, file: _Open, size: int) -> int:
        file.disk.truncate(file.handle, size)
        return OK

    def _sync(self, file: _Open, _flags: int) -> int:
        file.disk.sync(file.handle)
        if not file.is_name_safe:
            file.disk.sync_folder(os.path.dirname(file.path))
            file.is_name_safe = True
        return OK

    def _size(self, file: _Open, found: Any) -> int:
        found[0] = file.disk.size(file.handle)
        return OK

    def _lock(self, file: _Open, level: int) -> int:
        had = file.locks.levels.get(file.number, NONE)
        if had >= level:
            return OK
        if not file.locks.may_have(file.number, level):
            if level == EXCLUSIVE and had >= RESERVED:
                file.locks.levels[file.number] = PENDING  # no new readers; current ones may finish
            return BUSY
        file.locks.levels[file.number] = level
        return OK

    def _unlock(self, file: _Open, level: int) -> int:
        file.locks.levels[file.number] = level
        return OK

    def _is_reserved(self, file: _Open, found: Any) -> int:
        found[0] = int(any(level >= RESERVED for level in file.locks.levels.values()))
        return OK

    def _control(self, _file: _Open, _what: int, _given: int) -> int:
        return NOTFOUND

    def _sector_size(self, _file: _Open) -> int:
        return SECTOR_BYTES

    def _device(self, _file: _Open) -> int:
        return SAFE_OVERWRITE

    def _shm_map(self, file: _Open, place: int, size: int, extends: int, found: Any) -> int:
        regions = file.locks.regions
        while extends and len(regions) <= place:
            regions.append(ctypes.create_string_buffer(size))
        found[0] = ctypes.addressof(regions[place]) if place < len(regions) else None
        return OK

    def _shm_lock(self, file: _Open, first: int, count: int, flags: int) -> int:
        locks, slots = file.locks, range(first, first + count)
        is_shared = bool(flags & SHM_SHARED)
        if flags & SHM_UNLOCK:
            for slot in slots:
                if is_shared:
                    locks.shared.get(slot, set()).discard(file.number)
                elif locks.exclusive.get(slot) == file.number:
                    del locks.exclusive[slot]
            return OK
        if not locks.may_lock(file.number, slots, is_shared=is_shared):
            return BUSY
        for slot in slots:
            if is_shared:
                locks.shared.setdefault(slot, set()).add(file.number)
            else:
                locks.exclusive[slot] = file.number
        return OK

    def _shm_barrier(self, _file: _Open) -> int:
        return OK

    def _shm_unmap(self, file: _Open, _deletes: int) -> int:
        file.locks.drop(file.number)
        return OK


def _outcome(act: Callable[[], int]) -> int:
    try:
        return act()
    except OSError as error:
        return FULL if error.errno == errno.ENOSPC else IOERR
    except BaseException:  # also `Killed` of a waiting thread: its next call raises it again
        return IOERR


@functools.cache
def sqlite_files() -> SqliteFiles:
    """Return the VFS of this process."""
    return SqliteFiles()
