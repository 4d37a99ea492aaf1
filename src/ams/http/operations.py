"""The operations port: health checks for balancers and operators, and metrics for Prometheus, on the loopback."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ams.core.supervisor import Supervisor
from ams.core.telemetry import Figures, metrics_of
from ams.http.asgi import Application, Receive, Send, answer
from ams.http.errors import refusal
from ams.web.asgi_exchange import AsgiExchange
from ams.web.connection import Port
from ams.web.listener import Listener, ListenerLimits
from ams.web.server import HttpServer, listen, url_of

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


@dataclass
class ProgramState(Figures):
    """State of a program from start to end, for its operations port. A subclass adds its troubles and metrics."""

    supervisor: Supervisor
    listeners: list[Listener] = field(default_factory=list)
    draining: bool = False

    def why_not_ready(self) -> str | None:
        """Return why clients should go elsewhere, or None."""
        return self.supervisor.failure or ("stopping" if self.draining else self.trouble())

    def trouble(self) -> str | None:
        """Return why a program that has not failed is not ready, or None."""
        raise NotImplementedError

    def remark(self) -> str | None:
        """Return an addition to /readyz while it is ready, for operators only."""
        return None


@contextlib.asynccontextmanager
async def serve_operations(host: str, port: int, state: ProgramState) -> AsyncIterator[str]:
    """Serve the operations port until the block ends; yields its URL."""
    with contextlib.closing(listen(host, port, "operations port")) as sock:
        operations = Operations(state.why_not_ready, metrics_of(state), state.remark)
        server = small_server(operations, "operations")
        server.start(sock)
        state.listeners.append(server.listener)
        try:
            yield url_of("http", sock)
        finally:
            await server.stop()
