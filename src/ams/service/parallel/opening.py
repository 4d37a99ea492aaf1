"""The subscriptions that this process works on: which ones are open, how one is taken over, and when it is let go.

Up to the first wait no `asyncio.timeout`, `TaskGroup` or `current_task`: `ams.http.lane` drives this without a task.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from ams.cluster.ownership import Ownership
from ams.core.ack_ids import MAX_ACK_DEADLINE, identity_of
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AmsError, InvalidInput
from ams.core.filters import Filter, parse
from ams.core.names import Offset, ProjectName, SubscriptionId, TopicId
from ams.core.parallel_options import ParallelOptions
from ams.core.retention_clock import RetentionClock
from ams.core.supervisor import Supervisor
from ams.push.upstream import Verdict
from ams.service.lookup import topic_of
from ams.service.parallel.backlog import Backlog, Settling
from ams.service.parallel.message_state import SLOT, Rules
from ams.service.retention import oldest_for
from ams.storage.cursors.acks import CursorStore, Horizon, Progress, ended
from ams.storage.log.base import Log
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry

LONGEST_LEASE = Milliseconds(MAX_ACK_DEADLINE * 1000)
STORE_PASSED_MS = 1000
"""Ranges that the filter passed over are stored after so long."""
LOOK_MS = 60_000
"""Between two looks at a subscription of which nothing is due, as retention may have passed it."""

logger = structlog.get_logger("ams.parallel")


class WaitReason(NamedTuple):
    """The reason for which a pull waits."""

    holder: str
    for_room: bool
    """For room; else for something to be ready again, as its consumer has room."""


@dataclass(slots=True, eq=False)
class OpenSubscription:
    """A subscription that this process works on."""

    subscription: Subscription
    options: ParallelOptions
    project: ProjectName
    topic: TopicId
    backlog: Backlog
    filter: Filter | None
    horizon: Horizon | None
    used: Milliseconds
    is_covered: bool
    """True if the stored horizon covers all leases: with exactly-once delivery, or just before it is switched on.

    Not where it was switched on, and this process has only heard of it.
    """
    failures: int = 0
    dead_letters: int = 0
    """Messages put aside since it was opened."""
    large: tuple[Offset, int] | None = None
    """The last message that was too large for some clients of streams, and its bytes."""
    giving: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one pull that is served at a time."""
    waiting: dict[WaitReason, set[asyncio.Future[None]]] = field(default_factory=dict)
    storing: set[asyncio.Task[None]] = field(default_factory=set)
    verdicts: dict[Offset, Verdict] = field(default_factory=dict)
    """Why messages are about to be put aside, where their consumer said it."""
    kept_because: str = ""
    """Why the last message that should be put aside could not be; empty: it could."""

    def wake(self) -> None:
        """Let all pulls that wait look again."""
        self._wake(list(self.waiting))

    def wake_served(self) -> None:
        """Let those pulls look again that may find something: of many that wait, an acknowledgement wakes none."""
        if self.waiting:
            is_ready = self.backlog.is_again_ready
            self._wake([each for each in self.waiting if self._may_find(each, is_ready=is_ready)])

    def _may_find(self, each: WaitReason, *, is_ready: bool) -> bool:
        if not (is_ready or each.for_room) or not self.backlog.room(each.holder):
            return False
        return is_ready or self.backlog.may_scan(each.holder)

    def _wake(self, some: Iterable[WaitReason]) -> None:
        for each in some:
            for woken in self.waiting.pop(each):
                if not woken.done():
                    woken.set_result(None)

    def note(self, verdict: Verdict, settling: Settling) -> None:
        """Note why messages failed that failed as often as they may."""
        most = self.backlog.failures.rules.most_attempts
        dead = [each for each, failures in settling.failures.items() if 0 < most <= failures]
        self.verdicts.update(dict.fromkeys(dead, verdict))

    def follow(self, subscription: Subscription) -> None:
        """Go by the options as they are now; leases that were given stay as they were."""
        before, self.options = self.options, options_of(subscription)
        self.subscription = subscription
        if before.enable_exactly_once_delivery and not self.options.enable_exactly_once_delivery:
            self.is_covered = False
        self.backlog.go_by(_rules(self.options))


def options_of(subscription: Subscription) -> ParallelOptions:
    """Return its options; raise `InvalidInput` when an ordered one took its place while the request came."""
    if subscription.parallel is None:
        raise InvalidInput("Invalid ack id")
    return subscription.parallel


