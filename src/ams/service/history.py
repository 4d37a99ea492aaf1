"""The last day of topics, subscriptions and projects, measured each minute and kept by the service itself.

A row begins with each hour, and when measuring begins. It has a record of 33 bytes for its first minute, and one for
each minute at which the values changed: a day takes 1 to 50 kB. The row of the service lists the measured minutes.
"""

import asyncio
import contextlib
import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import structlog

from ams.access.admission import Caller
from ams.access.permissions import CONSUMER, PROJECT_ADMIN, PUBLISHER, SERVICE_ADMIN
from ams.cluster.lease_table import Duty
from ams.core.clock import Clock, Milliseconds, resource_date
from ams.core.errors import NotAllowed, TopicGone, Unavailable, refuse_if
from ams.core.names import ProjectId, SubscriptionName, TopicId, TopicName, topic_id_text
from ams.core.retention_clock import RetentionClock
from ams.core.supervisor import Supervisor, Ticker
from ams.service.lookup import check_names, find_listed_subscription, find_topic
from ams.service.retention import lag_of, oldest_time
from ams.storage.cursors.acks import CursorStore
from ams.storage.log.base import Log
from ams.storage.registry.history import HistoryRow, HistoryStore
from ams.storage.registry.registry import Registry
from ams.wire.service import History, ProjectHistory, SubscriptionHistory, TopicHistory

SERVICE = "service"
MINUTE_MS = 60_000
HISTORY_MINUTES = 25 * 60  # minutes of history kept: one day plus the current hour
SUBSCRIPTIONS_PER_YIELD = 64  # subscriptions measured before yielding to the event loop
SPANS: Mapping[str, tuple[int, int]] = {"hour": (60, 1), "day": (288, 5)}  # intervals of a span, and minutes of each

_RECORD = struct.Struct("<BQQQQ")  # the minute of the hour, and four values
Values = tuple[int, int, int, int]
"""Of a topic: messages and bytes published, ever. Of a subscription: messages handed out, those not acknowledged, and
when the oldest of these was published (0: there is none). Of a project: the sums of the first two of these, each."""
Series = Sequence[Values | None]  # before the first interval, then at the end of each; None: nothing was measured

logger = structlog.get_logger("ams.history")


