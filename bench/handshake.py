"""New TLS connections: a server that only shakes hands, and callers that open a new connection for every call.

`python -m bench.handshake CHAIN KEY [CA]` serves on a free port of loopback and prints `ready URL`. With a CA, clients
must show a certificate of it.
"""

import asyncio
import ssl
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench.connection import Address, Pieces, SerialClient, connect
from bench.processes import Failed, Server

CALLERS = 8


async def serve(chain: str, key: str, client_ca: str = "") -> None:
    """Accept connections and do nothing with them, until killed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(chain, key)
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=context, backlog=4096)
    print(f"ready https://localhost:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def server(data: Path, *client_ca: str) -> Server:
    """Start the server, with the certificate that the AMS of a data folder has."""
    command = ["bench.handshake", str(data / "server.pem"), str(data / "server.key"), *client_ca]
    return Server(command, data.with_name("handshake.stderr"))


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
    made = 0
    while time.perf_counter() < end:
        connection = await connect(address, context)
        if request is not None and (await SerialClient(connection).ask(request)).status != 200:
            raise Failed("a call over a new connection was refused")
        connection.close()
        made += 1
    return made


if __name__ == "__main__":
    uvloop.run(serve(*sys.argv[1:4]))
