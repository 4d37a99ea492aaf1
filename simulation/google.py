"""Google's calls without gRPC: the handlers of `ams.pubsub`, called with messages over simulated connections.

Each call has a connection of its own with frames instead of HTTP/2. So late packets, broken connections and ends of
processes affect it as any other. Only grpcio's names for codes and handlers are used.
"""

import asyncio
import base64
import contextlib
import pickle
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import grpc
from google.rpc import error_details_pb2, status_pb2

from ams.pubsub import protos, publisher, subscriber
from ams.pubsub.calls import Calls, Rpc
from ams.pubsub.streaming_pull import METHOD, Streams
from ams.web.http2_relay import peer_name
from ams.web.listener import Listener, ListenerLimits
from simulation.clients import FOREVER, UNKNOWN_OUTCOMES, SimClient, Traffic
from simulation.histories.attempts import ACK, EXTEND, NACK, Facts, Lease, Leased, Outcome, Publish, Settle, offset_of
from simulation.histories.history import History
from simulation.histories.parallel_laws import Parallel
from simulation.histories.payload import leased_message, message, ordering_key
from simulation.histories.workload import Worker
from simulation.network import ListeningSocket
from simulation.node import PUBSUB_PORT as PORT
from simulation.process import SimProcess

GRACE_SECONDS = 5.0  # for calls under way at a stop
LEASE_SECONDS = 10
STREAM_SECONDS = (0.5, 4.0)
SURE_SECONDS = 0.1  # an answer this close to the end of a lease proves nothing
_HEAD = 4
_DETAILS = "grpc-status-details-bin"
Frame = tuple[str, Any]


class _Frames(asyncio.Protocol):
    """Frames over a connection: a kind and its content."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.is_lost = False
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= _HEAD:
            end = _HEAD + int.from_bytes(self._data[:_HEAD])
            if len(self._data) < end:
                return
            frame, self._data = pickle.loads(self._data[_HEAD:end]), self._data[end:]  # noqa: S301 - our own
            self.came(*frame)

    def send(self, kind: str, what: Any = None) -> None:
        """Send a frame."""
        data = pickle.dumps((kind, what))
        self.transport.write(len(data).to_bytes(_HEAD) + data)

    def came(self, kind: str, what: Any) -> None:
        """Handle a received frame."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.came("lost", None)


class SimContext:
    """Context of a call for its handler, like `grpc.aio.ServicerContext`."""

    def __init__(self, served: "_ServedCall", token: str) -> None:
        self._served, self._token = served, token
        self._requests: deque[Any] = deque()
        self._has_come: asyncio.Future[None] | None = None
        self._code: grpc.StatusCode | None = None

    def put(self, request: Any) -> None:
        """Add a request, or the end of the stream."""
        self._requests.append(request)
        if self._has_come is not None and not self._has_come.done():
            self._has_come.set_result(None)

    async def read(self) -> Any:
        """Return the next request."""
        while not self._requests:
            self._has_come = asyncio.get_running_loop().create_future()
            await self._has_come
        return self._requests[0] if self._requests[0] is grpc.aio.EOF else self._requests.popleft()

    async def write(self, answer: Any) -> None:
        """Send an answer of a stream."""
        if self._served.is_lost:
            raise grpc.aio.InternalError("the client is gone")
        self._served.send("data", answer.SerializeToString())

    async def abort(self, code: grpc.StatusCode, text: str = "", metadata: Sequence[tuple[str, bytes]] = ()) -> None:
        """End the call with an error."""
        self._code = code
        self._served.finish(code.name, text, dict(metadata).get(_DETAILS, b""))
        raise grpc.aio.AbortError("aborted")

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        """Return the client's metadata."""
        return (("x-goog-api-key", self._token), ("user-agent", "grpc-java"))

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return an empty context: connections have no TLS."""
        return {}

    def peer(self) -> str:
        """Return the client's address in the form of the relay to gRPC's server."""
        address, port = self._served.transport.get_extra_info("peername")
        return peer_name(address, port, is_secure=False)

    def code(self) -> grpc.StatusCode | None:
        """Return the code that was set."""
        return self._code

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the code that a call ends with."""
        self._code = code

    def time_remaining(self) -> float | None:
        """Return None: calls have no deadline."""
        return None

    def cancelled(self) -> bool:
        """Return whether the client has left."""
        return self._served.is_lost


