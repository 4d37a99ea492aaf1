"""Full scan of a segment: for recovery, to rebuild an index, and for `ams check`.

A torn end and damage in the middle look alike: checksums do not match. Every record carries the `durable` length of the
segment to tell them apart. If a later record confirms the bytes as synced, they are damaged. Otherwise they belong to a
group whose sync never returned: nothing from there on was acknowledged. Old bytes of a reused file also look like a
torn end, because their checksums start with another segment's number.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.errors import Damaged, Unusable
from ams.core.names import TopicId
from ams.storage.files import Disk, FileHandle, open_file
from ams.storage.log.base import Appended, key_hash
from ams.storage.log.embedded import record, segment, segment_index
from ams.storage.log.embedded.catalog import Tail
from ams.storage.log.embedded.record import HEADER_BYTES, MAGIC, RecordHeader, RecordKind
from ams.storage.log.embedded.segment import CHAINS, CURSORS, HEAD_BYTES, IMAGE_SUFFIX, Cut, RetentionClass
from ams.storage.log.embedded.segment_index import Directory, Entries, IndexHead, SegmentEntries, TopicRow

RESTORE_HINT = (
    f"restore all of the log together, or move its folder {CURSORS.name} away: then subscriptions begin at their oldest"
    " message"
)
_WINDOW_BYTES = 4 * 1024 * 1024
_NO_TAIL = Tail()


class Damage(NamedTuple):
    """Damaged bytes: never served, and reported; `length` is 0 if unknown."""

    file: str
    position: int
    length: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} at {self.position}: {self.reason} ({self.length} bytes)"


class Trimmed(Damage):
    """A torn end of a segment that recovery truncated; it was never acknowledged."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.file} at {self.position}: {self.reason}, {self.length} bytes cut"


class CursorsRecord(NamedTuple):
    """A group of cursors found in a segment."""

    commit: int
    before: int  # the commit of the group before it
    body: bytes


@dataclass(slots=True)
class Scanned:
    """The content of a segment."""

    content: SegmentEntries = field(default_factory=SegmentEntries)
    tails: dict[TopicId, Tail] = field(default_factory=dict)  # data bytes of records after the known commit only
    controls: list[tuple[RecordHeader, bytes]] = field(default_factory=list)  # with their bodies
    cursors: list[CursorsRecord] = field(default_factory=list)  # of commits after `cursors_known`
    damage: list[Damage] = field(default_factory=list)
    end: int = HEAD_BYTES  # end of the last whole append; later bytes were never acknowledged
    durable: int = 0  # largest durable length in its records
    torn: str = ""  # why the scan ended before the end of the file
    unwritten: bool = False  # after `end` there are only preallocated pages, no torn append
    records: int = 0
    messages: int = 0
    commit: int = 0
    first_time: Milliseconds | None = None
    marked: bool = False


