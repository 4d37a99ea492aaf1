"""The embedded log: one shared, append-only log of segments for all topics, in a folder one process owns."""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from itertools import count

import structlog

from ams.core.clock import Clock, Milliseconds, SystemClock
from ams.core.coalescing import answer_future
from ams.core.errors import LogUnavailable, TooLarge, TopicGone
from ams.core.messages import Message, Stored, batch_of
from ams.core.names import Offset, TopicId, topic_id_text
from ams.core.retention_clock import RetentionClock
from ams.core.supervisor import Supervisor
from ams.storage.files import Disk
from ams.storage.free_space import FreeSpace
from ams.storage.log.base import NEW_TOPIC, NO_OFFSET, Appended, Bounds, Origin, Totals, check_key
from ams.storage.log.embedded.catalog import SegmentCatalog, TopicState
from ams.storage.log.embedded.committer import Committer, Space
from ams.storage.log.embedded.group_commit import Append, CommitOutcome, Control, CursorGroup, load_appends
from ams.storage.log.embedded.journal import Journal
from ams.storage.log.embedded.options import MIB, LogOptions, LogPlace
from ams.storage.log.embedded.pages import Pages
from ams.storage.log.embedded.reader import EmbeddedReader
from ams.storage.log.embedded.record import RecordKind
from ams.storage.log.embedded.recovery import Restored, recover
from ams.storage.log.embedded.segment import CHAINS, Ahead, Spares, Writer, class_of
from ams.storage.log.embedded.state import IdempotencyKeys, LogState
from ams.storage.log.embedded.upkeep import Upkeep

logger = structlog.get_logger("ams.log")
MAX_APPEND_BYTES = 256 * MIB  # an append must fit into one segment, whose positions are 32 bits
WRITING, MEMORY = "writing of the log", "memory of the log"  # parts whose failure ends the service
_INDEX_MEMORY = 64 * MIB
_TOPICS_PER_TURN = 64  # topics handled in one turn of the event loop
_MAX_AGE_CHECK_MS = 1000  # minimum time between two expiry checks of a topic