class _ServedCall(_Frames):
    """Server side of a call: a task that ends with the call, or when its client leaves."""

    def __init__(self, handlers: Mapping[str, Any], calls: "set[asyncio.Task[None]]") -> None:
        super().__init__()
        self._handlers, self._calls = handlers, calls
        self._context: SimContext | None = None
        self._task: asyncio.Task[None] | None = None

    def came(self, kind: str, what: Any) -> None:
        """Begin, or hand on a request. The call ends when its client leaves."""
        if kind == "call":
            method, token = what
            self._context = SimContext(self, token)
            self._task = asyncio.get_running_loop().create_task(self._run(method, self._context))
            self._calls.add(self._task)
            self._task.add_done_callback(self._calls.discard)
        elif kind == "lost":
            if self._task is not None:
                self._task.cancel()
        elif self._context is not None:
            self._context.put(what if kind == "data" else grpc.aio.EOF)

    def finish(self, code: str, text: str = "", details: bytes = b"") -> None:
        """Send the outcome of the call."""
        if not self.is_lost:
            self.send("end", (code, text, details))
            self.transport.close()

    async def _run(self, method: str, context: SimContext) -> None:
        with contextlib.suppress(grpc.aio.AbortError):
            answer = await self._handlers[method](None, context)
            if answer is not None:
                self.send("data", answer)
            code = context.code()
            self.finish(code.name if code else "OK")


def listen(_host: str, port: int, _setting: str) -> ListeningSocket:
    """Open a simulated port in place of `ams.web.server.listen`."""
    process = SimProcess.running()
    return process.world.network.listen(process, port)


@contextlib.asynccontextmanager
async def answering(
    sock: ListeningSocket,
    _folder: str,
    services: Mapping[str, Sequence[Rpc]],
    streams: Streams,
    calls: Calls,
    _port: object,
    limits: ListenerLimits,
    *_: object,
) -> AsyncIterator[Listener]:
    """Answer calls until the block ends, in place of `ams.pubsub.server.answering`."""
    process = sock.process
    handlers: dict[str, Any] = {METHOD: calls.stream(METHOD, streams.run).stream_stream}
    for service, rpcs in services.items():
        handlers.update({f"/{service}/{rpc.binding.rpc}": calls.unary(service, rpc).stream_unary for rpc in rpcs})
    under_way: set[asyncio.Task[None]] = set()
    accepting = process.loop.create_task(sock.serve(lambda: _ServedCall(handlers, under_way)))
    try:
        yield Listener("pubsub", limits)
    finally:
        streams.stop()
        accepting.cancel()
        if under_way:
            await asyncio.wait(set(under_way), timeout=GRACE_SECONDS)
        for each in list(under_way):
            each.cancel()
        await asyncio.gather(accepting, *under_way, return_exceptions=True)


class _Call(_Frames):
    """Client side of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: asyncio.Queue[Frame] = asyncio.Queue()

    def came(self, kind: str, what: Any) -> None:
        """Keep a frame for whoever waits for it."""
        self.frames.put_nowait((kind, what))


class Answered(NamedTuple):
    """Outcome of a unary call."""

    facts: Facts
    message: bytes | None
    code: str = ""
    late: tuple[str, ...] = ()  # ack ids that the error names


class GoogleClient:
    """A client of one project that makes Google's calls, each over a connection of its own."""

    def __init__(self, client: SimClient) -> None:
        self._client = client
        self.node = client.node
        self._traffic: Traffic = client.traffic

    async def unary(self, method: str, request: Any) -> Answered:
        """Make a call with one answer."""
        world, name = self.node.world, self._client.next_request()
        call = await self.open_call(method)
        started = world.now
        had_faults = self.node.has_disk_faults
        call.send("data", request.SerializeToString())
        call.send("last")
        answer: bytes | None = None
        code, text, details = "", "", b""
        try:
            async with asyncio.timeout(self._traffic.patience):
                while not code:
                    kind, what = await call.frames.get()
                    if kind == "data":
                        answer = what
                    else:
                        code, text, details = what if kind == "end" else ("LOST", "", b"")
        except TimeoutError:
            self._traffic.violations.append(f"deadline: {name} ({method}) had no answer in time")
            code = "LOST"
        call.transport.close()
        late = _late_ids(details)
        if code == "OK":
            outcome = Outcome.DONE
        elif code in ("LOST", "CANCELLED") or text in UNKNOWN_OUTCOMES:
            outcome = Outcome.UNKNOWN
        else:
            outcome = Outcome.REFUSED
            had_faults = had_faults or self.node.has_disk_faults
            if not late and code != "UNAVAILABLE" and not (had_faults and code in ("INTERNAL", "RESOURCE_EXHAUSTED")):
                self._traffic.violations.append(f"error: {name} ({method}) ended with {code}: {text}")
        self._traffic.answers[outcome.value] += 1
        ended = FOREVER if outcome is Outcome.UNKNOWN else world.now
        return Answered(Facts(request=name, started=started, ended=ended, outcome=outcome), answer, code, late)

    async def open_call(self, method: str) -> _Call:
        """Begin a call once the service can be reached."""
        while True:
            try:
                _, call = await asyncio.get_running_loop().create_connection(_Call, "", PORT)
                call.send("call", (method, self._client.token))
                return call
            except OSError:
                await asyncio.sleep(0.2)

    def path(self, kind: str, name: str) -> str:
        """Return the full resource name."""
        return f"{self._client.resource}/{kind}/{name}"


