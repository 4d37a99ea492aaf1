"""Cache of documents of other services: single flight, memory and files, refresh ahead, backoff.

It holds keys (JWKS) and descriptions of issuers, revocation lists and OCSP answers. A document is

- fresh until `refresh_at`: returned from the cache;
- stale until `good_until`: returned from the cache, and refreshed in the background;
- expired afterwards: fetched before it is returned. It stays in memory for use after a failed fetch.

A failed fetch keeps the document and delays the next fetch. The least recently used document is evicted first,
together with its file.
"""

import asyncio
import contextlib
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import structlog

from ams.core.clock import Milliseconds
from ams.core.coalescing import SingleFlight
from ams.storage.files import Disk, write_whole
from ams.storage.free_space import UNLIMITED, FreeSpace

Key = TypeVar("Key", bound=Hashable)
Source = TypeVar("Source")
Document = TypeVar("Document")
Now = Callable[[], Milliseconds]

RETRY_MS = 30_000
UPKEEP_SECONDS = 30.0


class Edition(NamedTuple, Generic[Document]):
    """One published edition of a document. Times are of the cache's clock."""

    document: Document
    refresh_at: int
    good_until: int
    data: bytes = b""  # for its file


@dataclass(slots=True, eq=False)
class DocumentState(Generic[Document]):
    """Mutable state of one document. Times are of the cache's clock, except the last use (monotonic)."""

    document: Document | None = None
    last_error: Exception | None = None
    noted_at: int = 0
    refresh_at: int = 0
    good_until: int = 0
    retry_at: int = 0
    used_at: int = 0
    size: int = 0
    source: Any = None  # for upkeep only: sources may be large

    @property
    def failure(self) -> Exception | None:
        """Error of the last fetch; None if it succeeded."""
        # Without traceback: each raise would extend it, and keep frames in memory.
        return self.last_error and self.last_error.with_traceback(None)

    def is_good(self, now: int) -> bool:
        """Return whether the document may be used. One stored later than `now` may not: the clock was set back."""
        return self.document is not None and self.noted_at <= now < self.good_until

    def is_resting(self, now: int) -> bool:
        """Return whether the next fetch waits."""
        return self.noted_at <= now < self.retry_at


