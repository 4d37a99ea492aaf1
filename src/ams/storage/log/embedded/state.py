"""State of an open log, on the event loop: topics, segments, and idempotency keys.

Outcomes of commits are applied here. Answers to idempotency keys are in the segments. A second call with a pending key
waits for the first.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar, cast

import structlog

from ams.core.clock import Milliseconds
from ams.core.coalescing import answer_future
from ams.core.errors import KeyReused, LogUnavailable, OutcomeUnknown
from ams.core.messages import Message
from ams.core.names import Offset, TopicId
from ams.storage.log.base import Appended, content_hash, is_content, key_hash
from ams.storage.log.embedded.catalog import IndexDamaged, Segment, SegmentCatalog, TopicState
from ams.storage.log.embedded.group_commit import Append, CommitOutcome, Control
from ams.storage.log.embedded.options import LogPlace
from ams.storage.log.embedded.record import RecordKind
from ams.storage.log.embedded.scan import Damage, scan
from ams.storage.log.embedded.segment import CHAINS, CURSORS, HEAD_BYTES, IMAGE_SUFFIX, sequence_of
from ams.storage.log.embedded.segment_index import KEYED_RESULT, SegmentEntries

T = TypeVar("T")
logger = structlog.get_logger("ams.log")
_MAX_DAMAGED_PLACES = 1000


class LogFile(NamedTuple):
    """A file of the log at one moment, by its path within the log's folder."""

    name: str
    length: int | None  # valid bytes at that moment; None: the whole file


