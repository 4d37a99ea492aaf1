"""Recovery of a log from its files, at every start.

The table of topics comes from the newest index file. Segments without an index are scanned, and update the table. Torn
ends are truncated, and so are bytes of a failed write or sync, as the header of the next segment says. Before the log
serves anything, all of it is on stable storage: bytes that no record confirms as synced are written again. The steps
are in `docs/reference/log-format.md`.
"""

import contextlib
import os
from dataclasses import dataclass, field

import msgspec

from ams.core.clock import Milliseconds
from ams.core.errors import Damaged, Unusable
from ams.core.names import TopicId
from ams.storage.files import NEW, Disk, open_file
from ams.storage.log.embedded import segment as segment_file
from ams.storage.log.embedded.catalog import Segment, Tail, TopicState
from ams.storage.log.embedded.journal import RestoredJournal, write_image
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.record import RecordHeader, RecordKind, read_control
from ams.storage.log.embedded.scan import RESTORE_HINT, Damage, Scanned, Trimmed, images_in, in_order, read_image, scan
from ams.storage.log.embedded.segment import CHAINS, CURSORS, HEAD_BYTES, Cut, OpenSegment, RetentionClass, SegmentHead
from ams.storage.log.embedded.segment_index import IndexHead, read_at, read_directory, read_filter, read_head

_COPY_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Restored:
    """A log after recovery."""

    topics: dict[TopicId, TopicState] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    journal: RestoredJournal = field(default_factory=RestoredJournal)
    open: dict[int, OpenSegment] = field(default_factory=dict)  # by class: the segment for the next appends
    commit: int = 0
    sequence: int = 0
    table: str | None = None  # path of the index file with the newest table
    trimmed: list[Trimmed] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


def recover(files: Disk, folder: str, options: LogOptions) -> Restored:
    """Repair the log in `folder` and return it. Blocking. Raises `Unusable`."""
    try:
        return _RecoveryRun(files, folder, options).run()
    except OSError as error:
        raise Unusable(f"log folder {folder}: {error.strerror}") from error


