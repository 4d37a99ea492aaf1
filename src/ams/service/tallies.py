"""Tallies of topics, projects, days and subscriptions, in step with the log (contract 12.2 and 14).

About once a second a round moves the stored tallies of topics up to the log's end, and stores pulls of subscriptions.
No request waits for it: an answer adds the notes since the last round. After a crash `catch_up` counts from the log, so
the days of a topic always add up to its messages; pulls of the last second may be missing.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date
from functools import partial

import structlog

from ams.core.clock import DAY, Clock, Milliseconds, SystemClock, day_of, day_text
from ams.core.errors import TopicGone
from ams.core.names import Offset, ProjectId, SubscriptionId, TopicId
from ams.core.supervisor import Ticker
from ams.storage.export_format import Day
from ams.storage.log.base import Appended, Log, Totals
from ams.storage.registry.counts import Activity, Rate, Tally, TallyStep, TopicTally
from ams.storage.registry.records import Topic
from ams.storage.registry.registry import Registry

PublishNote = tuple[ProjectId, Appended | None, Appended | None]
"""The project of a topic that may have grown, and its last two publishes; a plain tuple, as each publish makes one."""
PublishNotes = Mapping[TopicId, PublishNote]
ByDay = dict[str, int]

ROUND_SECONDS = 1.0
MAX_PAUSE_SECONDS = 10.0
PAUSE_FACTOR = 50  # a pause is at least this multiple of its round: rounds take at most a fiftieth of the time
TOPICS_PER_YIELD = 64  # topics counted before yielding to the event loop
NEWEST_DAYS = 30  # days in the answer for a topic or a project (contract 14.1)
MIN_NOTES_KEPT = 1024  # notes kept before those of deleted names are removed
logger = structlog.get_logger("ams.counting")


@dataclass(slots=True)
class Pulls:
    """Pulls from a subscription since they were last stored."""

    messages: int = 0
    bytes: int = 0
    last_messages: int = 0
    last: Milliseconds | None = None
    before: Milliseconds | None = None  # when the pull before the last one was; None: not since this was last stored


@dataclass(slots=True)
class Counts:
    """Notes since the last round of counting, and figures since the start."""

    clock: Clock = field(default_factory=SystemClock)
    published: dict[TopicId, PublishNote] = field(default_factory=dict)
    pulled: dict[SubscriptionId, Pulls] = field(default_factory=dict)
    not_base64: int = 0  # messages stored although their data is not base64
    not_base64_of: Counter[TopicId] = field(default_factory=Counter)
    acknowledgements: int = 0
    acknowledged_at: dict[SubscriptionId, Milliseconds] = field(default_factory=dict)  # the last one since the start
    messages: int = 0  # published messages that rounds have counted
    bytes: int = 0
    delivered: int = 0
    by_topic: Counter[tuple[str, str]] = field(default_factory=Counter)  # messages by project and topic, if asked for

    def note_publish(self, topic: Topic, appended: Appended) -> None:
        """Note a stored publish; a repeated one, by its idempotency key, changes nothing."""
        known = self.published.get(topic.id)
        last = known[1] if known else None
        if last is None or appended.first > last.first:
            self.published[topic.id] = (topic.project_id, appended, last)

    def note_attempt(self, topic: Topic) -> None:
        """Note a publish without a known outcome: its messages may be in the log."""
        self.published.setdefault(topic.id, (topic.project_id, None, None))

    def note_pull(self, subscription: SubscriptionId, messages: int = 0, data_bytes: int = 0) -> None:
        """Note a pull, also an empty one."""
        pulls = self.pulled.get(subscription)
        if pulls is None:
            pulls = self.pulled[subscription] = Pulls()
        pulls.before, pulls.last = pulls.last, self.clock.wall()
        pulls.last_messages = messages
        pulls.messages += messages
        pulls.bytes += data_bytes

    def note_acknowledgement(self, subscription: SubscriptionId) -> None:
        """Note an acknowledgement that was stored."""
        self.acknowledgements += 1
        self.acknowledged_at[subscription] = self.clock.wall()

    def take(self) -> tuple[dict[TopicId, PublishNote], dict[SubscriptionId, Pulls]]:
        """Return and reset the notes, except for empty pulls."""
        published, self.published = self.published, {}
        pulled = {subscription: pulls for subscription, pulls in self.pulled.items() if pulls.messages}
        for subscription in pulled:
            del self.pulled[subscription]
        return published, pulled

    def forget_gone(self, existing: Set[SubscriptionId], topics: Set[TopicId]) -> None:
        """Forget deleted topics and subscriptions, but keep pulls that are not stored yet."""
        self.not_base64_of = Counter({each: count for each, count in self.not_base64_of.items() if each in topics})
        self.pulled = {each: pulls for each, pulls in self.pulled.items() if pulls.messages or each in existing}
        self.acknowledged_at = {each: when for each, when in self.acknowledged_at.items() if each in existing}

    @property
    def note_count(self) -> int:
        """Number of notes by name."""
        return len(self.pulled) + len(self.acknowledged_at) + len(self.not_base64_of) + len(self.by_topic)

    def give_back(self, published: dict[TopicId, PublishNote], pulled: dict[SubscriptionId, Pulls]) -> None:
        """Restore notes that could not be stored."""
        self.published = published | self.published
        for subscription, earlier in pulled.items():
            later = self.pulled.setdefault(subscription, Pulls())
            later.messages += earlier.messages
            later.bytes += earlier.bytes
            if later.before is None:
                later.before = earlier.last if later.last is not None else earlier.before
            if later.last is None:
                later.last, later.last_messages = earlier.last, earlier.last_messages


class Counting:
    """Keeps the stored counters in step with the log, and returns their current values."""

    def __init__(self, registry: Registry, log: Log, counts: Counts, *, by_topic: bool = False) -> None:
        self._registry, self._log, self.counts, self._by_topic = registry, log, counts, by_topic
        self._turn = asyncio.Lock()  # one round or read: notes being stored are neither in memory nor in the registry
        self._most = MIN_NOTES_KEPT
        put_off = partial(logger.warning, "counting.put_off")
        self.rounds = Ticker("counting", ROUND_SECONDS, self._timed_round, put_off, has_last=True)

    async def catch_up(self) -> None:
        """Count messages that no round saw before the last stop. Call it before anything is published."""
        async with self._turn:
            known = await self._registry.tallies.all()
            ends = {topic: bounds.end for topic, bounds in (await self._log.all_bounds()).items()}
            # A topic without a log has nothing that could be counted.
            behind = [each for each in known if ends.get(each.id, each.tally.messages) != each.tally.messages]
            if lost := {each.id for each in behind if ends[each.id] < each.tally.messages}:
                # The log was lost, or is older than the registry: these topics count from what the log has.
                await self._registry.tallies.restart(lost)
                behind = [each._replace(tally=Tally()) if each.id in lost else each for each in behind]
            await self._store(behind, {}, {})

    async def round(self) -> None:
        """Store the notes. Raises what the registry or the log raises; the next round retries."""
        async with self._turn:
            published, pulled = self.counts.take()
            try:
                known = await self._registry.tallies.of(published) if published else []
                advances, missed = await self._store(known, published, pulled)
            except BaseException:
                self.counts.give_back(published, pulled)
                raise
            self.counts.give_back({each: published[each] for each in published.keys() & missed}, {})
        self._add_figures(known, advances, pulled)
        await self._forget_deleted()

    @contextlib.asynccontextmanager
    async def last_days(self, topic: Topic) -> AsyncIterator[Sequence[TallyStep]]:
        """Yield the uncounted days of a topic that is being deleted; publishing is blocked meanwhile."""
        async with self._log.hold_appends(topic.id), self._turn:
            known = await self._registry.tallies.of([topic.id])
            advances = await self._advances(known, {})
            yield advances
            self._add_figures(known, advances, {})
            for gone in known:
                self.counts.by_topic.pop((gone.project, gone.name), None)

    async def topic(self, topic: Topic) -> tuple[Tally, ByDay]:
        """Return the tally of a topic, and its newest days. Raises `NotFound` if it is deleted."""
        async with self._turn:
            known, days = await self._registry.tallies.topic(topic.id, NEWEST_DAYS)
            if known is None:
                raise TopicGone
            advance = await self._advance(known, self.counts.published.get(topic.id))
        return (known.tally, _newest(days, ())) if advance is None else (advance.tally, _newest(days, advance.days))

    async def project_days(self, project: ProjectId) -> ByDay:
        """Return messages by day of a project, deleted topics included."""
        async with self._turn:
            days = await self._registry.tallies.project_days(project, NEWEST_DAYS)
            late = await self._uncounted_days(lambda each: each == project)
        return _newest(days, [day for _, shares in late for day in shares])

    async def activity(self, first: date, last: date) -> Mapping[ProjectId, Activity]:
        """Return the activity by project from `first` to `last` inclusive; idle projects are left out."""
        start, end = first.isoformat(), last.isoformat()
        async with self._turn:
            found = dict(await self._registry.figures.activity(first, last))
            for project, days in await self._uncounted_days(lambda _: True):
                known = found.get(project, Activity())
                late = sum(each.messages for each in days if start <= each.day <= end)
                found[project] = known._replace(messages=known.messages + late)
        return found

    async def subscription(self, subscription: SubscriptionId) -> Tally:
        """Return the messages handed out of a subscription."""
        async with self._turn:
            stored = await self._registry.tallies.delivery_tally(subscription)
            pulls = self.counts.pulled.get(subscription)
        return stored if pulls is None else _with_pulls(stored, pulls)

    async def _timed_round(self) -> None:
        began = time.monotonic()
        try:
            await self.round()
        finally:
            self.rounds.seconds = min(max(ROUND_SECONDS, PAUSE_FACTOR * (time.monotonic() - began)), MAX_PAUSE_SECONDS)

    async def _store(
        self, known: Sequence[TopicTally], published: PublishNotes, pulled: Mapping[SubscriptionId, Pulls]
    ) -> tuple[list[TallyStep], set[TopicId]]:
        """Store new tallies; return the stored ones, and topics that another node counted meanwhile."""
        advances = await self._advances(known, published)
        if not (advances or pulled):
            return [], set()
        added = {subscription: _with_pulls(Tally(), pulls) for subscription, pulls in pulled.items()}
        moved = await self._registry.tallies.store(advances, added)
        missed = {each.topic for each in advances} - moved
        return [each for each in advances if each.topic in moved], missed

    async def _advances(self, known: Sequence[TopicTally], published: PublishNotes) -> list[TallyStep]:
        found = []
        for number, each in enumerate(known, 1):
            if (advance := await self._advance(each, published.get(each.id))) is not None:
                found.append(advance)
            if number % TOPICS_PER_YIELD == 0:
                await asyncio.sleep(0)
        return found

    async def _advance(self, known: TopicTally, note: PublishNote | None) -> TallyStep | None:
        tally = known.tally
        floor = tally.rate.last if tally.messages else known.created_on
        counted = Totals(tally.messages, tally.bytes, floor)
        try:
            now = await self._log.totals(known.id)
            days = await shares(self._log, known.id, counted, now)
        except TopicGone:
            return None
        if not days and note is None:
            return None
        rate, (_, last, before) = tally.rate, note or (None, None, None)
        if last is not None and (rate.last is None or last.time >= rate.last):
            rate = Rate(last.count, last.time, rate.last if before is None else before.time)
        return TallyStep(known.id, tally.messages, Tally(now.messages, now.bytes, rate), days)

    async def _uncounted_days(self, wanted: Callable[[ProjectId], bool]) -> list[tuple[ProjectId, Sequence[Day]]]:
        published = {topic: note for topic, note in self.counts.published.items() if wanted(note[0])}
        if not published:
            return []
        known = await self._registry.tallies.of(published)
        projects = {each.id: each.project_id for each in known}
        return [(projects[each.topic], each.days) for each in await self._advances(known, published)]

    def _add_figures(
        self, known: Sequence[TopicTally], advances: Sequence[TallyStep], pulled: Mapping[SubscriptionId, Pulls]
    ) -> None:
        before = {each.id: each for each in known}
        for advance in advances:
            topic = before[advance.topic]
            messages = advance.tally.messages - topic.tally.messages
            self.counts.messages += messages
            self.counts.bytes += advance.tally.bytes - topic.tally.bytes
            if self._by_topic:
                self.counts.by_topic[topic.project, topic.name] += messages
        self.counts.delivered += sum(each.messages for each in pulled.values())

    async def _forget_deleted(self) -> None:
        if self.counts.note_count <= self._most:  # look each time when their number has doubled
            return
        self.counts.forget_gone(await self._registry.subscriptions.ids(), await self._registry.topics.ids())
        if named := self.counts.by_topic:
            for gone in named.keys() - {(each.project, each.name) for each in await self._registry.tallies.all()}:
                del named[gone]
        self._most = max(2 * self.counts.note_count, MIN_NOTES_KEPT)


def _with_pulls(stored: Tally, pulls: Pulls) -> Tally:
    before = stored.rate.last if pulls.before is None else pulls.before
    rate = Rate(pulls.last_messages, pulls.last, before)
    return Tally(stored.messages + pulls.messages, stored.bytes + pulls.bytes, rate)


def _newest(stored: Mapping[str, int], late: Iterable[Day]) -> ByDay:
    days = Counter(stored)
    for each in late:
        days[each.day] += each.messages
    return dict(sorted(days.items(), reverse=True)[:NEWEST_DAYS])


async def shares(log: Log, topic: TopicId, counted: Totals, now: Totals) -> list[Day]:
    """Return messages by day between two totals of a topic, oldest day first. Raises `NotFound`.

    `counted.time` is any moment up to the first message to count; None: unknown. Messages that retention removed count
    for the earliest possible day. Bytes of several days are divided in proportion to messages.
    """
    messages = now.messages - counted.messages
    if messages <= 0 or now.time is None:
        return []
    last = day_of(now.time)
    first = last if counted.time is None else min(day_of(counted.time), last)
    if first == last:
        return [Day(day_text(last), messages, now.bytes - counted.bytes)]
    ends = await _ends(log, topic, Offset(counted.messages), Offset(now.messages), range(first, last))
    found, counted_messages, counted_bytes = list[Day](), 0, 0
    for day, end in [*ends, (last, Offset(now.messages))]:
        until = end - counted.messages
        if until > counted_messages:
            until_bytes = (now.bytes - counted.bytes) * until // messages
            found.append(Day(day_text(day), until - counted_messages, until_bytes - counted_bytes))
            counted_messages, counted_bytes = until, until_bytes
    return found


async def _ends(log: Log, topic: TopicId, start: Offset, end: Offset, days: range) -> list[tuple[int, Offset]]:
    found: list[tuple[int, Offset]] = []
    day = days.start
    while day in days:
        stop = await log.offset_at(topic, Milliseconds((day + 1) * DAY))
        if stop is None:
            return [*found, (day, min((await log.bounds(topic)).end, end))]
        if stop > start:
            found.append((day, min(stop, end)))
            start = stop
        read = await log.read(topic, start, max_messages=1, max_bytes=1)
        day = max(day + 1, day_of(read[0].time) if read else days.stop)
    return found
