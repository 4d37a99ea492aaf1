"""StreamingPull: streams of messages to consumers, and the spread of a backlog over the streams of a subscription.

One task per subscription pulls, for its streams in turn. So they share a backlog, and a thousand idle streams cost one
wait. Flow control: the lease table counts what a stream holds (`FlowWindow`). A stream gets room however a lease ends,
also by a single call on another connection, which is how clients acknowledge.

Clients need three things (`docs/reference/pubsub.md`). A request without content is a ping and is answered at once.
Every response has the subscription's properties. A stream ends with OK only if its client closed it.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Mapping, Sequence
from typing import NamedTuple

import grpc
import structlog

from ams.access.rates import QuotaSlots
from ams.core.ack_ids import MIN_ACK_DEADLINE
from ams.core.errors import AmsError, Conflict, InvalidInput, NotFound, Overloaded, OwnedElsewhere
from ams.core.names import Offset, SubscriptionId
from ams.core.supervisor import wait_for_first
from ams.http.limits import ClientLeft
from ams.pubsub import fields, messages, protos
from ams.pubsub.calls import Calls, PubsubCall
from ams.pubsub.errors import UNORDERED, FailedAckIds
from ams.pubsub.fields import SUBSCRIPTIONS
from ams.pubsub.protos import Message
from ams.pubsub.requests import Context, Scope, first_of, read
from ams.pubsub.subscriber import NAME, Leases, check_size
from ams.service.parallel.backlog import MAX_OUT, MAX_OUT_BYTES
from ams.service.parallel.message_state import FlowWindow
from ams.service.parallel.pulls import LeaseBatch
from ams.service.parallel.settlement import holder_of
from ams.storage.registry.records import Subscription

RPC = "StreamingPull"
METHOD = f"/{NAME}/{RPC}"
TURN_MESSAGES = 100  # messages for a stream before the next stream has its turn
FIRST_SECONDS = 10.0  # for the first request of a stream
LOOK_SECONDS = 30.0  # between two checks of the rights of an open stream
REQUESTS_A_SECOND = 100  # more are read later: back-pressure
PAUSE_SECONDS = 0.1
LARGE_RESPONSE_BYTES = 4_000_000  # some clients refuse larger responses: a larger message is logged

logger = structlog.get_logger("ams.pubsub")


class StreamEnded(Overloaded):
    """The service ends a stream; its client opens it again."""


class Streams:
    """All streams of this process."""

    def __init__(self, leases: Leases, calls: Calls, slots: QuotaSlots) -> None:
        """`slots` limit the streams of projects."""
        self._slots, self._leases, self._calls = slots, leases, calls
        self._spreads: dict[SubscriptionId, _Spread] = {}
        self._is_stopping = False

    def stop(self) -> None:
        """End all streams and refuse new ones; clients reopen them on another node, or here later."""
        self._is_stopping = True
        for each in list(self._spreads.values()):
            each.fail(StreamEnded("The service is stopping"))

    async def run(self, context: Context, scope: Scope) -> None:
        """Serve one stream to its end."""
        first = read(protos.StreamingPullRequest, await first_of(context, FIRST_SECONDS))
        name = fields.read_name(first.subscription, SUBSCRIPTIONS)
        scope["path"], scope["leaf"] = f"/v1/{name.path}", name.leaf
        _check_first(first)
        call = await self._calls.admit(scope, "subscriptions:pull", name)
        subscription = await self._leases.subscription(call)
        if self._is_stopping:
            raise StreamEnded("The service is stopping")
        try:
            await self._leases.working.opened.own(subscription.id)
        except OwnedElsewhere as elsewhere:
            if self._calls.relay is None:
                raise
            await self._calls.relay.stream(elsewhere, METHOD, first, context, scope)
            return
        stream = _Stream(self._leases, call, context, first)
        spread = self._spreads.get(subscription.id)
        if spread is None or spread.task.done():  # it failed: its streams are ending
            spread = self._spreads[subscription.id] = _Spread(self._leases, call, subscription)
        spread.add(stream)
        try:
            with self._slots.hold(call.caller.here):
                await stream.run(spread, first)
        finally:
            spread.remove(stream)
            if not spread.streams:
                if self._spreads.get(subscription.id) is spread:
                    del self._spreads[subscription.id]
                await spread.close()


def _check_first(first: Message) -> None:
    fields.check_ack_deadline(first.stream_ack_deadline_seconds, whose="The stream's")
    if first.protocol_version not in (0, 1):  # 1 for clients that send pings; both are served in one way
        raise InvalidInput(
            f"Invalid protocol_version given (protocol_version={first.protocol_version}). It must be 0 or 1."
        )


class _LeasedMessages(NamedTuple):
    """The messages that one pull leased to a stream, and the subscription as it was then."""

    subscription: Subscription
    lots: Sequence[LeaseBatch]


class _Spread:
    """The task that pulls for all streams of a subscription on this node, and serves them in turn."""

    def __init__(self, leases: Leases, call: PubsubCall, subscription: Subscription) -> None:
        self.subscription, self._leases = subscription, leases
        self._path = call.name.path
        self._project = call.project
        self._project_id = call.caller.here.id
        self.streams: set[_Stream] = set()
        self._turns: OrderedDict[_Stream, None] = OrderedDict()  # streams with room, in the order of their turns
        self._sooner = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    def add(self, stream: "_Stream") -> None:
        self.streams.add(stream)
        self._leases.working.streams[self.subscription.id] += 1
        stream.window.freed = lambda: self.offer(stream)
        self.offer(stream)

    def remove(self, stream: "_Stream") -> None:
        self.streams.discard(stream)
        streams = self._leases.working.streams
        streams[self.subscription.id] -= 1
        if not streams[self.subscription.id]:
            del streams[self.subscription.id]
        stream.window.freed = lambda: None
        self._turns.pop(stream, None)

    def offer(self, stream: "_Stream") -> None:
        is_waiting = stream in self._turns and not stream.window.ready
        if stream.may_get and stream in self.streams and not is_waiting:
            self._turns[stream] = None
            self._sooner.set()

    def fail(self, error: Exception) -> None:
        for each in list(self.streams):
            each.fail(error)

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))
        with contextlib.suppress(asyncio.CancelledError):
            self.task.result()  # an exception that nobody retrieves keeps its frames, and so the streams, alive

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._give()
                except NotFound:  # a detached subscription exists, but has no cursor: say so
                    await self.look()
                    raise
        except AmsError as error:
            self.fail(error)
        except Exception as error:  # of this subscription alone
            logger.exception("stream.failed", subscription=self.subscription.name)
            self.fail(error)

    async def _give(self) -> None:
        """Pull for the stream whose turn it is; wait if there are no messages, or no streams with room."""
        while not self._turns:
            self._sooner.clear()
            await self._sooner.wait()
        await self.look()
        working, unread = self._leases.working, self._leases.deliverer.unread
        left = unread.room(self._project)
        if not left:
            await asyncio.sleep(PAUSE_SECONDS)
            return
        self._sooner.clear()
        idle: dict[str, None] = {}  # users without messages: skip their other streams
        for stream in list(self._turns):
            if stream.holder in idle and not stream.window.ready:
                continue
            if not stream.may_get:
                self._turns.pop(stream, None)
                continue
            lots = await working.puller.pull(
                self.subscription, TURN_MESSAGES, holder=stream.holder, wait=True,
                max_bytes=min(messages.MAX_RESPONSE_BYTES, left), seconds=stream.seconds, window=stream.window,
            )  # fmt: skip
            if lots:
                self._turns.pop(stream, None)
                stream.give(_LeasedMessages(self.subscription, lots))
                return
            idle[stream.holder] = None
        if idle:
            await self._wait(next(iter(idle)))

    async def _wait(self, holder: str) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + LOOK_SECONDS
        waiting = self._leases.working.puller.wait(self.subscription, holder, until)
        has_grown, _ = await wait_for_first(waiting, self._sooner.wait())
        if has_grown is False and loop.time() < until:
            await asyncio.sleep(PAUSE_SECONDS)  # pulls do not wait now

    async def look(self) -> None:
        """Refresh the subscription; raise if it cannot be streamed any more."""
        found = await self._leases.deliverer.registry.subscriptions.find(self._project_id, self.subscription.name)
        if found is self.subscription:
            return
        if found is None or found.id != self.subscription.id:
            raise NotFound("Subscription doesn't exist")
        if found.is_detached:
            raise Conflict(f"Subscription {self._path} is detached.")
        if found.push is not None:
            raise Conflict("The subscription was turned to push.")
        self.subscription = found


class _Stream:
    def __init__(self, leases: Leases, call: PubsubCall, context: Context, first: Message) -> None:
        self._leases, self._call, self._context = leases, call, context
        self.holder = holder_of(call.caller)
        self.seconds: int = first.stream_ack_deadline_seconds
        most, size = first.max_outstanding_messages, first.max_outstanding_bytes
        # Leases count messages as they are stored, as base64.
        self.window = FlowWindow(most if most > 0 else MAX_OUT, size * 4 // 3 if size > 0 else MAX_OUT_BYTES)
        self._given: _LeasedMessages | None = None
        self._is_sending = self._is_over = False
        self._is_given = asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writing = asyncio.Lock()
        self._invalidations = leases.deliverer.registry.invalidations
        self._generation = self._invalidations.generation

    @property
    def may_get(self) -> bool:
        return self._given is None and not self.window.is_full

    def give(self, given: _LeasedMessages) -> None:
        """Send messages; a stream that has just ended gives them back."""
        self._given = given
        if self._is_over:
            self._take_back()
        self._is_given.set()

    def fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    async def run(self, spread: _Spread, first: Message) -> None:
        try:
            await self._write(spread.subscription, ())
            await self._run(spread, first)
        finally:
            self._is_over = True
            self._failed.cancel()
            self._take_back()

    async def _run(self, spread: _Spread, first: Message) -> None:
        reading = asyncio.create_task(self._read_on(spread, first))
        sending = asyncio.create_task(self._send_on(spread))
        try:
            while True:
                tasks = {reading, sending, self._failed}
                done, _ = await asyncio.wait(tasks, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
                if reading in done:
                    return
                await self._look()
        finally:
            for task in (reading, sending):
                task.cancel()
            await asyncio.wait((reading, sending))

    async def _look(self) -> None:
        self._generation = self._invalidations.generation
        caller = await self._call.again()
        await self._leases.subscription(self._call._replace(caller=caller))

    # Requests

    async def _read_on(self, spread: _Spread, first: Message) -> None:
        loop = asyncio.get_running_loop()
        began, count = loop.time(), 1
        await self._take(spread, first, is_first=True)
        while (said := await self._context.read()) is not grpc.aio.EOF:
            request = read(protos.StreamingPullRequest, said)
            _check_later(request)
            if self._invalidations.generation != self._generation:
                await self._look()
            await spread.look()
            await self._take(spread, request, is_first=False)
            count += 1
            if count >= REQUESTS_A_SECOND:
                await asyncio.sleep(max(began + 1 - loop.time(), 0))
                began, count = loop.time(), 0

    async def _take(self, spread: _Spread, request: Message, *, is_first: bool) -> None:
        check_size(request)
        if len(request.modify_deadline_ack_ids) != len(request.modify_deadline_seconds):
            raise InvalidInput("modify_deadline_ack_ids and modify_deadline_seconds must have the same length.")
        for seconds in request.modify_deadline_seconds:
            fields.check_ack_deadline(seconds, 0)
        self.seconds = request.stream_ack_deadline_seconds or self.seconds
        answer = protos.StreamingPullResponse()
        if request.ack_ids:
            settled = self._leases.acknowledge(self._call, spread.subscription, request.ack_ids)
            await _confirm(answer.acknowledge_confirmation, request.ack_ids, settled)
        if request.modify_deadline_ack_ids:
            await self._extend(spread.subscription, request, answer)
        options = spread.subscription.parallel
        confirms = options is not None and options.enable_exactly_once_delivery and answer.ListFields()
        is_ping = not (is_first or request.ack_ids or request.modify_deadline_ack_ids)
        if is_ping or confirms:
            await self._write(spread.subscription, (), answer)

    async def _extend(self, subscription: Subscription, request: Message, answer: Message) -> None:
        confirmed = answer.modify_ack_deadline_confirmation
        by_seconds: dict[int, list[str]] = {}
        # If an id is there twice, its last deadline counts.
        asked = dict(zip(request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=True))
        for ack_id, seconds in asked.items():
            by_seconds.setdefault(seconds, []).append(ack_id)
        for seconds, ids in by_seconds.items():
            await _confirm(confirmed, ids, self._leases.extend(self._call, subscription, ids, seconds))

    # Responses

    async def _send_on(self, spread: _Spread) -> None:
        while True:
            await self._is_given.wait()
            given = self._given
            assert given is not None
            if self._invalidations.generation != self._generation:
                await self._look()
            self._is_sending = True
            await self._send(given)
            self._given, self._is_sending = None, False
            self._is_given.clear()
            spread.offer(self)

    async def _send(self, given: _LeasedMessages) -> None:
        options = given.subscription.parallel
        counts = options is not None and options.dead_letter_policy is not None
        received = messages.received_messages(given.lots, with_attempt=counts)
        for group in messages.in_answers(received, LARGE_RESPONSE_BYTES):
            size = sum([each.ByteSize() for each in group])
            if size > LARGE_RESPONSE_BYTES:
                self._note_large(given.subscription, group[0], size)
            with self._leases.deliverer.unread.hold_answer(self._call.project, size):
                await self._write(given.subscription, group)

    def _note_large(self, subscription: Subscription, received: Message, size: int) -> None:
        """Log a message that a client may refuse, and so receive for ever."""
        message = received.message.message_id
        logger.warning("stream.large_message", subscription=subscription.name, message=message, bytes=size)
        opened = self._leases.working.opened.get(subscription.id)
        if opened is not None:
            opened.large = Offset(int(message)), size

    async def _write(
        self, subscription: Subscription, received: Sequence[Message], answer: Message | None = None
    ) -> None:
        """Send a response. Raises `StreamEnded` if the client does not read for as long as its leases last."""
        response = protos.StreamingPullResponse() if answer is None else answer
        options = subscription.parallel
        if options is not None:
            response.subscription_properties.exactly_once_delivery_enabled = options.enable_exactly_once_delivery
            response.subscription_properties.message_ordering_enabled = options.enable_message_ordering
        response.subscription_properties.SetInParent()
        response.received_messages.extend(received)
        try:
            async with asyncio.timeout(max(self.seconds, MIN_ACK_DEADLINE)), self._writing:
                await self._context.write(response)
        except TimeoutError:
            raise StreamEnded("The stream is not read by its client") from None
        except grpc.aio.InternalError:  # the connection is gone
            raise ClientLeft from None

    def _take_back(self) -> None:
        """Give back messages that were not sent. Those being sent may have arrived, so their leases go on."""
        given, self._given = self._given, None
        if given is not None and not self._is_sending:
            ids = {lot.hand_out: [Offset(each.offset) for each in lot.messages] for lot in given.lots}
            self._leases.working.settler.release(given.subscription.id, ids)


def _check_later(request: Message) -> None:
    fixed = ("subscription", "client_id", "max_outstanding_messages", "max_outstanding_bytes", "protocol_version")
    said = [field for field in fixed if getattr(request, field)]
    if said:
        raise InvalidInput(f"The field {said[0]} can only be set in the first request of a stream.")
    if request.stream_ack_deadline_seconds:
        _check_first(request)


async def _confirm(confirmed: Message, ids: Sequence[str], settled: Awaitable[None]) -> None:
    failed: Mapping[str, str] = {}
    try:
        await settled
    except FailedAckIds as error:
        failed = error.reasons
    confirmed.ack_ids.extend([each for each in dict.fromkeys(ids) if each not in failed])
    confirmed.invalid_ack_ids.extend([each for each, reason in failed.items() if reason != UNORDERED])
    if UNORDERED in failed.values():  # of acknowledgements alone
        confirmed.unordered_ack_ids.extend([each for each, reason in failed.items() if reason == UNORDERED])
