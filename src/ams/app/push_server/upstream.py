"""The HTTP API of a service as an upstream: ours or the reference's (push contract 12, 8.3); and when to look there.

A keeper of `ams.push.upstream.Upstream`. Pulls never wait in the service, as the reference would gather for 300 ms. One
looks as soon as the service says that there are messages, or, where it cannot say, now and then.

One request waits for up to `SHARD` subscriptions at once, so that a thousand idle ones cost a few requests every few
seconds. Those that have just been delivered wait in small requests of their own; the idle ones stay together.
A reference service knows no such request: each subscription is then pulled now and then, the more seldom the longer
it is idle, and all together at most `POLLS` times a second.
"""

import asyncio
import contextlib
import random
from collections.abc import Iterator, Sequence

import msgspec
import structlog

from ams.app.push_server.targets import named
from ams.client import AsyncClient, wire
from ams.client import errors as client_errors
from ams.client.wire.call import Call, call_of
from ams.core.backoff import Backoff
from ams.core.messages import Fragment, with_ordering_key
from ams.push.upstream import Away, Gone, HandOuts, NotTaken, Pulled, Refused, Target, UpstreamError, Verdict
from ams.wire.messages import PullBody
from ams.wire.push import Ready, WaitBody

SHARD = 128  # subscriptions that one request waits for
WAIT_SECONDS = 8.0  # how long the service is to wait when nothing comes
_GATHER_SECONDS = 0.003  # for subscriptions that begin to wait at the same time to come together
_SPARE = 8  # requests beyond the fewest there could be, before small ones are put together

POLLS_OF_ONE = Backoff(0.25, 5.0)  # seconds from one look to the next: at first, and when nothing came for long
POLLS = 100.0  # A second, of all subscriptions together

logger = structlog.get_logger("ams.push_server")

Waiters = dict[str, "asyncio.Future[bool]"]  # by the identity of the subscription
_GONE = frozenset({"project doesn't exist", "subscription doesn't exist"})
_ACK_LATE = frozenset({"no ack pending", "wrong ack"})  # of a reference, for a hand-out that it does not know
_NOT_NEXT = "message is not the next one of the subscription"
"""How a service words that a message was acknowledged, or the subscription moved, before it was put aside."""