class EmbeddedLog:
    """Implements `ams.storage.log.base.Log` in a folder. One event loop only. Create with `open`."""

    def __init__(self, restored: Restored, place: LogPlace, supervisor: Supervisor) -> None:
        self.trimmed, self.damage = tuple(restored.trimmed), tuple(restored.damage)  # found by recovery
        self._loop = asyncio.get_running_loop()
        self._options, self._supervisor, self._retention_clock = place.options, supervisor, place.retention_clock
        self._spares = Spares(place)
        self._space = Space(place, self._spares)
        catalog = SegmentCatalog(Pages(place.files, _INDEX_MEMORY))
        for segment in restored.segments:
            catalog.add(segment)
        self._state = LogState(place.folder, restored.topics, catalog, restored.commit, restored.table)
        self._state.unsealed += [each for each in catalog if each.closed and each.head is None]
        for damage in restored.damage:
            self._state.note_damage(damage)
        numbers, spares = count(restored.sequence + 1), self._spares
        writers = {kind.code: Writer(kind, place, numbers, spares, restored.open.get(kind.code)) for kind in CHAINS}
        self._committer = Committer(
            writers, self._space, place, restored.commit, self._post_outcomes, restored.journal.commit
        )
        self.journal = Journal(place, catalog, restored.journal, self._submit_cursors)
        self._state.images = self.journal.images
        self._thread = supervisor.thread(WRITING, "ams-log-committer", self._committer.run, self._writing_ended)
        self.upkeep = Upkeep(self._state, self._committer, place, self._spares, self.journal)
        self._ahead = Ahead(writers, place)
        self._keys = IdempotencyKeys(self._state, place)
        self._reader = EmbeddedReader(self._state)
        self._writing_ahead: asyncio.Task[None] | None = None
        self._outbox: list[Append | Control] = []
        self._failed = False  # a vital part failed: nothing can be stored or made visible any more
        self._closed = False

    @classmethod
    async def open(
        cls, folder: str, *, files: Disk | None = None, clock: Clock | None = None, options: LogOptions | None = None,
        supervisor: Supervisor | None = None, retention_clock: RetentionClock | None = None,
    ) -> "EmbeddedLog":  # fmt: skip
        """Open or create the log in `folder`, and recover it. Raises `Unusable`.

        Args:
            retention_clock: for the expiry of messages and idempotency keys; default: its own.
        """
        clock = clock or SystemClock()
        retention_clock = retention_clock or RetentionClock(clock)
        place = LogPlace(folder, files or Disk(), clock, retention_clock, options or LogOptions())
        restored = await asyncio.to_thread(recover, place.files, folder, place.options)
        for trimmed in restored.trimmed:
            logger.warning("log.trimmed", **trimmed._asdict())
        supervisor = supervisor or Supervisor()
        log = cls(restored, place, supervisor)
        await asyncio.to_thread(log._space.keep_reserve)
        log._thread.start()
        if log._state.unsealed:
            log.upkeep.rounds.soon()
        await log.upkeep.rounds.start(supervisor)
        log._writing_ahead = supervisor.task("writing ahead in the log", log._ahead.run(supervisor.log_failure))
        return log

    async def create(
        self, topic: TopicId, retention: Milliseconds | None = None, *, label: str = "", origin: Origin = NEW_TOPIC
    ) -> None:
        """Create a topic (`Log.create`); the label is ignored. Never create a dropped one again."""
        self._check_open()
        if topic in self._state.topics:
            return
        creating = self._state.creating.get(topic)
        if creating is None:
            state = TopicState(topic, retention, class_of(retention or self._options.retention))
            state.begin_at(*origin)
            creating = self._state.creating[topic] = self._control(RecordKind.CREATE, state, retention)
        await asyncio.shield(creating)

    async def load(
        self, topic: TopicId, batches: AsyncIterable[Sequence[Stored]], *, count_from: Offset = NO_OFFSET
    ) -> None:
        state = self._topic(topic)
        async for batch in batches:
            state.age_due = Milliseconds(0)
            appends = list(load_appends(state, batch, count_from, self._loop.create_future))
            state.under_way += len(appends)
            for append in appends:
                self._submit(append)
            await asyncio.gather(*(append.done for append in appends))

    async def end_load(self) -> None:
        """Seal and index the loaded segments (`Log.end_load`): a start scans unsealed ones."""
        await self.upkeep.seal()

    async def drop(self, topic: TopicId) -> None:
        self._check_open()
        state = self._state.topics.get(topic)
        if state is None:
            return
        state.leaving = True
        await asyncio.shield(self._control(RecordKind.DROP, state))

    @contextlib.asynccontextmanager
    async def hold_appends(self, topic: TopicId) -> AsyncIterator[None]:
        self._check_open()
        state = self._state.topics.get(topic)
        async with state.hold() if state else contextlib.nullcontext():
            yield

    async def set_retention(self, topic: TopicId, retention: Milliseconds | None) -> None:
        """Change a topic's retention. With a longer one older messages may go with segments of their former class."""
        state = await self._topic_after_expiry(topic)
        await asyncio.shield(self._control(RecordKind.RETENTION, state, retention))

    async def retention(self, topic: TopicId) -> Milliseconds | None:
        return self._topic(topic).retention

    async def topics(self) -> frozenset[TopicId]:
        return frozenset(topic for topic, state in self._state.topics.items() if not state.leaving)

    async def append(self, topic: TopicId, messages: Sequence[Message], *, key: str | None = None) -> Appended:
        sent = batch_of(messages)
        if not sent.fragments:
            raise ValueError("an append has at least one message")
        if key is not None:
            check_key(key)
        state = self._topic(topic)
        if sent.size > MAX_APPEND_BYTES:
            raise TooLarge
        append = Append(
            state, sent.fragments, sent.size, sent.data_bytes, self._loop.create_future(),
            has_ordering_keys=sent.has_ordering_keys,
        )  # fmt: skip
        if key is not None:
            if not self._keys.claim_new(append, sent, key):
                earlier = await self._keys.claim(append, sent, partial(self._wait_for_release, state))
                if earlier is not None:
                    return earlier
        elif state.held is not None:
            await self._wait_for_release(state)
        state.under_way += 1
        self._submit(append)
        return await append.done

    async def earlier_answer(self, topic: TopicId, messages: Sequence[Message], key: str) -> Appended | None:
        return await self._keys.earlier_answer(self._topic(topic), messages, key)

    async def read(self, topic: TopicId, start: Offset, *, max_messages: int, max_bytes: int) -> Sequence[Stored]:
        """Return messages from `start` on (`Log.read`). Damaged messages are skipped and logged."""
        state = await self._topic_after_expiry(topic)
        return await self._reader.read(state, max(start, state.oldest), max_messages, max_bytes)

    async def bounds(self, topic: TopicId) -> Bounds:
        state = await self._topic_after_expiry(topic)
        return Bounds(min(state.oldest, state.end), state.end)

    async def all_bounds(self) -> Mapping[TopicId, Bounds]:
        """Return the bounds of every topic (`Log.all_bounds`); yields to the event loop in between."""
        found: dict[TopicId, Bounds] = {}
        for number, topic in enumerate(await self.topics(), 1):
            with contextlib.suppress(TopicGone):  # dropped meanwhile
                found[topic] = await self.bounds(topic)
            if number % _TOPICS_PER_TURN == 0:
                await asyncio.sleep(0)
        return found

    async def totals(self, topic: TopicId) -> Totals:
        tail = self._topic(topic).tail
        return Totals(tail.end, tail.published, tail.time if tail.commit else None)

    async def offset_at(self, topic: TopicId, time: Milliseconds) -> Offset | None:
        state = await self._topic_after_expiry(topic)
        offset = await self._state.look_up(partial(self._state.catalog.since, state, time))
        if offset is None:
            return None
        offset = max(offset, state.oldest)
        return offset if offset < state.end else None

    async def wait(self, topic: TopicId, after: Offset, timeout: float) -> bool:
        state = self._topic(topic)
        give_up = self._loop.time() + timeout
        while state.end <= after:
            left = give_up - self._loop.time()
            if left <= 0 or self._closed or self._failed or state.leaving:
                return False
            if state.waiter is None:
                state.waiter = self._loop.create_future()
            await asyncio.wait((state.waiter,), timeout=left)
        return True

    async def retain(self) -> None:
        """Run retention now; the log also does so every check interval. Raises `LogUnavailable`."""
        self._check_open()
        try:
            await self.upkeep.retain()
        except OSError as error:
            raise LogUnavailable from error

    async def stored_bytes(self, topics: Collection[TopicId]) -> Mapping[TopicId, int]:
        known = self._state.topics
        return {topic: known[topic].stored for topic in topics if topic in known}

    def segment_files(self) -> Sequence[str]:
        """Return the files that hold messages or cursors now. Thread-safe."""
        catalog = self._state.catalog
        return [each.path for each in (*catalog, *catalog.chain) if each.length] + self.journal.images()

    @property
    def space(self) -> FreeSpace:
        """The free space of the disk, for other writers on it."""
        return self._space

    def usage(self) -> int:
        """Return the bytes of segments, indexes, images, reserve, spares, and preallocated pages."""
        waiting = self._space.reserved_bytes + self._spares.bytes + self._committer.tails + self.journal.usage
        return waiting + sum(each.length + (each.head.size if each.head else 0) for each in self._state.catalog)

    @property
    def refusal(self) -> str | None:
        return self._committer.refusal

    @property
    def away(self) -> str | None:
        return None

    async def weak_topics(self) -> Mapping[TopicId, str]:
        return {}

    async def name_of(self, topic: TopicId) -> str:
        return topic_id_text(self._topic(topic).id)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for state in self._state.topics.values():
            state.wake()
        await self.upkeep.rounds.close()
        if self._writing_ahead is not None:
            self._writing_ahead.cancel()
            await asyncio.wait((self._writing_ahead,))
        await self.upkeep.close()
        await self._ahead.close()
        self._send()
        with contextlib.suppress(LogUnavailable):  # its thread has ended by itself
            self._committer.submit(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._spares.give_up)
        await asyncio.sleep(0)  # for the last outcomes that the thread reported
        await self._state.catalog.pages.close()

    def _topic(self, topic: TopicId) -> TopicState:
        self._check_open()
        state = self._state.topics.get(topic)
        if state is None or state.leaving:
            raise TopicGone
        return state

    def _check_open(self) -> None:
        if self._closed or self._failed:
            raise LogUnavailable

    async def _topic_after_expiry(self, topic: TopicId) -> TopicState:
        state = self._topic(topic)
        now = self._retention_clock.wall()
        if now < state.age_due:
            return state
        retention = state.retention or self._options.retention
        find = self._state.catalog.find
        state.age_due = Milliseconds(now + _MAX_AGE_CHECK_MS)
        end = state.end
        place = await self._state.look_up(lambda: find(state, state.oldest))
        if place is not None and place.entries.times[place.number] < now - retention:
            kept = await self._state.look_up(partial(self._state.catalog.since, state, Milliseconds(now - retention)))
            state.oldest = max(state.oldest, end if kept is None else kept)
            place = await self._state.look_up(lambda: find(state, state.oldest))
        first = end if place is None else Offset(place.entries.firsts[place.number])
        state.oldest = max(state.oldest, first)
        time = now if place is None else place.entries.times[place.number]
        state.age_due = Milliseconds(max(time + retention + 1, now + _MAX_AGE_CHECK_MS))
        return state

    async def _wait_for_release(self, topic: TopicState) -> None:
        await topic.wait_for_release()
        self._topic(topic.id)

    def _control(
        self, kind: RecordKind, state: TopicState, retention: Milliseconds | None = None
    ) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = self._loop.create_future()
        self._submit(Control(kind, state, done, retention, state.oldest))
        return done

    def _submit(self, work: Append | Control) -> None:
        """Queue work. All work of one turn of the event loop wakes the committer once: waking is expensive."""
        if not self._outbox:
            self._loop.call_soon(self._send)
        self._outbox.append(work)

    def _send(self) -> None:
        outbox, self._outbox = self._outbox, []
        if outbox and self._failed:
            self._state.give_up(outbox)
        elif outbox:
            self._committer.submit(*outbox)

    def _submit_cursors(self, group: CursorGroup) -> None:
        self._check_open()
        outbox, self._outbox = self._outbox, []
        self._committer.submit(*outbox, group)

    def _post_outcomes(self, outcomes: list[CommitOutcome], done: "list[asyncio.Future[None]]") -> None:
        """Post the committer's outcomes to the event loop. Runs on the committer thread."""
        with contextlib.suppress(RuntimeError):  # the event loop ended without closing the log
            self._loop.call_soon_threadsafe(self._apply, outcomes, done)

    def _apply(self, outcomes: list[CommitOutcome], done: "list[asyncio.Future[None]]") -> None:
        if self._failed:
            self._fail_outcomes(outcomes, done)
            return
        try:
            for outcome in outcomes:
                self._state.apply(outcome)
                if outcome.cursors is not None:
                    self.journal.apply(outcome)
                if outcome.sequence:
                    self._ahead.look(outcome.code)
        except Exception as error:
            self._supervisor.report_failure(MEMORY, error, lambda: self._fail_outcomes(outcomes, done))
            return
        for each in done:
            answer_future(each, None)

    def _fail_outcomes(self, outcomes: list[CommitOutcome], done: "list[asyncio.Future[None]]") -> None:
        """Fail outcomes that cannot be applied: consumers would skip a gap before them. A restart recovers them."""
        self._fail()
        for outcome in outcomes:
            stored = [append for share in outcome.shares for append in share.appends]
            self._state.give_up([*stored, *outcome.controls], is_known=False)
            self._state.give_up(outcome.failed)
        for each in done:
            answer_future(each, LogUnavailable())

    def _writing_ended(self) -> None:
        self._fail()
        taken, waiting, chores = self._committer.unfinished_work()
        self._state.give_up(taken, is_known=False)
        self._state.give_up(waiting)
        for chore in chores:
            answer_future(chore.done, LogUnavailable())

    def _fail(self) -> None:
        self._failed = True
        self.upkeep.rounds.cancel()
        if self._writing_ahead is not None:
            self._writing_ahead.cancel()
        self.journal.give_up()
