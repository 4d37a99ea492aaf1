"""Connections of the certificate service: their limits, and the peer of each request."""

import asyncio
from dataclasses import dataclass
from typing import cast

from ams.authn.http.errors import unasked
from ams.authn.http.tls import AskingConnection, AskingContext
from ams.authn.values import PEER, Peer
from ams.core.errors import BadRequest
from ams.http.asgi import Application, usual_address
from ams.http.protocol import LimitedProtocol, limited
from ams.http.server import Server, server
from ams.web.listener import ListenerLimits


@dataclass(slots=True, kw_only=True)
class Front:
    """What all connections share."""

    context: AskingContext
    limits: ListenerLimits
    read_seconds: float = 5.0
    """For a whole request, and again for the rest of it after its head."""
    head_seconds: float = 5.0
    """For the head of a request, as for a handshake before it (contract 11)."""
    idle_seconds: float = 60.0
    max_header_bytes: int = 64 * 2**10

    def server(self, app: Application) -> Server:
        """Return a server for an application, which finds a `Peer` in the scope of each request."""
        speaks = limited(
            self.max_header_bytes, min(self.head_seconds, self.read_seconds), base=PeerProtocol, refusal=unasked
        )
        speaks = type(speaks.__name__, (speaks,), {"front": self})
        return server(app, "api", self.limits, http=speaks, context=self.context, keep_alive=self.idle_seconds)


class PeerProtocol(LimitedProtocol):
    """One connection after its handshake; requests on it have its peer in their scope."""

    front: Front
    """Set on a subclass by `Front.server`."""

    _peer: Peer | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Take the connection, with the client that a proxy states."""
        super().connection_made(transport)
        preface = self._asked().preface
        if preface is not None and preface.client is not None:
            self.client = preface.client

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_reading()
        super().connection_lost(exc)

    def _make_scope(self) -> None:
        """Put the peer into the scope."""
        super()._make_scope()
        self.scope[PEER] = self._peer_of_connection()  # type: ignore[literal-required]  # a key of ours

    def on_headers_complete(self) -> None:
        """Give the rest of the request its time."""
        super().on_headers_complete()
        self._stop_reading()
        self._reading = self.loop.call_later(self.front.read_seconds, self._rest_is_late)

    def on_message_complete(self) -> None:
        """The request is there."""
        self._stop_reading()
        super().on_message_complete()

    def _rest_is_late(self) -> None:
        self._reading = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused or self._held:  # by us, while a request before is answered, or others have their turn
            self._reading = self.loop.call_later(self.front.read_seconds, self._rest_is_late)
        else:
            self._refuse(BadRequest("Request took too long to arrive"))

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _peer_of_connection(self) -> Peer:
        """Return the peer; the certificate is read once."""
        if self._peer is None:
            address = (usual_address(self.client[0]) or self.client[0]) if self.client else ""
            try:
                self._peer = Peer(address, self._asked().presented())
            except ValueError as error:
                self._peer = Peer(address, unreadable=str(error))
        return self._peer

    def _asked(self) -> AskingConnection:
        return cast("AskingConnection", self.transport.get_extra_info("ssl_object"))
