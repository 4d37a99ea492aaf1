"""Forwards calls over gRPC to the node that owns a subscription (`ams.cluster.ownership`), unchanged."""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import grpc

from ams.cluster.ownership import OwnerRequests
from ams.core.errors import Overloaded, OwnedElsewhere
from ams.core.names import SubscriptionId
from ams.http.asgi import query_value
from ams.pubsub.errors import DETAILS, CallRefusal, EndedElsewhere
from ams.pubsub.protos import Message
from ams.pubsub.requests import AGENT, API_KEY, MOST_ANSWER, MOST_REQUEST, USUAL_KEY, Context, Scope

_PASSED_ON = ("authorization", "x-goog-api-key", AGENT.decode())
_NAMES = {b"user-agent": AGENT, USUAL_KEY: API_KEY}  # names of headers for the owner
_SECONDS = 30.0  # for an answer of another node
_UNHEARD_SECONDS = 10  # for the answer to a ping: detects a frozen or lost owner
_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),  # between two pings
    ("grpc.keepalive_timeout_ms", _UNHEARD_SECONDS * 1000),
    ("grpc.http2.ping_timeout_ms", _UNHEARD_SECONDS * 1000),  # of the library's other pings: it has one at a time
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MOST_ANSWER),
    ("grpc.max_send_message_length", MOST_REQUEST),
    ("grpc.max_metadata_size", 4 * 2**20),  # which of very many ack ids are not good
    ("grpc.absolute_max_metadata_size", 4 * 2**20),
)


class Relays:
    """Connections to other nodes."""

    def __init__(
        self, node: str, doubt: Callable[[SubscriptionId], None], credentials: "grpc.ChannelCredentials | None" = None
    ) -> None:
        """`node`: name of this node. `doubt`: called when a node does not seem to own a subscription.

        Without `credentials` connections to other nodes are plain.
        """
        self._requests = OwnerRequests(node, doubt, _PASSED_ON)
        self._credentials = credentials
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def unary(
        self, elsewhere: OwnedElsewhere, method: str, request: bytes, scope: Scope, left: float | None
    ) -> bytes:
        """Return the owner's answer, within the seconds that are left. Raises `EndedElsewhere`."""
        metadata = self._metadata(elsewhere, scope)
        ask: Any = self._channel(elsewhere.pubsub).unary_unary(method)
        seconds = _SECONDS if left is None else min(left, _SECONDS)
        try:
            return bytes(await ask(request, metadata=metadata, timeout=seconds))
        except grpc.aio.AioRpcError as error:
            self._end(elsewhere, error.code(), error.details(), error.trailing_metadata())

    async def stream(
        self, elsewhere: OwnedElsewhere, method: str, first: Message, context: Context, scope: Scope
    ) -> None:
        """Forward requests to the owner, and its answers back, until either side ends. Raises `EndedElsewhere`."""
        metadata = self._metadata(elsewhere, scope)
        begin: Any = self._channel(elsewhere.pubsub).stream_stream(method)
        call = begin(metadata=metadata)
        up = asyncio.create_task(_pass_on(call, first, context))
        try:
            async for answer in call:
                try:
                    async with asyncio.timeout(first.stream_ack_deadline_seconds):  # as long as its leases last
                        await context.write(answer)
                except TimeoutError:
                    raise Overloaded("The stream is not read by its client") from None
            code = await call.code()
            if code is not grpc.StatusCode.OK:
                self._end(elsewhere, code, await call.details(), await call.trailing_metadata())
        except grpc.aio.AioRpcError as error:
            self._end(elsewhere, error.code(), error.details(), error.trailing_metadata())
        finally:
            up.cancel()
            call.cancel()
            await asyncio.wait((up,))

    async def close(self) -> None:
        """Close all connections."""
        for each in self._channels.values():
            await each.close()

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = (
                grpc.aio.insecure_channel(address, options=_OPTIONS)
                if self._credentials is None
                else grpc.aio.secure_channel(address, self._credentials, options=_OPTIONS)
            )
        return self._channels[address]

    def _metadata(self, elsewhere: OwnedElsewhere, scope: Scope) -> tuple[tuple[str, str | bytes], ...]:
        key = query_value(scope["query_string"], "key")
        came = [*scope["headers"], (USUAL_KEY, key.encode())] if key else scope["headers"]
        given = [
            (_NAMES.get(name, name).decode("latin-1"), value.decode("latin-1")) for name, value in came if name != AGENT
        ]
        return tuple(self._requests.headers(elsewhere, elsewhere.pubsub, given, scope["client"][0]))

    def _end(self, elsewhere: OwnedElsewhere, code: Any, details: str | None, trailing: Any) -> NoReturn:
        if code is grpc.StatusCode.UNAVAILABLE:
            self._requests.doubt(SubscriptionId(elsewhere.subscription))
        metadata = tuple((name, value) for name, value in trailing or () if name == DETAILS)
        raise EndedElsewhere(CallRefusal(code, details or "", metadata))


async def _pass_on(call: Any, first: Message, context: Context) -> None:
    said = first.SerializeToString()
    while said is not grpc.aio.EOF:
        await call.write(said)
        said = await context.read()
    await call.done_writing()