@dataclass(slots=True)
class LogState:
    """Topics, segments, and pending appends."""

    folder: str
    topics: dict[TopicId, TopicState]
    catalog: SegmentCatalog
    commit: int  # the last commit applied here
    table: str | None  # path of the index file with the newest table of topics
    keys: dict[bytes, "asyncio.Future[None] | None"] = field(default_factory=dict)  # pending; None: nobody waits
    creating: dict[TopicId, "asyncio.Future[None]"] = field(default_factory=dict)  # pending creations
    has_dropped: bool = False  # whether segments may have only messages of dropped topics
    damaged: set[tuple[str, int]] = field(default_factory=set)  # files and positions found since the start
    on_unsealed: Callable[[], None] = lambda: None  # called after a segment was added to `unsealed`
    unsealed: list[Segment] = field(default_factory=list)  # closed segments without an index file, oldest first
    images: Callable[[], Sequence[str]] = tuple  # returns the path of the image of cursors, if any
    _rebuilding: asyncio.Lock = field(default_factory=asyncio.Lock)

    def apply(self, outcome: CommitOutcome) -> None:
        """Make an outcome of the committer visible: topic ends, record positions, answers."""
        if outcome.begun is not None:
            begun, kind = outcome.begun, CHAINS[outcome.code]
            self.catalog.add(Segment(kind, begun.sequence, begun.path, HEAD_BYTES, SegmentEntries()))
        if outcome.sequence:
            segment = self.catalog.by_sequence[outcome.sequence]
            segment.length = outcome.length
            if outcome.cursors is not None:
                segment.cursors = outcome.commit
        if outcome.shares:
            self._place(outcome)
            self._answer(outcome)
        if outcome.controls:  # so that a segment with controls only has an age
            self._index(outcome).note_time(outcome.time)
        for control in outcome.controls:
            self._apply_control(control)
        for work in outcome.failed:
            self._fail(work, OutcomeUnknown() if outcome.in_doubt else LogUnavailable())
        for closed in outcome.closed:
            segment = self.catalog.by_sequence[closed.sequence]
            segment.length, segment.closed = closed.length, True
            if segment.kind is not CURSORS:
                self.unsealed.append(segment)
        if outcome.closed:
            self.on_unsealed()
        self.commit = max(self.commit, outcome.commit)

    async def look_up(self, ask: Callable[[], T]) -> T:
        """Run a query on the catalog; loads missing pages and rebuilds damaged indexes."""
        while True:
            try:
                return await self.catalog.pages.look_up(ask)
            except IndexDamaged as broken:
                await self._rebuild(broken.segment, str(broken))

    async def _rebuild(self, segment: Segment, reason: str) -> None:
        pages = self.catalog.pages
        async with self._rebuilding:
            if segment.entries is not None or segment.sequence not in self.catalog.by_sequence:
                return
            self.note_damage(Damage(segment.index_path, 0, 0, f"index: {reason}"))
            work = partial(scan, pages.files, segment.path, segment.sequence, segment.length, closed=True)
            found = await pages.on_thread(work)
            if segment.sequence not in self.catalog.by_sequence:
                return
            for damage in found.damage:
                self.note_damage(damage)
            found.content.keep_topics(self.topics)
            segment.entries, segment.head, segment.filter = found.content, None, None
            self.catalog.forget_index(segment)
            self.unsealed.append(segment)
            self.on_unsealed()

    def parts(self) -> Sequence[LogFile]:
        """Return the files of the log with their valid lengths: no message is cut in half."""
        files: dict[str, int | None] = {}
        for segment in (*self.catalog, *self.catalog.chain):
            if segment.length > HEAD_BYTES:
                files[segment.path] = segment.length
            if segment.head is not None:
                files[segment.index_path] = None
        files |= dict.fromkeys(self.images())
        if self.table is not None:  # its segment may be deleted
            files[self.table] = None
        return [LogFile(os.path.relpath(path, self.folder), length) for path, length in files.items()]

    def note_damage(self, damage: Damage) -> None:
        """Log a damaged place, once, and at most `_MAX_DAMAGED_PLACES` places."""
        place = (damage.file, damage.position)
        if place not in self.damaged and len(self.damaged) < _MAX_DAMAGED_PLACES:
            self.damaged.add(place)
            logger.error("log.damaged", **damage._asdict())

    def forget_key(self, hashed: bytes) -> None:
        """Wake calls that wait for the append with this key."""
        gate = self.keys.pop(hashed, None)
        if gate is not None:
            gate.set_result(None)

    def _place(self, outcome: CommitOutcome) -> None:
        add = self._index(outcome).add
        for each in outcome.records:
            add(each.topic.id, each.first, each.time, each.messages, each.position, each.length)
            each.topic.stored += each.length

    def _answer(self, outcome: CommitOutcome) -> None:
        bit, index = 1 << outcome.code, self._index(outcome)
        for share in outcome.shares:
            topic, appends = share.topic, share.appends
            topic.end = share.tail.end
            topic.classes |= bit
            topic.under_way -= len(appends)
            if topic.waiter is not None:
                topic.wake()
            if topic.quiet is not None:
                topic.settle()
            for append in appends:
                answer = cast("Appended", append.answer)
                if append.key:
                    index.add_key(topic.id, append.hashed, answer, append.content)
                    self.forget_key(append.hashed)
                if not append.done.done():
                    append.done.set_result(answer)

    def _index(self, outcome: CommitOutcome) -> SegmentEntries:
        entries = self.catalog.by_sequence[outcome.sequence].entries
        assert entries is not None
        return entries

    def _apply_control(self, control: Control) -> None:
        topic = control.topic
        if control.kind == RecordKind.CREATE:
            self.topics[topic.id] = topic
            del self.creating[topic.id]
        elif control.kind == RecordKind.DROP:
            self.topics.pop(topic.id, None)
            self.has_dropped = True
            topic.wake()
        elif control.kind == RecordKind.RETENTION:
            topic.retention = control.retention
            topic.age_due = Milliseconds(0)
        answer_future(control.done, None)

    def give_up(self, works: Iterable[Append | Control], *, is_known: bool = True) -> None:
        """Fail pending work and wake all waiters. `is_known`: the work is certainly not stored."""
        for work in works:
            if not work.done.done():
                self._fail(work, LogUnavailable() if is_known else OutcomeUnknown())
        for hashed in list(self.keys):
            self.forget_key(hashed)
        for topic in self.topics.values():
            topic.wake()
            topic.settle(has_failed=True)

    def _fail(self, work: Append | Control, error: LogUnavailable) -> None:
        if isinstance(work, Append):
            work.topic.under_way -= 1
            work.topic.settle()
            if work.key:
                self.forget_key(work.hashed)
        elif work.kind == RecordKind.CREATE:
            self.creating.pop(work.topic.id, None)
        elif work.kind == RecordKind.DROP:
            work.topic.leaving = False
        answer_future(work.done, error)


