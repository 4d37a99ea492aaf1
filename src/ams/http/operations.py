"""The operations port: health for balancers and operators, metrics for Prometheus. On loopback."""

import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ams.core.supervisor import Supervisor
from ams.http.asgi import Receive, Send, answer
from ams.http.server import server, until_started

_TEXT = "text/plain; charset=utf-8"


class Operations:
    """A tiny ASGI application: /healthz, /readyz, /metrics."""

    def __init__(self, why_not_ready: Callable[[], str | None], metrics: CollectorRegistry) -> None:
        self._why_not_ready = why_not_ready
        self._metrics = metrics

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        status, kind, body = self._answer(scope["path"])
        await answer(send, status, body, [(b"content-type", kind.encode())])

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        if path == "/healthz":
            return 200, _TEXT, b"ok\n"
        if path == "/readyz":
            reason = self._why_not_ready()
            return (200, _TEXT, b"ok\n") if reason is None else (503, _TEXT, f"{reason}\n".encode())
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(self._metrics)
        return 404, _TEXT, b"404: try /healthz, /readyz or /metrics\n"


@contextlib.asynccontextmanager
async def answering_operations(
    sock: socket.socket, operations: Operations, supervisor: Supervisor
) -> AsyncIterator[None]:
    """Answer on the operations port until the block ends."""
    aside = server(operations)
    task = supervisor.task("operations port", aside.serve([sock]), may_end=True)
    try:
        await until_started(aside, task)
        yield
    finally:
        aside.should_exit = True
        await task
