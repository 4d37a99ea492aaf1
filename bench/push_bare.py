"""The comparator of deliveries: the HTTP client library in a bare loop, one request in flight.

`python -m bench.push_bare` reads a `Job` on stdin, POSTs its body to the URL repeatedly, and writes a `LoadResult` to
stdout. The library is httpcore with its pool of kept connections, on the event loop that the service has. Deliveries
speak httpcore's HTTP over streams of their own, without its pool, which is faster: that connection is tried likewise.
"""

import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import httpcore
import msgspec
import uvloop

from ams.outgoing.guard import Guard, networks, trust
from ams.push.connecting import Connector, Endpoint
from ams.push.streams import Progress

ALLOWED = "127.0.0.0/8"
CONNECT_SECONDS = 10.0
HEADERS = [(b"Content-Type", b"application/json")]

Post = Callable[[], Awaitable[int]]
"""Sends one request; returns the status of the answer."""


class Job(msgspec.Struct):
    """What to send, and for how long."""

    url: str
    ca: str
    body: str
    seconds: float
    warm_up: float = 0.3


class LoadResult(msgspec.Struct):
    """What came of it, in requests a second."""

    library: float
    """Through the library's pool."""
    connection: float
    """On a connection as deliveries have it."""


async def run(job: Job) -> LoadResult:
    """Send in both ways, each for the whole time."""
    return LoadResult(await _library(job), await _connection(job))


async def _library(job: Job) -> float:
    context = ssl.create_default_context(cafile=job.ca)
    async with httpcore.AsyncConnectionPool(context) as pool:

        async def post() -> int:
            return (await pool.request("POST", job.url, headers=HEADERS, content=job.body.encode())).status

        return await _rate(post, job)


async def _connection(job: Job) -> float:
    parts = urlsplit(job.url)
    connector = Connector(Guard(networks(ALLOWED, "push_allow")), trust(job.ca))
    endpoint = Endpoint(parts.hostname or "", parts.port or 443)
    connection = await connector.connect(endpoint, Progress(), CONNECT_SECONDS)
    target = f"{parts.path}?{parts.query}"

    async def post() -> int:
        reply = await connection.ask("POST", target, HEADERS, job.body.encode(), keep=0, progress=Progress())
        return reply.status

    try:
        return await _rate(post, job)
    finally:
        await connection.abort()


async def _rate(post: Post, job: Job) -> float:
    """Return the requests a second after warming up; none may be refused."""
    await _for(post, job.warm_up)
    began = time.perf_counter()
    return await _for(post, job.seconds) / (time.perf_counter() - began)


async def _for(post: Post, seconds: float) -> int:
    until, requests = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        if (status := await post()) != 200:
            sys.exit(f"bench.push_bare: answered {status}")
        requests += 1
    return requests


if __name__ == "__main__":
    done = uvloop.run(run(msgspec.json.decode(sys.stdin.buffer.read(), type=Job)))
    sys.stdout.buffer.write(msgspec.json.encode(done))
