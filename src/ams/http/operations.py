"""The operations port: health for balancers and operators, metrics for Prometheus. On loopback."""

from collections.abc import Callable, MutableMapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ams.http.limits import Receive

_TEXT = "text/plain; charset=utf-8"


class Operations:
    """A tiny ASGI application: /healthz, /readyz, /metrics."""

    def __init__(self, why_not_ready: Callable[[], str | None], metrics: CollectorRegistry) -> None:
        self._why_not_ready = why_not_ready
        self._metrics = metrics

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Callable[..., Any]) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        status, kind, body = self._answer(scope["path"])
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        if path == "/healthz":
            return 200, _TEXT, b"ok\n"
        if path == "/readyz":
            reason = self._why_not_ready()
            return (200, _TEXT, b"ok\n") if reason is None else (503, _TEXT, f"{reason}\n".encode())
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(self._metrics)
        return 404, _TEXT, b"404: try /healthz, /readyz or /metrics\n"