def _rules(options: ParallelOptions) -> Rules:
    retry, dead = options.retry_policy, options.dead_letter_policy
    return Rules(
        retry.minimum_backoff if retry else Milliseconds(0),
        retry.maximum_backoff if retry else Milliseconds(0),
        dead.max_attempts if dead else 0,
        options.enable_exactly_once_delivery,
    )


class OpenSubscriptions:
    """Opens subscriptions when they are used first, and knows which ones are open."""

    def __init__(
        self,
        registry: Registry,
        log: Log,
        cursors: CursorStore,
        clock: Clock,
        ownership: Ownership,
        retention_clock: RetentionClock,
    ) -> None:
        self._registry, self._log, self._cursors = registry, log, cursors
        self._clock, self._retention_clock = clock, retention_clock
        self._ownership = ownership
        self._sooner = asyncio.Event()
        """Something is due sooner than the sweeper looks."""
        self._looks_at = Milliseconds(0)
        self._open: dict[SubscriptionId, OpenSubscription] = {}
        self._opening: dict[SubscriptionId, asyncio.Lock] = {}
        self._ends: Mapping[TopicId, Offset] | None = None
        """Where topics ended when this process began, which works alone; None: that is not known."""
        self._began = clock.monotonic()
        self._worked_on: set[SubscriptionId] = set()
        """Subscriptions opened by this process; of others it gave nothing, and `_ends` says what others may have."""

    async def start(self, supervisor: Supervisor) -> None:
        """Renew in the background what this process owns."""
        await self.note_ends()
        await self._ownership.start(supervisor, self._forget_all)

    async def note_ends(self) -> None:
        """Note where topics end before anything is published: what comes later, no process before this one gave."""
        if not self._ownership.has_others:
            with contextlib.suppress(AmsError):
                self._ends = {topic: bounds.end for topic, bounds in (await self._log.all_bounds()).items()}

    async def hand_over(self) -> None:
        """Let other nodes have everything: this one stops soon."""
        self._forget_all()
        await self._ownership.leave()

    async def close(self) -> None:
        """End the background work, and own nothing any more."""
        await self._ownership.close()

    # Which ones are open

    def get(self, subscription: SubscriptionId) -> OpenSubscription | None:
        """Return a subscription that this process works on."""
        return self._open.get(subscription)

    def all(self) -> Collection[OpenSubscription]:
        """Return all subscriptions that this process works on."""
        return self._open.values()

    def has(self, opened: OpenSubscription) -> bool:
        """Return whether it is still open, and nobody has opened it anew."""
        return self._open.get(opened.subscription.id) is opened

    def holds(self, subscription: SubscriptionId) -> bool:
        """Return whether this process owns a subscription."""
        return self._ownership.holds(subscription)

    async def here(self, subscription: SubscriptionId) -> OpenSubscription | None:
        """Return a subscription that this process works on, None when nobody does; raise `OwnedElsewhere`."""
        if self._ownership.holds(subscription):
            return self._open.get(subscription)
        await self._ownership.look(subscription)
        return None

    async def retain(self, opened: OpenSubscription) -> None:
        """Follow what retention took."""
        bounds = await self._log.bounds(opened.topic)
        oldest = await oldest_for(self._log, opened.topic, opened.subscription, bounds, self._retention_clock)
        if oldest <= opened.backlog.floor:
            return
        await self._cursors.retain(opened.subscription.id, opened.backlog.epoch, oldest)
        lost = opened.backlog.retain(oldest)
        if lost:
            logger.warning("subscription.lost", subscription=opened.subscription.name, messages=lost)

    # Timer for lease expiry: wakes the sweeper when the next lease or retry is due

    def note_due(self, opened: OpenSubscription) -> None:
        """Note that something was given, stored, or passed over."""
        due = opened.backlog.next_due()
        if opened.backlog.failures.dead:
            due = Milliseconds(0)
        elif due is None and opened.backlog.done.has_passed:
            due = Milliseconds(self._clock.monotonic() + STORE_PASSED_MS)
        if due is not None and due < self._looks_at:
            self.look_now()

    def look_now(self) -> None:
        """Let the sweeper look at once."""
        self._sooner.set()

    async def wait_until_due(self) -> None:
        """Wait until something is due of a subscription, also of one that is noted meanwhile."""
        now = self._clock.monotonic()
        has_passed = any(each.backlog.done.has_passed for each in self.all())
        dues = [now + (STORE_PASSED_MS if has_passed else LOOK_MS)]
        dues += [due for each in self.all() if (due := each.backlog.next_due()) is not None]
        self._looks_at = Milliseconds(max(min(dues), now + SLOT))
        seconds = (self._looks_at - self._clock.monotonic()) / 1000
        with contextlib.suppress(TimeoutError):  # `wait_for` would forget that it is cancelled in some moments
            async with asyncio.timeout(max(seconds, 0)):
                await self._sooner.wait()
        self._sooner.clear()

    # Letting go

    def forget(self, subscription: SubscriptionId) -> None:
        """Let go of a subscription that was sought, deleted, or changed: the next use opens it anew."""
        opened = self._open.pop(subscription, None)
        if opened is not None:
            opened.backlog.leases.free_windows()  # else a stream that is full would wait for ever
            opened.wake()

    def leave(self, subscription: SubscriptionId) -> None:
        """Let go of a subscription, so that another node may have it, or as it was deleted."""
        self.forget(subscription)
        self._ownership.release(subscription)

    def _forget_all(self) -> None:
        for subscription in list(self._open):
            self.forget(subscription)

    # Opening

    async def own(self, subscription: SubscriptionId, *, seizes: bool = False) -> None:
        """Own a subscription, with `seizes` also one of another node: for push delivery.

        That node can store nothing of it any more. Raises `OwnedElsewhere`, `SubscriptionGone`.
        """
        if seizes or not self._ownership.holds(subscription):
            self.forget(subscription)  # what is known of it may be from before another node had it
            await self._ownership.claim(subscription, seizes=seizes)

    async def use(self, subscription: Subscription, project: ProjectName) -> OpenSubscription:
        """Return a subscription, open. Raises `OwnedElsewhere`, `SubscriptionGone`, or `Conflict` without its topic."""
        opened = self._open.get(subscription.id)
        topic = await topic_of(self._registry, subscription)
        if opened is not None and opened.topic == topic.id and self._ownership.holds(subscription.id):
            if opened.subscription is not subscription:
                opened.follow(subscription)
            opened.used = self._clock.monotonic()
            return opened
        await self.own(subscription.id)
        async with self._opening.setdefault(subscription.id, asyncio.Lock()):
            await self.own(subscription.id)  # again, should it have taken long to get here
            opened = self._open.get(subscription.id)
            if opened is not None and opened.topic == topic.id:
                return opened
            self.forget(subscription.id)
            opened = await self._taken_over(subscription, project, topic.id)
            await self.retain(opened)
            self._open[subscription.id] = opened
            self._worked_on.add(subscription.id)
        self._opening.pop(subscription.id, None)
        return opened

    async def _taken_over(self, subscription: Subscription, project: ProjectName, topic: TopicId) -> OpenSubscription:
        """Return a subscription as it is stored, with the leases that the previous run may have given.

        Offsets beyond the end of the topic are of a log that was put back to an older state: they are not done.
        """
        progress = await self._cursors.take_over(subscription.id, topic)
        end = (await self._log.bounds(topic)).end
        kept = ended(progress, end)
        if kept is not progress:
            logger.warning("parallel.past_the_end", subscription=subscription.name, end=end)
            await self._cursors.restore(subscription.id, topic, kept.floor, kept.done)
            progress = await self._cursors.take_over(subscription.id, topic)
        end, since = self._given_before(subscription.id, topic, progress, end)
        now, options, horizon = self._clock.monotonic(), options_of(subscription), progress.horizon
        exactly_once = options.enable_exactly_once_delivery
        left = subscription.ack_deadline_seconds * 1000
        if exactly_once:
            left = max(horizon.until - self._clock.wall(), 0) if horizon is not None else 0
            left = min(left, since + LONGEST_LEASE - now)  # the time of day may have been set back
        until = Milliseconds(now + left)
        backlog = Backlog(
            progress,
            identity_of(subscription.id),
            _rules(options),
            end=end,
            grace_until=until,
            longest_until=Milliseconds(since + LONGEST_LEASE),
        )
        if horizon is not None and exactly_once:
            backlog.restart_grace.withhold(min(horizon.below, end), until)
        chosen = parse(options.filter) if options.filter else None
        return OpenSubscription(subscription, options, project, topic, backlog, chosen, horizon, now, exactly_once)

    def _given_before(
        self, subscription: SubscriptionId, topic: TopicId, progress: Progress, end: Offset
    ) -> tuple[Offset, Milliseconds]:
        """Return below which offset, and until when, others may have given what this process takes over at `end`.

        Nothing from there on is done or has failed: what a snapshot of another subscription brought may be above where
        the topic ended at the start.
        """
        if self._ends is None or subscription in self._worked_on:
            return end, self._clock.monotonic()
        known = max(progress.failures, default=-1)
        if progress.done:
            known = max(known, progress.done.max())
        return min(max(self._ends.get(topic, Offset(0)), Offset(known + 1)), end), self._began
