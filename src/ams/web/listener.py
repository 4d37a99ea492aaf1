"""Listener: accepts the connections of one port and counts each from accept until it closes.

A connection costs an open file from accept, long before a request or a TLS handshake. So the limits are checked at
accept: open connections, concurrent handshakes, and connections of one client address (a fair share of the free ones).
Connections beyond them are refused at once. They are counted by reason, and logged at most once a minute.
"""

import asyncio
import ipaddress
import socket
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from ams.core.fair_share import FairShare
from ams.core.telemetry import Figure
from ams.core.urls import client_of, parse_address

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
ProtocolFactory = Callable[[Callable[[], None]], asyncio.Protocol]  # the protocol calls its argument when it is lost

PAUSE_SECONDS = 0.2  # without accepting after the system ran out of files
REPORT_SECONDS = 60.0  # between two log lines about refused connections
MAX_LINGERING_CONNECTIONS = 64  # refused ones, open until their clients have read why; one more closes the oldest
LINGER_SECONDS = 1.0

REASONS = ("connections", "address", "handshakes", "proxy", "files")
"""Why a connection is refused: too many open, of its address or in their handshake; not from a proxy; no file left."""

logger = structlog.get_logger("ams.web")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """Limits of one port."""

    connections: int  # open, those in their handshake included
    handshakes: int = 1_000  # concurrent TLS handshakes: each takes 50 to 80 kB, more with a large certificate
    handshake_seconds: float = 10.0
    goodbye_seconds: float = 30.0  # for the client to close TLS
    unshared: Sequence[Network] = ()  # networks of proxies, exempt from the limit of one address
    only_from: Sequence[Network] = ()  # networks that connections must come from; empty: any


