"""The client for programs on asyncio, from which `make client` writes that for threads, `ams.client.client`."""

import asyncio
import copy
import math
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, Unpack

import httpx

from ams.client import transport, wire
from ams.client.bearer import AsyncBearer
from ams.client.errors import Closed
from ams.client.messages import Acknowledged, AsyncHandler, Message, ReceivedMessage, Worked, WorkOptions, ack_ids_of
from ams.client.plans import DEFAULT, Consuming, OnRetry, Outcome, Plan, Planner, Response, Retry, Step
from ams.client.wire import Offsets
from ams.client.wire import authn as logins
from ams.client.wire.call import Call

T = TypeVar("T")


class AsyncConnections:
    """Does single steps over kept connections; `close` waits for calls under way."""

    def __init__(
        self, endpoint: str, token: str, trusted: ssl.SSLContext | None, timeout: float, bearer: AsyncBearer | None
    ) -> None:
        self.arguments = endpoint, token, trusted, timeout, bearer
        self._http = httpx.AsyncClient(**transport.httpx_arguments(*self.arguments))
        self._endpoint = endpoint
        self._closing = asyncio.Event()
        self._lock = threading.Lock()  # for the client for threads; never held over an await
        self._sending = 0

    @property
    def is_closed(self) -> bool:
        """True if nothing is sent any more."""
        return self._closing.is_set()

    async def close(self) -> None:
        """Send nothing more, and end every wait."""
        with self._lock:
            self._closing.set()
            is_idle = self._sending == 0
        if is_idle:
            await self._http.aclose()

    async def carry_out(self, plan: Plan[T]) -> T:
        """Do the steps of a plan and return what it is worth; raises what `do` and the plan raise."""
        outcome: Outcome = None
        while True:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome = await self.do(step)

    async def do(self, step: Step) -> Outcome:
        """Do a step; raise `Closed` when it can no longer be done."""
        if isinstance(step, Call):
            return await self._send(step)
        try:
            await asyncio.wait_for(self._closing.wait(), step)
        except TimeoutError:
            return None
        raise Closed("the client is closed")

    async def _send(self, call: Call[Any]) -> Outcome:
        with self._lock:
            if self.is_closed:
                raise Closed("the client is closed")
            self._sending += 1
        try:
            answer = await self._http.request(
                call.method, call.path, params=dict(call.query), content=call.body, headers=dict(call.headers)
            )
            retry_after, version = (answer.headers.get(name, "") for name in ("retry-after", "etag"))
            return Response(answer.status_code, answer.content, retry_after, version)
        except httpx.HTTPError as error:
            return transport.failure(error, self._endpoint)
        finally:
            with self._lock:
                self._sending -= 1
                is_last = self._closing.is_set() and self._sending == 0
            if is_last:
                await self._http.aclose()


