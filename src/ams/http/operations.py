"""The operations port: health checks for balancers and operators, and metrics for Prometheus, on the loopback."""

import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ams.http.asgi import Application, Receive, Send, answer
from ams.http.errors import refusal
from ams.web.asgi_exchange import AsgiExchange
from ams.web.connection import Port
from ams.web.listener import Listener, ListenerLimits
from ams.web.server import HttpServer

MAX_CONNECTIONS = 128  # of an operations port; one address may have half of them
_TIMEOUT_SECONDS = 10.0
_TEXT_TYPE = "text/plain; charset=utf-8"


class Operations:
    """A tiny ASGI application: /healthz, /readyz, /metrics."""

    def __init__(
        self, why_not_ready: Callable[[], str | None], metrics: CollectorRegistry,
        remark: Callable[[], str | None] = lambda: None,
    ) -> None:  # fmt: skip
        """`remark` returns an addition to /readyz while it is ready, for operators only."""
        self._why_not_ready, self._metrics, self._remark = why_not_ready, metrics, remark

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        status, kind, body = self._answer(scope["path"])
        await answer(send, status, body, [(b"content-type", kind.encode())])

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        if path == "/healthz":
            return 200, _TEXT_TYPE, b"ok\n"
        if path == "/readyz":
            reason = self._why_not_ready()
            if reason is not None:
                return 503, _TEXT_TYPE, f"{reason}\n".encode()
            remark = self._remark()
            return 200, _TEXT_TYPE, f"ok; {remark}\n".encode() if remark else b"ok\n"
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(self._metrics)
        return 404, _TEXT_TYPE, b"404: try /healthz, /readyz or /metrics\n"


def small_server(app: Application, name: str) -> HttpServer:
    """Return a server for few clients with small requests; `name` is the port's in logs and metrics."""
    port = Port(
        lambda connection, request: AsgiExchange(connection, app, request),
        refusal,
        max_header_bytes=16 * 2**10,
        head_seconds=_TIMEOUT_SECONDS,
        body_seconds=_TIMEOUT_SECONDS,
    )
    return HttpServer(name, port, ListenerLimits(connections=MAX_CONNECTIONS))


@contextlib.asynccontextmanager
async def serve_operations(sock: socket.socket, operations: Operations) -> AsyncIterator[Listener]:
    """Serve the operations port until the block ends."""
    server = small_server(operations, "operations")
    server.start(sock)
    try:
        yield server.listener
    finally:
        await server.stop()