class _RecoveryRun:
    def __init__(self, files: Disk, folder: str, options: LogOptions) -> None:
        self._files, self._folder, self._options = files, folder, options
        self._log = Restored()
        self._heads: dict[str, IndexHead] = {}  # of every readable index file, by its path
        self._indexed: set[int] = set()  # segments with an index file, also a damaged one: they were durable before
        self._scanned: dict[int, Scanned] = {}
        self._known = 0  # last commit whose control records are in the table

    def run(self) -> Restored:
        for kind in CHAINS:
            self._files.make_folder(os.path.join(self._folder, kind.name))
        self._files.sync_folder(self._folder)
        self._files.sync_folder(os.path.dirname(os.path.abspath(self._folder)))
        by_class = [self._segments(kind) for kind in CHAINS]
        self._take_table()
        self._take_image()
        for segments in by_class:
            self._scan_class(segments)
        for kind in CHAINS:
            self._files.sync_folder(os.path.join(self._folder, kind.name))
        self._replay()
        self._replay_cursors()
        for kind, segments in zip(CHAINS, by_class, strict=True):
            self._note_classes(kind, segments)
        self._log.segments = [segment for segments in by_class for segment in segments]
        for segment in self._log.segments:
            if segment.entries is not None:
                segment.entries.keep_topics(self._log.topics)
            if segment.head is not None:
                with contextlib.suppress(Damaged):  # reported and rebuilt at the first look-up of a key
                    segment.filter = read_filter(self._files, segment.index_path, segment.head)
        return self._log

    def _segments(self, kind: RetentionClass) -> list[Segment]:
        place = os.path.join(self._folder, kind.name)
        logs: list[int] = []
        for name in self._files.names(place):
            sequence = segment_file.sequence_of(name)
            if sequence is None:
                if name.endswith(NEW):
                    self._files.unlink(os.path.join(place, name))
                continue
            self._log.sequence = max(self._log.sequence, sequence)
            if name.endswith(".log"):
                logs.append(sequence)
                continue
            self._indexed.add(sequence)
            path = os.path.join(place, name)
            try:
                self._heads[path] = read_head(self._files, path, kind.code, sequence)
            except Damaged as damage:
                self._note_damage(path, 0, damage.message)
        return [self._segment(kind, sequence) for sequence in logs]

    def _segment(self, kind: RetentionClass, sequence: int) -> Segment:
        path = segment_file.log_path(self._folder, kind, sequence)
        size = self._size(path)
        segment = Segment(kind, sequence, path, size)
        segment.head = self._heads.get(segment.index_path)
        if segment.head is not None:
            segment.length, segment.closed = segment.head.length, True
            if size < segment.length:
                self._note_damage(path, size, "the file ends too early", segment.length - size)
        return segment

    def _take_table(self) -> None:
        newest_first = sorted(self._heads.items(), key=lambda each: (each[1].commit, each[1].sequence), reverse=True)
        for path, head in newest_first:
            self._log.commit = max(self._log.commit, head.commit)
            if self._log.table is not None:
                continue
            try:
                directory = read_directory(self._files, path, head)
            except Damaged as damage:
                self._note_damage(path, 0, damage.message)
                continue
            self._log.table, self._known = path, head.commit
            for row in directory.rows():
                retention = Milliseconds(row.retention) if row.retention else None
                topic = self._log.topics[row.topic] = self._new_topic(row.topic, retention)
                topic.tail, topic.oldest = Tail(row.end, row.time, row.published, row.commit), row.oldest
        for path in self._heads:
            if path != self._log.table and not self._files.exists(os.path.splitext(path)[0] + ".log"):
                self._files.unlink(path)

    def _take_image(self) -> None:
        """Read the newest image of cursors. A damaged image is an error: its content is nowhere else."""
        images = images_in(self._files, self._folder)
        if not images:
            return
        *older, self._log.journal.image = images
        self._log.journal.bodies, self._log.journal.image_bytes = read_image(self._files, self._folder, images[-1])
        self._log.commit = max(self._log.commit, images[-1])
        if older:  # the newest must be durable before these are deleted
            self._files.sync_folder(os.path.join(self._folder, CURSORS.name))
        for commit in older:
            self._files.unlink(segment_file.image_path(self._folder, commit))

    def _new_topic(self, topic: TopicId, retention: Milliseconds | None) -> TopicState:
        return TopicState(topic, retention, segment_file.class_of(retention or self._options.retention))

    def _scan_class(self, segments: list[Segment]) -> None:
        for segment in [each for each in segments if each.head is None and each.length <= HEAD_BYTES]:
            if self._read_head(segment) is None and segment.sequence not in self._indexed:
                # Its header never became durable: no records, no cut of an earlier segment.
                self._files.unlink(segment.path)
                segments.remove(segment)
        # Valid lengths of failed segments without an index, from the headers of their successors.
        first = next((number for number, segment in enumerate(segments) if segment.head is None), len(segments))
        heads = [self._read_head(segment) for segment in segments[first:]]
        cuts = {head.cut.sequence: head.cut for head in heads if head is not None and head.cut is not None}
        for segment in list(segments):
            head = segment.head
            if head is not None and (segment.index_path == self._log.table or head.commit <= self._known):
                continue  # its table is the current one or older; the newer ones are damaged
            last = segment is segments[-1]
            self._scan(segment, cuts.get(segment.sequence), last=last)
            if not self._keep(segment, last=last):
                self._files.unlink(segment.path)
                self._files.unlink(segment.index_path)
                segments.remove(segment)

    def _read_head(self, segment: Segment) -> SegmentHead | None:
        return segment_file.decode_head(read_at(self._files, segment.path, HEAD_BYTES, 0))

    def _scan(self, segment: Segment, cut: Cut | None, *, last: bool) -> None:
        size = self._size(segment.path)
        limit = segment.head.length if segment.head else cut.length if cut else size
        closed = cut is not None or not last or segment.sequence in self._indexed
        known = {topic: state.tail.commit for topic, state in self._log.topics.items()}
        found = scan(
            self._files, segment.path, segment.sequence, limit, closed=closed, known=known,
            cursors_known=self._log.journal.image,
        )  # fmt: skip
        segment.head = None
        segment.cursors = max((each.commit for each in found.cursors), default=0)
        segment.entries = found.content
        segment.length = max(found.end, HEAD_BYTES) if found.torn else min(limit, size)
        segment.closed = True
        self._scanned[segment.sequence] = found
        self._log.damage += found.damage
        self._log.commit = max(self._log.commit, found.commit)
        self._trim(segment, size, found)

    def _trim(self, segment: Segment, size: int, found: Scanned) -> None:
        with open_file(self._files, segment.path) as handle:
            if size > segment.length:
                reason = found.torn or "refused by the disk"
                if not found.unwritten:
                    self._log.trimmed.append(Trimmed(segment.path, segment.length, size - segment.length, reason))
                self._files.truncate(handle, segment.length)
            # The sync of unconfirmed bytes may have failed. Then the kernel takes them as clean: write them again.
            position, end = found.durable, min(size, segment.length)
            while data := self._files.read(handle, min(_COPY_BYTES, end - position), position):
                self._files.write(handle, data, position)
                position += len(data)
            self._files.sync(handle)

    def _keep(self, segment: Segment, *, last: bool) -> bool:
        found = self._scanned[segment.sequence]
        data = read_at(self._files, segment.path, HEAD_BYTES, 0)
        head = segment_file.decode_head(data)
        is_own = head is not None and (head.class_code, head.sequence) == (segment.kind.code, segment.sequence)
        whole = is_own and segment_file.head_is_whole(data)
        if not whole and found.records:  # without records the header was just torn
            self._note_damage(segment.path, 0, "segment header checksum", HEAD_BYTES)
        if not found.records and not found.damage and not (last and whole):
            return False
        fits = segment.length < self._options.segment_bytes
        if last and whole and fits and not found.damage and segment.sequence not in self._indexed:
            segment.closed = False
            length = segment.length
            self._log.open[segment.kind.code] = OpenSegment(
                segment.sequence, segment.path, self._files.open(segment.path), length, length, found.first_time,
                marked=max(length if found.marked else 0, HEAD_BYTES), keys=len(found.content.keys),
            )  # fmt: skip
        return True

    def _replay(self) -> None:
        controls = [control for found in self._scanned.values() for control in found.controls]
        later = sorted((each for each in controls if each[0].commit > self._known), key=lambda each: each[0].commit)
        for header, body in later:
            self._apply_control(header, body)
        dropped = {header.topic for header, _ in later if header.kind == RecordKind.DROP}
        for sequence in sorted(self._scanned):
            for topic, tail in self._scanned[sequence].tails.items():
                state = self._log.topics.get(topic)
                if state is None and tail.commit > self._known and topic not in dropped:
                    state = self._log.topics[topic] = self._new_topic(topic, None)
                if state is not None:
                    end, time, published, commit = msgspec.structs.astuple(state.tail)
                    published += tail.published
                    state.tail = Tail(max(end, tail.end), max(time, tail.time), published, max(commit, tail.commit))
        for state in self._log.topics.values():
            state.end = state.tail.end

    def _replay_cursors(self) -> None:
        """Raise `Unusable` if groups of cursors are missing and no damage explains it."""
        journal = self._log.journal
        records = [each for found in self._scanned.values() for each in found.cursors]
        kept, is_whole = in_order(records, journal.image)
        place = os.path.join(self._folder, CURSORS.name)
        if not is_whole and not self._log.damage and not self._files.names(place):
            # An operator moved the folder away. Groups beside messages are outdated: an empty image cancels them.
            kept, journal.image = [], self._log.commit
            write_image(self._files, self._folder, journal.image, Milliseconds(0), ())
            self._note_damage(place, 0, "the cursors were set aside, and none is left")
        elif not is_whole:
            if not self._log.damage:
                raise Unusable(
                    f"log folder {self._folder}: groups of cursors are missing, or their image is older than they are; "
                    + RESTORE_HINT
                )
            self._note_damage(place, 0, "groups of cursors are missing")
        journal.bodies += [each.body for each in kept]
        journal.bytes = sum(len(each.body) for each in kept)
        journal.commit = kept[-1].commit if kept else journal.image

    def _apply_control(self, header: RecordHeader, body: bytes) -> None:
        topics, (retention, published) = self._log.topics, read_control(body)
        if header.kind == RecordKind.DROP:
            topics.pop(header.topic, None)
        elif header.kind == RecordKind.CREATE:
            state = topics.setdefault(header.topic, self._new_topic(header.topic, retention))
            state.begin_at(header.first, published)
        elif header.topic in topics:
            topic = topics[header.topic]
            topic.oldest = max(topic.oldest, header.first)
            if header.kind == RecordKind.RETENTION:
                topic.retention = retention
                topic.kind = segment_file.class_of(retention or self._options.retention)

    def _note_classes(self, kind: RetentionClass, segments: list[Segment]) -> None:
        there = {topic for each in segments if each.entries for topic in each.entries.topics}
        newest = next((each for each in reversed(segments) if each.head is not None), None)
        if newest is not None and newest.head is not None:
            with contextlib.suppress(Damaged):  # reported and rebuilt at its first use
                rows = read_directory(self._files, newest.index_path, newest.head).rows()
                there |= {row.topic for row in rows if row.reach}
        for topic in there & self._log.topics.keys():
            self._log.topics[topic].classes |= 1 << kind.code

    def _note_damage(self, path: str, position: int, reason: str, length: int = 0) -> None:
        self._log.damage.append(Damage(path, position, length, reason))

    def _size(self, path: str) -> int:
        with open_file(self._files, path) as handle:
            return self._files.size(handle)