class AsyncClient:
    """A caller with a token; keeps connections open between calls and may be used in one event loop.

    `token` is a token of AMS, sent as `x-api-key`. `bearer` instead of it is one of an issuer or of AMS, sent as
    `Authorization: Bearer`, or a function that returns the current one for each request (`ams.client.bearer.BearerFile`
    reads a file that is renewed).
    That may be a coroutine function, too.

    `endpoint` is `https://HOST[:PORT]`; `ca` a file of trusted certificates (PEM) or its text, absent = the system's;
    `cert` and `key` files of a certificate to show (PEM; no `key` = it is in `cert`); `timeout` the seconds an answer
    may take, longer than the service lets a pull wait. `retry` says how often and how long calls are sent again that
    may be, None = never; `on_retry` is called each time. Raises `InvalidInput` for an endpoint or token that cannot be
    one, and `Unusable` for a file that cannot be used.
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
        self.endpoint = transport.base(endpoint)
        trusted = transport.trust(self.endpoint, ca, cert, key)
        self._connections = AsyncConnections(self.endpoint, token, trusted, timeout, bearer)
        self._plans = Planner(endpoint=self.endpoint, retry=retry, on_retry=on_retry)

    @classmethod
    async def from_certificate(
        cls,
        endpoint: str,
        cert: str,
        key: str | None = None,
        *,
        authn: str | None = None,
        service_type: str = transport.AMS,
        service_host: str | None = None,
        ca: str | None = None,
        authn_ca: str | None = None,
        timeout: float = 30.0,
        retry: Retry | None = DEFAULT,
        on_retry: OnRetry | None = None,
    ) -> "AsyncClient":
        """Log in with a certificate and return a client of the user it stands for.

        `authn` is the endpoint of the certificate service, absent = port 8443 of the host of `endpoint`; there AMS is
        called `service_type` and `service_host` (absent = the host of `endpoint`). `authn_ca` is trusted there, absent
        = `ca`. It is asked once: a token that was refreshed since needs a new client. Raises `NotAllowed` for a
        certificate that is refused, `NotFound` for one that is bound to no user, and what a client raises.
        """
        asked = logins.authx509(service_type, service_host or transport.host(endpoint))
        place = authn or transport.beside(endpoint)
        async with cls(
            place, ca=authn_ca or ca, cert=cert, key=key, timeout=timeout, retry=retry, on_retry=on_retry
        ) as service:
            found = await service.call(asked)
        return cls(endpoint, found.token, ca=ca, timeout=timeout, retry=retry, on_retry=on_retry)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
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
        return await self._carry_out(self._plans.ask(call))

    async def work(
        self, subscription: str, handler: AsyncHandler, *, project: str, **options: Unpack[WorkOptions]
    ) -> Worked:
        """Work on a parallel subscription of a project, as its method `work` does."""
        return await self.project(project).subscription(subscription).work(handler, **options)

    def project(self, name: str) -> "AsyncProject":
        """Return a project to work in; nothing is asked yet."""
        return AsyncProject(self, name)

    async def _carry_out(self, plan: Plan[T]) -> T:
        return await self._connections.carry_out(plan)

    async def _iterate(self, plan: Consuming) -> AsyncIterator[ReceivedMessage]:
        outcome: Outcome = None
        while True:
            try:
                step = plan.send(outcome)
                outcome = None if isinstance(step, ReceivedMessage) else await self._connections.do(step)
            except (StopIteration, Closed):
                return
            if isinstance(step, ReceivedMessage):
                if self._connections.is_closed:
                    return
                yield step


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
        """Store messages, all or none, in this order, and return their ids.

        `key`, at most 255 characters, is the idempotency key: publishing the same messages under the same key again
        stores nothing and returns the first ids, also from another process. Without one each call has a new key.
        """
        return await self.client._carry_out(self.client._plans.publish(self.project, self.name, messages, key))


@dataclass(frozen=True, slots=True)
class AsyncSubscription:
    """A subscription; made by `AsyncProject.subscription`."""

    client: AsyncClient
    project: str
    name: str

    async def create(
        self, topic: str, *, ack_deadline: int | None = None, parallel: wire.ParallelOptions | None = None
    ) -> wire.Subscription:
        """Subscribe to a topic of the project, from its end on; the deadline in seconds, absent = the service's 10.

        `parallel` are the options of a parallel subscription; without them it is an ordered one.
        """
        plan = self.client._plans.subscribe(self.project, self.name, topic, ack_deadline, parallel)
        return await self.client._carry_out(plan)

    async def update(self, changes: wire.SubscriptionChanges) -> wire.Subscription:
        """Change options of a parallel subscription, those that `changes` names; `Conflict` for an ordered one."""
        return await self.client.call(wire.update_subscription(self.project, self.name, changes))

    async def detach(self) -> None:
        """Let a parallel subscription get nothing any more, for good: what was to come is dropped, and it stays named.

        Raises `Conflict` for an ordered one.
        """
        await self.client.call(wire.detach_subscription(self.project, self.name))

    async def delete(self) -> None:
        """Remove the subscription and its cursor."""
        await self.client.call(wire.delete_subscription(self.project, self.name))

    async def offsets(self) -> Offsets:
        """Ask where the subscription stands; of a parallel one also what is done above that, and what is under way."""
        return await self.client.call(wire.get_offsets(self.project, self.name))

    async def pull(self, max_messages: int = 1, *, wait: bool = True) -> list[ReceivedMessage]:
        """Return the next messages; until they are acknowledged, a pull returns them again.

        With `wait`, a pull that finds nothing waits a few seconds for a first message.
        """
        return await self.client._carry_out(self.client._plans.pull(self.project, self.name, max_messages, wait))

    async def acknowledge(self, messages: Acknowledged) -> None:
        """Say that messages are done, of an ordered subscription all before them too.

        Raises `AckTimeout` if some ids are too late, or out of order under exactly-once delivery. For a parallel
        subscription its `late` lists them, and the others are done.
        """
        await self._send_ids(messages, lambda ids: wire.acknowledge(self.project, self.name, ids))

    async def nack(self, messages: Acknowledged, delay: float | None = None) -> None:
        """Give messages of a parallel subscription back: they have failed, and come again.

        After `delay` seconds, 0 to 600 and rounded up, absent = as the retry policy says. Raises as `acknowledge`.
        """
        seconds = None if delay is None else math.ceil(delay)
        await self._send_ids(messages, lambda ids: wire.nack(self.project, self.name, ids, delay=seconds))

    async def release(self, messages: Acknowledged) -> None:
        """Give messages of a parallel subscription back that nobody has worked on.

        They come again at once, and have not failed. Raises as `acknowledge`.
        """
        await self._send_ids(messages, lambda ids: wire.nack(self.project, self.name, ids, failed=False))

    async def extend(self, messages: Acknowledged, seconds: int) -> None:
        """Keep messages of a parallel subscription for so many seconds from now, 1 to 600; raises as `acknowledge`."""
        await self._send_ids(messages, lambda ids: wire.extend(self.project, self.name, ids, seconds))

    async def _send_ids(self, messages: Acknowledged, call: Callable[[Sequence[str]], Call[None]]) -> None:
        await self.client._carry_out(self.client._plans.in_parts(ack_ids_of(messages), call))

    async def work(self, handler: AsyncHandler, **options: Unpack[WorkOptions]) -> Worked:
        """Give the messages of a parallel subscription to a handler, several at a time, until told to stop.

        A message whose handler returns is acknowledged; one whose handler raises comes again, as the retry policy
        says, or as `RetryLater` does. The service is waited for when it is away. The handler is a coroutine function.
        Returns what was done. The options are those of `WorkOptions`. Raises `ValueError` for options that cannot be,
        `Conflict` for an ordered subscription, and what a call raises that is not sent again.
        """
        from ams.client.worker import AsyncWorker

        connections, plans = self.client._connections, self.client._plans
        return await AsyncWorker(connections, plans, (self.project, self.name), handler, options).run()

    def messages(self, *, batch: int = 100, follow: bool = True) -> AsyncIterator[ReceivedMessage]:
        """Iterate over messages, pulling up to `batch` at once and acknowledging them when all were dealt with.

        The loop is an `async for`.
        A message was dealt with when the next one is asked for. A loop that is left early acknowledges nothing of the
        batch it is in, so that all of it comes again; `acknowledge` the message first if it was dealt with. With
        `follow`, the loop goes on until the client is closed; without, it ends when there is nothing more.

        Messages that were acknowledged too late come again but are not given to the loop twice, unless the loop is
        begun anew, or the subscription is parallel. Raises what `pull` and `acknowledge` raise; `AckTimeout` only when
        that happens again and again.
        """
        return self.client._iterate(self.client._plans.consume(self.project, self.name, batch, follow))
