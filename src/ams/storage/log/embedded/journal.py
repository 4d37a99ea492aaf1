"""The journal of cursors: groups of their moves are records of the log, and an image takes the place of the older ones.

What a group holds is not known here. It is a record of the segment that is written at the same time, or of a chain of
its own. An image is a file as a segment is one: records of cursors and a mark, and its sequence number is the commit
before which it was begun; groups of later commits follow it. No segment gets its index, with which it is not read at a
start any more, while it holds groups that the image has not (`docs/decisions/0065-cursors-are-records-of-the-log.md`).
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import LogUnavailable, OutcomeUnknown
from ams.core.names import Offset, TopicId
from ams.storage.files import NEW, Disk, opened
from ams.storage.log.embedded.catalog import SegmentCatalog
from ams.storage.log.embedded.group_commit import CursorGroup, Outcome
from ams.storage.log.embedded.record import Header, Kind, encode
from ams.storage.log.embedded.segment import CURSORS, HEAD_BYTES, SegmentHead, encode_head, image_path, seed_of

IMAGE_BYTES = 16 << 20  # bytes of groups after which an image is stored, unless the last one was larger
Bodies = Callable[[], Iterator[bytes]]


@dataclass(slots=True)
class RestoredJournal:
    """A journal as a start finds it."""

    bodies: list[bytes] = field(default_factory=list)  # of the image, and of groups after it
    bytes: int = 0  # of those groups
    image: int = 0  # the commit of the image; 0: there is none
    image_bytes: int = 0
    commit: int = 0  # of the last group


class Journal:
    """Groups of one log, on the event loop. Keeps the promise of `ams.storage.cursors.embedded.Journal`."""

    def __init__(
        self,
        files: Disk,
        folder: str,
        clock: Clock,
        catalog: SegmentCatalog,
        restored: RestoredJournal,
        submit: Callable[[CursorGroup], None],
    ) -> None:
        self.image, self.commit = restored.image, restored.commit
        self.on_due: Callable[[], None] = lambda: None  # called when an image is due, or `tidy` has something to do
        self._files, self._folder, self._clock, self._catalog = files, folder, clock, catalog
        self._bodies, self._submit = restored.bodies, submit
        self._collect: Callable[[], Awaitable[Bodies]] = self._collect_restored
        self._bytes = restored.bytes  # of groups since the image
        self._image_bytes = restored.image_bytes
        self._under_way: CursorGroup | None = None
        self._storing, self._drafting = asyncio.Lock(), threading.Lock()
        self._old: list[str] = []  # images that were replaced

    def read(self) -> Sequence[bytes]:
        return self._bodies

    def submit(self, body: bytes, ended: Callable[[LogUnavailable | None], None]) -> None:
        assert self._under_way is None
        group = CursorGroup(body, ended)
        self._submit(group)
        self._under_way = group

    def collect_by(self, collect: Callable[[], Awaitable[Bodies]]) -> None:
        self._collect, self._bodies = collect, []

    def apply(self, outcome: Outcome) -> None:
        """Tell of the group that ended with an outcome of the committer, unless it was given up."""
        group = outcome.cursors
        if group is None or group is not self._under_way:
            return
        if outcome.cursors_error is None:
            self.commit = outcome.commit
            was_due = self.is_due
            self._bytes += len(group.body)
            if self.is_due and not was_due:
                self.on_due()
        self._under_way = None
        group.ended(outcome.cursors_error)

    def give_up(self) -> None:
        """Fail the group under way: nobody will tell what became of it."""
        group, self._under_way = self._under_way, None
        if group is not None:
            group.ended(OutcomeUnknown())

    async def store_image(self) -> None:
        async with self._storing:
            commit, counted = self.commit, self._bytes
            if commit == self.image:
                return
            bodies = await self._collect()
            size = await asyncio.to_thread(self._write_image, commit, self._clock.wall(), bodies)
            if self.image:
                self._old.append(image_path(self._folder, self.image))
            self.image, self._image_bytes = commit, size
            self._bytes -= counted
            self.on_due()

    @property
    def is_due(self) -> bool:
        """Whether an image is due: a start is to read little."""
        return self._bytes >= max(IMAGE_BYTES, self._image_bytes)

    async def tidy(self) -> None:
        """Remove what the image has taken the place of. Raises `OSError`."""
        while self._old:
            await asyncio.to_thread(self._files.unlink, self._old[0])
            del self._old[0]
        segments = self._catalog.chain
        while segments and segments[0].closed and segments[0].cursors <= self.image:
            # One after the other: the next one may say how much of this one is good.
            await asyncio.to_thread(self._files.unlink, segments[0].path)
            await asyncio.to_thread(self._files.sync_folder, os.path.dirname(segments[0].path))
            del self._catalog.by_sequence[segments.pop(0).sequence]

    def images(self) -> list[str]:
        """Return the path of the image, if there is one. From any thread."""
        return [image_path(self._folder, self.image)] if self.image else []

    @property
    def usage(self) -> int:
        """Bytes of image and chain."""
        return self._image_bytes + sum(each.length for each in self._catalog.chain)

    def _write_image(self, commit: int, now: Milliseconds, bodies: Bodies) -> int:
        with self._drafting:  # who was cancelled may write the same draft still
            return write_image(self._files, self._folder, commit, now, bodies())

    async def _collect_restored(self) -> Bodies:
        bodies = self._bodies
        return lambda: iter(bodies)


def write_image(files: Disk, folder: str, commit: int, now: Milliseconds, bodies: Iterable[bytes]) -> int:
    """Write an image, durably, or nothing; return its size. Blocking, raises `OSError`."""
    path, seed, end = image_path(folder, commit), seed_of(commit), HEAD_BYTES
    draft = path + NEW
    files.unlink(draft)
    try:
        with opened(files, draft, create=True) as handle:
            files.write(handle, encode_head(SegmentHead(CURSORS.code, commit, now)), 0)
            for kind, body in chain(((Kind.CURSORS, body) for body in bodies), ((Kind.MARK, b""),)):
                header = Header(kind, True, TopicId(bytes(16)), Offset(0), now, commit, 0, 0, 0)
                record = encode(header, body, seed)
                files.write(handle, record, end)
                end += len(record)
            files.sync(handle)
        files.rename(draft, path)
    except OSError:
        with contextlib.suppress(OSError):  # a full disk needs its space
            files.unlink(draft)
        raise
    files.sync_folder(os.path.dirname(path))
    return end