@dataclass(slots=True)
class _Scanner:
    files: Disk
    handle: FileHandle
    path: str
    seed: int
    length: int
    closed: bool  # whether all of `length` is on stable storage
    known: Mapping[TopicId, int] = field(default_factory=dict)  # commit up to which published bytes are counted
    held: int = 0  # up to here the file may have old bytes of a reused segment
    cursors_known: int = 0  # groups of cursors up to this commit are skipped
    _base: int = 0
    _window: bytes = b""
    _open: list[tuple[RecordHeader, int, bytes]] = field(default_factory=list)
    _found: Scanned = field(default_factory=Scanned)

    def scan(self) -> Scanned:
        position = HEAD_BYTES
        while position < self.length and not self._found.torn:
            header = self._header(position)
            if header is None or position + header.size > self.length:  # damaged or incomplete
                position = self._past_bad_header(position)
                continue
            start, position = position, position + header.size
            body = self._bytes(start + HEADER_BYTES, header.body_bytes)
            if record.checksum(body, self.seed) != header.body_checksum:
                self._bad_body(header, start)
                continue
            if header.last and not self._open:
                self._take(header, start, body)
                self._found.end = position
                continue
            self._open.append((header, start, body))
            if header.last:
                self._take_open(position)
        self._finish()
        return self._found

    def _finish(self) -> None:
        if not self._open or self._found.torn:
            return
        if self.closed:
            self._note_damage(self.length, 0, "the end of an append is missing")
            self._take_open(self.length)
        else:
            self._found.torn = "an append without its end"

    def _header(self, position: int) -> RecordHeader | None:
        offset = self._offset(position, HEADER_BYTES)  # may replace the window: call it first
        return record.decode_header(self._window, self.seed, offset)

    def _offset(self, position: int, size: int) -> int:
        """Load `size` bytes at `position` into the window; return their offset in it."""
        offset = position - self._base
        if offset < 0 or offset + size > len(self._window):
            self._base = position
            wanted = min(max(_WINDOW_BYTES, size), self.length - position)
            self._window = self.files.read(self.handle, wanted, position)
            return 0
        return offset

    def _bytes(self, position: int, size: int) -> bytes:
        offset = self._offset(position, size)
        return self._window[offset : offset + size]

    def _bad_body(self, header: RecordHeader, start: int) -> None:
        if not self._is_durable(start, start + header.size):
            self._found.torn = "a record that was not written whole"
            return
        self._take_open(start)
        self._note_damage(start, header.size, "record checksum")
        self._advance_topic_end(header, 0)
        self._found.end = start + header.size

    def _past_bad_header(self, position: int) -> int:
        following = self._next_header(position + 1)
        if not self._is_durable(position, following):
            self._found.torn = "bytes that are no record"
            self._found.unwritten = not self._open and following == self.length and self._is_unwritten(position)
            return position
        self._take_open(position)
        self._note_damage(position, following - position, "no record where one must be")
        self._found.end = following
        return following

    def _is_unwritten(self, position: int) -> bool:
        """Return whether the bytes from `position` on may be unwritten: old bytes of a reused file, then zeros."""
        if position > HEAD_BYTES and self._bytes(position, min(len(MAGIC), self.length - position)) == MAGIC:
            return False  # our own damaged record: an old record hardly begins at this position
        position = max(position, self.held)
        while position < self.length:
            size = min(_WINDOW_BYTES, self.length - position)
            if any(self._bytes(position, size)):
                return False
            position += size
        return True

    def _next_header(self, position: int) -> int:
        while position < self.length:
            offset = self._offset(position, min(HEADER_BYTES, self.length - position))
            found = self._window.find(MAGIC, offset)
            if found < 0:
                position = max(self._base + len(self._window) - len(MAGIC) + 1, position + 1)
                continue
            position = self._base + found
            if self._header(position) is not None:
                return position
            position += 1
        return self.length

    def _is_durable(self, position: int, following: int) -> bool:
        """Return whether a later record, even a torn one, confirms that the bytes at `position` were synced."""
        if self.closed:
            return True
        while following < self.length:
            header = self._header(following)
            if header is not None and header.durable > position:
                return True
            following = following + header.size if header is not None else self._next_header(following + 1)
        return False

    def _note_damage(self, position: int, length: int, reason: str) -> None:
        self._found.damage.append(Damage(self.path, position, length, reason))

    def _take_open(self, end: int) -> None:
        for header, position, body in self._open:
            self._take(header, position, body)
        self._open.clear()
        self._found.end = end

    def _take(self, header: RecordHeader, position: int, body: bytes) -> None:
        found = self._found
        found.records += 1
        found.marked = header.kind == RecordKind.MARK
        found.durable = max(found.durable, header.durable)
        if header.commit > found.commit:
            found.commit = header.commit
        if header.kind == RecordKind.MESSAGES:
            self._take_messages(header, position, body)
        elif header.kind == RecordKind.CURSORS:
            if header.commit > self.cursors_known:
                found.cursors.append(CursorsRecord(header.commit, header.first, body))
        elif header.kind != RecordKind.MARK:
            found.content.note_time(header.time)
            found.controls.append((header, body))

    def _take_messages(self, header: RecordHeader, position: int, body: bytes) -> None:
        found, topic, first = self._found, header.topic, header.first
        if first < found.tails.get(topic, _NO_TAIL).end:
            self._note_damage(position, header.size, "offsets that were given before")
            return
        found.messages += header.messages
        if found.first_time is None:
            found.first_time = header.time
        found.content.add(topic, first, header.time, header.messages, position, header.size)
        published, notes = record.data_bytes_and_notes(header, body)
        for key, content, first, count in notes:
            found.content.add_key(topic, key_hash(topic, key), Appended(first, count, header.time), content)
        self._advance_topic_end(header, published)

    def _advance_topic_end(self, header: RecordHeader, published: int) -> None:
        """Move the topic's end over a record, also a damaged one: its offsets are used. `published`: its data bytes."""
        if header.kind != RecordKind.MESSAGES:
            return
        counted = self._found.tails.get(header.topic, _NO_TAIL).published
        if header.commit > self.known.get(header.topic, 0):
            counted += published
        self._found.tails[header.topic] = Tail(header.end, header.time, counted, header.commit)


