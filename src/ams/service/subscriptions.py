"""Administration of subscriptions (HTTP contract 9), and expiry of those that nobody uses.

A subscription with an expiration policy is deleted when it was unused for its time. A use is a pull, acknowledgement,
push, or request by name. Uses are noted in memory and stored now and then, so that no request waits. Expiry waits
`EXPIRY_MARGIN` longer, as the last use may not be stored yet, here or on another node.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from ams.access.admission import Caller
from ams.access.permissions import CONSUMER
from ams.core import iam, names
from ams.core.ack_ids import BAD_ACK_DEADLINE, DEFAULT_ACK_DEADLINE, MAX_ACK_DEADLINE, MIN_ACK_DEADLINE
from ams.core.clock import Clock, Milliseconds, span_text
from ams.core.errors import AlreadyExists, AmsError, InvalidInput, SubscriptionGone, Unavailable, refuse_if
from ams.core.names import Offset, ProjectName, SubscriptionId, SubscriptionName, TopicId, TopicName, UserName
from ams.core.parallel_options import Changes, DeadLetterPolicy, ParallelOptions, check
from ams.core.push_config import AskedPush
from ams.core.quotas import SUBSCRIPTIONS
from ams.core.retention_clock import RetentionClock
from ams.core.supervisor import Ticker
from ams.service import lookup
from ams.service.leftovers import finish_or_leave
from ams.service.push.configurations import Pushing
from ams.service.retention import Losses
from ams.service.tallies import Counts
from ams.storage.audit.event import new_event
from ams.storage.audit.trail import Trail
from ams.storage.cursors.base import Cursors
from ams.storage.log.base import Log
from ams.storage.registry.records import NO_LABELS, Page, PageRequest, Subscription
from ams.storage.registry.registry import Registry
from ams.storage.registry.resources import Expiring
from ams.wire.projects import Acl

NO_TOPIC = TopicId(bytes(16))  # topic id of a subscription whose topic is deleted
EXPIRY_SECONDS = 600.0
STORE_USES_MS = Milliseconds(3_600_000)  # a use is stored if the last stored one is so much older
EXPIRY_MARGIN = Milliseconds(2 * STORE_USES_MS)  # waited after a start too, so that clients can come back
EXPIRY_ACTOR = "(expiration policy)"
logger = structlog.get_logger("ams.subscriptions")
expiry_logger = structlog.get_logger("ams.expiring")


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Subscriptions of the caller's project."""

    registry: Registry
    log: Log
    cursors: Cursors
    pushing: Pushing
    stopped: Callable[[SubscriptionId], None] = lambda _: None  # called for deleted and detached subscriptions
    used: Callable[[SubscriptionId], None] = lambda _: None  # called for those requested by name
    # Called before exactly-once delivery is switched on for one that may have messages on lease.
    cover: Callable[[Subscription], Awaitable[None]] | None = None

    async def list(self, caller: Caller, page: PageRequest) -> Page[Subscription]:
        """Return a page of subscriptions, newest first, of a consumer's access lists (3.5); raise `InvalidInput`."""
        found = await self.registry.subscriptions.page(caller.here.id, page, listed=caller.filters_by(CONSUMER))
        return found.map(caller.view_push)

    async def show(self, caller: Caller, name: SubscriptionName) -> Subscription:
        """Return a subscription, also one without its topic. Raises `NotFound`."""
        return self._note_use_and_view(caller, await lookup.find_subscription(self.registry, caller, name))

    async def create(
        self, caller: Caller, name: SubscriptionName, topic: str, ack_deadline_seconds: int = 0, *,
        push: AskedPush | None = None, options: ParallelOptions | None = None, labels: Mapping[str, str] = NO_LABELS,
        takes_own: bool = False,
    ) -> Subscription:  # fmt: skip
        """Make a subscription at the present end of a topic.

        `topic` is a reference `projects/P/topics/T`; a deadline of 0 is the default; `push` is None for a pull
        subscription, `options` for an ordered one; `takes_own`: its dead letters may go to its own topic. Raises, in
        this order: `InvalidInput` for the options, the deadline, the reference; `TopicGone`; what
        `Pushing.for_creation` does; `TopicGone` and `InvalidInput` for the dead letter topic of the options;
        `AlreadyExists`, `QuotaExceeded`.
        """
        if options is not None:
            check(options)
        _check_deadline(ack_deadline_seconds, is_parallel=options is not None and ack_deadline_seconds != 0)
        target = await lookup.find_topic(self.registry, caller, names.topic_reference(caller.here.name, topic))
        config, worker = None, None
        if push:
            parallel = options is not None
            config, worker = await self.pushing.for_creation(caller, target.name, push, parallel=parallel)
        if options is not None:
            letters = await self._dead_letters(caller, target.name, options.dead_letter_policy, takes_own)
            options = replace(options, dead_letter_policy=letters)
        if await self.registry.subscriptions.find(caller.here.id, name) is not None:
            raise AlreadyExists("Subscription already exists")
        await self.registry.quotas.require_room(caller.here.id, {SUBSCRIPTIONS: 1})
        identity = SubscriptionId(names.new_uuid())
        # The cursor first: a registered subscription can always be pulled from.
        await self.cursors.create(identity, target.id, (await self.log.bounds(target.id)).end)
        made = Subscription(
            identity, caller.here.id, name, target.name, ack_deadline_seconds or DEFAULT_ACK_DEADLINE, config,
            self.registry.shared.clock.wall(), parallel=options, labels=labels,
        )  # fmt: skip
        try:
            await self.registry.subscriptions.create(made, worker)
        except Unavailable:
            raise  # It may be registered. If it is not, the sweep at the next start removes its cursor.
        except AmsError:
            await self.cursors.drop(identity)
            raise
        if made.push is not None and made.push.verified:  # its endpoint needs no verification (HTTP contract 13.2)
            await self.pushing.server.settle()
        return made

    async def change(
        self, caller: Caller, name: SubscriptionName, changes: Changes, *, takes_own: bool = False
    ) -> Subscription:
        """Change options of a parallel subscription; return it as it is then. `takes_own` as of `create`.

        Raises, in this order: `InvalidInput` for the options, `NotFound`, `Conflict` for an ordered subscription,
        `InvalidInput` and `TopicGone` for the dead letter topic.
        """
        check(ParallelOptions(**changes))
        subscription = await lookup.find_subscription(self.registry, caller, name)
        options = lookup.parallel_options(subscription.parallel)
        if (letters := changes.get("dead_letter_policy")) is not None:
            found = await self._dead_letters(caller, subscription.topic, letters, takes_own)
            changes = {**changes, "dead_letter_policy": found}
        is_new = changes.get("enable_exactly_once_delivery") and not options.enable_exactly_once_delivery
        if is_new and not options.detached and self.cover is not None:
            await self.cover(subscription)
        expected, change = lookup.expected_subscription(caller), partial(_with_changes, changes)
        changed = await self.registry.subscriptions.change(caller.here.id, name, expected, options=change)
        return self._note_use_and_view(caller, changed)

    async def set_labels(self, caller: Caller, name: SubscriptionName, labels: Mapping[str, str]) -> Subscription:
        """Replace the labels; return the subscription as it is then. Raises `NotFound`."""
        changed = await self.registry.subscriptions.set_labels(caller.here.id, name, labels)
        return self._note_use_and_view(caller, lookup.require_found(changed, SubscriptionGone))

    async def delete(self, caller: Caller, name: SubscriptionName) -> str:
        """Delete a subscription; return the outcome for its push delivery, or "" (contract 9.2). Raises `NotFound`."""
        found = await self.registry.subscriptions.delete(caller.here.id, name, lookup.expected_subscription(caller))
        removed = lookup.require_found(found, SubscriptionGone)
        await self._let_go(removed)
        return await self.pushing.deletion_outcome(caller.here.name, removed)

    async def delete_unused(self, project: ProjectName, identity: SubscriptionId, since: Milliseconds) -> bool:
        """Delete a subscription if it was not used since a moment; return whether it was deleted."""
        removed = await self.registry.subscriptions.delete_unused(identity, since)
        if removed is not None:
            await self._let_go(removed)
            await self.pushing.deletion_outcome(project, removed)
        return removed is not None

    async def detach(self, caller: Caller, name: SubscriptionName) -> None:
        """Detach a parallel subscription for good: its backlog is dropped, and pushing ends."""
        change = partial(_with_changes, {"detached": True})
        had_push = (await lookup.find_subscription(self.registry, caller, name)).push is not None
        worker, expected = await self.pushing.worker(), lookup.expected_subscription(caller)
        detached = await self.registry.subscriptions.change(
            caller.here.id, name, expected, options=change, config=lambda _: None, worker=worker
        )
        if had_push:
            await self.pushing.server.settle()
        await self._let_go(detached)

    def _note_use_and_view(self, caller: Caller, subscription: Subscription) -> Subscription:
        self.used(subscription.id)
        return caller.view_push(subscription)

    async def _let_go(self, subscription: Subscription) -> None:
        async def drop_cursor() -> None:
            await Losses(self.registry, self.log, self.cursors).settle(subscription)
            await self.cursors.drop(subscription.id)

        await finish_or_leave(drop_cursor(), subscription.id)
        self.stopped(subscription.id)

    async def modify_ack_deadline(self, caller: Caller, name: SubscriptionName, seconds: int) -> Subscription:
        """Change the deadline, also of present leases. Raises `InvalidInput`, `NotFound`, `NotAllowed` (A5)."""
        _check_deadline(seconds)
        subscription = await self.show(caller, name)
        caller.require_listed(subscription.authorized, CONSUMER)
        _check_deadline(seconds, is_parallel=subscription.parallel is not None)
        expected = lookup.expected_subscription(caller)
        changed = await self.registry.subscriptions.set_ack_deadline(caller.here.id, name, seconds, expected)
        return self._note_use_and_view(caller, lookup.require_found(changed, SubscriptionGone))

    async def access_list(self, caller: Caller, name: SubscriptionName) -> Acl:
        """Return the access list, and IAM bindings of Google's clients that have no effect. Raises `NotFound`."""
        await self.show(caller, name)
        listed = await self.registry.subscriptions.access_list(caller.here.id, name)
        return Acl(listed, iam.lines(await self.registry.policies.find("subscriptions", caller.here.id, name)))

    async def change_access_list(
        self, caller: Caller, name: SubscriptionName, add: Sequence[str], remove: Collection[str] | None = None
    ) -> Sequence[UserName]:
        """Add users and remove others, None: all others; return the list. Raises `NotFound`, first for a non-member."""
        return await self.registry.subscriptions.change_access_list(caller.here.id, name, add, remove, caller.expected)

    async def give_cursors(self) -> int:
        """Create missing cursors at the oldest kept message, at the start; return how many.

        Cursors are missing only if they were lost or set aside. The acknowledgements are lost, so everything is
        redelivered rather than skipped.
        """
        have, known = await self.cursors.places(), await self.registry.subscriptions.all()
        for each in known:
            if each.is_detached and each.id in have:
                await self.cursors.drop(each.id)  # a crash came between
        missing = [each for each in known if each.id not in have and not each.is_detached]
        for each in missing:
            topic = await self.registry.topics.find(each.project_id, each.topic)
            oldest = (await self.log.bounds(topic.id)).oldest if topic else Offset(0)
            await self.cursors.create(each.id, topic.id if topic else NO_TOPIC, oldest)
            logger.warning("subscription.cursor_lost", subscription=each.name, offset=oldest)
        return len(missing)

    async def _dead_letters(
        self, caller: Caller, topic: TopicName, asked: DeadLetterPolicy | None, takes_own: bool
    ) -> DeadLetterPolicy | None:
        if asked is None:
            return None
        found = await lookup.find_dead_letter_topic(self.registry, caller, topic, asked.topic, takes_own=takes_own)
        return replace(asked, topic=found)


