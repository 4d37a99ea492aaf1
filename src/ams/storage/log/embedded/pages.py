"""File reads that do not block the event loop: from the page cache directly, from the disk on a thread.

Plain functions read an index (`ams.storage.log.embedded.catalog`). If bytes are not in the page cache, the function
raises `NotLoaded`. `Pages.look_up` loads them on a thread and calls the function again. So the look-up logic runs on
the event loop alone and needs no locks.
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
    """A page is missing: run `load` on a thread, cache the result under `key`, and try again."""

    def __init__(self, key: tuple[object, ...], load: Callable[[], Any], weigh: Callable[[Any], int]) -> None:
        super().__init__()
        self.key, self.load, self.weigh = key, load, weigh


@dataclass(slots=True, eq=False)
class _Handle:
    file: FileHandle
    users: int = 1  # the cache, and each current read; the last one closes it


class OpenFiles:
    """Cache of open file handles. Thread-safe: a handle is closed only when no thread uses it."""

    def __init__(self, files: Disk) -> None:
        self._files = files
        self._handles: OrderedDict[str, _Handle] = OrderedDict()  # not an `LruCache`: evicted handles must be closed
        self._lock = threading.Lock()

    def read_now(self, path: str, size: int, position: int) -> bytes | None:
        """Read from the page cache; None if the file is not open yet or the bytes are not in memory."""
        with self._lock:
            handle = self._handles.get(path)
            if handle is None:
                return None
            handle.users += 1
        try:
            return self._files.read_now(handle.file, size, position)
        finally:
            with self._lock:
                self._release(handle)

    def read(self, path: str, size: int, position: int) -> bytes:
        """Read; may wait for the disk."""
        with self._lock:
            handle = self._handles.get(path)
            if handle is None:
                handle = self._handles[path] = _Handle(self._files.open(path))
            self._handles.move_to_end(path)
            handle.users += 1
            while len(self._handles) > _MAX_OPEN:
                self._release(self._handles.popitem(last=False)[1])
        try:
            return self._files.read(handle.file, size, position)
        finally:
            with self._lock:
                self._release(handle)

    def forget(self, path: str) -> None:
        """Close a file once no thread reads it."""
        with self._lock:
            handle = self._handles.pop(path, None)
            if handle is not None:
                self._release(handle)

    def close(self) -> None:
        """Close all."""
        with self._lock:
            while self._handles:
                self._release(self._handles.popitem()[1])

    def _release(self, handle: _Handle) -> None:
        """Count one user less, and close an unused handle. The caller holds the lock."""
        handle.users -= 1
        if not handle.users:
            with contextlib.suppress(OSError):  # opened for reading only: no data can be lost
                self._files.close(handle.file)


class Pages:
    """Reads bytes of files, with a bounded cache of decoded pages."""

    def __init__(self, files: Disk, budget: int) -> None:
        self.files, self.open = files, OpenFiles(files)
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ams-log-read")
        self._budget = budget
        self._closed = False
        # Not an `LruCache`: eviction happens only after a look-up, which may need more than the budget.
        self._kept: OrderedDict[tuple[object, ...], tuple[Any, int]] = OrderedDict()
        self._weight = 0
        self._drops = 0

    def cached_page(self, key: tuple[object, ...]) -> Any:
        """Return the page cached under `key`, or None."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def keep(self, key: tuple[object, ...], thing: Any, weight: int) -> None:
        """Cache a page, at least until the current `look_up` has ended."""
        before = self._kept.pop(key, None)
        self._kept[key] = (thing, weight)
        self._weight += weight - (before[1] if before else 0)

    def _trim(self) -> None:
        while self._weight > self._budget and len(self._kept) > 1:
            self._weight -= self._kept.popitem(last=False)[1][1]

    def drop(self, sequence: int) -> None:
        """Drop all pages of a segment; their keys begin with its sequence number."""
        self._drops += 1
        for key in [key for key in self._kept if key[0] == sequence]:
            self._weight -= self._kept.pop(key)[1]

    async def look_up(self, ask: Callable[[], T]) -> T:
        """Return the result of `ask`; loads missing pages and keeps them cached until it is done."""
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
                if self._drops != drops:  # the page may be of a file that was replaced meanwhile
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
        """Finish current reads, then close files and threads."""
        self._closed = True
        await asyncio.to_thread(self.threads.shutdown)
        self.open.close()