def scan(
    files: Disk, path: str, sequence: int, length: int | None = None, *, closed: bool,
    known: Mapping[TopicId, int] | None = None, cursors_known: int = 0,
) -> Scanned:  # fmt: skip
    """Scan a segment up to `length` or its end; raises `OSError`."""
    with open_file(files, path) as handle:
        size = files.size(handle)
        limit = size if length is None else length
        head = segment.decode_head(files.read(handle, HEAD_BYTES, 0))
        held = head.held if head is not None and head.sequence == sequence else 0
        seed, limited = segment.seed_of(sequence), min(limit, size)
        found = _Scanner(files, handle, path, seed, limited, closed, known or {}, held, cursors_known).scan()
        if size < limit:
            found.damage.append(Damage(path, size, limit - size, "the file ends too early"))
        return found


def images_in(files: Disk, folder: str) -> list[int]:
    """Return the commits of all images of cursors in a log's folder, oldest first."""
    if not files.exists(os.path.join(folder, CURSORS.name)):
        return []
    names = [os.path.splitext(name) for name in files.names(os.path.join(folder, CURSORS.name))]
    return [int(stem) for stem, ending in names if ending == IMAGE_SUFFIX and len(stem) == 16 and stem.isdecimal()]


def read_image(files: Disk, folder: str, commit: int) -> tuple[list[bytes], int]:
    """Return the bodies of an image, and its size. Raises `Unusable` if it is damaged."""
    path = segment.image_path(folder, commit)
    head = segment_index.read_at(files, path, HEAD_BYTES, 0)
    found = scan(files, path, commit, closed=True)
    own = segment.decode_head(head)
    if found.damage or not found.marked or not segment.head_is_whole(head) or own is None or own.sequence != commit:
        reason = found.damage[0].reason if found.damage else "its beginning or its end is missing"
        raise Unusable(f"{path} is not a whole image of cursors ({reason}); {RESTORE_HINT}")
    return [each.body for each in found.cursors], found.end


def in_order(records: Iterable[CursorsRecord], image: int) -> tuple[list[CursorsRecord], bool]:
    """Return the groups after an image, in order, and whether all are there.

    Each group names its predecessor. A group that no later one names had failed; it remained because the successor of
    its segment could not be created.
    """
    kept: list[CursorsRecord] = []
    before: int | None = None
    is_whole = True
    for each in sorted(records, reverse=True):
        if each.commit <= image or (before is not None and each.commit > before):
            continue
        is_whole = is_whole and before in (None, each.commit)
        kept.append(each)
        before = each.before
    kept.reverse()
    return kept, is_whole and (before is None or before <= image)


def check_record(data: bytes, position: int, sequence: int, topic: TopicId) -> RecordHeader:
    """Verify the record of a topic at an indexed position in `data`; raises `Damaged` with the reason."""
    seed = segment.seed_of(sequence)
    header = record.decode_header(data, seed, position)
    if header is None:
        raise Damaged("record header checksum")
    # A memoryview: avoids a copy of the body.
    body = memoryview(data)[position + HEADER_BYTES : position + header.size]
    if len(body) != header.body_bytes or record.checksum(body, seed) != header.body_checksum:
        raise Damaged("record checksum")
    if header.topic != topic or header.kind != RecordKind.MESSAGES:
        raise Damaged("a record of another topic")
    return header


class ScanReport(NamedTuple):
    """Result of `check`."""

    segments: int
    indexes: int
    records: int
    messages: int
    topics: int  # topics that have messages
    cursors: Sequence[bytes]  # the image of cursors and the groups after it
    bytes: int  # of segments
    torn: tuple[Trimmed, ...]  # torn ends, which the next start truncates
    damage: tuple[Damage, ...]


def check(folder: str, *, files: Disk | None = None) -> ScanReport:
    """Verify the whole log in `folder`. Blocking, changes nothing. Raises `Unusable`."""
    try:
        return _Verification(files or Disk(), folder).run()
    except OSError as error:
        raise Unusable(f"log folder {folder}: {error.strerror}") from error