class Listener:
    """Accepts connections on one socket, from `start` to `close`. Used from one event loop.

    `name` is the port's in logs and metrics. Refused plain connections are sent `refusal`; refused TLS connections are
    just closed, because nothing can be sent before the handshake.
    """

    def __init__(
        self, name: str, limits: ListenerLimits, *, context: ssl.SSLContext | None = None, refusal: bytes = b""
    ) -> None:
        self.name, self.limits, self._context, self._refusal = name, limits, context, refusal
        self.refused: Counter[str] = Counter()
        self.failed_handshakes = 0
        self._open: FairShare[str] = FairShare(limits.connections)
        self._counted: set[socket.socket] = set()  # accepted, and counted as open
        self._in_handshake: FairShare[str] = FairShare(limits.handshakes)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lingering: deque[socket.socket] = deque()
        self._socket: socket.socket | None = None
        self._next_report = 0.0

    @property
    def open_connections(self) -> int:
        """Number of open connections."""
        return self._open.used

    def start(self, sock: socket.socket, factory: ProtocolFactory) -> None:
        """Accept connections of a listening socket, which the caller still owns."""
        sock.setblocking(False)
        self._socket, self._factory = sock, factory
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._accept)

    def close(self) -> None:
        """Stop accepting, and end the handshakes in progress. Open connections stay."""
        sock, self._socket = self._socket, None
        if sock is None:
            return
        self._loop.remove_reader(sock.fileno())
        for task in self._tasks:
            task.cancel()
        while self._lingering:
            self._lingering.popleft().close()

    async def wait_closed(self) -> None:
        """Return when no handshake is in progress."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self) -> None:
        """Accept one connection: a second try would nearly always find none, and delay the open ones."""
        try:
            sock, address = self._socket.accept()  # type: ignore[union-attr]  # set until `close`
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            assert self._socket is not None
            self._note_refusal("files", reason=error.strerror)
            self._loop.remove_reader(self._socket.fileno())
            self._loop.call_later(PAUSE_SECONDS, self._go_on)
            return
        client = client_of(address[0])
        why = self._why_refused(client, address[0])
        if why is None:
            self._take(sock, client)
        else:
            self._refuse(sock, why, address[0])

    def _go_on(self) -> None:
        if self._socket is not None:  # not closed meanwhile
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _take(self, sock: socket.socket, client: str) -> None:
        self._open.add(1, client)
        self._counted.add(sock)
        tls: dict[str, Any] = {}
        if self._context is not None:
            self._in_handshake.add(1, client)
            tls = {"ssl": self._context, "ssl_handshake_timeout": self.limits.handshake_seconds}
            tls["ssl_shutdown_timeout"] = self.limits.goodbye_seconds
        factory = partial(self._factory, partial(self._give_back, sock, client))
        task = self._loop.create_task(self._loop.connect_accepted_socket(factory, sock, **tls))
        self._tasks.add(task)
        task.add_done_callback(partial(self._end_handshake, sock, client))

    def _give_back(self, sock: socket.socket, client: str) -> None:
        if sock in self._counted:
            self._counted.remove(sock)
            self._open.give_back(client)

    def _end_handshake(self, sock: socket.socket, client: str, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._context is not None:
            self._in_handshake.give_back(client)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return
        sock.close()
        self._give_back(sock, client)
        if self._context is not None and isinstance(error, OSError):  # such as TLS errors and timeouts
            self.failed_handshakes += 1
            logger.debug("handshake.failed", listener=self.name, reason=str(error))
        elif isinstance(error, Exception):
            logger.error("connection.failed", listener=self.name, error=type(error).__name__, exc_info=error)

    def _why_refused(self, client: str, address: str) -> str | None:
        limits = self.limits
        if limits.only_from and not is_within(address, limits.only_from):
            return "proxy"
        if self._open.used >= limits.connections:
            return "connections"
        if self._context is not None and self._in_handshake.used >= limits.handshakes:
            return "handshakes"
        has_room = self._open.room(client) and (self._context is None or self._in_handshake.room(client))
        return None if has_room or is_within(address, limits.unshared) else "address"

    def _refuse(self, sock: socket.socket, why: str, address: str) -> None:
        self._note_refusal(why, address=address)
        if not self._refusal or self._context is not None:
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.send(self._refusal)
            sock.shutdown(socket.SHUT_WR)
        except OSError:  # the client has left
            sock.close()
            return
        # If TCP closed with a request unread, the client might lose the answer.
        self._lingering.append(sock)
        if len(self._lingering) > MAX_LINGERING_CONNECTIONS:
            self._lingering.popleft().close()
        self._loop.call_later(LINGER_SECONDS, sock.close)

    def _note_refusal(self, why: str, **details: object) -> None:
        self.refused[why] += 1
        now = time.monotonic()
        if now < self._next_report:
            return
        self._next_report = now + REPORT_SECONDS
        counts = {"open": self._open.used, "refused": self.refused.total()}
        logger.warning("connections.refused", listener=self.name, why=why, **details, **counts)


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Return whether an address is in one of the networks; False for an empty address."""
    return bool(address and networks) and any(parse_address(address) in network for network in networks)


def connection_gauges(prefix: str, listeners: Iterable[Listener]) -> Iterator[Figure]:
    """Yield the number of open connections, by port."""
    found = [({"listener": each.name}, float(each.open_connections)) for each in listeners]
    yield Figure(f"{prefix}_connections", "Open connections, by port.", found)


def connection_counters(prefix: str, listeners: Sequence[Listener]) -> Iterator[Figure]:
    """Yield the numbers of refused connections and failed handshakes, by port."""
    refused = [({"listener": each.name, "why": why}, float(each.refused[why])) for each in listeners for why in REASONS]
    yield Figure(f"{prefix}_connections_refused", "Connections refused at accept, by port and reason.", refused)
    failed = [({"listener": each.name}, float(each.failed_handshakes)) for each in listeners]
    yield Figure(f"{prefix}_handshakes_failed", "TLS handshakes that came to nothing.", failed)
