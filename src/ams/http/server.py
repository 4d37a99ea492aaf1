"""Running the application: sockets, uvicorn, an orderly stop; and the operations port.

The operations port answers health checks of balancers and operators, and metrics for Prometheus, on loopback.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, cast

import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from uvicorn.server import ServerState

from ams.core.errors import Overloaded, Unusable
from ams.core.supervisor import Supervisor
from ams.http.asgi import Receive, Send, answer
from ams.http.protocol import PORTION, LimitedProtocol, closing_answer, limited
from ams.web.listener import Listener, ListenerLimits

BACKLOG = 4096
"""Connections the system holds for us while we are busy."""
_NOT_SENT_LOWAT = 25
"""The number of Linux's option TCP_NOTSENT_LOWAT, which Python names since 3.12."""
STOP_SECONDS = 8
"""How long requests in flight are given at a stop; the whole stop stays under ten seconds."""


SMALL_CONNECTIONS = 128
"""Of a port for operators. One address has half of them at most."""
_SMALL_HEADER_BYTES = 16 * 2**10
_SMALL_SECONDS = 10.0


class Server(uvicorn.Server):
    """Uvicorn behind a listener of ours, leaving signals to the service, which stops several servers in an order."""

    def __init__(self, config: uvicorn.Config, listener: Listener) -> None:
        super().__init__(config)
        self.listener = listener

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections of the one socket."""
        [sock] = sockets or []
        self.listener.start(sock, partial(_connection, self.config, self.server_state))
        self.servers = [cast("Any", self.listener)]  # of which a stop uses `close` and `wait_closed`
        self.started = True


def _connection(config: uvicorn.Config, state: ServerState, when_lost: Callable[[], None]) -> asyncio.Protocol:
    made: Any = config.http_protocol_class
    connection = made(config, state, {})
    connection.when_lost = when_lost
    return cast("asyncio.Protocol", connection)


def server(
    app: Any,
    name: str,
    limits: ListenerLimits,
    *,
    http: type[LimitedProtocol],
    context: ssl.SSLContext | None = None,
    keep_alive: float = 5,
) -> Server:
    """Return a server for an ASGI application; `name` is that of its port in logs and metrics."""
    config = uvicorn.Config(
        app,
        http=http,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        log_level="critical",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=keep_alive,  # type: ignore[arg-type]  # a timer takes fractions too
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    refusal = closing_answer(http.refusal(Overloaded("Too many connections")))
    return Server(config, Listener(name, limits, context=context, refusal=refusal))


def small_server(app: Any, name: str) -> Server:
    """Return a server for few clients that ask little, such as those of an operations port."""
    speaks = limited(_SMALL_HEADER_BYTES, _SMALL_SECONDS)
    return server(app, name, ListenerLimits(connections=SMALL_CONNECTIONS), http=speaks)


def listen(host: str, port: int, what: str) -> socket.socket:
    """Return a listening socket; raise `Unusable` with one line and the way out when that cannot be."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        _hold_little(sock)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unusable(f"{what} {port} on {host} is in use; stop what uses it or choose another port") from error
        raise Unusable(f"cannot listen on {host} port {port} ({what}): {error}") from error
    return sock


def _hold_little(sock: socket.socket) -> None:
    """Let the system hold little that is not sent: it takes megabytes, and reports late that a client reads.

    Connections inherit this from the socket that listens.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a system that only looks like it
            sock.setsockopt(socket.IPPROTO_TCP, _NOT_SENT_LOWAT, PORTION)


async def until_started(server: Server, task: "asyncio.Task[None]") -> None:
    """Return when the server takes connections; raise what ended it if it does not come up."""
    while not server.started:
        if task.done():
            task.result()
            raise Unusable("the HTTP server did not start")
        await asyncio.sleep(0.005)


def url_of(scheme: str, sock: socket.socket) -> str:
    """Return the URL of a listening socket; a self-made certificate names localhost."""
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{'localhost' if shown in ('127.0.0.1', '[::1]') and scheme == 'https' else shown}:{port}"


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
) -> AsyncIterator[Listener]:
    """Answer on the operations port until the block ends."""
    aside = small_server(operations, "operations")
    task = supervisor.task("operations port", aside.serve([sock]), may_end=True)
    try:
        await until_started(aside, task)
        yield aside.listener
    finally:
        aside.should_exit = True
        await task