class _Verification:
    def __init__(self, files: Disk, folder: str) -> None:
        self._files, self._folder = files, folder
        self._damage: list[Damage] = []
        self._torn: list[Trimmed] = []
        self._scanned: list[Scanned] = []
        self._bytes = 0
        self._indexes = 0
        self._image = 0  # the commit of the image of cursors

    def run(self) -> ScanReport:
        cursors: list[bytes] = []
        if images := images_in(self._files, self._folder):
            self._image = images[-1]
            try:
                cursors, _ = read_image(self._files, self._folder, self._image)
            except Unusable as error:
                self._note(segment.image_path(self._folder, self._image), 0, error.message)
        for kind in CHAINS:
            if self._files.exists(os.path.join(self._folder, kind.name)):
                self._check_class(kind)
        groups, is_whole = in_order((each for found in self._scanned for each in found.cursors), self._image)
        if not is_whole:
            self._note(os.path.join(self._folder, CURSORS.name), 0, "groups of cursors are missing")
        scanned, bodies = self._scanned, (*cursors, *(each.body for each in groups))
        records, messages = sum(each.records for each in scanned), sum(each.messages for each in scanned)
        counts = (len(scanned), self._indexes, records, messages)
        topics = {topic for each in scanned for topic in each.content.topics}
        return ScanReport(*counts, len(topics), bodies, self._bytes, tuple(self._torn), tuple(self._damage))

    def _check_class(self, kind: RetentionClass) -> None:
        names = self._files.names(os.path.join(self._folder, kind.name))
        numbers = {name: number for name in names if (number := segment.sequence_of(name)) is not None}
        logs, indexes = ([numbers[name] for name in numbers if name.endswith(end)] for end in (".log", ".idx"))
        self._indexes += len(indexes)
        cuts: dict[int, Cut] = {}
        for sequence in logs:
            path = segment.log_path(self._folder, kind, sequence)
            data = segment_index.read_at(self._files, path, HEAD_BYTES, 0)
            segment_head = segment.decode_head(data)
            if len(data) == HEAD_BYTES and not segment.head_is_whole(data):
                self._note(path, 0, "segment header checksum", HEAD_BYTES)
            if segment_head is not None and segment_head.cut is not None:
                cuts[segment_head.cut.sequence] = segment_head.cut
        for sequence in logs:
            head = self._head(kind, sequence) if sequence in indexes else None
            closed = sequence in indexes or sequence != logs[-1]
            self._check_segment(kind, sequence, head, cuts.get(sequence), closed=closed)
        for sequence in sorted(set(indexes) - set(logs)):
            path = segment.index_path(segment.log_path(self._folder, kind, sequence))
            with self._noting_damage(path):
                head = segment_index.read_head(self._files, path, kind.code, sequence)
                segment_index.read_directory(self._files, path, head)

    def _head(self, kind: RetentionClass, sequence: int) -> IndexHead | None:
        path = segment.index_path(segment.log_path(self._folder, kind, sequence))
        try:
            return segment_index.read_head(self._files, path, kind.code, sequence)
        except Damaged as damage:
            self._note(path, 0, damage.message)
            return None

    def _check_segment(
        self, kind: RetentionClass, sequence: int, head: IndexHead | None, cut: Cut | None, *, closed: bool
    ) -> None:
        path = segment.log_path(self._folder, kind, sequence)
        limit = head.length if head else cut.length if cut else None
        found = scan(self._files, path, sequence, limit, closed=closed, cursors_known=self._image)
        with open_file(self._files, path) as handle:
            size = self._files.size(handle)
        end = found.end if found.torn or limit is None else limit
        if size > max(end, HEAD_BYTES) and not found.unwritten:
            self._torn.append(Trimmed(path, end, size - end, found.torn or "refused by the disk"))
        self._scanned.append(found)
        self._damage += found.damage
        self._bytes += size
        if head is not None:
            self._check_index(segment.index_path(path), head, found)

    def _check_index(self, path: str, head: IndexHead, found: Scanned) -> None:
        with self._noting_damage(path):
            directory = segment_index.read_directory(self._files, path, head)
            for row in directory.rows():
                with self._noting_damage(path):
                    self._check_row(path, directory, row, found)
            with self._noting_damage(path, head.keys_position):
                keys = segment_index.read_filter(self._files, path, head)
                for hashed, result in found.content.keys.items():
                    place = directory.key_place(hashed)
                    data = segment_index.read_at(self._files, path, *place) if place else None
                    if data is None or segment_index.key_in(data, hashed) != result or not keys.may_hold(hashed):
                        raise Damaged("the index does not agree with the segment's keys")

    def _check_row(self, path: str, directory: Directory, row: TopicRow, found: Scanned) -> None:
        listed: set[tuple[int, ...]] = set()
        for block in range(row.block, directory.last_block(row) + 1) if row.entries else ():
            data = segment_index.read_at(self._files, path, *directory.place(row, block))
            listed.update(zip(*segment_index.decode_entries(data).columns, strict=True))
        real = set(zip(*found.content.topics.get(row.topic, Entries()).columns, strict=True))
        if not real <= listed:
            raise Damaged("the index does not agree with the segment")
        if len(listed) != len(real) and not found.damage:
            raise Damaged("the index has records the segment has not")

    @contextlib.contextmanager
    def _noting_damage(self, path: str, position: int = 0) -> Iterator[None]:
        try:
            yield
        except Damaged as damage:
            self._note(path, position, damage.message)

    def _note(self, path: str, position: int, reason: str, length: int = 0) -> None:
        self._damage.append(Damage(path, position, length, reason))
