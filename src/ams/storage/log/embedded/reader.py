"""Reading messages: from places in the index to bytes of segments to messages, each checked.

Neighbouring records are read in one go when little lies between them. A damaged record is never served: what is before
it is returned first; a read that begins in it begins after it, and the damage is counted and logged once.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from ams.core.errors import Damaged, LogUnavailable
from ams.core.names import Offset, TopicId
from ams.core.runs import Run, Runs
from ams.storage.log.embedded.catalog import IndexPosition, LookUp, Segment, SegmentCatalog
from ams.storage.log.embedded.pages import THREADS
from ams.storage.log.embedded.recent import RecentRecords
from ams.storage.log.embedded.record import HEADER_BYTES, run_of
from ams.storage.log.embedded.scan import Damage, check_record
from ams.storage.log.embedded.topic import TopicState

logger = structlog.get_logger("ams.log")

INLINE_BYTES = 512 * 1024
"""A larger read is made on a thread even when all of it is in memory: copying and checking it takes long."""
_DENSE = 2
"""Records are read in one go while the span is at most this many times what is wanted of it."""
_MAX_DAMAGE = 1000


class Span(NamedTuple):
    """Bytes to read in one go, and the records wanted of them: pairs of position and length."""

    segment: Segment
    position: int
    size: int
    records: Sequence[tuple[int, int]]


@dataclass(slots=True)
class DamageTracker:
    """Every damaged place met since the start, logged once each."""

    known: set[tuple[str, int]] = field(default_factory=set)
    count: int = 0

    def note(self, damage: Damage) -> None:
        """Count and log a place, unless that was done; of very many only the count is kept."""
        place = (damage.file, damage.position)
        if place in self.known:
            return
        self.count += 1
        if len(self.known) < _MAX_DAMAGE:
            self.known.add(place)
            logger.error("log.damaged", **damage._asdict())


Checked = Run | Damage
"""The messages of a record, or why it is not served."""


class Reader:
    """Reads messages of one log; `look_up` answers questions to `SegmentCatalog`, loading what they need."""

    def __init__(self, catalog: SegmentCatalog, damage: DamageTracker, look_up: LookUp) -> None:
        self._catalog = catalog
        self._damage = damage
        self._look_up = look_up
        self._recent = RecentRecords()
        self._turns = asyncio.Semaphore(THREADS)
        """Of large reads: what many of them have found would wait in memory, however few threads there are."""

    async def read(self, topic: TopicState, start: Offset, max_messages: int, max_bytes: int) -> Runs:
        """Return messages from `start` on, as `Log.read` promises; `start` is not below the oldest kept."""
        batch = _Batch(start, max_messages, max_bytes)
        try:
            await self._fill(batch, topic)
        finally:
            if batch.has_turn:
                self._turns.release()
        return Runs(batch.runs)

    async def _fill(self, batch: "_Batch", topic: TopicState) -> None:
        end = topic.end
        while batch.offset < end and not batch.full:
            place = await self._look_up(lambda: self._catalog.find(topic, batch.offset))
            if place is None:
                break
            place = self._take_recent(place, batch)
            if place is None:
                continue
            stop, spans = _plan(place, batch)
            for span in spans:
                if not batch.full:
                    await self._take(span, topic, batch)
            batch.offset = max(batch.offset, stop)

    def _take_recent(self, place: IndexPosition, batch: "_Batch") -> IndexPosition | None:
        """Take the records at a place that are in memory; return that of the next one, if it is wanted and follows."""
        segment, entries, number = place
        while run := self._recent.get((segment.sequence, entries.positions[number])):
            self._take_run(segment, entries.positions[number], run, batch)
            number += 1
            if batch.full or number == len(entries) or entries.firsts[number] != batch.offset:
                return None
        return IndexPosition(segment, entries, number)

    async def _take(self, span: Span, topic: TopicState, batch: "_Batch") -> None:
        records = await self._records(span, topic.id, batch)
        if not records:
            batch.stop_at_gap()
        for number, checked in enumerate(records):
            if isinstance(checked, Damage):
                self._damage.note(checked)
                batch.stop_at_gap()
            else:
                self._take_run(span.segment, span.records[number][0], checked, batch)

    def _take_run(self, segment: Segment, position: int, run: Run, batch: "_Batch") -> None:
        batch.take(run)
        if batch.full and run.first <= batch.offset < run.end:
            self._recent.note_begun((segment.sequence, position), run)

    async def _records(self, span: Span, topic: TopicId, batch: "_Batch") -> list[Checked]:
        """Return the records of a span; none when retention took the segment meanwhile."""
        pages, path = self._catalog.pages, span.segment.path
        try:
            data = pages.open.read_now(path, span.size, span.position) if span.size <= INLINE_BYTES else None
        except OSError as error:
            raise LogUnavailable from error
        if data is not None:
            return self._noted(span, _check(span, topic, data))
        if not batch.has_turn:
            await self._turns.acquire()
            batch.has_turn = True
        try:
            found = await pages.on_thread(lambda: _check(span, topic, pages.open.read(path, span.size, span.position)))
            return self._noted(span, found)
        except LogUnavailable:
            if span.segment.sequence in self._catalog.by_sequence:
                raise
            return []

    def _noted(self, span: Span, found: list[Checked]) -> list[Checked]:
        """Return what was found, but no damage of a segment that went meanwhile: its file may be another one's now.

        Of what is there and not large a note is taken, as others may read it too.
        """
        sequence = span.segment.sequence
        if sequence not in self._catalog.by_sequence:
            return [] if any(isinstance(each, Damage) for each in found) else found
        if span.size <= INLINE_BYTES:
            for (position, _), checked in zip(span.records, found, strict=True):
                if isinstance(checked, Run):
                    self._recent.note((sequence, position), checked)
        return found


class _Batch:
    """The messages of one read, gathered record by record."""

    def __init__(self, start: Offset, max_messages: int, max_bytes: int) -> None:
        self.offset = start
        """What is wanted next."""
        self.runs: list[Run] = []
        self.has_turn = False
        """Whether it has a turn of large reads, which it keeps to its end."""
        self.full = max_messages < 1
        """Whether nothing fits after what was found."""
        self.messages_left = max_messages
        self.bytes_left = max_bytes

    def take(self, run: Run) -> None:
        """Add what is wanted of a record and fits, but one message at least of the whole batch."""
        if run.first > self.offset:
            self.stop_at_gap()
        end = run.end
        if self.full or end <= self.offset:
            return
        self.offset = max(self.offset, run.first)
        if run.first < self.offset or len(run.fragments) > self.messages_left or run.size > self.bytes_left:
            run = run.part(self.offset, self.messages_left, self.bytes_left)
            if self.runs and run.size > self.bytes_left:
                self.full = True
                return
        self.runs.append(run)
        self.offset = run.end
        self.messages_left -= len(run.fragments)
        self.bytes_left -= run.size
        self.full = run.end < end or not self.messages_left or self.bytes_left <= 0

    def stop_at_gap(self) -> None:
        """End before what is missing, unless nothing was found yet: then begin after it."""
        self.full = self.full or bool(self.runs)


def _plan(place: IndexPosition, batch: _Batch) -> tuple[Offset, list[Span]]:
    """Return what to read at a place, and the offset at which the plan ends: there is no gap in it."""
    entries, number = place.entries, place.number
    stop = bisect_left(entries.firsts, batch.offset + batch.messages_left, number + 1)
    spans: list[Span] = []
    records: list[tuple[int, int]] = []
    begin = wanted = total = 0
    end = Offset(entries.firsts[number])
    while number < stop and entries.firsts[number] == end and total <= batch.bytes_left:
        position, length = entries.positions[number], entries.lengths[number]
        if records and position + length - begin > _DENSE * (wanted + length):
            spans.append(_span(place.segment, records))
            records = []
        if not records:
            begin, wanted = position, 0
        records.append((position, length))
        wanted += length
        total += length
        end = entries.end_of(number)
        number += 1
    spans.append(_span(place.segment, records))
    return end, spans


def _span(segment: Segment, records: list[tuple[int, int]]) -> Span:
    begin = records[0][0]
    return Span(segment, begin, sum(records[-1]) - begin, records)


def _check(span: Span, topic: TopicId, data: bytes) -> list[Checked]:
    """Cut a span into its records, each checked."""
    found: list[Checked] = []
    for position, length in span.records:
        try:
            at = position - span.position
            header = check_record(data, at, span.segment.sequence, topic)
            found.append(run_of(header, data, at + HEADER_BYTES))
        except Damaged as damage:
            found.append(Damage(span.segment.path, position, length, damage.message))
    return found
