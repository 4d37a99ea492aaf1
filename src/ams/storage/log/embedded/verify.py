"""Verifying: reading every record and every index of a log's folder, changing nothing. `ams check` shows the report."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from ams.core.errors import Damaged, Unusable
from ams.storage.files import Disk, opened
from ams.storage.log.embedded.index_file import (
    Directory,
    IndexHead,
    Row,
    decode_entries,
    key_in,
    read_at,
    read_directory,
    read_filter,
    read_head,
)
from ams.storage.log.embedded.scan import Damage, Scanned, Trimmed, scan
from ams.storage.log.embedded.segment import (
    CLASSES,
    HEAD_BYTES,
    Cut,
    RetentionClass,
    decode_head,
    head_is_whole,
    index_path,
    log_path,
    sequence_of,
)
from ams.storage.log.embedded.segment_index import Entries, SegmentEntries


class Report(NamedTuple):
    """What is in a log's folder."""

    segments: int
    indexes: int
    records: int
    messages: int
    topics: int
    """Topics that have messages."""
    bytes: int
    """Of segments."""
    torn: tuple[Trimmed, ...]
    """Ends that never became whole, acknowledged appends; the next start cuts them."""
    damage: tuple[Damage, ...]


def check(folder: str, *, files: Disk | None = None) -> Report:
    """Read the whole log in `folder` and report; blocking, changes nothing.

    Raises `Unusable` when it cannot be read, or was written by a newer version.
    """
    try:
        return _Check(files or Disk(), folder).run()
    except OSError as error:
        raise Unusable(f"log folder {folder}: {error.strerror}") from error


class _Check:
    def __init__(self, files: Disk, folder: str) -> None:
        self._files, self._folder = files, folder
        self._damage: list[Damage] = []
        self._torn: list[Trimmed] = []
        self._scanned: list[Scanned] = []
        self._bytes = 0
        self._indexes = 0

    def run(self) -> Report:
        for kind in CLASSES:
            if self._files.exists(os.path.join(self._folder, kind.name)):
                self._check_class(kind)
        return Report(
            len(self._scanned),
            self._indexes,
            sum(each.records for each in self._scanned),
            sum(each.messages for each in self._scanned),
            len({topic for each in self._scanned for topic in each.content.topics}),
            self._bytes,
            tuple(self._torn),
            tuple(self._damage),
        )

    def _check_class(self, kind: RetentionClass) -> None:
        names = self._files.names(os.path.join(self._folder, kind.name))
        numbers = {ending: self._numbers(names, ending) for ending in (".log", ".idx")}
        cuts = dict(self._cuts(kind, numbers[".log"]))
        for sequence in numbers[".log"]:
            head = self._head(kind, sequence) if sequence in numbers[".idx"] else None
            closed = sequence in numbers[".idx"] or sequence != numbers[".log"][-1]
            self._check_segment(kind, sequence, head, cuts.get(sequence), closed=closed)
        for sequence in sorted(set(numbers[".idx"]) - set(numbers[".log"])):
            head = self._head(kind, sequence)
            if head is not None:
                self._directory(index_path(self._folder, kind, sequence), head)

    def _numbers(self, names: list[str], ending: str) -> list[int]:
        found = (sequence_of(name) for name in names if name.endswith(ending))
        return [sequence for sequence in found if sequence is not None]

    def _cuts(self, kind: RetentionClass, sequences: list[int]) -> Iterator[tuple[int, Cut]]:
        for sequence in sequences:
            path = log_path(self._folder, kind, sequence)
            data = read_at(self._files, path, HEAD_BYTES, 0)
            head = decode_head(data)
            if len(data) == HEAD_BYTES and not head_is_whole(data):
                self._note(path, 0, "segment header checksum", HEAD_BYTES)
            if head is not None and head.cut is not None:
                yield head.cut.sequence, head.cut

    def _head(self, kind: RetentionClass, sequence: int) -> IndexHead | None:
        path = index_path(self._folder, kind, sequence)
        self._indexes += 1
        head = read_head(self._files, path)
        if head is None or (head.class_code, head.sequence) != (kind.code, sequence):
            self._note(path, 0, "index header checksum")
            return None
        return head

    def _check_segment(
        self, kind: RetentionClass, sequence: int, head: IndexHead | None, cut: Cut | None, *, closed: bool
    ) -> None:
        path = log_path(self._folder, kind, sequence)
        limit = head.length if head else cut.length if cut else None
        found = scan(self._files, path, sequence, limit, closed=closed)
        with opened(self._files, path) as handle:
            size = self._files.size(handle)
        end = found.end if found.torn or limit is None else limit
        if size > max(end, HEAD_BYTES) and not found.unwritten:
            self._torn.append(Trimmed(path, end, size - end, found.torn or "refused by the disk"))
        self._scanned.append(found)
        self._damage += found.damage
        self._bytes += size
        if head is not None:
            self._check_index(index_path(self._folder, kind, sequence), head, found)

    def _check_index(self, path: str, head: IndexHead, found: Scanned) -> None:
        directory = self._directory(path, head)
        if directory is None:
            return
        for row in directory.rows():
            try:
                self._check_row(path, directory, row, found)
            except Damaged as damage:
                self._note(path, 0, damage.message)
        try:
            self._check_keys(path, directory, found.content)
        except Damaged as damage:
            self._note(path, head.keys_position, damage.message)

    def _directory(self, path: str, head: IndexHead) -> Directory | None:
        try:
            return read_directory(self._files, path, head)
        except Damaged as damage:
            self._note(path, 0, damage.message)
            return None

    def _check_row(self, path: str, directory: Directory, row: Row, found: Scanned) -> None:
        """Compare a topic's entries with its records; records that are damaged now may be in the index."""
        listed: dict[int, tuple[int, ...]] = {}
        blocks = range(row.block, directory.last_block(row) + 1) if row.entries else ()
        for block in blocks:
            place = directory.place(row, block)
            listed.update(_lines(decode_entries(read_at(self._files, path, place.size, place.position))))
        real = dict(_lines(found.content.topics.get(row.topic, Entries())))
        if any(listed.get(position) != line for position, line in real.items()):
            raise Damaged("the index does not agree with the segment")
        if len(listed) != len(real) and not found.damage:
            raise Damaged("the index has records the segment has not")

    def _check_keys(self, path: str, directory: Directory, content: SegmentEntries) -> None:
        keys = read_filter(self._files, path, directory.head)
        for hashed, result in content.keys.items():
            place = directory.key_place(hashed)
            data = read_at(self._files, path, place.size, place.position) if place else None
            if data is None or key_in(data, hashed) != result or not keys.may_hold(hashed):
                raise Damaged("the index does not agree with the segment's keys")

    def _note(self, path: str, position: int, reason: str, length: int = 0) -> None:
        self._damage.append(Damage(path, position, length, reason))


def _lines(entries: Entries) -> Iterator[tuple[int, tuple[int, ...]]]:
    columns = (entries.firsts, entries.times, entries.counts, entries.lengths)
    return zip(entries.positions, zip(*columns, strict=True), strict=True)
