"""Open subscriptions of this process: takeover, ownership, closing, and the timer for lease expiry.

No `asyncio.timeout`, `TaskGroup` or `current_task` before the first wait: `ams.http.fast_lane` runs it without a task.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from ams.cluster.ownership import Ownership
from ams.core.ack_ids import MAX_ACK_DEADLINE, identity_of
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AmsError, InvalidInput, SubscriptionGone
from ams.core.filters import Filter, parse
from ams.core.names import Offset, ProjectName, SubscriptionId, TopicId
from ams.core.parallel_options import ParallelOptions, RetryPolicy
from ams.core.retention_clock import RetentionClock
from ams.push.upstream import Verdict
from ams.service.delivery import Deliverer
from ams.service.lookup import require_found, topic_of
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.hand_out_ids import RestartGrace
from ams.service.parallel.message_state import SLOT_MS, RetryRules
from ams.service.retention import bounds_for
from ams.storage.cursors.acks import AckProgress, Horizon, drop_from
from ams.storage.registry.records import Subscription

MAX_LEASE_MS = Milliseconds(MAX_ACK_DEADLINE * 1000)
STORE_PASSED_MS = 1000  # ranges that the filter skipped are stored after this time
MAX_SWEEP_INTERVAL_MS = 60_000  # longest time between two sweeps, to follow retention where nothing is due
logger = structlog.get_logger("ams.parallel")


WaitReason = tuple[str, bool]  # the consumer; True: its share of leases is used up; False: no message is ready


@dataclass(slots=True, eq=False)
class OpenSubscription:
    """A subscription that this process has open."""

    subscription: Subscription
    options: ParallelOptions
    project: ProjectName
    topic: TopicId
    backlog: Backlog
    filter: Filter | None
    horizon: Horizon | None
    used: Milliseconds
    is_horizon_stored: bool  # it covers all leases; False if another process switched exactly-once delivery on
    failures: int = 0
    dead_letters: int = 0  # messages dead-lettered since it was opened
    large: tuple[Offset, int] | None = None  # last message too large for some clients of streams, and its bytes
    giving: asyncio.Lock = field(default_factory=asyncio.Lock)  # held by a pull: they are served one at a time
    waiting: dict[WaitReason, set[asyncio.Future[None]]] = field(default_factory=dict)
    storing: set[asyncio.Task[None]] = field(default_factory=set)
    verdicts: dict[Offset, Verdict] = field(default_factory=dict)  # reasons for dead letters that the consumers gave
    kept_because: str = ""  # why the last dead letter could not be stored; empty: it was

    def wake(self, some: Iterable[WaitReason] | None = None) -> None:
        """Wake the pulls that wait for `some` reasons; None: all."""
        for each in list(self.waiting) if some is None else some:
            for woken in self.waiting.pop(each):
                if not woken.done():
                    woken.set_result(None)

    def wake_served(self) -> None:
        """Wake the waiting pulls that may get messages now."""
        if not self.waiting:
            return
        backlog, is_ready = self.backlog, self.backlog.has_ready
        for holder, for_room in list(self.waiting):
            if backlog.room(holder) and (is_ready or (for_room and backlog.may_scan(holder))):
                self.wake([(holder, for_room)])

    def follow(self, subscription: Subscription) -> None:
        """Apply changed options; existing leases keep their deadlines."""
        before, self.options = self.options, options_of(subscription)
        self.subscription = subscription
        if before.enable_exactly_once_delivery and not self.options.enable_exactly_once_delivery:
            self.is_horizon_stored = False
        self.backlog.set_rules(_rules(self.options))


def options_of(subscription: Subscription) -> ParallelOptions:
    """Return the options; raise `InvalidInput` if an ordered subscription took its place meanwhile."""
    return require_found(subscription.parallel, InvalidInput("Invalid ack id"))


def _rules(options: ParallelOptions) -> RetryRules:
    retry = options.retry_policy or RetryPolicy(Milliseconds(0), Milliseconds(0))
    attempts = options.dead_letter_policy.max_attempts if options.dead_letter_policy else 0
    return RetryRules(retry.minimum_backoff, retry.maximum_backoff, attempts, options.enable_exactly_once_delivery)


class OpenSubscriptions:
    """Table of open subscriptions; opens one at its first use."""

    def __init__(
        self, deliverer: Deliverer, clock: Clock, ownership: Ownership, retention_clock: RetentionClock
    ) -> None:
        self._registry, self._log, self._cursors = deliverer.registry, deliverer.log, deliverer.cursors
        self._clock, self._retention_clock, self._ownership = clock, retention_clock, ownership
        self.wake_sweeper: Callable[[], None] = lambda: None  # lets the sweeper run at once
        self._next_sweep = Milliseconds(0)
        self._open: dict[SubscriptionId, OpenSubscription] = {}
        self._opening: dict[SubscriptionId, asyncio.Lock] = {}
        self._ends: Mapping[TopicId, Offset] | None = None  # of topics when this process started, if it works alone
        self._began = clock.monotonic()
        self._worked_on: set[SubscriptionId] = set()  # for all others `_ends` bounds what was given before

    async def note_ends(self) -> None:
        """Note the ends of topics before anything is published: no former process gave later messages."""
        if not self._ownership.has_others:
            with contextlib.suppress(AmsError):
                self._ends = {topic: bounds.end for topic, bounds in (await self._log.all_bounds()).items()}

    def get(self, subscription: SubscriptionId) -> OpenSubscription | None:
        """Return a subscription if it is open here."""
        return self._open.get(subscription)

    def all(self) -> Collection[OpenSubscription]:
        """Return all open subscriptions."""
        return self._open.values()

    def has(self, opened: OpenSubscription) -> bool:
        """Return whether it is still open, and was not reopened."""
        return self._open.get(opened.subscription.id) is opened

    def holds(self, subscription: SubscriptionId) -> bool:
        """Return whether this process owns a subscription."""
        return self._ownership.holds(subscription)

    async def here(self, subscription: SubscriptionId) -> OpenSubscription | None:
        """Return a subscription if it is open here; None: on no node. Raises `OwnedElsewhere`."""
        if self._ownership.holds(subscription):
            return self._open.get(subscription)
        await self._ownership.look(subscription)
        return None

    async def retain(self, opened: OpenSubscription) -> None:
        """Drop messages that retention removed."""
        oldest = (await bounds_for(self._log, opened.topic, opened.subscription, self._retention_clock)).oldest
        if oldest <= opened.backlog.done.floor:
            return
        await self._cursors.retain(opened.subscription.id, opened.backlog.epoch, oldest)
        if lost := opened.backlog.retain(oldest):
            logger.warning("subscription.lost", subscription=opened.subscription.name, messages=lost)

    def note_due(self, opened: OpenSubscription) -> None:
        """Wake the sweeper if something is due before its next sweep."""
        due = opened.backlog.leases.next_due()
        if opened.backlog.failures.dead:
            due = Milliseconds(0)
        elif due is None and opened.backlog.done.passed:
            due = Milliseconds(self._clock.monotonic() + STORE_PASSED_MS)
        if due is not None and due < self._next_sweep:
            self.wake_sweeper()

    def seconds_until_due(self) -> float:
        """Return the seconds until the next sweep; `note_due` wakes the sweeper if something is due before."""
        now = self._clock.monotonic()
        has_passed = any(each.backlog.done.passed for each in self.all())
        dues = [now + (STORE_PASSED_MS if has_passed else MAX_SWEEP_INTERVAL_MS)]
        dues += [due for each in self.all() if (due := each.backlog.leases.next_due()) is not None]
        self._next_sweep = Milliseconds(max(min(dues), now + SLOT_MS))
        return (self._next_sweep - now) / 1000

    def forget(self, subscription: SubscriptionId) -> None:
        """Close a subscription after a seek, deletion or change: the next use reopens it."""
        if (opened := self._open.pop(subscription, None)) is not None:
            opened.backlog.leases.release_windows()  # else a full stream would wait for ever
            opened.wake()

    def leave(self, subscription: SubscriptionId) -> None:
        """Close a subscription and give up its ownership."""
        self.forget(subscription)
        self._ownership.release(subscription)

    def forget_all(self) -> None:
        """Close all subscriptions."""
        for subscription in list(self._open):
            self.forget(subscription)

    async def own(self, subscription: SubscriptionId, *, seizes: bool = False) -> None:
        """Own a subscription; push `seizes` it from another node. Raises `OwnedElsewhere`, `SubscriptionGone`."""
        if seizes or not self._ownership.holds(subscription):
            self.forget(subscription)  # its state may be older than another node's
            await self._ownership.claim(subscription, seizes=seizes)

    async def use(self, subscription: Subscription) -> OpenSubscription:
        """Return a subscription, opened if needed. Raises `OwnedElsewhere`, `SubscriptionGone`, `Conflict`."""
        opened = self._open.get(subscription.id)
        topic = await topic_of(self._registry, subscription)
        if opened is not None and opened.topic == topic.id and self._ownership.holds(subscription.id):
            if opened.subscription is not subscription:
                opened.follow(subscription)
            opened.used = self._clock.monotonic()
            return opened
        await self.own(subscription.id)
        async with self._opening.setdefault(subscription.id, asyncio.Lock()):
            await self.own(subscription.id)  # again: the lock may have taken long
            opened = self._open.get(subscription.id)
            if opened is not None and opened.topic == topic.id:
                return opened
            self.forget(subscription.id)
            opened = await self._take_over(subscription, topic.id)
            await self.retain(opened)
            self._open[subscription.id] = opened
            self._worked_on.add(subscription.id)
        self._opening.pop(subscription.id, None)
        return opened

    async def _take_over(self, subscription: Subscription, topic: TopicId) -> OpenSubscription:
        """Load a subscription. Drops done offsets beyond the topic's end: the log was restored from an older copy."""
        titles = await self._registry.subscriptions.titles([subscription.id])
        project = require_found(titles.get(subscription.id), SubscriptionGone).project
        progress = await self._cursors.take_over(subscription.id, topic)
        end = (await self._log.bounds(topic)).end
        kept = drop_from(progress, end)
        if kept is not progress:
            logger.warning("parallel.past_the_end", subscription=subscription.name, end=end)
            await self._cursors.restore(subscription.id, topic, kept.floor, kept.done)
            progress = await self._cursors.take_over(subscription.id, topic)
        end, since = self._end_of_previous_leases(subscription.id, topic, progress, end)
        now, options, horizon = self._clock.monotonic(), options_of(subscription), progress.horizon
        exactly_once = options.enable_exactly_once_delivery
        left = subscription.ack_deadline_seconds * 1000
        if exactly_once:
            left = max(horizon.until - self._clock.wall(), 0) if horizon is not None else 0
            left = min(left, since + MAX_LEASE_MS - now)  # the time of day may have been set back
        until = Milliseconds(now + left)
        grace = RestartGrace(progress.run, end, until, Milliseconds(since + MAX_LEASE_MS))
        if horizon is not None and exactly_once:
            grace.withhold(min(horizon.below, end), until)
        backlog = Backlog(progress, identity_of(subscription.id), _rules(options), grace)
        chosen = parse(options.filter) if options.filter else None
        return OpenSubscription(subscription, options, project, topic, backlog, chosen, horizon, now, exactly_once)

    def _end_of_previous_leases(
        self, subscription: SubscriptionId, topic: TopicId, progress: AckProgress, end: Offset
    ) -> tuple[Offset, Milliseconds]:
        """Return the offset below which former owners may have given messages, and since when they gave none."""
        if self._ends is None or subscription in self._worked_on:
            return end, self._clock.monotonic()
        done = progress.done.max() if progress.done else -1  # those of a restored snapshot may be above the end
        known = max(done, max(progress.failures, default=-1))
        return min(max(self._ends.get(topic, Offset(0)), Offset(known + 1)), end), self._began
