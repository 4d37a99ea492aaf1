"""The journal of cursors: groups of changes as records of the log, and checkpoints (images) that replace older groups.

The bodies of groups are opaque here. A group is a record of the message segment that is written at the same time, or of
a separate chain of segments. An image is a file in the format of a segment: records of cursors, then a mark. Its number
is the last commit when it was begun; groups of later commits follow it. A start does not scan segments with an index.
So it gets none while it has groups that the image lacks (`docs/decisions/0065-cursors-in-the-log.md`).
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from ams.core.clock import Milliseconds
from ams.core.errors import LogUnavailable, OutcomeUnknown
from ams.storage.files import NEW, Disk, open_file
from ams.storage.log.embedded.catalog import SegmentCatalog
from ams.storage.log.embedded.group_commit import CommitOutcome, CursorGroup
from ams.storage.log.embedded.options import LogPlace
from ams.storage.log.embedded.record import RecordKind, Stamp, encode_control
from ams.storage.log.embedded.segment import CURSORS, HEAD_BYTES, SegmentHead, encode_head, image_path, seed_of

IMAGE_BYTES = 16 << 20  # bytes of groups after which an image is stored, unless the last one was larger
Bodies = Callable[[], Iterator[bytes]]


@dataclass(slots=True)
class RestoredJournal:
    """A journal after recovery."""

    bodies: list[bytes] = field(default_factory=list)  # of the image, and of groups after it
    bytes: int = 0  # of the groups after the image
    image: int = 0  # the commit of the image; 0: no image
    image_bytes: int = 0
    commit: int = 0  # of the last group


class Journal:
    """Implements `ams.storage.cursors.embedded.Journal`. Event loop only."""

    def __init__(
        self, place: LogPlace, catalog: SegmentCatalog, restored: RestoredJournal, submit: Callable[[CursorGroup], None]
    ) -> None:
        self.image, self.commit = restored.image, restored.commit
        self.on_due: Callable[[], None] = lambda: None  # called when an image is due, or `tidy` has work
        self._files, self._folder, self._clock, self._catalog = place.files, place.folder, place.clock, catalog
        self._bodies, self._submit = restored.bodies, submit
        self._collect: Callable[[], Awaitable[Bodies]] | None = None  # until the cursors are open
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

    def apply(self, outcome: CommitOutcome) -> None:
        """Complete the group that ended with an outcome of the committer, unless `give_up` did."""
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
        """Fail the current group with `OutcomeUnknown`, because the committer has failed."""
        group, self._under_way = self._under_way, None
        if group is not None:
            group.ended(OutcomeUnknown())

    async def store_checkpoint(self) -> None:
        async with self._storing:
            commit, counted = self.commit, self._bytes
            if commit == self.image:
                return
            bodies: Bodies = await self._collect() if self._collect else partial(iter, self._bodies)
            size = await asyncio.to_thread(self._write_image, commit, self._clock.wall(), bodies)
            if self.image:
                self._old.append(image_path(self._folder, self.image))
            self.image, self._image_bytes = commit, size
            self._bytes -= counted
            self.on_due()

    @property
    def is_due(self) -> bool:
        """True if an image is due, to bound the time of a start."""
        return self._bytes >= max(IMAGE_BYTES, self._image_bytes)

    async def tidy(self) -> None:
        """Delete old images and segments of cursors that the image replaces. Raises `OSError`."""
        while self._old:
            await asyncio.to_thread(self._files.unlink, self._old[0])
            del self._old[0]
        segments = self._catalog.chain
        while segments and segments[0].closed and segments[0].cursors <= self.image:
            # Oldest first, one by one: the header of the next one may give the valid length of this one.
            await asyncio.to_thread(self._files.unlink, segments[0].path)
            await asyncio.to_thread(self._files.sync_folder, os.path.dirname(segments[0].path))
            del self._catalog.by_sequence[segments.pop(0).sequence]

    def images(self) -> list[str]:
        """Return the path of the image, if any. Thread-safe."""
        return [image_path(self._folder, self.image)] if self.image else []

    @property
    def usage(self) -> int:
        """Size of image and chain in bytes."""
        return self._image_bytes + sum(each.length for each in self._catalog.chain)

    def _write_image(self, commit: int, now: Milliseconds, bodies: Bodies) -> int:
        with self._drafting:  # a cancelled call may still write the same draft
            return write_image(self._files, self._folder, commit, now, bodies())


def write_image(files: Disk, folder: str, commit: int, now: Milliseconds, bodies: Iterable[bytes]) -> int:
    """Write an image, durably and atomically; return its size. Blocking, raises `OSError`."""
    path, stamp, end = image_path(folder, commit), Stamp(commit, 0, seed_of(commit)), HEAD_BYTES
    draft = path + NEW
    files.unlink(draft)
    try:
        with open_file(files, draft, create=True) as handle:
            files.write(handle, encode_head(SegmentHead(CURSORS.code, commit, now)), 0)
            for kind, body in chain(((RecordKind.CURSORS, body) for body in bodies), ((RecordKind.MARK, b""),)):
                record = encode_control(kind, body, now, stamp)
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
