"""Push configurations: checks, storage, verification, secrets, and status of deliveries.

Workers follow the stored configurations after any failure (HTTP contract 13, 17.2 A13). They run in this
service (`ams.service.push.runner`), in `ams push` processes that share the work by leases, or in a push server driven
by gRPC (`ams.push.rpc`).
"""

import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import msgspec

from ams.access.admission import Caller
from ams.access.permissions import PUSH_WORKER
from ams.core.clock import Milliseconds
from ams.core.errors import Conflict, InvalidInput, NotAuthenticated, TopicGone, Unavailable
from ams.core.names import SubscriptionName, TopicName, UserId, UserName, subscription_path
from ams.core.push_config import HTTP_ENDPOINT, AskedPush, PushConfig, authority, modify_push_config, new_push_config
from ams.push.delivery_request import new_secret
from ams.push.endpoints import CheckFailed, CheckSlots, EndpointCheck
from ams.push.report import PARALLEL_ELSEWHERE, text
from ams.service import lookup
from ams.service.leftovers import finish_or_leave
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.push.assignment import Assignment
from ams.service.retention import lag_of
from ams.storage.cursors.acks import CursorStore
from ams.storage.log.base import Log
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry
from ams.storage.secrets import new_token
from ams.wire.push import WorkerState

DISABLED = "Push functionality is currently disabled"
NO_WORKER = "Push functionality is currently unavailable"
UNREACHABLE = "Push server is currently unavailable"  # status while a push server does not answer (HTTP contract 13.6)
SERVING = "SERVING"
FIRST_WORKER = UserName("push_worker_0")  # by convention (HTTP contract 13.5)
KEEP_SECONDS = 86_400  # how long the previous secret stays valid by default
MAX_KEEP_SECONDS = 30 * 86_400
VERIFICATION_FAILED = "Endpoint verification failed."
UNVERIFIED, INACTIVE = "unverified", "inactive"  # states beside a worker's phases; inactive: no process delivers
UNKNOWN = "unknown"  # no worker reported: a push server over gRPC has only a text


async def no_push_server() -> None:
    """Do nothing: there is no push delivery."""


class PushServer(Protocol):
    """A push server. Calls end within a few seconds, and return texts of HTTP contract 13.6.

    The methods here are those without a push server: nothing is delivered, and every answer says so.
    """

    async def status(self, path: str) -> str:
        """Return the status of a delivery; `path` is the resource name of its subscription."""
        return UNREACHABLE

    async def deactivation_outcome(self, path: str) -> str:
        """Return the outcome for the delivery of a subscription that was deleted. Raises no `AmsError`."""
        return UNREACHABLE

    async def health(self, *, details: bool) -> str:
        """Return the health of the server; with `details`, the text of its transport (HTTP contract 14.5)."""
        return "No push server is connected" if details else UNREACHABLE

    async def settle(self) -> None:
        """Apply changes at once, also of topics and projects (push contract 15, P31). Raises no `AmsError`."""


class NoPushServer(PushServer):
    """Stand-in without a push server."""

    async def settle(self) -> None:
        """Do nothing."""


