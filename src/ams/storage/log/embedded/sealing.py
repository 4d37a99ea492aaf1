"""Sealing: giving a segment that will not grow any more its index file."""

from collections.abc import Callable, Sequence

from ams.core.clock import Milliseconds
from ams.core.errors import Damaged
from ams.core.names import TopicId
from ams.storage.files import Files, write_whole
from ams.storage.log.embedded.catalog import Segment
from ams.storage.log.embedded.entries import SegmentEntries
from ams.storage.log.embedded.filter import NO_KEYS, KeyFilter, decode_filter, make_filter
from ams.storage.log.embedded.index import (
    HEAD_BYTES,
    Directory,
    IndexHead,
    Reach,
    Row,
    decode_head,
    encode_index,
    hashes_in,
)
from ams.storage.log.embedded.scan import scan

Table = Callable[[], tuple[int, list[Row]]]
"""Returns the topics alive and the last commit whose creates, drops and retentions they reflect."""


class Sealer:
    """Writes index files, one at a time, on a thread; every call may raise `OSError`."""

    def __init__(self, files: Files, table: Table) -> None:
        self._files = files
        self._table = table
        self._reach: dict[int, tuple[int, dict[TopicId, Reach]]] = {}
        """By class: how far each topic came up to the segment of this sequence."""

    def seal(self, segment: Segment, earlier: Sequence[Segment]) -> tuple[IndexHead, KeyFilter]:
        """Write the index of a segment, durably; `earlier` are those before it in its class, oldest first."""
        assert segment.entries is not None
        reach = self._before(segment, earlier) | _own_reach(segment.entries)
        commit, rows = self._table()
        data = encode_index(segment.kind.code, segment.sequence, segment.length, commit, rows, segment.entries, reach)
        write_whole(self._files, segment.index_path, data)
        self._reach[segment.kind.code] = (segment.sequence, reach)
        head = decode_head(data[:HEAD_BYTES])
        assert head is not None
        return head, decode_filter(data[head.filter_position :], head.keys) if head.keys else NO_KEYS

    def _before(self, segment: Segment, earlier: Sequence[Segment]) -> dict[TopicId, Reach]:
        """Return how far topics came before a segment: remembered, read from the index before it, or worked out."""
        if not earlier:
            return {}
        sequence, reach = self._reach.get(segment.kind.code, (0, {}))
        if sequence == earlier[-1].sequence:
            return reach
        own: list[dict[TopicId, Reach]] = []
        for each in reversed(earlier):
            written = self._written(each)
            if written is not None:
                own.append(written)
                break
            own.append(_own_reach(each.entries or self._scanned(each)))
        return {topic: reach for part in reversed(own) for topic, reach in part.items()}

    def _written(self, segment: Segment) -> dict[TopicId, Reach] | None:
        """Return what the index file of a segment says; None when it has none that is undamaged."""
        if segment.head is None:
            return None
        try:
            directory = read_directory(self._files, segment.index_path, segment.head)
        except Damaged:
            return None
        return {row.topic: Reach(row.reach, row.reach_time) for row in directory.rows()}

    def _scanned(self, segment: Segment) -> SegmentEntries:
        return scan(self._files, segment.path, segment.sequence, segment.length, closed=True).content


def _own_reach(entries: SegmentEntries) -> dict[TopicId, Reach]:
    return {topic: Reach(each.end, Milliseconds(each.times[-1])) for topic, each in entries.topics.items()}


def read_head(files: Files, path: str) -> IndexHead | None:
    """Return the head of an index file; None when it is damaged."""
    return decode_head(read_at(files, path, HEAD_BYTES, 0))


def read_directory(files: Files, path: str, head: IndexHead) -> Directory:
    """Return the directory of an index file; raises `Damaged`."""
    return Directory(head, read_at(files, path, head.directory_bytes, HEAD_BYTES))


def read_filter(files: Files, path: str, head: IndexHead) -> KeyFilter:
    """Return the filter of the keys in an index file, worked out when there is none in it; raises `Damaged`."""
    if not head.keys:
        return NO_KEYS
    if head.filter_bytes:
        return decode_filter(read_at(files, path, head.filter_bytes, head.filter_position), head.keys)
    return make_filter(hashes_in(read_at(files, path, head.keys_bytes, head.keys_position)))


def read_at(files: Files, path: str, size: int, position: int) -> bytes:
    """Return bytes of a file, opened only for this."""
    handle = files.open(path)
    try:
        return files.read(handle, size, position)
    finally:
        files.close(handle)
