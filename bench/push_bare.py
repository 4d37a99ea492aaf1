"""The comparator of deliveries: the same HTTP client in a bare loop, one request in flight.

`python -m bench.push_bare` reads a `Job` on stdin, POSTs its body to the URL again and again on one connection of the
kind that deliveries go by, and writes a `Done` to stdout.
"""

import sys
import time
from urllib.parse import urlsplit

import msgspec
import uvloop

from ams.push.connecting import Connection, Connector, Endpoint
from ams.push.failing import Progress
from ams.push.guard import Guard, networks, trust

ALLOWED = "127.0.0.0/8"
CONNECT_SECONDS = 10.0


class Job(msgspec.Struct):
    """What to send, and for how long."""

    url: str
    ca: str
    body: str
    seconds: float
    warm_up: float = 0.3


class Done(msgspec.Struct):
    """What came of it."""

    requests: int
    seconds: float
    cpu: float
    """Share of one core that this process used."""

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


async def run(job: Job) -> Done:
    """Send until the time is over."""
    parts = urlsplit(job.url)
    endpoint = Endpoint(parts.hostname or "", parts.port or 443)
    connector = Connector(Guard(networks(ALLOWED)), trust(job.ca))
    connection = await connector.connect(endpoint, Progress(), CONNECT_SECONDS)
    target = f"{parts.path}?{parts.query}"
    await _send(connection, target, job.body, job.warm_up)
    began, cpu = time.perf_counter(), time.process_time()
    requests = await _send(connection, target, job.body, job.seconds)
    seconds = time.perf_counter() - began
    used = time.process_time() - cpu
    await connection.abort()
    return Done(requests, seconds, used / seconds)


async def _send(connection: Connection, target: str, text: str, seconds: float) -> int:
    """Send for so many seconds; return how many requests were answered 200."""
    until = time.perf_counter() + seconds
    headers = [(b"Content-Type", b"application/json")]
    body, requests = text.encode(), 0
    while time.perf_counter() < until:
        reply = await connection.ask("POST", target, headers, body, keep=0, progress=Progress())
        if reply.status != 200:
            sys.exit(f"bench.push_bare: answered {reply.status}")
        requests += 1
    return requests


if __name__ == "__main__":
    done = uvloop.run(run(msgspec.json.decode(sys.stdin.buffer.read(), type=Job)))
    sys.stdout.buffer.write(msgspec.json.encode(done))
