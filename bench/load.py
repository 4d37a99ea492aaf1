"""The load generator: `python -m bench.load` reads a `Job` on stdin, runs it, and writes an `Outcome` to stdout.

It is a process of its own, so that neither its work nor its memory is mixed up with those of the bench or a service.
"""

import gc
import sys

import msgspec
import uvloop

from bench.callers import Unexpected, Work, scripts
from bench.connection import Address
from bench.kernel import processor_seconds
from bench.loops import Loop, OpenLoop, ScriptedConnection
from bench.tally import Outcome, Tally


class Job(msgspec.Struct):
    """A load to generate."""

    url: str
    token: str
    work: Work
    connections: int
    seconds: float
    warm_up: float = 0.3
    """Seconds of load before the measurement begins."""
    rate: float | None = None
    """Requests a second in an open loop; absent = closed loop."""
    pid: int | None = None
    """The server's process, of which is noted what it takes of processors; absent = not noted."""


async def run(job: Job) -> Outcome:
    """Generate a load and return what came of it; raises `Unexpected` when its answers make it worthless."""
    loop = OpenLoop(job.rate) if job.rate else Loop()
    tally = Tally()
    address = Address.of(job.url)
    lanes = [
        ScriptedConnection(address, script, tally, loop) for script in scripts(job.work, job.connections, job.token)
    ]
    try:
        await loop.prepare(lanes)
        loop.begin(lanes)
        await loop.last(job.warm_up)
        used = processor_seconds(job.pid) if job.pid else 0.0
        tally.begin()
        await loop.last(job.seconds)
        outcome = tally.end(loop.unsent())
        outcome.server_seconds = processor_seconds(job.pid) - used if job.pid else 0.0
        return outcome
    finally:
        loop.end()
        for lane in lanes:
            lane.close()


def main() -> None:
    """Run the job on stdin."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    gc.disable()  # a pause of ours would look like one of the service
    try:
        outcome = uvloop.run(run(job))
    except Unexpected as error:
        sys.exit(f"bench.load: {error}")
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
