"""A `Disk` in memory for tests of power loss, failing and full disks: it keeps only what was synced.

After a power loss unsynced writes and folder entries may survive, be lost, survive in part, or survive without earlier
ones. Space that was never written may hold anything. A sync covers writes from before it began, `write_through` its own
bytes only. A failed sync may drop any writes, and no later sync stores them: programs still see these bytes, from
memory. Each handle that was open hears of it once: the caller at once, others at their next sync. Truncations and
names are tried again, like in a journal.
"""

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ams.storage.files import Disk

SECTOR = 512
CHANGES = frozenset({"open", "write", "truncate", "allocate", "sync", "sync_folder", "rename", "unlink", "make_folder"})


@dataclass(eq=False)
class Inode:
    """A file: content as programs see it, content on stable storage, and the writes between the two."""

    seen: bytearray = field(default_factory=bytearray)
    stable: bytearray = field(default_factory=bytearray)
    pending: list["Change"] = field(default_factory=list)
    errors: int = 0  # number of failed syncs

    def write(self, data: bytes, position: int) -> None:
        _put(self.seen, data, position)
        self.pending.append(Change(position, bytes(data)))

    def truncate(self, size: int) -> None:
        _resize(self.seen, size)
        self.pending.append(Change(size, None))

    def sync(self, changes: list["Change"]) -> None:
        """Move pending changes to stable storage, with the length that programs see."""
        for change in changes:
            if change in self.pending:  # else a failed sync has dropped it
                self._reach(change)
                self.pending.remove(change)
        _resize(self.stable, max(len(self.stable), min(len(self.seen), self._synced_length(changes))))

    def sync_range(self, position: int, size: int) -> None:
        """Move bytes to stable storage, with the length that is needed to read them."""
        if any(change.data is None for change in self.pending):
            self.sync(list(self.pending))  # the length goes as a whole
            return
        self.pending, pending = [], self.pending
        for change in pending:
            for part in change.split_at(position, position + size):
                self._reach(part) if position <= part.position < position + size else self.pending.append(part)

    def lose(self, chance: random.Random | None) -> None:
        """Store some pending changes, in any order, and drop the others; without a chance drop all."""
        if chance is None:
            self.pending.clear()
            return
        for change in chance.sample(self.pending, len(self.pending)):
            if chance.random() < 0.4:
                continue
            if change.data is None:
                self._reach(change)
            else:
                self._tear(change.data, change.position, chance)
        self.pending.clear()

    def fail(self, chance: random.Random) -> None:
        cuts = [change for change in self.pending if change.data is None]
        self.pending = [change for change in self.pending if change.data is not None]
        self.lose(chance)
        self.pending = cuts

    def _reach(self, change: "Change") -> None:
        if change.data is None:
            _resize(self.stable, change.position)
        else:
            _put(self.stable, change.data, change.position)

    def _synced_length(self, changes: list["Change"]) -> int:
        return max((change.position + len(change.data or b"") for change in changes), default=0)

    def _tear(self, data: bytes, position: int, chance: random.Random) -> None:
        """Store some sectors of a write; a new sector may hold anything instead."""
        whole = chance.random() < 0.5
        before = len(self.stable)
        if chance.random() < 0.5:
            _resize(self.stable, max(before, position + len(data)))
        end = position + len(data)
        while position < end:
            size = min(SECTOR - position % SECTOR, end - position)
            fate = 0.0 if whole else chance.random()
            if fate < 0.45:
                _put(self.stable, data[:size], position)
            elif fate > 0.9 and position >= before:
                _put(self.stable, data[: size // 2] + chance.randbytes(size - size // 2), position)
            data, position = data[size:], position + size


@dataclass(eq=False, frozen=True)
class Change:
    """A pending write, or (without data) a truncation to the size `position`."""

    position: int
    data: bytes | None

    def split_at(self, begin: int, end: int) -> "list[Change]":
        """Return its parts before, within and after a range."""
        assert self.data is not None
        places = (self.position, *(min(max(each, self.position), self._end) for each in (begin, end)), self._end)
        return [
            Change(start, self.data[start - self.position : stop - self.position])
            for start, stop in pairwise(places)
            if start < stop
        ]

    @property
    def _end(self) -> int:
        return self.position + len(self.data or b"")


@dataclass
class Fault:
    """The next `times` calls of this kind on paths that contain `where` fail, after `after` that do not."""

    call: str
    error: int
    times: int
    after: int
    where: str


class UnreliableDisk(Disk):
    """Keeps the promise of `ams.storage.files.Disk`, and nothing else."""

    def __init__(self, *, capacity: int = 1 << 40) -> None:
        self.capacity = capacity
        self.stranger = 0  # bytes that others use
        self.cold = False  # `read_now` finds nothing in memory
        self.changes = 0  # number of calls that changed or synced something
        self.reads = 0  # number of reads
        self.failed = 0  # number of calls that a fault made fail
        self.stop_at: int | None = None
        """Number of changes at which the power fails; then every call raises."""
        self.during_sync: Callable[[], None] | None = None
        """Called in the middle of every sync, to do something concurrent."""
        self.during_question: Callable[[], None] | None = None
        """Called whenever free space is asked for, before the answer."""
        self._lock = threading.RLock()
        self._seen: dict[str, Inode | None] = {"/": None}
        self._stable: dict[str, Inode | None] = {"/": None}
        self._pending: list[tuple[str, dict[str, Inode | None], set[str]]] = []
        """Changes of names: folder, added names, removed names; each is atomic."""
        self._handles: dict[int, tuple[str, Inode]] = {}
        self._heard: dict[int, int] = {}  # by handle: failed syncs of its file that were reported to it
        self._next = 3
        self._faults: list[Fault] = []

    def fail(self, call: str, error: int = errno.EIO, *, times: int = 1, after: int = 0, where: str = "") -> None:
        self._faults.append(Fault(call, error, times, after, where))

    def heal(self) -> None:
        self._faults.clear()

    @property
    def is_stopped(self) -> bool:
        return self.stop_at is not None and self.changes >= self.stop_at

    def power_loss(self, chance: random.Random | None = None) -> None:
        """Lose the power and get it back: handles are gone, and so is a random part of the unsynced changes.

        Without `chance` all of these are gone.
        """
        with self._lock:
            for folder, came, went in self._pending:
                if chance is not None and chance.random() < 0.5:
                    self._apply(self._stable, folder, came, went)
            names = {path: inode for path, inode in self._stable.items() if self._is_reachable(path)}
            for inode in {id(inode): inode for inode in self._all_inodes()}.values():
                inode.lose(chance)
                inode.seen = bytearray(inode.stable)
            self._seen, self._stable = dict(names), dict(names)
            self._pending.clear()
            self._handles.clear()
            self._heard.clear()
            self.stop_at = None
            self.heal()

    def content(self, path: str) -> bytes:
        inode = self._seen[path]
        assert inode is not None
        return bytes(inode.seen)

    def damage(self, path: str, position: int, flip: int = 0xFF) -> None:
        """Change a byte, in memory and on stable storage."""
        inode = self._seen[path]
        assert inode is not None
        for content in (inode.seen, inode.stable):
            content[position] ^= flip

    def paths(self, ending: str = "") -> list[str]:
        """Return the paths of all files with this ending, sorted."""
        return sorted(path for path, inode in self._seen.items() if inode is not None and path.endswith(ending))

    def open(self, path: str, *, create: bool = False) -> int:
        with self._lock:
            if create:
                self._change("open", path)
                if path in self._seen:
                    raise OSError(errno.EEXIST, "exists")
                if os.path.dirname(path) not in self._seen:
                    raise OSError(errno.ENOENT, "no such folder")
                self._make_room(1)
                self._name(os.path.dirname(path), {path: Inode()}, set())
            else:
                self._check("open", path)
            inode = self._seen.get(path)
            if inode is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._next += 1
            self._handles[self._next] = (path, inode)
            self._heard[self._next] = inode.errors
            return self._next

    def close(self, handle: int) -> None:
        with self._lock:
            self._check("close", self._handles[handle][0])
            del self._handles[handle]

    def write(self, handle: int, data: bytes, position: int) -> None:
        with self._lock:
            path, inode = self._handles[handle]
            try:
                self._change("write", path)
                self._make_room(position + len(data) - len(inode.seen))
            except OSError:
                inode.write(data[: len(data) // 2], position)  # a failing write may store a part
                raise
            inode.write(data, position)

    def write_through(self, handle: int, parts: Sequence[bytes], position: int) -> None:
        data = b"".join(parts)
        self.write(handle, data, position)
        inode = self._begin_sync(handle)
        with self._lock:
            inode.sync_range(position, len(data))
            self._hear(handle)

    def read(self, handle: int, size: int, position: int) -> bytes:
        with self._lock:
            path, inode = self._handles[handle]
            self.reads += 1
            self._check("read", path)
            return bytes(inode.seen[position : position + size])

    def read_now(self, handle: int, size: int, position: int) -> bytes | None:
        if self.cold:
            return None
        data = self.read(handle, size, position)
        return data if len(data) == size else None

    def size(self, handle: int) -> int:
        with self._lock:
            return len(self._handles[handle][1].seen)

    def truncate(self, handle: int, size: int) -> None:
        with self._lock:
            path, inode = self._handles[handle]
            self._change("truncate", path)
            inode.truncate(size)

    def allocate(self, handle: int, size: int) -> None:
        with self._lock:
            path, inode = self._handles[handle]
            self._change("allocate", path)
            self._make_room(size - len(inode.seen))
            inode.truncate(max(size, len(inode.seen)))

    def sync(self, handle: int) -> None:
        promised = list(self._handles[handle][1].pending)
        inode = self._begin_sync(handle)
        with self._lock:
            inode.sync(promised)
            self._hear(handle)

    def _hear(self, handle: int) -> None:
        """Raise if a sync failed that was not reported to this handle yet."""
        path, inode = self._handles[handle]
        if self._heard[handle] != inode.errors:
            self._heard[handle] = inode.errors
            raise OSError(errno.EIO, "a sync failed", path)

    def _begin_sync(self, handle: int) -> Inode:
        """Return the file to sync; raise if the sync fails."""
        with self._lock:
            path, inode = self._handles[handle]
            try:
                self._change("sync", path)
            except OSError:
                if not self.is_stopped:
                    inode.fail(random.Random(self.changes))
                    inode.errors += 1
                    self._heard[handle] = inode.errors
                raise
            changes = self.changes
        if self.during_sync:
            self.during_sync()
        if self.changes != changes and self.is_stopped:
            raise OSError(errno.EIO, "the power is gone")
        return inode

    def sync_folder(self, path: str) -> None:
        with self._lock:
            self._change("sync_folder", path)
            for folder, came, went in self._pending:
                if folder == path:
                    self._apply(self._stable, folder, came, went)
            self._pending = [each for each in self._pending if each[0] != path]

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            self._change("rename", source)
            self._name(os.path.dirname(target), {target: self._seen[source]}, {source})

    def unlink(self, path: str) -> None:
        with self._lock:
            self._change("unlink", path)
            if path in self._seen:
                self._name(os.path.dirname(path), {}, {path})

    def make_folder(self, path: str) -> None:
        with self._lock:
            self._change("make_folder", path)
            if path in self._seen:
                return
            parent = os.path.dirname(path)
            if parent not in self._seen:
                self.make_folder(parent)
            self._name(parent, {path: None}, set())

    def names(self, path: str) -> list[str]:
        with self._lock:
            self._check("names", path)
            return sorted(os.path.basename(each) for each in self._seen if os.path.dirname(each) == path != each)

    def exists(self, path: str) -> bool:
        with self._lock:
            return path in self._seen

    def free_bytes(self, path: str) -> int:
        if self.during_question:
            self.during_question()
        with self._lock:
            self._check("free_bytes", path)
            return max(self.capacity - self.stranger - self._used_bytes(), 0)

    def used_bytes(self, path: str) -> int:
        with self._lock:
            self._check("used_bytes", path)
            files = ((name, inode) for name, inode in self._seen.items() if inode is not None)
            return sum(len(inode.seen) for name, inode in files if name.startswith(path + "/"))

    def _used_bytes(self) -> int:
        return sum(len(inode.seen) for inode in self._seen.values() if inode is not None)

    def _make_room(self, size: int) -> None:
        if size > 0 and self.stranger + self._used_bytes() + size > self.capacity:
            raise OSError(errno.ENOSPC, "No space left on device")

    def _change(self, call: str, path: str) -> None:
        assert call in CHANGES
        self._check(call, path)
        self.changes += 1

    def _check(self, call: str, path: str) -> None:
        if self.is_stopped:
            raise OSError(errno.EIO, "the power is gone")
        for fault in self._faults:
            if fault.call == call and fault.where in path and fault.times:
                if fault.after:
                    fault.after -= 1
                    continue
                fault.times -= 1
                self.failed += 1
                raise OSError(fault.error, os.strerror(fault.error), path)

    def _name(self, folder: str, came: dict[str, Inode | None], went: set[str]) -> None:
        self._apply(self._seen, folder, came, went)
        self._pending.append((folder, came, went))

    def _apply(
        self, names: dict[str, Inode | None], folder: str, came: dict[str, Inode | None], went: set[str]
    ) -> None:
        for path in went:
            names.pop(path, None)
        names.update(came)

    def _is_reachable(self, path: str) -> bool:
        while path != "/":
            if path not in self._stable:
                return False
            path = os.path.dirname(path)
        return True

    def _all_inodes(self) -> list[Inode]:
        return [inode for names in (self._seen, self._stable) for inode in names.values() if inode is not None]


def _put(content: bytearray, data: bytes, position: int) -> None:
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