class Polling:
    """Says when a pull may bring something: now and then."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._idle: dict[str, int] = {}

    async def until_due(self, target: Target) -> bool:
        """Return True after a pause that grows."""
        idle = self._idle.get(target.path, 0)
        self._idle[target.path] = idle + 1
        shared = len(self._idle) / POLLS
        await asyncio.sleep(max(POLLS_OF_ONE.nominal(idle), shared) * self._random.uniform(0.85, 1.15))
        return True

    def came(self, path: str) -> None:
        """Look soon again: where one message came there may be another."""
        self._idle[path] = 0

    def forget(self, path: str) -> None:
        """Forget a subscription."""
        self._idle.pop(path, None)


class _Request:
    def __init__(self, waiters: Waiters) -> None:
        self.waiters = waiters
        self.task: asyncio.Task[None] | None = None


class Waking:
    """Says when a pull may bring something, or has `fallback` look. Raises a `ClientError`."""

    def __init__(self, client: AsyncClient, fallback: Polling, seconds: float = WAIT_SECONDS) -> None:
        self._client, self._fallback, self._seconds = client, fallback, seconds
        self._knows = True  # whether the service knows the request, as far as is known
        self._new: Waiters = {}
        self._requests: list[_Request] = []
        self._gathering: asyncio.Task[None] | None = None

    async def until_due(self, target: Target) -> bool:
        """Return True when the service says that there is something, False after a while."""
        if not self._knows or not target.id:
            return await self._fallback.until_due(target)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._new[target.id] = future
        self._gather_soon()
        return await future

    def came(self, path: str) -> None:
        """Pass it on."""
        self._fallback.came(path)

    def forget(self, path: str) -> None:
        """Pass it on."""
        self._fallback.forget(path)

    async def close(self) -> None:
        """End all requests."""
        tasks = [each.task for each in self._requests if each.task] + ([self._gathering] if self._gathering else [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _gather_soon(self) -> None:
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather())

    async def _gather(self) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        waiters = sum(len(each.waiters) for each in self._requests) + len(self._new)
        if len(self._requests) > waiters // SHARD + _SPARE:  # the smallest are put together
            for request in sorted(self._requests, key=lambda each: len(each.waiters))[:_SPARE]:
                assert request.task is not None
                request.task.cancel()
                self._requests.remove(request)
                self._new = request.waiters | self._new
        waiting = [(key, future) for key, future in self._new.items() if not future.done()]
        self._new = {}
        for begin in range(0, len(waiting), SHARD):
            request = _Request(dict(waiting[begin : begin + SHARD]))
            self._requests.append(request)
            request.task = asyncio.create_task(self._ask(request))

    async def _ask(self, request: _Request) -> None:
        for key in [key for key, future in request.waiters.items() if future.done()]:
            del request.waiters[key]
        body = WaitBody(sorted(request.waiters), round(self._seconds))
        try:
            answer = await self._client.call(call_of("push:wait", Ready, body=body, repeatable=True))
        except Exception as error:  # also a defect: who waits must not wait for ever
            self._requests.remove(request)
            self._failed(request.waiters, error)
            return
        self._requests.remove(request)
        ready = frozenset(answer.ready)
        if not ready:
            self._settle(request.waiters, False)
            return
        self._settle({key: future for key, future in request.waiters.items() if key in ready}, True)
        self._new = {key: future for key, future in request.waiters.items() if key not in ready} | self._new
        if self._new:
            self._gather_soon()

    def _failed(self, waiters: Waiters, error: Exception) -> None:
        if unknown_route(error) or isinstance(error, client_errors.NotAllowed):
            logger.info("waiting.polled", reason="the service cannot say when there are messages")
            self._knows = False
            self._settle(waiters, True)
            return
        for future in waiters.values():
            if not future.done():
                future.set_exception(error)

    def _settle(self, waiters: Waiters, due: bool) -> None:
        for future in waiters.values():
            if not future.done():
                future.set_result(due)


def unknown_route(error: Exception) -> bool:
    """Return whether this is how a service answers what it does not know: 404 or 405, with or without its envelope."""
    if isinstance(error, client_errors.NotAms):
        return "404" in error.message or "405" in error.message
    return isinstance(error, client_errors.Refused) and error.code in (404, 405)


class _Message(msgspec.Struct, rename="camel"):
    message_id: str = ""
    publish_time: str = ""
    attributes: msgspec.Raw = msgspec.Raw(b"{}")
    data: msgspec.Raw = msgspec.Raw(b'""')


class Received(msgspec.Struct, rename="camel"):
    """A message as it came from a pull."""

    ack_id: str
    message: _Message
    ordering_key: str | None = None
    delivery_attempt: int = 1


class _Pull(msgspec.Struct, rename="camel"):
    received_messages: list[Received]


class _Standing:
    __slots__ = ("end", "may_have_more")

    def __init__(self) -> None:
        self.end = -1  # offset of the last message of a pull that brought all there was, or -1
        self.may_have_more = False  # whether a pull at once is right, without waiting


class HttpUpstream:
    """Messages of a service elsewhere; `waiting` says when to pull."""

    def __init__(self, client: AsyncClient, waiting: Polling | Waking, hand_outs: HandOuts | None = None) -> None:
        self._client, self.hand_outs, self._waiting = client, hand_outs, waiting
        self._standings: dict[str, _Standing] = {}

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        """Return the next messages; nothing after a while in which there were none."""
        standing = self._standings.setdefault(target.path, _Standing())
        with _asking():
            if not standing.may_have_more and not await self._waiting.until_due(target):
                return ()
            answer = await self._client.call(pull_call(target, max_messages))
        messages = within(max_bytes, [pulled(each) for each in answer.received_messages])
        standing.may_have_more = bool(messages)
        is_all = len(messages) < max_messages and len(messages) == len(answer.received_messages)
        standing.end = messages[-1].offset if messages and is_all else -1
        if messages:
            self._waiting.came(target.path)
        return messages

    async def acknowledge(self, target: Target, last: Pulled) -> None:
        project, subscription = named(target.path)
        ack = wire.ack_id(project, subscription, last.offset)
        try:
            await self._client.call(wire.acknowledge(project, subscription, [ack]))
        except client_errors.ClientError as error:
            place = self._client.endpoint.rpartition("//")[2]
            raise kind_of(error, is_acknowledgement=True)(
                f"an error occurred while trying to acknowledge message with ackId {ack} from subscription"
                f" {target.path} from {place}, {error.message}"
            ) from error
        self._acknowledged(target, last)

    async def dead_letter(self, target: Target, message: Pulled, verdict: Verdict) -> None:
        """Let the service put a message into the dead letter topic, and acknowledge it."""
        project, subscription = named(target.path)
        ack = wire.ack_id(project, subscription, message.offset)
        with _asking():
            await self._client.call(wire.dead_letter(project, subscription, ack, **verdict._asdict()))
        self._acknowledged(target, message)

    def patience(self, target: Target) -> float | None:
        """Return the acknowledgement deadline, which a service cuts to whole seconds; None where leases go on."""
        return None if target.is_parallel else float(max(target.ack_deadline_seconds, 1))

    def forget(self, target: Target) -> None:
        self._standings.pop(target.path, None)
        self._waiting.forget(target.path)

    def _acknowledged(self, target: Target, last: Pulled) -> None:
        standing = self._standings.get(target.path)
        if standing is not None and standing.end == last.offset:
            standing.may_have_more = False


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except client_errors.ClientError as error:
        raise kind_of(error)(error.message) from error


def kind_of(error: client_errors.ClientError, *, is_acknowledgement: bool = False) -> type[UpstreamError]:
    """Return what an answer means for a worker: by status first, by text where the status says too little (P21)."""
    said = error.message.strip().lower()
    is_late = is_acknowledgement and said in _ACK_LATE
    if is_late or said == _NOT_NEXT or isinstance(error, client_errors.AckTimeout):
        return NotTaken
    if isinstance(error, client_errors.NotFound):
        return Gone if said in _GONE else Refused
    if isinstance(error, client_errors.Unavailable) or not isinstance(error, client_errors.Refused):
        return Refused if isinstance(error, client_errors.Untrusted | client_errors.Unusable) else Away
    return Refused


def pull_call(target: Target, max_messages: int) -> Call[_Pull]:
    """Pull without waiting; both values are texts, as every service takes them."""
    body = PullBody(str(max_messages), "true")
    return call_of("subscriptions:pull", _Pull, *named(target.path), body=body, repeatable=True)


def pulled(received: Received) -> Pulled:
    """Return a message as workers know it; its number is before the dash where its id has one."""
    message = received.message
    offset = int(received.ack_id.rpartition(":")[2].partition("-")[0])
    attributes, data = bytes(message.attributes), bytes(message.data)
    if b"\n" in attributes:  # answers of a reference are indented, bodies are not
        attributes = msgspec.json.format(attributes, indent=-1)
    shown = b'"data":' + (b" " + data if b"\\" in data else data)
    if attributes not in (b"{}", b"null"):
        shown = b'"attributes":%b,%b' % (attributes, shown)
    fragment = with_ordering_key(Fragment(shown), received.ordering_key)
    return Pulled(offset, message.message_id, message.publish_time, fragment)


def within(max_bytes: int, messages: Sequence[Pulled]) -> Sequence[Pulled]:
    """Return as many messages from the first on as fit into `max_bytes`, but one at least."""
    left = max_bytes
    for index, message in enumerate(messages):
        left -= len(message.fragment)
        if left < 0:
            return messages[: max(index, 1)]
    return messages