@dataclass(slots=True)
class MetricsHistory:
    """Measures values each minute, and returns them."""

    registry: Registry
    log: Log
    cursors: CursorStore
    clock: Clock
    retention_clock: RetentionClock
    store: HistoryStore
    duty: Duty | None = None  # of measuring, where several nodes may; it is one node's
    _rows: dict[tuple[str, int], bytearray] = field(default_factory=dict)
    """By identity and the minute they began; those of earlier hours go once they are written."""
    _unwritten: set[tuple[str, int]] = field(default_factory=set)
    _last: Mapping[str, Values] = field(default_factory=dict)
    _began: int = -1
    _minute: int = -1  # the last one this process measured at, in minutes since 1970
    _written: int = -1
    rounds: Ticker = field(init=False)

    def __post_init__(self) -> None:
        put_off = partial(logger.warning, "history.put_off")
        self.rounds = Ticker("history", self._seconds_to_next_minute(), self.round, put_off, has_last=True)

    async def start(self, supervisor: Supervisor) -> None:
        """Begin to measure at once, so that the first minute has a value before it."""
        self.rounds.soon()
        await self.rounds.start(supervisor)

    async def close(self) -> None:
        """Measure a last time, and write all rows."""
        await self.rounds.close()
        with contextlib.suppress(Unavailable):  # a graph must not delay the stop
            await self._write()

    async def round(self) -> None:
        """Measure once a minute, if this node has the duty, and write rows when due."""
        self.rounds.seconds = self._seconds_to_next_minute()
        minute = self.clock.wall() // MINUTE_MS
        if minute == self._minute:
            return
        if self.duty and not await self.duty.is_own():  # another node measures; it reads the written rows
            self._rows, self._unwritten, self._minute = {}, set(), -1
            return
        found = await self._measure()
        if minute % 60 == 0 or minute != self._minute + 1:  # the first of an hour, or of this process: note all values
            self._began, self._last = minute, {}
            self._rows = {key: row for key, row in self._rows.items() if key in self._unwritten}
        changed = {name: values for name, values in found.items() if values != self._last.get(name)}
        for name, values in {**changed, SERVICE: (0, 0, 0, 0)}.items():
            key = name, self._began
            self._rows.setdefault(key, bytearray()).extend(_RECORD.pack(minute % 60, *values))
            self._unwritten.add(key)
        self._last, self._minute = found, minute
        if minute - self._written >= self.store.write_minutes:
            await self._write()

    async def read(self, caller: Caller, topics: Sequence[str], subscriptions: Sequence[str], span: str) -> History:
        """Return the history of a project, for its administrators, and of some topics and subscriptions."""
        refuse_if(span not in SPANS, f"span is one of {', '.join(SPANS)}")
        of = await self._identities(caller, topics, subscriptions)
        count, minutes = SPANS[span]
        newest = self.clock.wall() // MINUTE_MS
        rows = await self._records({*of.values(), SERVICE}, newest - (count + 1) * minutes)
        sampled = rows[SERVICE].keys()
        last = newest if newest in sampled else newest - 1
        ends = [last - minutes * (count - each) for each in range(count + 1)]
        looks = [
            max((each for each in range(end - minutes + 1, end + 1) if each in sampled), default=None) for end in ends
        ]
        found = {name: _series(rows[identity], looks) for name, identity in of.items()}
        project, of_topics, of_subscriptions = None, {}, {}
        for (kind, name), each in found.items():
            if kind == "project":
                project = ProjectHistory(_growth(each, 0), _growth(each, 1), _growth(each, 2), _at_end(each, 3))
            elif kind == "topic":
                of_topics[name] = TopicHistory(_growth(each, 0), _growth(each, 1))
            else:
                ages = _ages_in_seconds(_at_end(each, 2), ends[1:])
                of_subscriptions[name] = SubscriptionHistory(_growth(each, 0), _at_end(each, 1), ages)
        first, newest_shown = [resource_date(Milliseconds(minute * MINUTE_MS)) for minute in (ends[0], last)]
        return History(minutes * 60, first, newest_shown, of_topics, of_subscriptions, project)

    async def _identities(
        self, caller: Caller, topics: Sequence[str], subscriptions: Sequence[str]
    ) -> dict[tuple[str, str], str]:
        check_names([*topics, *subscriptions])
        of: dict[tuple[str, str], str] = {}
        if caller.roles & {SERVICE_ADMIN, PROJECT_ADMIN}:
            of["project", caller.here.name] = caller.here.id
        for name in topics:
            _require_role(caller, PUBLISHER)
            topic = await find_topic(self.registry, caller, TopicName(name))
            caller.require_listed(topic.authorized, PUBLISHER)
            of["topic", name] = topic_id_text(topic.id)
        for name in subscriptions:
            _require_role(caller, CONSUMER)
            subscription = await find_listed_subscription(self.registry, caller, SubscriptionName(name))
            of["subscription", name] = subscription.id
        return of

    async def _records(self, of: Collection[str], first: int) -> defaultdict[str, dict[int, Values]]:
        """Return values by identity and minute, from the beginning of the hour of `first` on."""
        rows = {(row.of, row.began): row.data for row in await self.store.read(of, first // 60 * 60)}
        rows |= {key: bytes(data) for key, data in self._rows.items() if key[0] in of}
        found: defaultdict[str, dict[int, Values]] = defaultdict(dict)
        for (name, began), data in sorted(rows.items()):
            hour = began // 60 * 60
            found[name] |= {hour + minute: values for minute, *values in _RECORD.iter_unpack(data)}
        return found

    async def _measure(self) -> dict[str, Values]:
        found: dict[str, Values] = {}
        projects: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        topics: dict[tuple[ProjectId, TopicName], TopicId] = {}
        for topic in await self.registry.tallies.all():
            topics[topic.project_id, topic.name] = topic.id
            found[topic_id_text(topic.id)] = (topic.tally.messages, topic.tally.bytes, 0, 0)
            projects[topic.project_id][0] += topic.tally.messages
            projects[topic.project_id][1] += topic.tally.bytes
        delivered = await self.registry.tallies.all_pulled()
        for number, subscription in enumerate(await self.registry.subscriptions.all(), 1):
            topic_of = topics.get((subscription.project_id, subscription.topic))
            if topic_of is None or subscription.is_detached:
                continue
            try:
                lag = await lag_of(self.log, self.cursors, subscription, topic_of)
                oldest = await oldest_time(self.log, topic_of, lag.current) if lag.messages else None
            except TopicGone:
                continue
            pulled = delivered.get(subscription.id, 0)
            found[subscription.id] = (pulled, lag.messages, oldest or 0, 0)
            projects[subscription.project_id][2] += pulled
            projects[subscription.project_id][3] += lag.messages
            if number % SUBSCRIPTIONS_PER_YIELD == 0:
                await asyncio.sleep(0)
        found.update({name: (sums[0], sums[1], sums[2], sums[3]) for name, sums in projects.items()})
        return found

    async def _write(self) -> None:
        keys, self._unwritten = self._unwritten, set()
        try:
            rows = [HistoryRow(name, hour, bytes(self._rows[name, hour])) for name, hour in keys]
            await self.store.write(rows, self.retention_clock.wall() // MINUTE_MS - HISTORY_MINUTES)
        except BaseException:
            self._unwritten |= keys
            raise
        self._written = self._minute

    def _seconds_to_next_minute(self) -> float:
        return (MINUTE_MS - self.clock.wall() % MINUTE_MS) / 1000


def _growth(series: Series, place: int) -> list[int | None]:
    """Return the growth of a value in each interval; deletions do not make it negative."""
    pairs = pairwise(series)
    return [None if before is None or now is None else max(now[place] - before[place], 0) for before, now in pairs]


def _at_end(series: Series, place: int) -> list[int | None]:
    return [None if each is None else each[place] for each in series[1:]]


def _series(records: Mapping[int, Values], looks: Sequence[int | None]) -> Series:
    minutes = sorted(records)

    def find_values(look: int) -> Values:
        before = bisect_right(minutes, look)
        return records[minutes[before - 1]] if before else (0, 0, 0, 0)

    return [None if look is None else find_values(look) for look in looks]


def _ages_in_seconds(oldest: Sequence[int | None], minutes: Sequence[int]) -> list[int | None]:
    pairs = zip(minutes, oldest, strict=True)
    return [max(minute * MINUTE_MS - each, 0) // 1000 if each else None for minute, each in pairs]


def _require_role(caller: Caller, role: str) -> None:
    if not caller.roles & {SERVICE_ADMIN, PROJECT_ADMIN, role}:
        raise NotAllowed
