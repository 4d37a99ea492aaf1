"""The read path: index positions to bytes of segments to messages, with verified checksums.

Adjacent records are read together if the gap between them is small. A damaged record is never served. A read returns
the messages before it; a read that starts in it continues after it. The damage is logged once.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from ams.core.cache import LruCache
from ams.core.errors import Damaged, LogUnavailable
from ams.core.names import Offset, TopicId
from ams.core.runs import Run, Runs
from ams.storage.log.base import PendingRead
from ams.storage.log.embedded.catalog import IndexPosition, Segment, TopicState
from ams.storage.log.embedded.pages import THREADS
from ams.storage.log.embedded.record import HEADER_BYTES, run_of
from ams.storage.log.embedded.scan import Damage, check_record
from ams.storage.log.embedded.state import LogState

INLINE_BYTES = 512 * 1024  # larger reads run on a thread even from memory: copying and checking takes long
_MAX_SPAN_FACTOR = 2  # records are read together while the span is at most this multiple of their bytes
RECENT_BYTES = 16 * 1024 * 1024  # memory for cached records
BEGUN_BYTES = RECENT_BYTES // 4  # memory for records that were read in part
_MESSAGE_OVERHEAD, _RECORD_OVERHEAD = 50, 450
"""Memory overhead in bytes per message and per record; the latter also bounds the number of places."""


class RecordSpan(NamedTuple):
    """Bytes to read together, and the wanted records in them: pairs of position and length."""

    segment: Segment
    position: int
    size: int
    records: Sequence[tuple[int, int]]


RecordPlace = tuple[int, int]  # sequence of a segment, position in it; never reused for another record
Checked = Run | Damage  # the messages of a record, or its damage


class RecentRecords:
    """Cache of verified records that several consumers read: usually the newest of a topic.

    A record is cached when it is read for the second time soon: a lone consumer, or a copy of a topic, reads each once.
    A record that was read in part is cached until the next read.
    """

    __slots__ = ("_begun", "_budget", "_kept", "_met", "_met_before", "_met_bytes")

    def __init__(self, budget: int = RECENT_BYTES) -> None:
        self._budget = budget
        self._kept: LruCache[RecordPlace, Run] = LruCache(budget, _weight)
        self._begun: LruCache[RecordPlace, Run] = LruCache(BEGUN_BYTES, _weight)
        self._met: set[RecordPlace] = set()
        """Recent reads in two generations; the older is dropped as a whole, which is cheaper than an LRU order."""
        self._met_before: set[RecordPlace] = set()
        self._met_bytes = 0

    def get(self, place: RecordPlace) -> Run | None:
        """Return the messages of a record; None: not cached."""
        run = self._kept.get(place)
        if run is None and (run := self._begun.peek(place)) is not None:
            self._begun.discard(place)
        return run

    def note_begun(self, place: RecordPlace, run: Run) -> None:
        """Cache a record of which only the first part was read."""
        if self._kept.peek(place) is None:
            self._begun.put(place, run)

    def note(self, place: RecordPlace, run: Run) -> None:
        """Note that a record was read; cache it if it was read before recently."""
        if place in self._met or place in self._met_before:
            self._kept.put(place, run)
            return
        self._met.add(place)
        self._met_bytes += _weight(run)
        if self._met_bytes > self._budget // 2:
            self._met_before, self._met, self._met_bytes = self._met, set(), 0


def _weight(run: Run) -> int:
    return run.size + _MESSAGE_OVERHEAD * len(run.fragments) + _RECORD_OVERHEAD


class EmbeddedReader:
    """Reads messages of one log."""

    def __init__(self, state: LogState) -> None:
        self._catalog, self._note_damage, self._look_up = state.catalog, state.note_damage, state.look_up
        self._recent = RecentRecords()
        self._turns = asyncio.Semaphore(THREADS)  # limits large reads, whose results are in memory

    async def read(self, topic: TopicState, start: Offset, max_messages: int, max_bytes: int) -> Runs:
        """Return messages from `start` on (`Log.read`); `start` is not below the oldest kept offset."""
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
        """Take cached records from a position on; return the position of the next wanted one, if it is adjacent."""
        segment, entries, number = place
        while run := self._recent.get((segment.sequence, entries.positions[number])):
            self._take_run(segment, entries.positions[number], run, batch)
            number += 1
            if batch.full or number == len(entries) or entries.firsts[number] != batch.offset:
                return None
        return IndexPosition(segment, entries, number)

    async def _take(self, span: RecordSpan, topic: TopicState, batch: "_Batch") -> None:
        records = await self._records(span, topic.id, batch)
        if not records:
            batch.stop_at_gap()
        for number, checked in enumerate(records):
            if isinstance(checked, Damage):
                self._note_damage(checked)
                batch.stop_at_gap()
            else:
                self._take_run(span.segment, span.records[number][0], checked, batch)

    def _take_run(self, segment: Segment, position: int, run: Run, batch: "_Batch") -> None:
        if run.first > batch.offset:
            batch.stop_at_gap()
        if not batch.full and run.end > batch.offset:
            batch.take(run)
        if batch.full and run.first <= batch.offset < run.end:
            self._recent.note_begun((segment.sequence, position), run)

    async def _records(self, span: RecordSpan, topic: TopicId, batch: "_Batch") -> list[Checked]:
        """Read the records of a span; none if its segment is deleted during the wait. Raises `LogUnavailable`."""
        pages, path = self._catalog.pages, span.segment.path
        try:
            data = pages.open.read_now(path, span.size, span.position) if span.size <= INLINE_BYTES else None
        except OSError as error:
            raise LogUnavailable from error
        if data is not None:
            return self._note_records(span, _check(span, topic, data))
        if not batch.has_turn:
            await self._turns.acquire()
            batch.has_turn = True
        try:
            found = await pages.on_thread(lambda: _check(span, topic, pages.open.read(path, span.size, span.position)))
            return self._note_records(span, found)
        except LogUnavailable:
            if span.segment.sequence in self._catalog.by_sequence:
                raise
            return []

    def _note_records(self, span: RecordSpan, found: list[Checked]) -> list[Checked]:
        """Note small records as read. Ignore damage in a removed segment, whose file may be reused."""
        sequence = span.segment.sequence
        if sequence not in self._catalog.by_sequence:
            return [] if any(isinstance(each, Damage) for each in found) else found
        if span.size <= INLINE_BYTES:
            for (position, _), checked in zip(span.records, found, strict=True):
                if isinstance(checked, Run):
                    self._recent.note((sequence, position), checked)
        return found


class _Batch(PendingRead):
    has_turn = False  # whether it holds the semaphore of large reads, until it ends

    def stop_at_gap(self) -> None:
        """End before missing messages. An empty batch continues after them."""
        self.full = self.full or bool(self.runs)


def _plan(place: IndexPosition, batch: _Batch) -> tuple[Offset, list[RecordSpan]]:
    entries, number = place.entries, place.number
    stop = bisect_left(entries.firsts, batch.offset + batch.messages_left, number + 1)
    spans: list[RecordSpan] = []
    records: list[tuple[int, int]] = []
    begin = wanted = total = 0
    end = Offset(entries.firsts[number])
    while number < stop and entries.firsts[number] == end and total <= batch.bytes_left:
        position, length = entries.positions[number], entries.lengths[number]
        if records and position + length - begin > _MAX_SPAN_FACTOR * (wanted + length):
            spans.append(RecordSpan(place.segment, begin, sum(records[-1]) - begin, records))
            records = []
        if not records:
            begin, wanted = position, 0
        records.append((position, length))
        wanted += length
        total += length
        end = entries.end_of(number)
        number += 1
    spans.append(RecordSpan(place.segment, begin, sum(records[-1]) - begin, records))
    return end, spans


def _check(span: RecordSpan, topic: TopicId, data: bytes) -> list[Checked]:
    found: list[Checked] = []
    for position, length in span.records:
        try:
            at = position - span.position
            header = check_record(data, at, span.segment.sequence, topic)
            found.append(run_of(header, data, at + HEADER_BYTES))
        except Damaged as damage:
            found.append(Damage(span.segment.path, position, length, damage.message))
    return found
