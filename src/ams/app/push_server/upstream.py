"""Upstream over the HTTP API of our service or the reference's (push contract 12, 8.3), with polling and long polls.

Implements `ams.push.upstream.Upstream`. Pulls never wait in the service, because the reference would gather for 300 ms.
A worker pulls as soon as the service reports messages; if the service cannot report them, it polls.

One long poll waits for up to `SUBSCRIPTIONS_PER_WAIT` subscriptions at once, so a thousand idle ones cost few requests
every few seconds. Recently delivered ones wait in small requests of their own; the idle ones stay together. A reference
service has no long poll. Then each subscription is polled, less often the longer it is idle, and all together at most
`MAX_POLLS_PER_SECOND`.
"""

import asyncio
import contextlib
import random
from collections.abc import Iterator, Sequence

import msgspec
import structlog

from ams.app.push_server.targets import split_path
from ams.client import AsyncClient, wire
from ams.client import errors as client_errors
from ams.client.wire.call import Call, call_of
from ams.core.backoff import Backoff
from ams.core.messages import Fragment, with_ordering_key
from ams.push.upstream import Away, Gone, HandOuts, NotTaken, Pulled, Target, UpstreamError, UpstreamRefused, Verdict
from ams.wire.messages import PullBody
from ams.wire.push import Ready, WaitBody

SUBSCRIPTIONS_PER_WAIT = 128  # subscriptions in one long poll
WAIT_SECONDS = 8.0  # how long the service waits if nothing comes
_GATHER_SECONDS = 0.003  # collects subscriptions that start waiting at the same time
_SPARE_REQUESTS = 8  # long polls beyond the minimum before small ones are merged

POLL_BACKOFF = Backoff(0.25, 5.0)  # seconds between two polls: the first, and the longest after long idleness
MAX_POLLS_PER_SECOND = 100.0  # a second, of all subscriptions together

logger = structlog.get_logger("ams.push_server")

Waiters = dict[str, "asyncio.Future[bool]"]  # by the identity of the subscription
_GONE_TEXTS = frozenset({"project doesn't exist", "subscription doesn't exist"})
_LATE_ACK_TEXTS = frozenset({"no ack pending", "wrong ack"})  # of a reference, for an unknown delivery
_NOT_NEXT_TEXT = "message is not the next one of the subscription"
"""Service's text if a message was acknowledged, or the subscription sought, before it was dead-lettered."""


