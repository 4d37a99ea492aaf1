"""New TLS connections: a server that only shakes hands, and callers that open a new connection for every call.

`python -m bench.handshake CHAIN KEY [CA]` serves on a free port of loopback and prints `ready URL`. With a CA, clients
must show a certificate of it. What a client asks is answered with one and the same answer, unread.
"""

import asyncio
import itertools
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple, cast

import uvloop

from bench.connection import LOOPBACK, Address, Pieces
from bench.processes import Failed, Server

CALLERS = 8
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class _Answering(asyncio.Protocol):
    """Answers whatever comes: a request of the bench comes in one piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(_ANSWER)


async def serve(chain: str, key: str, client_ca: str = "") -> None:
    """Accept connections and answer what is asked, without a look at it, until killed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # as the services
    context.load_cert_chain(chain, key)
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0, ssl=context, backlog=4096)
    print(f"ready https://localhost:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def server(folder: Path, *client_ca: str) -> Server:
    """Start the server, with the certificate in a folder: of the data of an AMS, or of our own."""
    command = ["bench.handshake", str(folder / "server.pem"), str(folder / "server.key"), *client_ca]
    return Server(command, folder.with_name("handshake.stderr"))


def calls_per_second(
    url: str, ca: Path, seconds: float, request: Pieces | None = None, certificates: Sequence[tuple[str, str]] = ()
) -> float:
    """Return how many calls a second eight callers make, each with a connection of its own.

    Without a request a call is the handshake alone. With certificates, given by their files, callers show one each.
    """
    return uvloop.run(_calls_per_second(url, ca, seconds, request, certificates))


async def _calls_per_second(
    url: str, ca: Path, seconds: float, request: Pieces | None, certificates: Sequence[tuple[str, str]]
) -> float:
    contexts = [_context(ca, *each) for each in certificates] or [_context(ca)]
    began = time.perf_counter()
    made = await asyncio.gather(
        *(
            _call_until(began + seconds, Address.of(url), contexts[caller % len(contexts)], request)
            for caller in range(CALLERS)
        )
    )
    return sum(made) / (time.perf_counter() - began)


def _context(ca: Path, chain: str = "", key: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    if chain:
        context.load_cert_chain(chain, key)
    return context


async def _call_until(end: float, address: Address, context: ssl.SSLContext, request: Pieces | None) -> int:
    made, loop, open_still = 0, asyncio.get_running_loop(), set[_Call]()
    while time.perf_counter() < end:
        call = _Call(request, open_still, loop.create_future())
        await loop.create_connection(
            partial(_itself, call), LOOPBACK, address.port, ssl=context, server_hostname=address.host
        )
        await call.ended
        made += 1
    while open_still:  # a loop that ends before would complain
        await asyncio.sleep(0.001)
    return made


def _itself(call: "_Call") -> "_Call":
    return call


class _Call(asyncio.Protocol):
    """One call, at as little cost as can be, as callers are the limit: asks, sees how the answer begins, and closes."""

    def __init__(self, request: Pieces | None, open_still: "set[_Call]", ended: "asyncio.Future[None]") -> None:
        self._request = request
        self._open_still = open_still
        self.ended = ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._open_still.add(self)
        if self._request is None:
            self._close()
        else:
            self._transport.writelines(self._request)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 200 "):
            self._close()
        else:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_still.discard(self)
        if not self.ended.done():
            self.ended.set_exception(exc or Failed("a call over a new connection was refused"))

    def _close(self) -> None:
        self._transport.close()
        self.ended.set_result(None)


class Stages(NamedTuple):
    """Medians of a lone caller's time, in microseconds; the rest of its call goes by in the caller itself."""

    connect_us: float
    handshake_us: float
    request_us: float
    close_us: float


def stages(url: str, ca: Path, calls: int, request: Pieces) -> Stages:
    """Call so often, one call after the other, as the official library does, and look at the clock between stages."""
    context, address, whole = _context(ca), Address.of(url), b"".join(request)
    made = [_staged(context, address, whole) for _ in range(calls)]
    return Stages(*(1e6 * median(each) for each in zip(*made, strict=True)))


def _staged(context: ssl.SSLContext, address: Address, request: bytes) -> list[float]:
    times = [time.perf_counter()]
    plain = socket.create_connection((LOOPBACK, address.port))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times.append(time.perf_counter())
    connection = context.wrap_socket(plain, server_hostname=address.host)
    times.append(time.perf_counter())
    connection.sendall(request)
    if not connection.recv(65536).startswith(b"HTTP/1.1 200"):
        raise Failed("a call over a new connection was refused")
    times.append(time.perf_counter())
    connection.close()
    times.append(time.perf_counter())
    return [after - before for before, after in itertools.pairwise(times)]


if __name__ == "__main__":
    uvloop.run(serve(*sys.argv[1:4]))
