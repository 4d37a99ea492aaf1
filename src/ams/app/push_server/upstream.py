"""Upstream over the HTTP API of our service or the reference's (push contract 12, 8.3), with polling and long polls.

Implements `ams.push.upstream`, also for parallel subscriptions, whose messages our service leases. Pulls never wait in
the service, because the reference would gather for 300 ms. A worker pulls as soon as the service reports messages; if
the service cannot report them, it polls.

One long poll waits for up to `SUBSCRIPTIONS_PER_WAIT` subscriptions at once, so a thousand idle ones cost few requests
every few seconds. Recently delivered ones wait in small requests of their own; the idle ones stay together. A reference
service has no long poll. Then each subscription is polled, less often the longer it is idle, and all together at most
`MAX_POLLS_PER_SECOND`.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import structlog

from ams.app.push_server.targets import split_path
from ams.client import AsyncClient, wire
from ams.client import errors as client_errors
from ams.client.wire.call import Call, call_of
from ams.core.backoff import Backoff
from ams.core.clock import Milliseconds
from ams.core.messages import Fragment, with_ordering_key
from ams.push import upstream
from ams.push.upstream import HandOuts, Pulled, PushHandOut, Target, Verdict
from ams.wire.messages import PullBody
from ams.wire.push import Ready, WaitBody

SUBSCRIPTIONS_PER_WAIT = 128  # subscriptions in one long poll
WAIT_SECONDS = 8.0  # how long the service waits if nothing comes
_GATHER_SECONDS = 0.003  # collects subscriptions that start waiting at the same time
_SPARE_REQUESTS = 8  # long polls beyond the minimum before small ones are merged

POLL_BACKOFF = Backoff(0.25, 5.0)  # seconds between two polls: the first, and the longest after long idleness
MAX_POLLS_PER_SECOND = 100.0  # a second, of all subscriptions together
CLOSE_SECONDS = 2.0  # to give back leases at the end

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


class LongPoller(Poller):
    """Long polls, or polling if the service has none: decides when a pull is due. Raises `ClientError`."""

    def __init__(self, client: AsyncClient, random: random.Random, seconds: float = WAIT_SECONDS) -> None:
        super().__init__(random)
        self._client, self._seconds = client, seconds
        self._knows = True  # True: the service knows the request, as far as known
        self._new: Waiters = {}
        self._requests: dict[asyncio.Task[None], Waiters] = {}
        self._gathering: asyncio.Task[None] | None = None

    async def until_due(self, target: Target) -> bool:
        """Return True when the service reports messages, False on timeout."""
        if not self._knows or not target.id:
            return await super().until_due(target)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._new[target.id] = future
        self._gather_soon()
        return await future

    async def close(self) -> None:
        """Cancel all requests."""
        tasks = [*self._requests, *([self._gathering] if self._gathering else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _gather_soon(self) -> None:
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather())

    async def _gather(self) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        count = sum(map(len, self._requests.values())) + len(self._new)
        if len(self._requests) > count // SUBSCRIPTIONS_PER_WAIT + _SPARE_REQUESTS:  # merge the smallest
            for task in sorted(self._requests, key=lambda each: len(self._requests[each]))[:_SPARE_REQUESTS]:
                task.cancel()
                self._new = self._requests.pop(task) | self._new
        waiting = [(key, future) for key, future in self._new.items() if not future.done()]
        self._new = {}
        for begin in range(0, len(waiting), SUBSCRIPTIONS_PER_WAIT):
            waiters = dict(waiting[begin : begin + SUBSCRIPTIONS_PER_WAIT])
            task = asyncio.create_task(self._ask(waiters))
            self._requests[task] = waiters
            task.add_done_callback(lambda done: self._requests.pop(done, None))

    async def _ask(self, waiters: Waiters) -> None:
        for key in [key for key, future in waiters.items() if future.done()]:
            del waiters[key]
        body = WaitBody(sorted(waiters), round(self._seconds))
        try:
            answer = await self._client.call(call_of("push:wait", Ready, body=body, repeatable=True))
        except Exception as error:  # also a bug: waiters must not wait for ever
            if unknown_route(error) or isinstance(error, client_errors.NotAllowed):
                logger.info("waiting.polled", reason="the service cannot say when there are messages")
                self._knows = False
                self._settle(waiters, True)
                return
            for future in (each for each in waiters.values() if not each.done()):
                future.set_exception(error)
            return
        if not (ready := frozenset(answer.ready)):
            self._settle(waiters, False)
            return
        self._settle({key: future for key, future in waiters.items() if key in ready}, True)
        self._new = {key: future for key, future in waiters.items() if key not in ready} | self._new
        if self._new:
            self._gather_soon()

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


class _Received(msgspec.Struct, rename="camel"):
    ack_id: str
    message: _PulledMessage
    ordering_key: str | None = None
    delivery_attempt: int = 1


class _Pull(msgspec.Struct, rename="camel"):
    received_messages: list[_Received]


class HttpUpstream:
    """Messages of another service; `waiting` decides when to pull."""

    def __init__(self, client: AsyncClient, waiting: Poller, hand_outs: HandOuts | None = None) -> None:
        self._client, self.hand_outs, self._waiting = client, hand_outs, waiting
        self._may_have_more: dict[str, int] = {}
        """Subscriptions to pull at once, without waiting; until the acknowledgement of this offset, if it is not -1."""

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        """Return the next messages; empty on timeout."""
        with _translate_errors():
            if target.path not in self._may_have_more and not await self._waiting.until_due(target):
                return ()
            answer = await self._client.call(_pull_call(target, max_messages))
        messages = _within(max_bytes, [_as_pulled(each) for each in answer.received_messages])
        if not messages:
            self._may_have_more.pop(target.path, None)
            return messages
        is_all = len(messages) < max_messages and len(messages) == len(answer.received_messages)
        self._may_have_more[target.path] = messages[-1].offset if is_all else -1
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
        self._may_have_more.pop(target.path, None)
        self._waiting.forget(target.path)

    def _note_acknowledged(self, target: Target, last: Pulled) -> None:
        if self._may_have_more.get(target.path) == last.offset:
            del self._may_have_more[target.path]


class HttpHandOuts:
    """Implements `ams.push.upstream.HandOuts`; `waiting` waits for messages to lease.

    If a lease brings none, because others have all messages, `pauses` limit the rate of requests.
    """

    def __init__(self, client: AsyncClient, waiting: Poller, pauses: Poller) -> None:
        self._client, self._waiting, self._pauses = client, waiting, pauses
        self._said_due: set[str] = set()  # subscriptions reported due, of which nothing was leased since
        self._unsettled: dict[tuple[str, str], set[int]] = {}
        """Offsets not acknowledged, failed or released, as far as known; by subscription and lease."""
        self._under_way: set[asyncio.Task[Any]] = set()  # requests that continue after their callers have left

    async def lease(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[PushHandOut]:
        def give_up(leasing: "asyncio.Task[Sequence[PushHandOut]]") -> None:
            if not leasing.cancelled() and leasing.exception() is None:
                for each in leasing.result():
                    self.release(target, each)

        leasing = asyncio.create_task(self._lease(target, max_messages, max_bytes))
        self._keep(leasing)
        try:
            return await asyncio.shield(leasing)
        except asyncio.CancelledError:  # nobody would know the messages it brings
            leasing.add_done_callback(give_up)
            raise

    async def _lease(self, target: Target, max_messages: int, max_bytes: int) -> Sequence[PushHandOut]:
        with _translate_errors(of_leases=True):
            received = (await self._client.call(_pull_call(target, max_messages))).received_messages
        if received:
            self._said_due.discard(target.path)
            self._note_arrival(target.path)
        fitting = _within(max_bytes, [_as_pulled(each) for each in received])
        count = len(fitting)
        for each in self._hand_outs(target, received[count:]):
            self.release(target, each)
        return self._hand_outs(target, received[:count])

    def _hand_outs(self, target: Target, received: Sequence[_Received]) -> Sequence[PushHandOut]:
        lots: dict[str, list[_Received]] = {}
        for each in received:
            lots.setdefault(each.ack_id.rpartition("-")[2], []).append(each)
        found = [
            PushHandOut(text, lot[0].delivery_attempt, [_as_pulled(each) for each in lot]) for text, lot in lots.items()
        ]
        for hand_out in found:
            self._unsettled[target.path, hand_out.text] = {each.offset for each in hand_out.messages}
        return found

    async def wait(self, target: Target) -> None:
        """Wait until the service reports messages; pause if it has just done so in vain."""
        if target.path in self._said_due:
            self._said_due.discard(target.path)
            await self._pauses.until_due(target)
            return
        with _translate_errors(of_leases=True):
            if await self._waiting.until_due(target):
                self._said_due.add(target.path)
            else:
                self._note_arrival(target.path)

    def _note_arrival(self, path: str) -> None:
        self._waiting.note_arrival(path)
        self._pauses.note_arrival(path)

    async def extend(self, target: Target, hand_out: PushHandOut, seconds: int) -> None:
        with _translate_errors(of_leases=True):
            await self._client.call(wire.extend_leases(*split_path(target.path), _ids(target, hand_out), seconds))

    async def acknowledge(self, target: Target, hand_out: PushHandOut) -> None:
        with _translate_errors(of_leases=True), self._settling(target, hand_out):
            await self._client.call(wire.acknowledge(*split_path(target.path), _ids(target, hand_out)))

    async def fail(self, target: Target, hand_out: PushHandOut, wait: Milliseconds, verdict: Verdict) -> None:
        for ack_id in _ids(target, hand_out):
            call = wire.dead_letter(*split_path(target.path), ack_id, **verdict._asdict(), wait=math.ceil(wait))
            with _translate_errors(of_leases=True), self._settling(target, hand_out):
                await self._client.call(call)

    def release(self, target: Target, hand_out: PushHandOut) -> None:
        """Release unsettled messages to be leased again; asks the service in the background."""
        place = target.path, hand_out.text
        left = self._unsettled.pop(place, set())
        messages = [each for each in hand_out.messages if each.offset in left]
        if others := left - {each.offset for each in messages}:
            self._unsettled[place] = others
        if messages:
            self._keep(asyncio.create_task(self._release(target, hand_out._replace(messages=messages))))

    async def _release(self, target: Target, hand_out: PushHandOut) -> None:
        """Ask the service to take messages back. If that fails, their leases expire."""
        try:
            await self._client.call(wire.nack(*split_path(target.path), _ids(target, hand_out), failed=False))
        except client_errors.AckTimeout:  # the others are taken back
            return
        except client_errors.ClientError as error:
            logger.info("lease.not_released", subscription=target.path, reason=error.message)

    async def close(self) -> None:
        """Finish giving leases back, and cancel on timeout."""
        until = asyncio.get_running_loop().time() + CLOSE_SECONDS
        while self._under_way and (left := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._under_way, timeout=left)
        for task in self._under_way:
            task.cancel()

    def _keep(self, task: "asyncio.Task[Any]") -> None:
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    @contextlib.contextmanager
    def _settling(self, target: Target, hand_out: PushHandOut) -> Iterator[None]:
        """Note that messages are settled, unless the outcome is unknown. Late ids have no effect anyway."""
        try:
            yield
        except client_errors.AckTimeout:
            self._note_settled(target, hand_out)
            raise
        self._note_settled(target, hand_out)

    def _note_settled(self, target: Target, hand_out: PushHandOut) -> None:
        place = target.path, hand_out.text
        left = self._unsettled.get(place, set())
        left.difference_update([each.offset for each in hand_out.messages])
        if not left:
            self._unsettled.pop(place, None)


def _ids(target: Target, hand_out: PushHandOut) -> list[str]:
    project, subscription = split_path(target.path)
    return [f"{wire.ack_id(project, subscription, each.offset)}-{hand_out.text}" for each in hand_out.messages]


@contextlib.contextmanager
def _translate_errors(*, of_leases: bool = False) -> Iterator[None]:
    """Raise errors as workers know them; of leases `NotTaken` for expired ones, as after a seek."""
    try:
        yield
    except client_errors.ClientError as error:
        is_late = of_leases and isinstance(error, client_errors.InvalidInput)
        raise (upstream.NotTaken if is_late else kind_of(error))(error.message) from error


def kind_of(error: client_errors.ClientError, *, is_acknowledgement: bool = False) -> type[upstream.UpstreamError]:
    """Return the kind of a failed answer for workers: by status, and by text if the status is ambiguous (P21)."""
    said = error.message.strip().lower()
    is_late = is_acknowledgement and said in _LATE_ACK_TEXTS
    if is_late or said == _NOT_NEXT_TEXT or isinstance(error, client_errors.AckTimeout):
        return upstream.NotTaken
    if isinstance(error, client_errors.NotFound):
        return upstream.Gone if said in _GONE_TEXTS else upstream.UpstreamRefused
    is_away = isinstance(error, client_errors.Unavailable) or not isinstance(error, client_errors.Refused)
    if is_away and not isinstance(error, client_errors.Untrusted | client_errors.Unusable):
        return upstream.Away
    return upstream.UpstreamRefused


def _pull_call(target: Target, max_messages: int) -> Call[_Pull]:
    """Return a pull without waiting. Both values are texts, which every service accepts."""
    body = PullBody(str(max_messages), "true")
    return call_of("subscriptions:pull", _Pull, *split_path(target.path), body=body, repeatable=True)


def _as_pulled(received: _Received) -> Pulled:
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


def _within(max_bytes: int, messages: Sequence[Pulled]) -> Sequence[Pulled]:
    left = max_bytes
    for index, message in enumerate(messages):
        left -= len(message.fragment)
        if left < 0:
            return messages[: max(index, 1)]
    return messages
