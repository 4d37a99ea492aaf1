"""Push status: how a delivery goes, as its worker tells and as the subscription stands on its topic."""

from dataclasses import dataclass

import msgspec

from ams.access.admission import Caller
from ams.access.permissions import CONSUMER
from ams.core.errors import Conflict, TopicGone
from ams.core.names import SubscriptionName, subscription_path
from ams.push.state import text
from ams.service.lookup import find_subscription
from ams.service.push.assignment import Assignment
from ams.service.push.pushing import UNREACHABLE, Pushing
from ams.storage.cursors.base import Cursors
from ams.storage.log.base import Log
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry
from ams.wire.push import Attempt, Failure, WorkerState

NO_PUSH = "Subscription is not in push mode"

UNVERIFIED, INACTIVE, UNKNOWN = "unverified", "inactive", "unknown"
"""What is beside a worker's phases: its endpoint did not show the hash yet; nobody delivers at all; no worker told, as
of a push server over gRPC, of which there is a text only."""


@dataclass(frozen=True, slots=True)
class PushStatus:
    """How a delivery goes."""

    text: str
    """`pushStatus` of the subscription; empty for one that is not verified."""
    state: str
    """A worker's phase, `unverified`, `inactive` or `unknown`."""
    backlog: int | None
    """Messages that are not acknowledged, now; None without the topic."""
    worker: WorkerState | None


@dataclass(frozen=True, slots=True)
class PushWatcher:
    """Looks at deliveries. The access list binds as for a pull."""

    registry: Registry
    log: Log
    cursors: Cursors
    pushing: Pushing
    assignment: Assignment

    async def look(self, caller: Caller, name: SubscriptionName) -> PushStatus:
        """Return how a delivery goes; those who only consume are not told what the endpoint said.

        Raises `NotFound`, `NotAllowed` outside the access list, `Conflict` for a pull subscription.
        """
        subscription = await find_subscription(self.registry, caller, name)
        caller.require_listed(subscription.authorized, CONSUMER)
        if subscription.push is None:
            raise Conflict(NO_PUSH)
        worker = await self.assignment.state(subscription.id) if subscription.push.verified else None
        shown = worker if worker is None or caller.sees_push_secrets else _without_details(worker)
        told = await self._text(caller.here.name, subscription, shown)
        return PushStatus(told, _state(subscription, worker, told), await self._backlog(caller, subscription), shown)

    async def _text(self, project: str, subscription: Subscription, worker: WorkerState | None) -> str:
        if worker is None:
            return await self.pushing.status(project, subscription)
        return text(subscription_path(project, subscription.name), worker)

    async def _backlog(self, caller: Caller, subscription: Subscription) -> int | None:
        topic = await self.registry.topics.find(caller.here.id, subscription.topic)
        if topic is None:
            return None
        try:
            position = await self.cursors.position(subscription.id, topic.id)
            bounds = await self.log.bounds(topic.id)
        except TopicGone:  # deleted meanwhile
            return None
        return max(bounds.end - max(position.offset, bounds.oldest), 0)


def _state(subscription: Subscription, worker: WorkerState | None, told: str) -> str:
    if subscription.push is None or not subscription.push.verified:
        return UNVERIFIED
    if worker is not None:
        return worker.phase
    return INACTIVE if told == UNREACHABLE else UNKNOWN


def _without_details(worker: WorkerState) -> WorkerState:
    return msgspec.structs.replace(
        worker,
        failure=_without_detail(worker.failure),
        last_failure=_without_detail(worker.last_failure),
        attempts=[_without_answer(each) for each in worker.attempts],
    )


def _without_answer(attempt: Attempt) -> Attempt:
    """Return an attempt without what the endpoint said; where it said nothing, its error is our own text."""
    if not (attempt.status and attempt.error):
        return attempt
    return msgspec.structs.replace(attempt, error=f"HTTP {attempt.status}")


def _without_detail(failure: Failure | None) -> Failure | None:
    return failure and msgspec.structs.replace(failure, detail="")
