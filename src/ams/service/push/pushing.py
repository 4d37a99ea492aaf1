"""Push as state: configurations are checked, stored and verified here; delivering is done by workers.

What is stored is what is wanted (HTTP contract 13, 17.2 A13): those who deliver follow it after any failure.
The workers are in this service (`ams.service.push.runner`), in `ams push` processes that share the work with it by
leases (`ams.service.push.assignment`), or in a push server that is told what to do by gRPC (`ams.push.rpc`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from ams.access.admission import Caller
from ams.access.permissions import PUSH_WORKER
from ams.core.errors import Conflict, NotAuthenticated, Unavailable
from ams.core.names import SubscriptionName, TopicName, UserId, UserName, subscription_path
from ams.core.push_config import HTTP_ENDPOINT, AskedPush, PushConfig, authority, created, modified, verified
from ams.push.endpoints import CheckFailed, CheckSlots, EndpointCheck
from ams.push.state import text
from ams.service.lookup import find_dead_letter_topic, find_subscription
from ams.service.push.assignment import Assignment
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry
from ams.storage.secrets import new_token

DISABLED = "Push functionality is currently disabled"
NO_WORKER = "Push functionality is currently unavailable"
UNREACHABLE = "Push server is currently unavailable"
"""What is told of a push server that does not answer (HTTP contract 13.6)."""
SERVING = "SERVING"
FIRST_WORKER = UserName("push_worker_0")
"""By convention (HTTP contract 13.5)."""


async def no_push_server() -> None:
    """Do nothing, where nothing is delivered by push."""


class PushServer(Protocol):
    """Who delivers. Every call ends within a few seconds and tells what it found as a text of HTTP contract 13.6."""

    async def status(self, path: str) -> str:
        """Return how the delivery of a subscription goes; `path` is its resource name."""
        ...

    async def deactivated(self, path: str) -> str:
        """Return what becomes of the delivery of a subscription that was deleted."""
        ...

    async def health(self, *, details: bool) -> str:
        """Return the health of the server itself; with `details`, as its transport words it (HTTP contract 14.5)."""
        ...

    async def settle(self) -> None:
        """Bring what is delivered in step with what is wanted, which has changed; what fails is tried again later."""
        ...


class NoPushServer:
    """Stands where no push server is connected: nothing is delivered, and every answer says so."""

    async def status(self, path: str) -> str:
        """Return that nobody delivers."""
        return UNREACHABLE

    async def deactivated(self, path: str) -> str:
        """Return that nobody delivers."""
        return UNREACHABLE

    async def health(self, *, details: bool) -> str:
        """Return that nobody delivers."""
        return "No push server is connected" if details else UNREACHABLE

    async def settle(self) -> None:
        """Do nothing: there is nobody to tell."""


class Leaseholders:
    """The workers that deliver by leases, wherever they are, as a push server."""

    def __init__(self, assignment: Assignment, settle: Callable[[], Awaitable[None]]) -> None:
        """`settle` lets the workers in this process look at once; others do so within two seconds."""
        self._assignment = assignment
        self._settle = settle

    async def status(self, path: str) -> str:
        """Return that no worker tells of a subscription (`Pushing.status` asks those first)."""
        return f"Error: Subscription {path} is not active" if await self._assignment.is_held() else UNREACHABLE

    async def deactivated(self, path: str) -> str:
        """Return that nobody delivers it any more: its worker finds that it is gone."""
        await self._settle()
        return f"Subscription {path} deactivated" if await self._assignment.is_held() else UNREACHABLE

    async def health(self, *, details: bool) -> str:
        """Return whether there is any worker."""
        if await self._assignment.is_held():
            return SERVING
        return "No worker has a lease" if details else UNREACHABLE

    async def settle(self) -> None:
        """Let the workers in this process look at once."""
        await self._settle()


@dataclass(frozen=True, slots=True)
class Pushing:
    """What can be done with the push configurations of subscriptions."""

    registry: Registry
    enabled: bool = False
    """Setting `push_enabled`."""
    worker_token: str = ""
    """The token of the user who delivers (HTTP contract 13.5); empty: it is the service's own, `push_worker_0`."""
    endpoints: EndpointCheck | None = None
    """Asks endpoints for their hash; always there when push is enabled."""
    server: PushServer = NoPushServer()
    assignment: Assignment | None = None
    """Who holds what, where workers deliver by leases."""
    check_slots: CheckSlots = field(default_factory=CheckSlots)
    """Of those endpoints that are asked at the same time."""

    async def for_creation(self, caller: Caller, topic: TopicName, asked: AskedPush) -> tuple[PushConfig, UserId]:
        """Return the configuration of a new subscription to `topic`, and who delivers it.

        Raises, as HTTP contract 13.2 orders: `Conflict`, `Unavailable`, `InvalidInput`; then `TopicGone` and
        `InvalidInput` for the dead letter topic.
        """
        worker = self._required(await self.worker() if self.enabled else None)
        config = created(asked, new_token)
        if not config.dead_letter_topic:
            return config, worker
        dead_letters = await find_dead_letter_topic(self.registry, caller, topic, config.dead_letter_topic)
        return replace(config, dead_letter_topic=dead_letters), worker

    async def modify(self, caller: Caller, name: SubscriptionName, asked: AskedPush | None) -> None:
        """Replace a push configuration; None makes it a pull subscription, also while push is disabled.

        Raises, as HTTP contract 13.3 orders: `NotFound`, `Conflict`, `Unavailable`, `InvalidInput`; then `TopicGone`
        and `InvalidInput` for the dead letter topic.
        """
        worker = await self.worker()
        if asked is not None and asked.dead_letter_topic:
            asked = await self._with_dead_letters(caller, name, asked, worker)

        def change(existing: PushConfig | None) -> PushConfig | None:
            if asked is None:
                return None
            self._required(worker)
            return modified(existing, asked, new_token)

        await self.registry.subscriptions.change_push(caller.here.id, name, change, worker)
        await self.server.settle()

    async def _with_dead_letters(
        self, caller: Caller, name: SubscriptionName, asked: AskedPush, worker: UserId | None
    ) -> AskedPush:
        """Return what is asked with the name of its dead letter topic; whatever else is wrong is told before."""
        subscription = await find_subscription(self.registry, caller, name)
        self._required(worker)
        modified(subscription.push, asked, new_token)
        found = await find_dead_letter_topic(self.registry, caller, subscription.topic, asked.dead_letter_topic)
        return replace(asked, dead_letter_topic=found)

    async def verify(self, caller: Caller, name: SubscriptionName) -> None:
        """Ask the endpoint for its hash; from then on its messages shall be delivered.

        Raises, as HTTP contract 13.4 orders: `Conflict`, `Unavailable`, `NotFound`, `Conflict`, `NotAuthenticated`.
        `Overloaded` comes before the last when too many endpoints are asked at once.
        """
        worker = self._required(await self.worker() if self.enabled else None)
        subscription = await find_subscription(self.registry, caller, name)
        asked = _unverified(subscription.push)
        with self.check_slots.taken(caller.here.id):
            await self._check(asked)

        def change(present: PushConfig | None) -> PushConfig:
            # The configuration may have changed while the endpoint was asked: what it showed must be the present hash.
            config = _unverified(present)
            if config.verification_hash != asked.verification_hash:
                raise _failed("Wrong verification hash")
            return verified(config)

        await self.registry.subscriptions.change_push(caller.here.id, name, change, worker)
        await self.server.settle()

    async def created(self, subscription: Subscription) -> None:
        """Begin to deliver a new subscription, if it needs no verifying (HTTP contract 13.2)."""
        if subscription.push is not None and subscription.push.verified:
            await self.server.settle()

    async def settle(self) -> None:
        """Let whoever delivers follow at once what became of topics and projects (push contract 15, P31)."""
        await self.server.settle()

    async def status(self, project: str, subscription: Subscription) -> str:
        """Return how delivery goes; empty for what is not to be delivered (HTTP contract 9.1)."""
        if subscription.push is None or not subscription.push.verified:
            return ""
        path = subscription_path(project, subscription.name)
        state = await self.assignment.state(subscription.id) if self.assignment else None
        return text(path, state) if state else await self.server.status(path)

    async def deleted(self, project: str, subscription: Subscription) -> str:
        """Return what becomes of the delivery of a deleted subscription; empty without one (HTTP contract 9.2)."""
        if subscription.push is None or not subscription.push.verified:
            return ""
        return await self.server.deactivated(subscription_path(project, subscription.name))

    async def place_worker(self) -> bool:
        """Put the worker where it has to deliver (HTTP contract 13.5); False when there is none. For the start.

        It is missing where somebody else's access list took its place, or when another user is the worker now.
        """
        worker = await self.worker()
        if worker is not None:
            await self.registry.subscriptions.place_worker(worker)
        return worker is not None

    async def worker(self) -> UserId | None:
        """Return the user who delivers; None when the token is nobody's, or the service's own worker is gone."""
        if self.worker_token:
            principal = await self.registry.users.principal(self.worker_token)
            return principal.id if principal else None
        user = await self.registry.users.by_name(FIRST_WORKER)
        return user.id if user and PUSH_WORKER in user.service_roles else None

    def _required(self, worker: UserId | None) -> UserId:
        if not self.enabled:
            raise Conflict(DISABLED)
        if worker is None:
            raise Unavailable(NO_WORKER)
        return worker

    async def _check(self, config: PushConfig) -> None:
        assert self.endpoints is not None
        host, port = authority(config.endpoint)
        try:
            await self.endpoints.check(host, port, config.verification_hash)
        except CheckFailed as error:
            raise _failed(str(error)) from error


def _unverified(config: PushConfig | None) -> PushConfig:
    """Return a configuration that may be verified; raise `Conflict` for any other."""
    if config is None or config.type != HTTP_ENDPOINT:
        raise Conflict("Subscription is not in http push mode")
    if config.verified:
        raise Conflict("Push endpoint is already verified")
    return config


def _failed(reason: str) -> NotAuthenticated:
    return NotAuthenticated(f"Endpoint verification failed.{reason}")