class DocumentCache(Generic[Key, Source, Document]):
    """Documents by key. Runs on one event loop; threads read and write the files.

    A subclass sets limits and defines `_key_of` and `_fetch`; with files also `_file_name`, `_read` and
    `_log_file_error`.
    """

    max_documents = 1000  # in memory and in the folder
    max_bytes = math.inf  # of all documents in memory and in the folder; one document is always kept
    retry_ms = RETRY_MS  # pause after a failed fetch
    refresh_retry_ms = RETRY_MS  # the same in the background
    expected_error: type[Exception] = Exception  # of a fetch; others are logged as `upkeep_event`, with traceback
    unused_ms = math.inf  # if finite: documents are refreshed without requests, and dropped after so long without use
    is_file_first = False  # a good document in a file replaces the first fetch; else files serve after a failed fetch
    upkeep_event = ""  # log event for an error in upkeep
    logger = structlog.get_logger("ams.storage")

    def __init__(self, now: Now, folder: str = "", space: FreeSpace = UNLIMITED, monotonic: Now | None = None) -> None:
        """Make an empty cache.

        `now` is the clock of documents; `monotonic` is that of uses, so a wrong wall clock drops no document. `folder`
        is for files (empty: none), which are written while `space` allows growth.
        """
        self._now, self._monotonic, self._folder, self._space = now, monotonic or now, folder, space
        # Not an `LruCache`: there are two limits, and a refresh does not count as a use.
        self.states: OrderedDict[Key, DocumentState[Document]] = OrderedDict()
        self._fetching: SingleFlight[Key, DocumentState[Document]] = SingleFlight()
        self._upkeep: asyncio.Task[None] | None = None
        self.changes = 0  # number of times a document was set or replaced

    def cached_state(self, source: Source) -> DocumentState[Document]:
        """Return the state of a document without fetching it."""
        return self.states.get(self._key_of(source)) or DocumentState()

    async def get(self, source: Source) -> DocumentState[Document]:
        """Return the state of a document; fetch it first unless it is good or a fetch failed recently."""
        key, now = self._key_of(source), self._now()
        state = self.states.get(key)
        if state is None or not (state.is_good(now) or (state.is_resting(now) and key not in self._fetching)):
            state = await asyncio.shield(self.start_fetch(source))
        elif state.is_good(now) and now >= state.refresh_at:
            self.start_fetch(source)
        state.used_at = self._monotonic()
        if key in self.states:  # else it was dropped meanwhile
            self.states.move_to_end(key)
        return state

    async def get_newer(self, source: Source) -> DocumentState[Document] | None:
        """Fetch a newer edition of a document and return its state; None if the next fetch must wait."""
        state, now = self.cached_state(source), self._now()
        if state.is_resting(now) and self._key_of(source) not in self._fetching:
            return None
        state.retry_at = now + self.retry_ms  # before the fetch, so that concurrent callers cause only one
        return await asyncio.shield(self.start_fetch(source))

    async def document(self, source: Source) -> Document:
        """Return a document; fetch it first unless it is good. Raises the error of the fetch."""
        state = await self.get(source)
        if state.failure is not None and not state.is_good(self._now()):
            raise state.failure
        assert state.document is not None
        return state.document

    def start_fetch(self, source: Source) -> "asyncio.Task[DocumentState[Document]]":
        """Fetch a document in the background; concurrent callers share one task."""
        if self._upkeep is None and self.unused_ms < math.inf:
            self._upkeep = asyncio.create_task(self._run_upkeep())
        key = self._key_of(source)
        return self._fetching.start(key, partial(self._refresh, key, source))

    def forget(self, source: Source) -> None:
        """Drop a document, and remove its file."""
        key = self._key_of(source)
        self.states.pop(key, None)
        self._remove_files([key])

    async def refresh_due(self) -> None:
        """Fetch due documents and drop unused ones."""
        now = self._now()
        for key, state in list(self.states.items()):
            if self._monotonic() - state.used_at > self.unused_ms:
                self.states.pop(key, None)
                await asyncio.to_thread(self._remove_files, [key])
            elif self.states.get(key) is state and not state.noted_at <= now < state.refresh_at:
                await asyncio.shield(self.start_fetch(state.source))

    async def close(self) -> None:
        """Stop fetching."""
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.gather(self._upkeep, return_exceptions=True)
        await self._fetching.close()

    def _key_of(self, source: Source) -> Key:
        raise NotImplementedError

    async def _fetch(self, source: Source, before: Document | None) -> Edition[Document]:
        """Fetch a document; may return the previous one. Errors are raised to the callers."""
        raise NotImplementedError

    def _good_until(self, document: Document, known: int) -> int:
        """Return the end of a document after a failed fetch; `known`: as before, or now if the clock was set back."""
        return known

    def _file_name(self, key: Key) -> str:
        raise NotImplementedError

    def _read(self, source: Source, data: bytes) -> Edition[Document] | None:
        """Parse a file; None if it is of another source. Raises any error if it is damaged. Runs on a thread."""
        raise NotImplementedError

    def _log_file_error(self, key: Key, reason: str, *, is_read: bool) -> None:
        """Log that a file could not be read or written. Runs on a thread."""
        raise NotImplementedError

    async def _run_upkeep(self) -> None:
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            try:
                await self.refresh_due()
            except Exception:  # the next round is soon
                self.logger.exception(self.upkeep_event)

    async def _refresh(self, key: Key, source: Source) -> DocumentState[Document]:
        """Fetch a document. A failed fetch does not raise: the state keeps its error."""
        known = self.states.get(key)
        state = self.states[key] = known or DocumentState(used_at=self._monotonic())
        if self.unused_ms < math.inf:
            state.source = source
        data = b""
        if known is None and self.is_file_first:
            await self._load(state, key, source)
        if known is not None or not state.is_good(self._now()):
            try:
                edition = await self._fetch(source, state.document)
            except Exception as error:  # raised to callers of `document`
                if not isinstance(error, self.expected_error):
                    self.logger.exception(self.upkeep_event)
                if known is None and not self.is_file_first:
                    await self._load(state, key, source)
                self._note_failure(state, error)
            else:
                self._note(state, edition)
                data = edition.data
        dropped = self._drop_beyond_limits(key)
        if self._folder:
            await asyncio.to_thread(self._write, key, data, dropped)
            if self.states.get(key) is not state:  # it was dropped meanwhile
                self._remove_files([key])
        return state

    def _note(self, state: DocumentState[Document], edition: Edition[Document]) -> None:
        now = self._now()
        if edition.document is not state.document:
            self.changes += 1
            state.size = len(edition.data)
        state.document, state.refresh_at, state.good_until, _ = edition
        state.last_error, state.noted_at = None, now
        if edition.good_until <= now:  # expired when it was published
            state.retry_at = now + self.retry_ms

    def _note_failure(self, state: DocumentState[Document], error: Exception) -> None:
        now = self._now()
        if state.document is not None:
            state.good_until = self._good_until(state.document, now if now < state.noted_at else state.good_until)
        error.__cause__ = error.__context__ = None  # their frames hold the answer's data
        state.last_error, state.noted_at = error.with_traceback(None), now
        state.retry_at, state.refresh_at = now + self.retry_ms, now + self.refresh_retry_ms

    def _drop_beyond_limits(self, fetched: Key) -> list[Key]:
        dropped = []
        while len(self.states) > 1 and (
            len(self.states) > self.max_documents or sum(each.size for each in self.states.values()) > self.max_bytes
        ):
            dropped.append(next(key for key in self.states if key != fetched))
            del self.states[dropped[-1]]
        return dropped

    async def _load(self, state: DocumentState[Document], key: Key, source: Source) -> None:
        """Load a document from its file, on a thread. Does not raise: an unreadable file is logged."""

        def load() -> Edition[Document] | None:
            try:
                with open(self._path(key), "rb") as file:
                    return self._read(source, file.read())
            except FileNotFoundError:
                return None
            except Exception as error:  # of the disk, or of any parser
                self._log_file_error(key, str(error), is_read=True)
                return None

        edition = await asyncio.to_thread(load) if self._folder else None
        if edition is not None:
            self._note(state, edition)

    def _write(self, key: Key, data: bytes, dropped: Iterable[Key]) -> None:
        self._remove_files(dropped)
        refusal = self._space.growth_refusal() if data else None
        if data and refusal is None:
            try:
                Disk().make_folder(self._folder)
                write_whole(Disk(), self._path(key), data)
                self._remove_oldest_files()
            except OSError as error:
                refusal = error.strerror
        if refusal is not None:
            self._log_file_error(key, refusal, is_read=False)

    def _remove_files(self, keys: Iterable[Key]) -> None:
        for key in keys if self._folder else ():
            with contextlib.suppress(OSError):
                os.unlink(self._path(key))

    def _remove_oldest_files(self) -> None:
        """Apply the limits to the folder, as earlier runs may have left files of unused documents."""
        total = 0
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as entries:  # removed just now
            files = [(each.stat(), each.path) for each in entries if each.is_file(follow_symlinks=False)]
            for number, (stat, path) in enumerate(sorted(files, key=lambda each: each[0].st_mtime_ns, reverse=True)):
                total += stat.st_size
                if number and (number >= self.max_documents or total > self.max_bytes):
                    os.unlink(path)

    def _path(self, key: Key) -> str:
        return os.path.join(self._folder, self._file_name(key))
