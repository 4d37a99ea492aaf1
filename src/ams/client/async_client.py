"""The face for programs on asyncio; what it does and promises is said at `ams.client.client`, of the same names."""

import asyncio
import copy
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TypeVar

import httpx

from ams.client import endpoint as connecting
from ams.client import login, wire
from ams.client.bearer import AsyncBearer
from ams.client.errors import Closed
from ams.client.messages import Message, ReceivedMessage
from ams.client.plans import Answer, Consuming, Deliver, OnRetry, Outcome, Pause, Plan, Planner, Send
from ams.client.retry import DEFAULT, Retry
from ams.client.wire.call import Call
from ams.client.wire.values import Offsets

T = TypeVar("T")


class AsyncClient:
    """A caller with a token, for one event loop; parameters and errors are those of `ams.client.Client`.

    `bearer` may be a coroutine function, too.
    """

    def __init__(
        self,
        endpoint: str,
        token: str = "",
        *,
        bearer: AsyncBearer | None = None,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        timeout: float = 30.0,
        retry: Retry | None = DEFAULT,
        on_retry: OnRetry | None = None,
    ) -> None:
        self.endpoint = connecting.base(endpoint)
        trust = connecting.trust(self.endpoint, ca, cert, key)
        http = httpx.AsyncClient(**connecting.options(self.endpoint, token, trust, timeout, bearer))
        self._connections = _Connections(http, self.endpoint)
        self._plans = Planner(endpoint=self.endpoint, retry=retry, on_retry=on_retry)

    @classmethod
    async def from_certificate(
        cls,
        endpoint: str,
        cert: str,
        key: str | None = None,
        *,
        authn: str | None = None,
        service_type: str = login.AMS,
        service_host: str | None = None,
        ca: str | None = None,
        authn_ca: str | None = None,
        timeout: float = 30.0,
        retry: Retry | None = DEFAULT,
        on_retry: OnRetry | None = None,
    ) -> "AsyncClient":
        """Log in with a certificate and return a client; parameters and errors are those of `Client`."""
        asked = login.asking(endpoint, service_type, service_host)
        place = authn or login.beside(endpoint)
        async with cls(
            place, ca=authn_ca or ca, cert=cert, key=key, timeout=timeout, retry=retry, on_retry=on_retry
        ) as service:
            found = await service.call(asked)
        return cls(endpoint, found.token, ca=ca, timeout=timeout, retry=retry, on_retry=on_retry)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send nothing more. Waits between calls end at once; connections close when calls under way have ended."""
        await self._connections.close()

    def with_retry(self, retry: Retry | None, on_retry: OnRetry | None = None) -> "AsyncClient":
        """Return a client with another policy over the same connections; closing one closes both."""
        other = copy.copy(self)
        other._plans = replace(self._plans, retry=retry, on_retry=on_retry)
        return other

    async def call(self, call: Call[T]) -> T:
        """Send a call and return its answer read; raise a `ClientError` for anything else."""
        return await self._run(self._plans.ask(call))

    def project(self, name: str) -> "AsyncProject":
        """Return a project to work in; nothing is asked yet."""
        return AsyncProject(self, name)

    async def _run(self, plan: Plan[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome = await self._connections.do(step)

    async def _iterate(self, plan: Consuming) -> AsyncIterator[ReceivedMessage]:
        outcome: Outcome = None
        while True:
            try:
                step = plan.send(outcome)
                outcome = None if isinstance(step, Deliver) else await self._connections.do(step)
            except (StopIteration, Closed):
                return
            if isinstance(step, Deliver):
                if self._connections.closed:
                    return
                yield step.message


class _Connections:
    """Does single steps over kept connections, which close when nobody uses them any more after `close`."""

    def __init__(self, http: httpx.AsyncClient, endpoint: str) -> None:
        self._http = http
        self._endpoint = endpoint
        self._closing = asyncio.Event()
        self._sending = 0

    @property
    def closed(self) -> bool:
        return self._closing.is_set()

    async def close(self) -> None:
        self._closing.set()
        if self._sending == 0:
            await self._http.aclose()

    async def do(self, step: Send | Pause) -> Outcome:
        """Do a step; raise `Closed` when it can no longer be done."""
        if isinstance(step, Send):
            return await self._send(step.call)
        try:
            await asyncio.wait_for(self._closing.wait(), step.seconds)
        except TimeoutError:
            return None
        raise Closed(connecting.CLOSED)

    async def _send(self, call: Call[object]) -> Outcome:
        if self.closed:
            raise Closed(connecting.CLOSED)
        self._sending += 1
        try:
            answer = await self._http.request(
                call.method, call.path, params=dict(call.query), content=call.body, headers=dict(call.headers)
            )
        except httpx.HTTPError as error:
            return connecting.failure(error, self._endpoint)
        finally:
            await self._leave()
        return Answer(answer.status_code, answer.content, answer.headers.get("retry-after", ""))

    async def _leave(self) -> None:
        self._sending -= 1
        if self.closed and self._sending == 0:
            await self._http.aclose()


@dataclass(frozen=True, slots=True)
class AsyncProject:
    """A project; made by `AsyncClient.project`."""

    client: AsyncClient
    name: str

    def topic(self, name: str) -> "AsyncTopic":
        """Return a topic of the project; nothing is asked yet."""
        return AsyncTopic(self.client, self.name, name)

    def subscription(self, name: str) -> "AsyncSubscription":
        """Return a subscription of the project; nothing is asked yet."""
        return AsyncSubscription(self.client, self.name, name)


@dataclass(frozen=True, slots=True)
class AsyncTopic:
    """A topic; made by `AsyncProject.topic`."""

    client: AsyncClient
    project: str
    name: str

    async def create(self) -> wire.Topic:
        """Make the topic; `AlreadyExists` when the name is taken."""
        return await self.client.call(wire.create_topic(self.project, self.name))

    async def delete(self) -> None:
        """Remove the topic and its messages; its subscriptions stay."""
        await self.client.call(wire.delete_topic(self.project, self.name))

    async def publish(self, messages: Sequence[Message], *, key: str | None = None) -> list[str]:
        """Store messages, all or none, in this order, and return their ids; `key` as in `Topic.publish`."""
        return await self.client._run(self.client._plans.publish(self.project, self.name, messages, key))


@dataclass(frozen=True, slots=True)
class AsyncSubscription:
    """A subscription; made by `AsyncProject.subscription`."""

    client: AsyncClient
    project: str
    name: str

    async def create(self, topic: str, *, ack_deadline: int | None = None) -> wire.Subscription:
        """Subscribe to a topic of the project, from its end on; the deadline in seconds, absent = the service's 10."""
        return await self.client._run(self.client._plans.subscribe(self.project, self.name, topic, ack_deadline))

    async def delete(self) -> None:
        """Remove the subscription and forget where it stood."""
        await self.client.call(wire.delete_subscription(self.project, self.name))

    async def offsets(self) -> Offsets:
        """Ask where the subscription stands."""
        return await self.client.call(wire.get_offsets(self.project, self.name))

    async def pull(self, max_messages: int = 1, *, wait: bool = True) -> list[ReceivedMessage]:
        """Return the next messages; until they are acknowledged, a pull returns them again."""
        return await self.client._run(self.client._plans.pull(self.project, self.name, max_messages, wait))

    async def acknowledge(self, message: ReceivedMessage) -> None:
        """Say that a message and all before it are done; `AckTimeout` when that comes too late."""
        await self.client._run(self.client._plans.acknowledge(self.project, self.name, message))

    def messages(self, *, batch: int = 100, follow: bool = True) -> AsyncIterator[ReceivedMessage]:
        """Iterate with `async for`, acknowledging each batch when all was dealt with, as `Subscription.messages`."""
        return self.client._iterate(self.client._plans.consume(self.project, self.name, batch, follow))
