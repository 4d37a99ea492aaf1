"""The front of the certificate service: its port, and the peer of each connection."""

import asyncio
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from ams.authn.http.errors import refusal
from ams.authn.http.tls import AskingConnection, AskingContext
from ams.authn.values import PEER, Peer
from ams.http.asgi import Application, usual_address
from ams.web.asgi_exchange import AsgiExchange
from ams.web.connection import HttpConnection, Port
from ams.web.listener import ListenerLimits
from ams.web.request_reader import RequestHead
from ams.web.server import HttpServer


@dataclass(slots=True, kw_only=True)
class Front:
    """Limits and TLS of the port."""

    context: AskingContext
    limits: ListenerLimits
    read_seconds: float = 5.0
    """For a whole request, and again for the rest of it after its head."""
    head_seconds: float = 5.0
    """For the head of a request, as for a handshake before it (contract 11)."""
    idle_seconds: float = 60.0
    max_header_bytes: int = 64 * 2**10

    def server(self, app: Application) -> HttpServer:
        """Return a server for an application, which finds a `Peer` in the scope of each request."""

        def open_exchange(connection: HttpConnection, request: RequestHead) -> AsgiExchange:
            peer = cast("PeerConnection", connection).peer
            return AsgiExchange(connection, app, request, extensions={PEER: peer})

        port = Port(
            open_exchange,
            refusal,
            max_header_bytes=self.max_header_bytes,
            head_seconds=min(self.head_seconds, self.read_seconds),
            body_seconds=self.read_seconds,
            idle_seconds=self.idle_seconds,
        )
        return HttpServer("api", port, self.limits, context=self.context, connection=PeerConnection)


class PeerConnection(HttpConnection):
    """A connection after its handshake, with the client that a proxy states."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as of every stream
        """Take the connection."""
        super().connection_made(transport)
        preface = self._tls.preface
        if preface is not None and preface.client is not None:
            self.client = preface.client

    @cached_property
    def peer(self) -> Peer:
        """The client: its address, and the certificate it showed."""
        address = (usual_address(self.client[0]) or self.client[0]) if self.client else ""
        try:
            return Peer(address, self._tls.presented())
        except ValueError as error:
            return Peer(address, unreadable=str(error))

    @property
    def _tls(self) -> AskingConnection:
        return cast("AskingConnection", self.transport.get_extra_info("ssl_object"))