class Leaseholders:
    """All workers that deliver by leases, as a push server."""

    def __init__(self, assignment: Assignment, settle: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`settle` updates the workers in this process at once; others follow within two seconds."""
        self._assignment, self.settle = assignment, settle

    async def status(self, path: str) -> str:
        # No worker reports on it: `Pushing.status` asks those first.
        return f"Error: Subscription {path} is not active" if await self._assignment.leases.is_held() else UNREACHABLE

    async def deactivation_outcome(self, path: str) -> str:
        """Return that it is deactivated: its worker stops by itself."""
        await self.settle()
        is_held = await finish_or_leave(self._assignment.leases.is_held(), "push")
        return f"Subscription {path} deactivated" if is_held else UNREACHABLE

    async def health(self, *, details: bool) -> str:
        if await self._assignment.leases.is_held():
            return SERVING
        return "No worker has a lease" if details else UNREACHABLE


@dataclass(frozen=True, slots=True)
class RotatedSecret:
    """A new secret."""

    secret: str = field(repr=False)
    previous_until: Milliseconds | None


@dataclass(frozen=True, slots=True)
class Pushing:
    """Push configurations of subscriptions."""

    registry: Registry
    enabled: bool = False
    worker_token: str = ""  # of the user who delivers (HTTP contract 13.5); empty: the service's own, `push_worker_0`
    endpoints: EndpointCheck | None = None  # asks endpoints for their hash; not None when push is enabled
    server: PushServer = NoPushServer()
    assignment: Assignment | None = None
    takes_parallel: bool = True  # True if the push server delivers parallel subscriptions; one over gRPC does not
    local_http: bool = False
    check_slots: CheckSlots = field(default_factory=CheckSlots)

    async def for_creation(
        self, caller: Caller, topic: TopicName, asked: AskedPush, *, parallel: bool = False
    ) -> tuple[PushConfig, UserId]:
        """Return the configuration of a new subscription to `topic`, and the user that delivers it.

        Raises, as HTTP contract 13.2 orders: `Conflict`, `Unavailable`, `InvalidInput`; then `TopicGone` and
        `InvalidInput` for the dead letter topic.
        """
        worker = self._require_worker(await self.worker() if self.enabled else None)
        config = new_push_config(asked, new_token, parallel=parallel, local_http=self.local_http)
        if not config.dead_letter_topic:
            return config, worker
        dead_letters = await lookup.find_dead_letter_topic(self.registry, caller, topic, config.dead_letter_topic)
        return replace(config, dead_letter_topic=dead_letters), worker

    async def modify(self, caller: Caller, name: SubscriptionName, asked: AskedPush | None) -> Subscription:
        """Replace a push configuration; None makes it a pull subscription, also while push is disabled.

        Returns the subscription as the caller may see it. Raises, as HTTP contract 13.3 orders: `NotFound`, `Conflict`,
        `Unavailable`, `InvalidInput`; then `TopicGone` and `InvalidInput` for the dead letter topic.
        """
        worker, is_parallel = await self.worker(), False

        def change(existing: PushConfig | None) -> PushConfig | None:
            if asked is None:
                return None
            self._require_worker(worker)
            return modify_push_config(existing, asked, new_token, parallel=is_parallel, local_http=self.local_http)

        if asked is not None and (asked.dead_letter_topic or asked.max_outstanding):
            subscription = await lookup.find_subscription(self.registry, caller, name)
            is_parallel = subscription.parallel is not None
            change(subscription.push)  # raises the first errors
        if asked is not None and asked.dead_letter_topic:
            found = await lookup.find_dead_letter_topic(
                self.registry, caller, subscription.topic, asked.dead_letter_topic
            )
            asked = replace(asked, dead_letter_topic=found)
        expected = lookup.expected_subscription(caller)
        changed = await self.registry.subscriptions.change(caller.here.id, name, expected, config=change, worker=worker)
        await self.server.settle()
        return caller.view_push(changed)

    async def verify(self, caller: Caller, name: SubscriptionName) -> None:
        """Ask the endpoint for its hash; from then on its messages shall be delivered.

        Raises, as HTTP contract 13.4 orders: `Conflict`, `Unavailable`, `NotFound`, `Conflict`, `NotAuthenticated`.
        `Overloaded` comes before the last when too many endpoints are asked at once.
        """
        worker = self._require_worker(await self.worker() if self.enabled else None)
        subscription = await lookup.find_subscription(self.registry, caller, name)
        asked = _require_unverified(subscription.push)
        with self.check_slots.hold_slot(caller.here.id):
            assert self.endpoints is not None
            host, port = authority(asked.endpoint)
            try:
                await self.endpoints.check(host, port, asked.verification_hash)
            except CheckFailed as error:
                raise NotAuthenticated(f"{VERIFICATION_FAILED}{error}") from error

        def change(present: PushConfig | None) -> PushConfig:
            # The configuration may have changed meanwhile: the endpoint must have shown the present hash.
            config = _require_unverified(present)
            if config.verification_hash != asked.verification_hash:
                raise NotAuthenticated(f"{VERIFICATION_FAILED}Wrong verification hash")
            return replace(config, verified=True)  # nothing else changes (17.2, A10)

        expected = lookup.expected_subscription(caller)
        await self.registry.subscriptions.change(caller.here.id, name, expected, config=change, worker=worker)
        await self.server.settle()

    async def rotate_secret(
        self, caller: Caller, name: SubscriptionName, keep_seconds: int = KEEP_SECONDS
    ) -> RotatedSecret:
        """Make a new secret; the previous one stays valid. Raises `InvalidInput`, `NotFound`, `Conflict`."""
        if not 0 <= keep_seconds <= MAX_KEEP_SECONDS:
            raise InvalidInput(f"Field keepSeconds should be between 0 and {MAX_KEEP_SECONDS}")
        subscription = await lookup.find_subscription(self.registry, caller, name)
        secret, keep = new_secret(), Milliseconds(keep_seconds * 1000)
        until = await self.registry.push_secrets.rotate(subscription.id, secret, keep, _require_http)
        await self.server.settle()
        return RotatedSecret(secret, until)

    async def status(self, project: str, subscription: Subscription) -> str:
        """Return the status of a delivery; empty if there is none (HTTP contract 9.1)."""
        if subscription.push is None or not subscription.push.verified:
            return ""
        path = subscription_path(project, subscription.name)
        state = await self.assignment.state(subscription.id) if self.assignment else None
        if state is not None:
            return text(path, state)
        if subscription.parallel is not None and not self.takes_parallel:
            return f"Error: {PARALLEL_ELSEWHERE}"
        return await self.server.status(path)

    async def deletion_outcome(self, project: str, subscription: Subscription) -> str:
        """Return the outcome for the delivery of a deleted subscription; empty without one (HTTP contract 9.2)."""
        if subscription.push is None or not subscription.push.verified:
            return ""
        return await self.server.deactivation_outcome(subscription_path(project, subscription.name))

    async def place_worker(self) -> bool:
        """Put the worker on access lists, at the start (HTTP contract 13.5); False when there is none."""
        worker = await self.worker()
        if worker is not None:
            await self.registry.subscriptions.place_worker(worker)
        return worker is not None

    async def worker(self) -> UserId | None:
        """Return the user that delivers; None if the token belongs to no user, or the service's worker is deleted."""
        if self.worker_token:
            principal = await self.registry.users.principal(self.worker_token)
            return principal.id if principal else None
        user = await self.registry.users.by_name(FIRST_WORKER)
        return user.id if user and PUSH_WORKER in user.service_roles else None

    def _require_worker(self, worker: UserId | None) -> UserId:
        if not self.enabled:
            raise Conflict(DISABLED)
        return lookup.require_found(worker, Unavailable(NO_WORKER))


def _require_http(config: PushConfig | None) -> PushConfig:
    if config is None or config.type != HTTP_ENDPOINT:
        raise Conflict("Subscription is not in http push mode")
    return config


def _require_unverified(config: PushConfig | None) -> PushConfig:
    found = _require_http(config)
    if found.verified:
        raise Conflict("Push endpoint is already verified")
    return found


class PushStatus(NamedTuple):
    """Status of a delivery."""

    text: str  # `pushStatus` of the subscription; empty for one that is not verified
    state: str
    backlog: int | None  # messages that are not acknowledged; None without the topic
    worker: WorkerState | None


@dataclass(frozen=True, slots=True)
class PushWatcher:
    """Shows deliveries. The access list applies as for a pull."""

    registry: Registry
    log: Log
    cursors: CursorStore
    pushing: Pushing
    assignment: Assignment
    working: ParallelSubscriptions | None = None

    async def look(self, caller: Caller, name: SubscriptionName) -> PushStatus:
        """Return the status as the caller may see it. Raises `NotFound`, `NotAllowed`, `Conflict`, `OwnedElsewhere`."""
        subscription = await lookup.find_listed_subscription(self.registry, caller, name)
        if subscription.push is None:
            raise Conflict("Subscription is not in push mode")
        is_verified, project = subscription.push.verified, caller.here.name
        worker = await self.assignment.state(subscription.id) if is_verified else None
        if worker is None:
            shown_as = await self.pushing.status(project, subscription)
            state, shown = INACTIVE if shown_as == UNREACHABLE else UNKNOWN, None
        else:
            shown = worker if caller.sees_push_secrets else _without_details(worker)
            if subscription.parallel is not None:
                opened = await self.working.opened.here(subscription.id) if self.working else None
                shown = msgspec.structs.replace(shown, dead=opened.dead_letters if opened else 0)
            state, shown_as = worker.phase, text(subscription_path(project, subscription.name), shown)
        topic, backlog = await self.registry.topics.find(caller.here.id, subscription.topic), None
        with contextlib.suppress(TopicGone):  # deleted meanwhile
            backlog = (await lag_of(self.log, self.cursors, subscription, topic.id)).messages if topic else None
        return PushStatus(shown_as, state if is_verified else UNVERIFIED, backlog, shown)


def _without_details(worker: WorkerState) -> WorkerState:
    change = msgspec.structs.replace
    failure, last_failure = [each and change(each, detail="") for each in (worker.failure, worker.last_failure)]
    # where the endpoint said nothing, the error is our own text
    attempts = [
        change(each, error=f"HTTP {each.status}") if each.status and each.error else each for each in worker.attempts
    ]
    return change(worker, failure=failure, last_failure=last_failure, attempts=attempts)
