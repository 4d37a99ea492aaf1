"""The port: TLS, limits of connections, its start and its stop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import grpc
import structlog

from ams.core.errors import Unusable
from ams.core.supervisor import Supervisor
from ams.pubsub import subscriber
from ams.pubsub.calls import Calls, Rpc
from ams.pubsub.requests import MOST_ANSWER, MOST_REQUEST
from ams.pubsub.streaming import METHOD, RPC, Streams

MIN_PING_SECONDS = 5
"""Between two pings of a connection. Clients are told to go away when they ping more often three times. Google's
libraries ping every 30 s; the libraries of gRPC let their users set 10 s, and no less."""
HANDSHAKE_SECONDS = 10  # for a new connection to be one of HTTP/2, and of TLS where there is that
IDLE_SECONDS = 3600
"""After which a connection without calls is told to go; its client opens another with its next call. Not sooner, as
clients on gRPC's C core write a line about that to their standard error."""
GRACE_SECONDS = 5.0  # for calls under way at a stop

_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_REQUEST),
    ("grpc.max_send_message_length", MOST_ANSWER),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_SECONDS * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_metadata_size", 64 * 1024),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
    ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
)

logger = structlog.get_logger("ams.pubsub")


@contextlib.asynccontextmanager
async def answering(
    host: str,
    port: int,
    services: Mapping[str, Sequence[Rpc]],
    streams: Streams,
    calls: Calls,
    most_connections: int,
    supervisor: Supervisor,
    credentials: Any = None,
) -> AsyncIterator[str]:
    """Answer calls until the block ends; gives HOST:PORT. `services` are methods by the names of their services.

    More than `most_connections` at a time are closed as they come. Without `credentials` connections are plain. Raises
    `Unusable` when the port cannot be had.
    """
    server = grpc.aio.server(options=(*_OPTIONS, ("grpc.max_allowed_incoming_connections", most_connections)))
    for service, rpcs in services.items():
        handlers = {rpc.name: calls.unary(service, rpc) for rpc in rpcs}
        if service == subscriber.NAME:
            handlers[RPC] = calls.stream(METHOD, streams.run)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    except RuntimeError as error:
        raise Unusable(f"pubsub port {port} on {host} cannot be had: stop what uses it or choose another") from error
    await server.start()
    task = supervisor.task("Google Pub/Sub port", _until_stopped(server), may_end=True)
    with _quiet_about_clients_that_left():
        try:
            yield address.rpartition(":")[0] + f":{bound}"
        finally:
            streams.stop()
            await server.stop(GRACE_SECONDS)
            await task


@contextlib.contextmanager
def _quiet_about_clients_that_left() -> Iterator[None]:
    """Write no traceback for a call whose client vanished just when it was to be answered.

    grpcio raises that in a task of its own that nobody awaits, unless it knew already that the client is gone.
    """
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), grpc.aio.InternalError):
            logger.debug("pubsub.client_left", reason=str(context["exception"]))
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)


async def _until_stopped(server: grpc.aio.Server) -> None:
    await server.wait_for_termination()
