"""A new TLS connection for every call, as the official library makes them, against bare handshakes.

`python -m bench.tls CHAIN KEY` serves bare handshakes on a free port of
loopback and prints `ready URL`. It gives every request
the same answer without parsing it.
"""

import asyncio
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple, cast

import uvloop

from bench import preparing
from bench.callers import publish_body
from bench.connection import LOOPBACK, Address, Pieces, request
from bench.processes import Failed, Server, Service
from bench.report import Result, at_least
from bench.run import Bench
from local_cluster.certificates import Authority, Certificate

CALLERS = 8
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Calls(NamedTuple):
    """One measurement: calls a second, and the server's processor time for each."""

    per_second: float
    processor_ms: float


def tls(bench: Bench) -> Iterator[Result]:
    """Yield the result; the server's key is an ECDSA key."""
    with bench.data_folder() as folder, bench.data_folder() as data:
        authority = Authority(folder)
        files = authority.sign("localhost")
        with Service(data) as plain:
            [topic] = preparing.topics(plain, preparing.project(plain, "BENCH"), "tls", 1)
        flags = ("--cert", str(files.certificate), "--key", str(files.key))
        with handshake_server(files) as bare, Service(data, *flags) as service:
            publish = request("POST", f"/v1/{topic}:publish", service.token, publish_body(1, 1024, seed=0))
            pairs = bench.in_turn(
                "publish 1 over a new TLS connection each",
                lambda: _measured(service, authority.ca, bench.plan.seconds, publish),
                lambda: _measured(bare, authority.ca, bench.plan.seconds),
            )
    yield Result(
        "tls",
        {"callers": CALLERS},
        {
            "calls_s": median(ours.per_second for ours, _ in pairs),
            "service_ms": median(ours.processor_ms for ours, _ in pairs),
            "handshakes_s": median(theirs.per_second for _, theirs in pairs),
            "handshake_ms": median(theirs.processor_ms for _, theirs in pairs),
        },
        median(ours.per_second / theirs.per_second for ours, theirs in pairs),
        "bare handshakes/s with the same certificate",
        at_least(0.9),
    )


def _measured(server: Server, ca: Path, seconds: float, asked: Pieces | None = None) -> Calls:
    before = server.processor_seconds()
    per_second = calls_per_second(server.url, ca, seconds, asked)
    return Calls(per_second, 1000 * (server.processor_seconds() - before) / (per_second * seconds))


class _Answering(asyncio.Protocol):
    """Answers anything: a request of the bench comes in one piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(_ANSWER)


async def serve(chain: str, key: str) -> None:
    """Accept connections and answer any request unread, until killed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # as the services
    context.load_cert_chain(chain, key)
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0, ssl=context, backlog=4096)
    print(f"ready https://localhost:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def handshake_server(files: Certificate) -> Server:
    """Start the server with a certificate."""
    command = ["bench.tls", str(files.certificate), str(files.key)]
    return Server(command, files.key.parent.with_name("handshake.stderr"))


def calls_per_second(url: str, ca: Path, seconds: float, request: Pieces | None = None) -> float:
    """Return how many calls a second `CALLERS` callers make, each call over a new connection.

    Without a request, a call is the handshake alone.
    """

    async def call() -> float:
        context, address = ssl.create_default_context(cafile=str(ca)), Address.of(url)
        began = time.perf_counter()
        made = await asyncio.gather(*(_call_until(began + seconds, address, context, request) for _ in range(CALLERS)))
        return sum(made) / (time.perf_counter() - began)

    return uvloop.run(call())


async def _call_until(end: float, address: Address, context: ssl.SSLContext, request: Pieces | None) -> int:
    made, loop, open_still = 0, asyncio.get_running_loop(), set[_Call]()
    while time.perf_counter() < end:
        call = _Call(request, open_still, loop.create_future())
        await loop.create_connection(
            lambda call=call: call, LOOPBACK, address.port, ssl=context, server_hostname=address.host
        )
        await call.ended
        made += 1
    while open_still:  # a loop that ends earlier would complain
        await asyncio.sleep(0.001)
    return made


class _Call(asyncio.Protocol):
    """One call, as cheap as possible, as callers are the limit: it sends, reads the start of the answer, and closes."""

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