async def publish(client: GoogleClient, history: History, topic: str, name: str, size: int, *, ordered: bool) -> None:
    """Publish messages, and note it."""
    names = tuple(f"{name}/{place}" for place in range(size))
    if ordered:  # one ordering key for each request
        names = tuple(each for each in names if ordering_key(each) == ordering_key(names[0]))
    sent = [(each, message(each)) for each in names]
    request = protos.PublishRequest(
        topic=client.path("topics", topic),
        messages=[
            protos.PubsubMessage(
                data=base64.b64decode(body["data"]),
                attributes=body["attributes"],
                ordering_key=ordering_key(each) if ordered else "",
            )
            for each, body in sent
        ],
    )
    found = await client.unary(f"/{publisher.NAME}/Publish", request)
    ids: tuple[int, ...] = ()
    if found.message is not None:
        ids = tuple(int(each) for each in protos.PublishResponse.FromString(found.message).message_ids)
    history.add(Publish(**found.facts, topic=topic, names=names, ids=ids))


@dataclass(frozen=True)
class GoogleWorker(Worker):
    """Works on a parallel subscription by Google's calls.

    Without exactly-once delivery the answer is OK also for ids that no longer count. OK proves an acknowledgement only
    while the lease surely runs, in the process that granted it, and if the message was not nacked or taken back. Any
    other outcome is noted as unknown.
    """

    calls: GoogleClient | None = None
    kind: Parallel | None = None

    async def pull(self, most: int, *, wait: bool = False) -> Lease:
        """Pull once."""
        assert self.calls is not None
        request = protos.PullRequest(subscription=self._path, max_messages=most, return_immediately=not wait)
        found = await self.calls.unary(f"/{subscriber.NAME}/Pull", request)
        received = protos.PullResponse.FromString(found.message).received_messages if found.message else ()
        messages = tuple(_to_leased(each) for each in received)
        return self.note(Lease(**found.facts, subscription=self.subscription, messages=messages))

    async def settle(self, verb: str, messages: Sequence[Leased], **more: int) -> Settle:
        """Acknowledge, nack or extend messages."""
        assert self.calls is not None
        ids, seconds = tuple(each.ack_id for each in messages), more.get("ackDeadlineSeconds", 0)
        if verb == EXTEND:
            seconds = max(seconds, LEASE_SECONDS) if seconds else 0
        if verb == ACK:
            method, request = "Acknowledge", protos.AcknowledgeRequest(subscription=self._path, ack_ids=ids)
        else:
            method, request = "ModifyAckDeadline", protos.ModifyAckDeadlineRequest(
                subscription=self._path, ack_ids=ids, ack_deadline_seconds=seconds
            )  # fmt: skip
        found = await self.calls.unary(f"/{subscriber.NAME}/{method}", request)
        noted = NACK if verb == EXTEND and not seconds else verb
        facts, late = found.facts, tuple(each for each in ids if each in found.late)
        if late:
            facts["outcome"] = Outcome.DONE  # for ids that the error does not name
        said = tuple(each for each in ids if facts["outcome"] is not Outcome.DONE or self._tells(each, ids, facts))
        unknown = tuple(each for each in ids if each not in said)
        if unknown:
            lost = Facts(**{**facts, "request": f"{facts['request']}-unknown", "outcome": Outcome.UNKNOWN})
            self.note(Settle(**lost, subscription=self.subscription, verb=noted, ids=unknown, seconds=seconds))
        return self.note(
            Settle(**facts, subscription=self.subscription, verb=noted, ids=said, late=late, seconds=seconds)
        )

    async def stream(self) -> None:
        """Hold a stream for some seconds, and settle what it brings."""
        assert self.calls is not None
        world = self.calls.node.world
        call = await self.calls.open_call(METHOD)
        opened, until = world.now, world.now + self.random.uniform(*STREAM_SECONDS)
        stream = ""
        first = protos.StreamingPullRequest(
            subscription=self._path, stream_ack_deadline_seconds=LEASE_SECONDS,
            max_outstanding_messages=self.random.choice((5, 60)),
        )  # fmt: skip
        call.send("data", first.SerializeToString())
        while True:
            try:
                async with asyncio.timeout(until - world.now):
                    kind, what = await call.frames.get()
            except TimeoutError:
                break
            if kind != "data":
                break
            received = protos.StreamingPullResponse.FromString(what).received_messages
            if not received:
                continue
            messages = tuple(_to_leased(each) for each in received)
            facts = Facts(request=self.client.next_request(), started=opened, ended=world.now, outcome=Outcome.DONE)
            stream = stream or facts["request"]  # named after its first pull
            self.note(Lease(**facts, subscription=self.subscription, messages=messages, stream=stream))
            await self._handle(messages)
        call.transport.close()

    @property
    def _path(self) -> str:
        assert self.calls is not None
        return self.calls.path("subscriptions", self.subscription)

    def _tells(self, ack_id: str, ids: Sequence[str], facts: Facts) -> bool:
        """Return whether an OK proves the acknowledgement of an id; `ids` are all of the call."""
        assert self.kind is not None
        assert self.calls is not None
        if self.kind.exactly_once:
            return True
        given = [each for each in self._leases() if any(one.ack_id == ack_id for one in each.messages)]
        if not given or facts["ended"] > given[0].started + LEASE_SECONDS - SURE_SECONDS:
            return False
        if any(given[0].started <= end <= facts["ended"] for end in self.calls.node.ends):
            return False
        if any(each.may_have_happened(ack_id) for each in self._settles(NACK, ack_id)):
            return False
        return all(before in ids or self._is_done(before) for before in self._out_before(ack_id, given[0]))

    def _out_before(self, ack_id: str, lease: Lease) -> Iterator[str]:
        """Yield ids of earlier messages of its key that its consumer holds. If one fails, this one is taken back."""
        assert self.kind is not None
        if not self.kind.ordered:
            return
        key = next(ordering_key(each.name) for each in lease.messages if each.ack_id == ack_id)
        for each in self._leases():
            if each.consumer == lease.consumer:
                for one in each.messages:
                    if ordering_key(one.name) == key and one.id < offset_of(ack_id):
                        yield one.ack_id

    def _is_done(self, ack_id: str) -> bool:
        return any(each.is_confirmed(ack_id) for each in self._settles(ACK, ack_id))

    def _leases(self) -> Iterator[Lease]:
        name = self.subscription
        return (each for each in self.history.attempts if isinstance(each, Lease) and each.subscription == name)

    def _settles(self, verb: str, ack_id: str) -> Iterator[Settle]:
        attempts = self.history.attempts
        return (each for each in attempts if isinstance(each, Settle) and each.verb == verb and ack_id in each.ids)


def _to_leased(received: Any) -> Leased:
    body = received.message
    data = base64.b64encode(body.data).decode()
    return leased_message(body.message_id, body.attributes, data, received.ack_id)


def _late_ids(details: bytes) -> tuple[str, ...]:
    """Return the ids that an error names as expired."""
    found: list[str] = []
    for detail in status_pb2.Status.FromString(details).details if details else ():
        info = error_details_pb2.ErrorInfo()
        detail.Unpack(info)
        found += info.metadata
    return tuple(found)