class Poller:
    """Polling: decides when a pull is due, without the service's help."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._idle: dict[str, int] = {}

    async def until_due(self, target: Target) -> bool:
        """Return True after a growing pause."""
        idle = self._idle.get(target.path, 0)
        self._idle[target.path] = idle + 1
        shared = len(self._idle) / MAX_POLLS_PER_SECOND
        await asyncio.sleep(max(POLL_BACKOFF.nominal(idle), shared) * self._random.uniform(0.85, 1.15))
        return True

    def note_arrival(self, path: str) -> None:
        """Reset the pause: more messages may follow one."""
        self._idle[path] = 0

    def forget(self, path: str) -> None:
        """Forget a subscription."""
        self._idle.pop(path, None)


class _WaitRequest:
    def __init__(self, waiters: Waiters) -> None:
        self.waiters = waiters
        self.task: asyncio.Task[None] | None = None


class LongPoller:
    """Long polls, or `fallback` if the service has none: decides when a pull is due. Raises `ClientError`."""

    def __init__(self, client: AsyncClient, fallback: Poller, seconds: float = WAIT_SECONDS) -> None:
        self._client, self._fallback, self._seconds = client, fallback, seconds
        self._knows = True  # True: the service knows the request, as far as known
        self._new: Waiters = {}
        self._requests: list[_WaitRequest] = []
        self._gathering: asyncio.Task[None] | None = None

    async def until_due(self, target: Target) -> bool:
        """Return True when the service reports messages, False on timeout."""
        if not self._knows or not target.id:
            return await self._fallback.until_due(target)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._new[target.id] = future
        self._gather_soon()
        return await future

    def note_arrival(self, path: str) -> None:
        """Pass on to the fallback."""
        self._fallback.note_arrival(path)

    def forget(self, path: str) -> None:
        """Pass on to the fallback."""
        self._fallback.forget(path)

    async def close(self) -> None:
        """Cancel all requests."""
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
        if len(self._requests) > waiters // SUBSCRIPTIONS_PER_WAIT + _SPARE_REQUESTS:  # merge the smallest
            for request in sorted(self._requests, key=lambda each: len(each.waiters))[:_SPARE_REQUESTS]:
                assert request.task is not None
                request.task.cancel()
                self._requests.remove(request)
                self._new = request.waiters | self._new
        waiting = [(key, future) for key, future in self._new.items() if not future.done()]
        self._new = {}
        for begin in range(0, len(waiting), SUBSCRIPTIONS_PER_WAIT):
            request = _WaitRequest(dict(waiting[begin : begin + SUBSCRIPTIONS_PER_WAIT]))
            self._requests.append(request)
            request.task = asyncio.create_task(self._ask(request))

    async def _ask(self, request: _WaitRequest) -> None:
        for key in [key for key, future in request.waiters.items() if future.done()]:
            del request.waiters[key]
        body = WaitBody(sorted(request.waiters), round(self._seconds))
        try:
            answer = await self._client.call(call_of("push:wait", Ready, body=body, repeatable=True))
        except Exception as error:  # also a bug: waiters must not wait for ever
            self._requests.remove(request)
            self._fail_waiters(request.waiters, error)
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

    def _fail_waiters(self, waiters: Waiters, error: Exception) -> None:
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
    """Return whether a service does not know the route: 404 or 405, with or without the error envelope."""
    if isinstance(error, client_errors.NotAms):
        return "404" in error.message or "405" in error.message
    return isinstance(error, client_errors.Refused) and error.code in (404, 405)


class _PulledMessage(msgspec.Struct, rename="camel"):
    message_id: str = ""
    publish_time: str = ""
    attributes: msgspec.Raw = msgspec.Raw(b"{}")
    data: msgspec.Raw = msgspec.Raw(b'""')


class Received(msgspec.Struct, rename="camel"):
    """A message received by a pull."""

    ack_id: str
    message: _PulledMessage
    ordering_key: str | None = None
    delivery_attempt: int = 1


class _Pull(msgspec.Struct, rename="camel"):
    received_messages: list[Received]


class _Standing:
    __slots__ = ("end", "may_have_more")

    def __init__(self) -> None:
        self.end = -1  # offset of the last message of a pull that brought all, or -1
        self.may_have_more = False  # True: pull at once, without waiting


class HttpUpstream:
    """Messages of another service; `waiting` decides when to pull."""

    def __init__(self, client: AsyncClient, waiting: Poller | LongPoller, hand_outs: HandOuts | None = None) -> None:
        self._client, self.hand_outs, self._waiting = client, hand_outs, waiting
        self._standings: dict[str, _Standing] = {}

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        """Return the next messages; empty on timeout."""
        standing = self._standings.setdefault(target.path, _Standing())
        with _translate_errors():
            if not standing.may_have_more and not await self._waiting.until_due(target):
                return ()
            answer = await self._client.call(pull_call(target, max_messages))
        messages = within(max_bytes, [as_pulled(each) for each in answer.received_messages])
        standing.may_have_more = bool(messages)
        is_all = len(messages) < max_messages and len(messages) == len(answer.received_messages)
        standing.end = messages[-1].offset if messages and is_all else -1
        if messages:
            self._waiting.note_arrival(target.path)
        return messages

    async def acknowledge(self, target: Target, last: Pulled) -> None:
        project, subscription = split_path(target.path)
        ack = wire.ack_id(project, subscription, last.offset)
        try:
            await self._client.call(wire.acknowledge(project, subscription, [ack]))
        except client_errors.ClientError as error:
            place = self._client.endpoint.rpartition("//")[2]
            raise kind_of(error, is_acknowledgement=True)(
                f"an error occurred while trying to acknowledge message with ackId {ack} from subscription"
                f" {target.path} from {place}, {error.message}"
            ) from error
        self._note_acknowledged(target, last)

    async def dead_letter(self, target: Target, message: Pulled, verdict: Verdict) -> None:
        """Ask the service to dead-letter a message and acknowledge it."""
        project, subscription = split_path(target.path)
        ack = wire.ack_id(project, subscription, message.offset)
        with _translate_errors():
            await self._client.call(wire.dead_letter(project, subscription, ack, **verdict._asdict()))
        self._note_acknowledged(target, message)

    def patience(self, target: Target) -> float | None:
        """Return the acknowledgement deadline, which a service cuts to whole seconds; None if leases are extended."""
        return None if target.is_parallel else float(max(target.ack_deadline_seconds, 1))

    def forget(self, target: Target) -> None:
        self._standings.pop(target.path, None)
        self._waiting.forget(target.path)

    def _note_acknowledged(self, target: Target, last: Pulled) -> None:
        standing = self._standings.get(target.path)
        if standing is not None and standing.end == last.offset:
            standing.may_have_more = False


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except client_errors.ClientError as error:
        raise kind_of(error)(error.message) from error


def kind_of(error: client_errors.ClientError, *, is_acknowledgement: bool = False) -> type[UpstreamError]:
    """Return the kind of a failed answer for workers: by status, and by text if the status is ambiguous (P21)."""
    said = error.message.strip().lower()
    is_late = is_acknowledgement and said in _LATE_ACK_TEXTS
    if is_late or said == _NOT_NEXT_TEXT or isinstance(error, client_errors.AckTimeout):
        return NotTaken
    if isinstance(error, client_errors.NotFound):
        return Gone if said in _GONE_TEXTS else UpstreamRefused
    if isinstance(error, client_errors.Unavailable) or not isinstance(error, client_errors.Refused):
        return UpstreamRefused if isinstance(error, client_errors.Untrusted | client_errors.Unusable) else Away
    return UpstreamRefused


def pull_call(target: Target, max_messages: int) -> Call[_Pull]:
    """Return a pull without waiting. Both values are texts, which every service accepts."""
    body = PullBody(str(max_messages), "true")
    return call_of("subscriptions:pull", _Pull, *split_path(target.path), body=body, repeatable=True)


def as_pulled(received: Received) -> Pulled:
    """Return a message as workers know it. Its number is the part of its id before a dash."""
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
    """Return the first messages that fit into `max_bytes`, at least one."""
    left = max_bytes
    for index, message in enumerate(messages):
        left -= len(message.fragment)
        if left < 0:
            return messages[: max(index, 1)]
    return messages
