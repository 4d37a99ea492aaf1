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

from ams.core.cache import LruCache
from ams.core.errors import Damaged, LogUnavailable
from ams.core.names import Offset, TopicId
from ams.core.runs import Run, Runs
from ams.storage.log.embedded.catalog import IndexPosition, LookUp, Segment, SegmentCatalog, TopicState
from ams.storage.log.embedded.pages import THREADS
from ams.storage.log.embedded.record import HEADER_BYTES, run_of
from ams.storage.log.embedded.scan import Damage, check_record

logger = structlog.get_logger("ams.log")

INLINE_BYTES = 512 * 1024  # larger reads are made on a thread even from memory: copying and checking takes long
_DENSE = 2  # records are read in one go while the span is at most this many times what is wanted of it
_MAX_DAMAGE = 1000
RECENT_BYTES = 16 * 1024 * 1024  # memory for records that are kept
BEGUN_BYTES = RECENT_BYTES // 4  # for records of which the first part was read
_MESSAGE_OVERHEAD, _RECORD_OVERHEAD = 50, 450
"""Memory of a message beside its bytes, and of a record beside its messages; the latter bounds the places, too."""


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


RecordPlace = tuple[int, int]  # sequence of a segment, position in it; never becomes another record's
Checked = Run | Damage  # the messages of a record, or why it is not served


class RecentRecords:
    """Records that are read again and again, checked and cut: all consumers of a topic read the newest ones.

    A record is kept when it is read for the second time within the span of what could be kept: a lone consumer, or a
    copy of a whole topic, reads each once. One of which a read took the first part only is kept until the next read.
    """

    __slots__ = ("_begun", "_budget", "_kept", "_met", "_met_before", "_met_bytes")

    def __init__(self, budget: int = RECENT_BYTES) -> None:
        self._budget = budget
        self._kept: LruCache[RecordPlace, Run] = LruCache(budget, _weight)
        self._begun: LruCache[RecordPlace, Run] = LruCache(BEGUN_BYTES, _weight)
        self._met: set[RecordPlace] = set()
        """What was read lately; two halves, the older of which goes as a whole, cost less than an order of all."""
        self._met_before: set[RecordPlace] = set()
        self._met_bytes = 0

    def get(self, place: RecordPlace) -> Run | None:
        """Return the messages of a record; None when it is not kept."""
        run = self._kept.get(place)
        if run is None and (run := self._begun.peek(place)) is not None:
            self._begun.discard(place)
        return run

    def note_begun(self, place: RecordPlace, run: Run) -> None:
        """Take note that the first part of a record was read, and the rest was not."""
        if self._kept.peek(place) is None:
            self._begun.put(place, run)

    def note(self, place: RecordPlace, run: Run) -> None:
        """Take note that a record was read; keep it if it was lately read before."""
        if place in self._met or place in self._met_before:
            self._kept.put(place, run)
            return
        self._met.add(place)
        self._met_bytes += _weight(run)
        if self._met_bytes > self._budget // 2:
            self._met_before, self._met, self._met_bytes = self._met, set(), 0


def _weight(run: Run) -> int:
    return run.size + _MESSAGE_OVERHEAD * len(run.fragments) + _RECORD_OVERHEAD


class Reader:
    """Reads messages of one log; `look_up` answers questions to `SegmentCatalog`, loading what they need."""

    def __init__(self, catalog: SegmentCatalog, damage: DamageTracker, look_up: LookUp) -> None:
        self._catalog, self._damage, self._look_up = catalog, damage, look_up
        self._recent = RecentRecords()
        self._turns = asyncio.Semaphore(THREADS)  # of large reads: what they have found waits in memory

    async def read(self, topic: TopicState, start: Offset, max_messages: int, max_bytes: int) -> Runs:
        """Return messages from `start` on, as `Log.read` promises; `start` is not below the oldest kept."""
        batch, end = _Batch(start, max_messages, max_bytes), topic.end
        try:
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
        finally:
            if batch.has_turn:
                self._turns.release()
        return Runs(batch.runs)

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
        """Note small records that were read; leave out damage of a segment that went: its file may be another's now."""
        sequence = span.segment.sequence
        if sequence not in self._catalog.by_sequence:
            return [] if any(isinstance(each, Damage) for each in found) else found
        if span.size <= INLINE_BYTES:
            for (position, _), checked in zip(span.records, found, strict=True):
                if isinstance(checked, Run):
                    self._recent.note((sequence, position), checked)
        return found


class _Batch:
    def __init__(self, start: Offset, max_messages: int, max_bytes: int) -> None:
        self.offset = start
        self.runs: list[Run] = []
        self.has_turn = False  # whether it has a turn of large reads, which it keeps to its end
        self.full = max_messages < 1  # whether nothing fits after what was found
        self.messages_left, self.bytes_left = max_messages, max_bytes

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
            spans.append(Span(place.segment, begin, sum(records[-1]) - begin, records))
            records = []
        if not records:
            begin, wanted = position, 0
        records.append((position, length))
        wanted += length
        total += length
        end = entries.end_of(number)
        number += 1
    spans.append(Span(place.segment, begin, sum(records[-1]) - begin, records))
    return end, spans


def _check(span: Span, topic: TopicId, data: bytes) -> list[Checked]:
    found: list[Checked] = []
    for position, length in span.records:
        try:
            at = position - span.position
            header = check_record(data, at, span.segment.sequence, topic)
            found.append(run_of(header, data, at + HEADER_BYTES))
        except Damaged as damage:
            found.append(Damage(span.segment.path, position, length, damage.message))
    return found