def _with_changes(changes: Mapping[str, Any], present: ParallelOptions | None) -> ParallelOptions:
    return replace(lookup.parallel_options(present), **changes)


def _check_deadline(seconds: int, *, is_parallel: bool = False) -> None:
    refuse_if(not 0 <= seconds <= MAX_ACK_DEADLINE, BAD_ACK_DEADLINE)
    if is_parallel and seconds < MIN_ACK_DEADLINE:
        raise InvalidInput("Invalid ackDeadlineSeconds(needs value between 10 and 600) Arguments")


class Expiry:
    """Records uses of subscriptions, and deletes expired subscriptions and snapshots."""

    def __init__(
        self, registry: Registry, counts: Counts, subscriptions: Subscriptions, trail: Trail, clock: Clock,
        retention_clock: RetentionClock,
    ) -> None:  # fmt: skip
        self._registry, self._counts, self._subscriptions, self._trail = registry, counts, subscriptions, trail
        self._clock, self._retention_clock = clock, retention_clock
        self._noted: dict[SubscriptionId, Milliseconds] = {}
        self._started = clock.monotonic()
        put_off = partial(expiry_logger.warning, "expiring.put_off")
        self.rounds = Ticker("what expires", EXPIRY_SECONDS, self.round, put_off)

    def note(self, subscription: SubscriptionId) -> None:
        """Record a request for a subscription by name. `Counts` records pulls and acknowledgements."""
        self._noted[subscription] = self._clock.wall()

    async def round(self) -> None:
        """Delete expired subscriptions and snapshots, and store uses. Raises what registry and cursors raise."""
        now = self._retention_clock.wall()
        if snapshots := await self._registry.snapshots.delete_expired(now):
            expiry_logger.info("snapshots.expired", snapshots=snapshots)
        expiring = await self._registry.subscriptions.expiring()
        used = {each.id: self._last_use(each) for each in expiring}
        self._noted = {each: when for each, when in self._noted.items() if each in used}
        late = {each.id: used[each.id] for each in expiring if used[each.id] - each.noted >= STORE_USES_MS}
        await self._registry.subscriptions.note_uses(late)
        if self._clock.monotonic() - self._started < EXPIRY_MARGIN:
            return
        for each in expiring:
            since = Milliseconds(now - each.ttl - EXPIRY_MARGIN)
            project = each.title.project
            if self._last_use(each) < since and await self._subscriptions.delete_unused(project, each.id, since):
                await self._record_deletion(each)

    async def _record_deletion(self, each: Expiring) -> None:
        path, unused = names.subscription_path(*each.title), span_text(each.ttl)
        expiry_logger.warning("subscription.expired", subscription=path, unused_for=unused)
        reason = f"Not used for {unused}"
        event = new_event(self._clock.wall(), "ams", "subscriptions:delete", path, actor=EXPIRY_ACTOR, reason=reason)
        await self._trail.record(event)

    def _last_use(self, each: Expiring) -> Milliseconds:
        pulls = self._counts.pulled.get(each.id)
        known = (pulls.last if pulls else None, self._counts.acknowledged_at.get(each.id), self._noted.get(each.id))
        return Milliseconds(max(each.used, *[moment or 0 for moment in known]))
