"""The port of gRPC and REST: limits, start and stop. The first bytes of a connection decide between the two.

The listener is ours. HTTP/2 connections are relayed to gRPC's own server, on a Unix socket in a private folder.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import grpc
import structlog

from ams.core.errors import Unusable
from ams.core.supervisor import Supervisor
from ams.pubsub import subscriber
from ams.pubsub.calls import Calls, Rpc
from ams.pubsub.requests import MOST_ANSWER, MOST_REQUEST
from ams.pubsub.streaming_pull import METHOD, RPC, Streams
from ams.storage.files import short_path
from ams.web.connection import Port
from ams.web.http2_relay import Http2Relay
from ams.web.listener import Listener, ListenerLimits
from ams.web.server import HttpServer

FOLDER, SOCKET = "pubsub", "grpc"  # in the data folder, and in there
MIN_PING_SECONDS = 5
"""Shortest interval of pings. A client that pings faster three times gets GOAWAY. Google's libraries ping every 30 s;
the libraries of gRPC allow 10 s at least."""
FIRST_BYTES_SECONDS = 10.0  # for the first bytes of a new connection, after its TLS handshake if any
IDLE_SECONDS = 3600
"""A connection without calls for this time gets GOAWAY; its next call opens another. Not sooner, as clients on gRPC's C
core log it to stderr."""
GRACE_SECONDS = 5.0  # for calls under way at a stop

_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_REQUEST),
    ("grpc.max_send_message_length", MOST_ANSWER),
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_SECONDS * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_metadata_size", 64 * 1024),
    ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
)

logger = structlog.get_logger("ams.pubsub")


@contextlib.asynccontextmanager
async def answering(
    sock: socket.socket,
    folder: str,
    services: Mapping[str, Sequence[Rpc]],
    streams: Streams,
    calls: Calls,
    port: Port,
    limits: ListenerLimits,
    supervisor: Supervisor,
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[Listener]:
    """Serve clients on a listening socket until the block ends. `services`: methods by service name.

    `port` answers HTTP/1.1. Without `context` connections are plain. Raises `Unusable` if the `folder` cannot have a
    socket.
    """
    server = grpc.aio.server(options=_OPTIONS)
    for service, rpcs in services.items():
        handlers = {rpc.binding.rpc: calls.unary(service, rpc) for rpc in rpcs}
        if service == subscriber.NAME:
            handlers[RPC] = calls.stream(METHOD, streams.run)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    private = os.path.join(folder, FOLDER)
    os.makedirs(private, exist_ok=True)
    os.chmod(private, 0o700)
    with short_path(private, SOCKET) as path:
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise Unusable(f"{private} cannot have the socket of gRPC: {error}") from error
        await server.start()
        task = supervisor.task("Google Pub/Sub port", _until_stopped(server), may_end=True)
        relay = Http2Relay(path, FIRST_BYTES_SECONDS)
        front = HttpServer("pubsub", port, limits, context=context, connection=relay.connection)
        front.start(sock)
        with _quiet_about_clients_that_left():
            try:
                yield front.listener
            finally:
                front.listener.close()
                relay.prepare_stop()
                streams.stop()
                await asyncio.gather(server.stop(GRACE_SECONDS), front.stop(GRACE_SECONDS))
                relay.close()
                await task


@contextlib.contextmanager
def _quiet_about_clients_that_left() -> Iterator[None]:
    """Log no traceback for a client that vanished just before its answer: grpcio raises it in a task of its own."""
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
