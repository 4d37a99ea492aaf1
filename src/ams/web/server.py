"""HTTP server: one port, from the first connection to an orderly stop."""

import asyncio
import contextlib
import errno
import socket
import ssl
import sys
from collections.abc import Callable
from email.utils import formatdate

import structlog

from ams.core.errors import Overloaded, Unusable
from ams.web.answers import closing_answer
from ams.web.connection import GOODBYE_SECONDS, PORTION_BYTES, HttpConnection, Port
from ams.web.listener import Listener, ListenerLimits

BACKLOG = 4096  # connections the system queues while we are busy
STOP_SECONDS = 8  # for requests in flight at a stop; the whole stop stays under ten seconds
_NOT_SENT_LOWAT = 25  # Linux's TCP_NOTSENT_LOWAT, which Python has since 3.12

logger = structlog.get_logger("ams.web")


class HttpServer:
    """Serves the connections of one port, from `start` to `stop`. Used from one event loop."""

    def __init__(
        self, name: str, port: Port, limits: ListenerLimits, *, context: ssl.SSLContext | None = None,
        connection: Callable[[Port, Callable[[], None]], asyncio.Protocol] = HttpConnection,
    ) -> None:  # fmt: skip
        """Create a server. `name` is the port's in logs and metrics; `connection` creates its connections."""
        self.port, self._connection = port, connection
        refusal = closing_answer(port.refusal(Overloaded("Too many connections")))
        self.listener = Listener(name, limits, context=context, refusal=refusal)
        self._date_timer: asyncio.TimerHandle | None = None
        self._is_empty = asyncio.Event()
        port.when_empty = self._is_empty.set

    def start(self, sock: socket.socket) -> None:
        """Accept connections of a listening socket, which the caller still owns."""
        self._write_date()
        self.listener.start(sock, lambda when_lost: self._connection(self.port, when_lost))

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Answer all that has arrived, then close. Requests longer than `seconds` are cancelled, and say so."""
        self.listener.close()
        await self.listener.wait_closed()
        for connection in list(self.port.connections):
            try:
                connection.prepare_stop()
            except Exception:  # a defect in one packet must not keep the others open
                logger.exception("connection.failed", listener=self.listener.name)
                connection.transport.abort()
        if not await self._is_emptied(seconds):
            for exchange in list(self.port.exchanges):
                exchange.cancel()
            await self._is_emptied(GOODBYE_SECONDS)
        for connection in list(self.port.connections):
            connection.transport.abort()
        if self._date_timer is not None:
            self._date_timer.cancel()

    async def _is_emptied(self, seconds: float) -> bool:
        self._is_empty.clear()
        if not (self.port.connections or self.port.exchanges):
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_empty.wait()
        return self._is_empty.is_set()

    def _write_date(self) -> None:
        self.port.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        self._date_timer = asyncio.get_running_loop().call_later(1.0, self._write_date)


def listen(host: str, port: int, what: str) -> socket.socket:
    """Return a listening socket. Raises `Unusable` with advice; `what` names the setting of its port."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        if sys.platform == "linux":
            # Inherited by connections: otherwise the system buffers megabytes, and reports back-pressure late.
            with contextlib.suppress(OSError):  # not really Linux
                sock.setsockopt(socket.IPPROTO_TCP, _NOT_SENT_LOWAT, PORTION_BYTES)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unusable(f"{what} {port} on {host} is in use; stop what uses it or choose another port") from error
        raise Unusable(f"cannot listen on {host} port {port} ({what}): {error}") from error
    return sock


def url_of(scheme: str, sock: socket.socket) -> str:
    """Return the URL of a listening socket. A self-made certificate names localhost."""
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{'localhost' if shown in ('127.0.0.1', '[::1]') and scheme == 'https' else shown}:{port}"
