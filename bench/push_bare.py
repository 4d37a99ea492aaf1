"""Comparator of `push`: the HTTP client library in a bare loop, one request in flight.

`python -m bench.push_bare` reads a `Job` on stdin, POSTs its body to the URL repeatedly, and writes requests a second
to stdout. The library is httpcore with its pool of kept connections, on the event loop that the service has.
"""

import ssl
import sys
import time

import httpcore
import msgspec
import uvloop

HEADERS = [(b"Content-Type", b"application/json")]


class Job(msgspec.Struct):
    """Request to send, and the duration."""

    url: str
    ca: str
    body: str
    seconds: float
    warm_up: float = 0.3


async def run(job: Job) -> float:
    """Return requests a second after the warm-up."""
    async with httpcore.AsyncConnectionPool(ssl.create_default_context(cafile=job.ca)) as pool:
        await _post_for(pool, job, job.warm_up)
        began = time.perf_counter()
        return await _post_for(pool, job, job.seconds) / (time.perf_counter() - began)


async def _post_for(pool: httpcore.AsyncConnectionPool, job: Job, seconds: float) -> int:
    until, requests = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        answer = await pool.request("POST", job.url, headers=HEADERS, content=job.body.encode())
        if answer.status != 200:
            sys.exit(f"bench.push_bare: answered {answer.status}")
        requests += 1
    return requests


if __name__ == "__main__":
    done = uvloop.run(run(msgspec.json.decode(sys.stdin.buffer.read(), type=Job)))
    sys.stdout.buffer.write(msgspec.json.encode(done))
