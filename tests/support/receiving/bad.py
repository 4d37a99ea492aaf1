"""Endpoints that deliveries must refuse: bad certificates and protocols, and ports that do not serve.

expired other-name unknown-ca     certificates
tls-1.0 tls-1.1                   no newer version
plain                             HTTP without TLS
alert silent reset                a TLS alert at once; nothing after the connect; a connection that is reset
refused swallow                   nobody listens; connections are never accepted
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import cast

from tests.support import authorities
from tests.support.authorities import DAY, NO_CA, NOW, key_usage
from tests.support.certificates import Pair

HERE = ("localhost", "receiver.example", "*.receiver.example", "127.0.0.1", "::1")
ALERT = b"\x15\x03\x01\x00\x02\x02\x46"  # fatal, protocol version
Make = Callable[[], asyncio.BaseProtocol]


class Authority:
    """A CA in a folder. Each has another name, as some tests trust several."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._made = authorities.Authority.make(f"Receivers' {name} {uuid.uuid4()}"[:64], path_length=0)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._made.pem)

    def issue(self, name: str, hosts: tuple[str, ...] = HERE, *, is_expired: bool = False) -> Pair:
        until = NOW + (-DAY if is_expired else 30 * DAY)
        usage = [NO_CA, key_usage("digital_signature")]
        made = self._made.signs(name, not_after=until, extensions=usage, hosts=hosts)
        return Pair.write(made, self._folder, name)


def context(pair: Pair, newest: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """Return a context with a certificate, limited to old TLS versions on request."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(pair.chain, pair.key)
    if newest is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            served.minimum_version = ssl.TLSVersion.TLSv1
            served.maximum_version = newest
        served.set_ciphers("ALL:@SECLEVEL=0")
    return served


class _Says(asyncio.Protocol):
    def __init__(self, said: bytes) -> None:
        self._said = said

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._said)  # uvloop's are no subclasses of it


class _Resets(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.close()


def _accept(listener: socket.socket, tls: ssl.SSLContext) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # it was closed
            return
        with contextlib.suppress(OSError), connection:
            connection.settimeout(5)
            with tls.wrap_socket(connection, server_side=True) as secure:
                secure.recv(65536)
                secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


class BadEndpoints:
    def __init__(self, folder: Path, authority: Authority, make: Make, stack: contextlib.AsyncExitStack) -> None:
        self._folder = folder
        self._authority = authority
        self._make = make
        self._stack = stack

    async def urls(self, good: Pair) -> dict[str, str]:
        issue = self._authority.issue
        unknown = Authority(self._folder, "unknown").issue("unknown-ca")
        return {
            "expired": await self._serve(self._make, context(issue("expired", is_expired=True))),
            "other-name": await self._serve(self._make, context(issue("other-name", ("elsewhere.example",)))),
            "unknown-ca": await self._serve(self._make, context(unknown)),
            "tls-1.0": self._serve_old(context(good, ssl.TLSVersion.TLSv1)),
            "tls-1.1": self._serve_old(context(good, ssl.TLSVersion.TLSv1_1)), "plain": await self._serve(self._make),
            "alert": await self._serve(lambda: _Says(ALERT)), "silent": await self._serve(lambda: _Says(b"")),
            "reset": await self._serve(_Resets), "refused": _url(self._bind_socket()), "swallow": _url(self._full()),
        }  # fmt: skip

    async def _serve(self, make: Make, tls: ssl.SSLContext | None = None) -> str:
        server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0, ssl=tls)
        self._stack.callback(server.close)
        return _url(server.sockets[0])

    def _serve_old(self, tls: ssl.SSLContext) -> str:
        """Serve from a thread: an event loop would not send an alert when it ends the handshake."""
        listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=_accept, args=(listener, tls), daemon=True).start()
        return _url(listener)

    def _bind_socket(self) -> socket.socket:
        bound = self._stack.enter_context(socket.socket())
        bound.bind(("127.0.0.1", 0))
        return bound

    def _full(self) -> socket.socket:
        """Return a listener that accepts nobody, with a full backlog."""
        listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = self._stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        return listener


def _url(listening: socket.socket) -> str:
    return f"https://127.0.0.1:{listening.getsockname()[1]}"
