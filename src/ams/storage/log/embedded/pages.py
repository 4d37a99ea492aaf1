"""Reading files without keeping the event loop waiting: from memory at once, from the disk on a thread.

An index is read by plain functions (`ams.storage.log.embedded.catalog`). When one needs bytes the page
cache does not have, it raises `NotLoaded`; `Pages.looked_up` gets them on a thread and calls again. So the logic is
written once, runs on the event loop alone, and needs no locks.
"""

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from ams.core.errors import LogUnavailable
from ams.storage.files import Disk, FileHandle

T = TypeVar("T")

_MAX_OPEN = 512
THREADS = 4


class NotLoaded(Exception):
    """Something is needed that must be loaded first: `load` runs on a thread, its result is kept under `key`."""

    def __init__(self, key: tuple[object, ...], load: Callable[[], Any], weigh: Callable[[Any], int]) -> None:
        super().__init__()
        self.key, self.load, self.weigh = key, load, weigh


@dataclass(slots=True, eq=False)
class _Handle:
    file: FileHandle
    users: int = 0
    is_retired: bool = False


class OpenFiles:
    """Handles of the files lately read. Threads borrow them; only files that are not in use are closed."""

    def __init__(self, files: Disk) -> None:
        self._files = files
        self._handles: OrderedDict[str, _Handle] = OrderedDict()  # not an `LruCache`: what is dropped is to be closed
        self._lock = threading.Lock()

    def read_now(self, path: str, size: int, position: int) -> bytes | None:
        """Read what is in memory; None when the file is not open yet or the disk would have to be asked."""
        with self._lock:
            handle = self._handles.get(path)
            if handle is None:
                return None
            handle.users += 1
        try:
            return self._files.read_now(handle.file, size, position)
        finally:
            self._give_back(handle)

    def read(self, path: str, size: int, position: int) -> bytes:
        """Read, waiting for the disk if need be."""
        with self._lock:
            handle = self._handles.get(path)
            if handle is None:
                handle = self._handles[path] = _Handle(self._files.open(path))
            self._handles.move_to_end(path)
            handle.users += 1
            while len(self._handles) > _MAX_OPEN:
                self._retire(self._handles.popitem(last=False)[1])
        try:
            return self._files.read(handle.file, size, position)
        finally:
            self._give_back(handle)

    def forget(self, path: str) -> None:
        """Close a file as soon as it is not being read."""
        with self._lock:
            handle = self._handles.pop(path, None)
            if handle is not None:
                self._retire(handle)

    def close(self) -> None:
        """Close all."""
        with self._lock:
            while self._handles:
                self._retire(self._handles.popitem()[1])

    def _give_back(self, handle: _Handle) -> None:
        with self._lock:
            handle.users -= 1
            self._close_if_unused(handle)

    def _retire(self, handle: _Handle) -> None:
        handle.is_retired = True
        self._close_if_unused(handle)

    def _close_if_unused(self, handle: _Handle) -> None:
        if handle.is_retired and not handle.users:
            with contextlib.suppress(OSError):  # it was only read: there is nothing to lose
                self._files.close(handle.file)


class Pages:
    """Bytes of files, and a bounded store of what was made of them."""

    def __init__(self, files: Disk, budget: int) -> None:
        self.open = OpenFiles(files)
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ams-log-read")
        self._budget = budget
        self._closed = False
        # Not an `LruCache`: things are let go after a look-up only, as one may need more than the budget.
        self._kept: OrderedDict[tuple[object, ...], tuple[Any, int]] = OrderedDict()
        self._weight = 0
        self._drops = 0

    def kept(self, key: tuple[object, ...]) -> Any:
        """Return what is kept under `key`, or None."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def keep(self, key: tuple[object, ...], thing: Any, weight: int) -> None:
        """Keep a thing, at least until `ask` has ended (`looked_up`)."""
        before = self._kept.pop(key, None)
        self._kept[key] = (thing, weight)
        self._weight += weight - (before[1] if before else 0)

    def _trim(self) -> None:
        while self._weight > self._budget and len(self._kept) > 1:
            self._weight -= self._kept.popitem(last=False)[1][1]

    def drop(self, sequence: int) -> None:
        """Let go of everything kept of a segment: keys begin with its sequence."""
        self._drops += 1
        for key in [key for key in self._kept if key[0] == sequence]:
            self._weight -= self._kept.pop(key)[1]

    async def looked_up(self, ask: Callable[[], T]) -> T:
        """Return what `ask` returns, loading what it lacks, and keeping that till it is done."""
        loaded: list[tuple[NotLoaded, Any]] = []
        drops = self._drops
        try:
            while True:
                try:
                    return ask()
                except NotLoaded as cold:
                    missing = cold
                self._trim()
                thing = await self.on_thread(missing.load)
                if self._drops != drops:  # it may be of a file that is another one by now
                    loaded, drops = [], self._drops
                    continue
                loaded.append((missing, thing))
                for needed, each in loaded:
                    self.keep(needed.key, each, needed.weigh(each))
        finally:
            self._trim()

    async def on_thread(self, work: Callable[[], T]) -> T:
        """Run blocking work on a thread; `OSError` becomes `LogUnavailable`."""
        if self._closed:
            raise LogUnavailable
        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, work)
        except OSError as error:
            raise LogUnavailable from error

    async def close(self) -> None:
        """Let go of files and threads; what is being read is finished."""
        self._closed = True
        await asyncio.to_thread(self.threads.shutdown)
        self.open.close()
