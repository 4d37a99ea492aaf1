"""Comparator of `tls`: a TLS server that only does handshakes, and callers that connect for every call.

`python -m bench.handshake CHAIN KEY` serves on a free port of loopback and prints `ready URL`. It gives every request
the same answer without parsing it.
"""

import asyncio
import ssl
import sys
import time
from functools import partial
from pathlib import Path
from typing import cast

import uvloop

from bench.connection import LOOPBACK, Address, Pieces
from bench.processes import Failed, Server
from cluster.certificates import Certificate

CALLERS = 8
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class _Answering(asyncio.Protocol):
    """Answers whatever comes: a request of the bench comes in one piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(_ANSWER)


async def serve(chain: str, key: str) -> None:
    """Accept connections and answer what is asked, without a look at it, until killed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # as the services
    context.load_cert_chain(chain, key)
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0, ssl=context, backlog=4096)
    print(f"ready https://localhost:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def server(files: Certificate) -> Server:
    """Start the server with a certificate."""
    command = ["bench.handshake", str(files.certificate), str(files.key)]
    return Server(command, files.key.parent.with_name("handshake.stderr"))


def calls_per_second(url: str, ca: Path, seconds: float, request: Pieces | None = None) -> float:
    """Return how many calls a second `CALLERS` callers make, each call over a new connection.

    Without a request, a call is the handshake alone.
    """
    return uvloop.run(_calls_per_second(url, ca, seconds, request))


async def _calls_per_second(url: str, ca: Path, seconds: float, request: Pieces | None) -> float:
    context, address = ssl.create_default_context(cafile=str(ca)), Address.of(url)
    began = time.perf_counter()
    made = await asyncio.gather(*(_call_until(began + seconds, address, context, request) for _ in range(CALLERS)))
    return sum(made) / (time.perf_counter() - began)


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


if __name__ == "__main__":
    uvloop.run(serve(*sys.argv[1:3]))
