"""Administration of subscriptions (HTTP contract 9)."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

import structlog

from ams.access.admission import Caller
from ams.access.permissions import CONSUMER
from ams.core.ack_ids import BAD_ACK_DEADLINE, DEFAULT_ACK_DEADLINE, MAX_ACK_DEADLINE, MIN_ACK_DEADLINE
from ams.core.clock import Milliseconds
from ams.core.errors import AlreadyExists, AmsError, Conflict, InvalidInput, SubscriptionGone, Unavailable
from ams.core.names import (
    Offset,
    ProjectName,
    SubscriptionId,
    SubscriptionName,
    TopicId,
    TopicName,
    UserName,
    new_uuid,
    topic_reference,
)
from ams.core.parallel_options import Changes, DeadLetterPolicy, ParallelOptions, check
from ams.core.push_config import AskedPush
from ams.core.quotas import SUBSCRIPTIONS
from ams.core.versions import ANY_VERSION
from ams.service.lookup import (
    NOT_PARALLEL,
    expected_subscription,
    find_dead_letter_topic,
    find_subscription,
    find_topic,
    parallel_options,
)
from ams.service.push.pushing import Pushing
from ams.service.retention import Losses
from ams.storage.cursors.base import Cursors
from ams.storage.log.base import Log
from ams.storage.registry.records import NO_LABELS, Page, PageRequest, Subscription, Topic
from ams.storage.registry.registry import Registry

BAD_PARALLEL_DEADLINE = "Invalid ackDeadlineSeconds(needs value between 10 and 600) Arguments"

NO_TOPIC = TopicId(bytes(16))
"""Stands for the topic of a subscription whose topic is gone."""

logger = structlog.get_logger("ams.subscriptions")


class Subscriptions:
    """What can be done with the subscriptions of the caller's project."""

    def __init__(
        self,
        registry: Registry,
        log: Log,
        cursors: Cursors,
        pushing: Pushing | None = None,
        *,
        stopped: Callable[[SubscriptionId], None] = lambda _: None,
        used: Callable[[SubscriptionId], None] = lambda _: None,
        cover: Callable[[Subscription, ProjectName], Awaitable[None]] | None = None,
    ) -> None:
        """`stopped` is called for each subscription that was deleted or detached, `used` for each that is asked for.

        `cover` is called before exactly-once delivery holds for one that may have messages out: so that they are not
        given to others after a restart.
        """
        self._registry = registry
        self._log = log
        self._cursors = cursors
        self._pushing = pushing or Pushing(registry)
        self._stopped = stopped
        self._used = used
        self._cover = cover

    async def list(self, caller: Caller, page: PageRequest) -> Page[Subscription]:
        """Return a page of subscriptions, newest first; a consumer sees those whose access list holds it (3.5).

        Raises `InvalidInput` "Invalid page token".
        """
        found = await self._registry.subscriptions.page(caller.here.id, page, listed=caller.filters_by(CONSUMER))
        return found.map(caller.view_push)

    async def show(self, caller: Caller, name: SubscriptionName) -> Subscription:
        """Return a subscription, also one whose topic is gone; raise `NotFound` when there is none."""
        subscription = await find_subscription(self._registry, caller, name)
        self._used(subscription.id)
        return caller.view_push(subscription)

    async def create(
        self,
        caller: Caller,
        name: SubscriptionName,
        topic: str,
        ack_deadline_seconds: int = 0,
        *,
        push: AskedPush | None = None,
        options: ParallelOptions | None = None,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> Subscription:
        """Make a subscription at the present end of a topic.

        `topic` is a reference `projects/P/topics/T`; `ack_deadline_seconds` in seconds, 0 for the default; `push` the
        configuration asked for, None for a pull subscription; `options` those of a parallel subscription, None for an
        ordered one. Raises, in this order: `InvalidInput` for the options, the deadline, the reference; `TopicGone`;
        what `Pushing.for_creation` does; `TopicGone` and `InvalidInput` for the dead letter topic of the options;
        `AlreadyExists`, `QuotaExceeded`.
        """
        if options is not None:
            check(options)
        _check_deadline(ack_deadline_seconds)
        if options is not None and ack_deadline_seconds:
            _check_parallel_deadline(ack_deadline_seconds)
        target = await self._topic(caller, topic)
        is_parallel = options is not None
        asked = self._pushing.for_creation(caller, target.name, push, parallel=is_parallel) if push else None
        config, worker = await asked if asked else (None, None)
        if options is not None:
            letters = await self._dead_letters(caller, target.name, options.dead_letter_policy)
            options = replace(options, dead_letter_policy=letters)
        if await self._registry.subscriptions.find(caller.here.id, name) is not None:
            raise AlreadyExists("Subscription already exists")
        await self._registry.quotas.require_room(caller.here.id, SUBSCRIPTIONS)
        identity = SubscriptionId(new_uuid())
        # The cursor first: a registered subscription can always be pulled from.
        await self._cursors.create(identity, target.id, (await self._log.bounds(target.id)).end)
        try:
            made = await self._registry.subscriptions.create(
                identity,
                caller.here.id,
                name,
                target.name,
                ack_deadline_seconds or DEFAULT_ACK_DEADLINE,
                config,
                worker,
                options=options,
                labels=labels,
            )
        except Unavailable:
            raise  # It may be registered. If it is not, the sweep at the next start removes its cursor.
        except AmsError:
            await self._cursors.drop(identity)
            raise
        await self._pushing.created(made)
        return made

    async def change(self, caller: Caller, name: SubscriptionName, changes: Changes) -> Subscription:
        """Change options of a parallel subscription; return it as it is then.

        Raises, in this order: `InvalidInput` for the options, `NotFound`, `Conflict` for an ordered subscription,
        `InvalidInput` and `TopicGone` for the dead letter topic.
        """
        check(ParallelOptions(**changes))
        subscription = await find_subscription(self._registry, caller, name)
        options = parallel_options(subscription)
        letters = changes.get("dead_letter_policy")
        if letters is not None:
            found = await self._dead_letters(caller, subscription.topic, letters)
            changes = {**changes, "dead_letter_policy": found}
        is_new = changes.get("enable_exactly_once_delivery") and not options.enable_exactly_once_delivery
        if is_new and not options.detached and self._cover is not None:
            await self._cover(subscription, caller.here.name)
        await self._registry.subscriptions.change_options(
            caller.here.id,
            name,
            lambda present: replace(_of_parallel(present), **changes),
            expected_subscription(caller),
        )
        return await self.show(caller, name)

    async def set_labels(self, caller: Caller, name: SubscriptionName, labels: Mapping[str, str]) -> Subscription:
        """Replace the labels; return the subscription as it is then. Raises `NotFound`."""
        subscription = await self._registry.subscriptions.set_labels(caller.here.id, name, labels)
        if subscription is None:
            raise SubscriptionGone
        self._used(subscription.id)
        return caller.view_push(subscription)

    async def delete(self, caller: Caller, name: SubscriptionName) -> str:
        """Remove a subscription, its place in the topic and its access list; raise `NotFound`.

        Returns what becomes of its delivery, empty for one that was not delivered (contract 9.2).
        """
        removed = await self._registry.subscriptions.delete(caller.here.id, name, expected_subscription(caller))
        if removed is None:
            raise SubscriptionGone
        return await self._removed(caller.here.name, removed)

    async def delete_unused(self, project: ProjectName, identity: SubscriptionId, since: Milliseconds) -> bool:
        """Remove a subscription of a project if it was not used since a moment; return whether it was removed."""
        removed = await self._registry.subscriptions.delete_unused(identity, since)
        if removed is not None:
            await self._removed(project, removed)
        return removed is not None

    async def _removed(self, project: ProjectName, removed: Subscription) -> str:
        await self._let_go(removed)
        self._stopped(removed.id)
        return await self._pushing.deleted(project, removed)

    async def detach(self, caller: Caller, name: SubscriptionName) -> None:
        """Let a parallel subscription get nothing any more, for good: what it had to get is dropped, and pushing ends.

        Raises `NotFound`, `Conflict` for an ordered one. Detaching once more changes nothing.
        """

        def change(present: ParallelOptions | None) -> ParallelOptions:
            return replace(_of_parallel(present), detached=True)

        await self._registry.subscriptions.change_options(caller.here.id, name, change, expected_subscription(caller))
        subscription = await find_subscription(self._registry, caller, name)
        if subscription.push is not None:
            await self._pushing.modify(replace(caller, expected=ANY_VERSION), name, None)
        await self._let_go(subscription)
        self._stopped(subscription.id)

    async def _let_go(self, subscription: Subscription) -> None:
        """Count what it lost, and forget where it stands."""
        await Losses(self._registry, self._log, self._cursors).settle(subscription)
        await self._cursors.drop(subscription.id)

    async def modify_ack_deadline(self, caller: Caller, name: SubscriptionName, seconds: int) -> None:
        """Change the deadline, also of what is handed out now.

        Raises `InvalidInput` outside 0 to 600, `NotFound`, `NotAllowed` for a consumer not on the access list (A5),
        or `InvalidInput` outside 10 to 600 for a parallel subscription.
        """
        _check_deadline(seconds)
        subscription = await self.show(caller, name)
        caller.require_listed(subscription.authorized, CONSUMER)
        if subscription.parallel is not None:
            _check_parallel_deadline(seconds)
        expected = expected_subscription(caller)
        if not await self._registry.subscriptions.set_ack_deadline(caller.here.id, name, seconds, expected):
            raise SubscriptionGone

    async def access_list(self, caller: Caller, name: SubscriptionName) -> Sequence[UserName]:
        """Return who is on the subscription's access list, in stored order; raise `NotFound`."""
        await self.show(caller, name)
        return await self._registry.subscriptions.access_list(caller.here.id, name)

    async def set_access_list(self, caller: Caller, name: SubscriptionName, users: Sequence[str]) -> None:
        """Replace the access list; raise `NotFound` for users who are no members, then for the subscription."""
        await self._registry.subscriptions.set_access_list(caller.here.id, name, users, caller.expected)

    async def change_access_list(
        self, caller: Caller, name: SubscriptionName, add: Sequence[str], remove: Collection[str]
    ) -> Sequence[UserName]:
        """Add users to the access list and remove others; return it. Raises as `set_access_list`, of users to add."""
        return await self._registry.subscriptions.change_access_list(caller.here.id, name, add, remove, caller.expected)

    async def give_cursors(self) -> int:
        """Give subscriptions that have no cursor one at the oldest kept message; return how many. For the start.

        Only a cursor database that was lost or set aside leaves them behind: what they had acknowledged is not known
        any more, so it is delivered again rather than skipped.
        """
        have, known = await self._cursors.subscriptions(), await self._registry.subscriptions.all()
        for each in [each for each in known if each.is_detached and each.id in have]:
            await self._cursors.drop(each.id)  # a crash came between
        missing = [each for each in known if each.id not in have and not each.is_detached]
        for each in missing:
            topic = await self._registry.topics.find(each.project_id, each.topic)
            oldest = (await self._log.bounds(topic.id)).oldest if topic else Offset(0)
            await self._cursors.create(each.id, topic.id if topic else NO_TOPIC, oldest)
            logger.warning("subscription.cursor_lost", subscription=each.name, offset=oldest)
        return len(missing)

    async def _topic(self, caller: Caller, reference: str) -> Topic:
        return await find_topic(self._registry, caller, topic_reference(caller.here.name, reference))

    async def _dead_letters(
        self, caller: Caller, topic: TopicName, asked: DeadLetterPolicy | None
    ) -> DeadLetterPolicy | None:
        """Return a dead letter policy of a subscription to `topic` with the name of its topic, which exists."""
        if asked is None:
            return None
        return replace(asked, topic=await find_dead_letter_topic(self._registry, caller, topic, asked.topic))


def _of_parallel(options: ParallelOptions | None) -> ParallelOptions:
    if options is None:
        raise Conflict(NOT_PARALLEL)
    return options


def _check_parallel_deadline(seconds: int) -> None:
    if seconds < MIN_ACK_DEADLINE:
        raise InvalidInput(BAD_PARALLEL_DEADLINE)


def _check_deadline(seconds: int) -> None:
    if not 0 <= seconds <= MAX_ACK_DEADLINE:
        raise InvalidInput(BAD_ACK_DEADLINE)