class IdempotencyKeys:
    """Idempotency keys of all topics, within the idempotency window; created by `EmbeddedLog`."""

    def __init__(self, state: LogState, place: LogPlace) -> None:
        self._state, self._retention_clock, self._options = state, place.retention_clock, place.options

    async def earlier_answer(self, topic: TopicState, messages: Sequence[Message], key: str) -> Appended | None:
        """Return the answer to a key (`Log.earlier_answer`), after the pending append with it."""
        hashed = key_hash(topic.id, key.encode())
        await self._until_decided(hashed)
        return await self._answer(topic, hashed, messages)

    def claim_new(self, append: Append, messages: Sequence[Message], key: str) -> bool:
        """Set the key of an append and claim it if it is certainly new. Returns False if `claim` must decide."""
        topic, under_way = append.topic, self._state.keys
        append.key = encoded = key.encode()
        append.hashed = hashed = key_hash(topic.id, encoded)
        append.content = content_hash(messages)
        if hashed in under_way or topic.held is not None or not self._state.catalog.is_new(hashed):
            return False
        under_way[hashed] = None
        return True

    async def claim(
        self, append: Append, messages: Sequence[Message], released: Callable[[], Awaitable[None]]
    ) -> Appended | None:
        """Return the answer of an earlier append with the key, or None if the key is new: then it is pending now.

        `released` waits until appends to the topic are allowed; if it raises, the key stays new. May raise `KeyReused`.
        """
        topic, hashed, under_way = append.topic, append.hashed, self._state.keys
        await self._until_decided(hashed)
        under_way[hashed] = None
        try:
            answer = await self._answer(topic, hashed, messages)
            if topic.held is not None:
                await released()
        except BaseException:
            self._state.forget_key(hashed)
            raise
        if answer is not None:
            self._state.forget_key(hashed)
        return answer

    async def _until_decided(self, hashed: bytes) -> None:
        under_way = self._state.keys
        while hashed in under_way:
            decided = under_way[hashed]
            if decided is None:
                decided = under_way[hashed] = asyncio.get_running_loop().create_future()
            await asyncio.wait((decided,))

    async def _answer(self, topic: TopicState, hashed: bytes, messages: Sequence[Message]) -> Appended | None:
        """Return the answer to this key within the idempotency window, if any. Raises `KeyReused` for other content."""
        window = self._options.idempotency_window or topic.retention or self._options.retention
        since, catalog = Milliseconds(self._retention_clock.wall() - window), self._state.catalog
        for segment in catalog.may_hold(hashed, since):
            result = await self._state.look_up(partial(catalog.result_in, segment, topic.id, hashed))
            if result is not None:
                first, count, time, content = KEYED_RESULT.unpack(result)
                if time >= since:
                    if not is_content(content, messages):
                        raise KeyReused
                    return Appended(Offset(first), count, Milliseconds(time))
        return None


def parts_in(folder: str) -> Sequence[LogFile]:
    """Return the files of a log that is not open."""
    classes = [kind.name for kind in CHAINS if os.path.isdir(os.path.join(folder, kind.name))]
    return [
        LogFile(os.path.join(folder_of_class, name), None)
        for folder_of_class in classes
        for name in sorted(os.listdir(os.path.join(folder, folder_of_class)))
        if sequence_of(name) is not None or name.endswith(IMAGE_SUFFIX)
    ]
