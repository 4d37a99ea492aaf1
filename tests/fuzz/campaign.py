"""Send a running service a great many invalid requests: `python -m tests.fuzz.campaign --requests 1000000`.

Each bad answer is printed with its request; the last line is the result. The exit code is 0 if all answers were good
and the service's memory stayed flat.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from bench.kernel import anonymous_memory
from tests.fuzz.generating import Generator, Request
from tests.fuzz.judging import AnswerReader, find_fault
from tests.support.service import LiveService, live_service
from tests.support.waiting import PATIENCE_SECONDS

CONNECTIONS = 8
ANSWER_SECONDS = 60
TIDY_EVERY = 4_000  # requests between two tidyings: what the requests made must not grow without end
WARM_UP_SHARE = 0.2  # the share of requests after which memory is compared: caches fill at first
GROWTH_MIB = 48  # memory may wander by this much: the allocator's slack, not a leak of a million requests
NOISE_SHARE = 0.01
SPARED_OPERATIONS = ["DELETE /v1/projects/{project}/topics/{topic}"]
"""Only the tidying deletes these: a subscription without its topic answers 500 to some requests by the contract."""
_MAX_SHOWN_FAULTS = 20


@dataclass
class FuzzResult:
    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)  # MiB of the service, from `WARM_UP_SHARE` on

    @property
    def growth(self) -> float:
        return self.memory[-1] - self.memory[0] if self.memory else 0.0

    @property
    def good(self) -> bool:
        return not self.faults and self.growth < GROWTH_MIB


class FuzzCampaign:
    """Sends requests over a few connections until their number is reached."""

    def __init__(self, service: LiveService, requests: int, seed: int) -> None:
        self._service = service
        self._wanted = requests
        api = httpx.get(service.base_url + "/openapi.json", trust_env=False, timeout=PATIENCE_SECONDS).json()
        self._generator = Generator(api, [service.token], seed, SPARED_OPERATIONS)
        self.result = FuzzResult()
        self._next_tidying = 0

    async def run(self) -> FuzzResult:
        async with asyncio.TaskGroup() as group:
            for number in range(CONNECTIONS):
                group.create_task(self._ask_on(number))
        return self.result

    async def _ask_on(self, number: int) -> None:
        while self.result.requests < self._wanted:
            if number == 0 and self.result.requests >= self._next_tidying:
                await self._tidy()
            async with connect_to_service(self._service) as (reader, writer):
                await self._converse(reader, writer)
            if number == 1:
                await self._make_noise()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send requests on one connection until it ends; a few hundred at most."""
        answers = AnswerReader()
        for _ in range(300):
            request = self._generator.request()
            writer.write(request.to_bytes())
            self.result.requests += 1
            while not answers.answers:
                data = await asyncio.wait_for(reader.read(2**16), ANSWER_SECONDS)
                if not data:
                    self._blame("no answer", request)
                    return
                answers.feed(data)
            answer = answers.answers.pop()
            self.result.statuses[answer.status] += 1
            if wrong := find_fault(request.line, answer):
                self._blame(f"{wrong}: {answer.status} {answer.body[:200]!r}", request)
            if answer.headers.get(b"connection", b"") == b"close":
                return

    async def _make_noise(self) -> None:
        """Send bytes that are not HTTP: an answer, if any, is not 5xx, and the service survives."""
        for _ in range(max(1, round(300 * CONNECTIONS * NOISE_SHARE))):
            noise = self._generator.noise()
            async with connect_to_service(self._service) as (reader, writer):
                writer.write(noise)
                writer.write_eof()
                data = await asyncio.wait_for(reader.read(2**16), ANSWER_SECONDS)
                self.result.requests += 1
                if data[9:10] == b"5":
                    self.result.faults.append(f"5xx to noise {noise!r}: {data[:200]!r}")

    async def _tidy(self) -> None:
        """Reset to one project with one of each resource, and note the memory."""
        self._next_tidying = self.result.requests + TIDY_EVERY
        await asyncio.to_thread(prepare_service, self._service)
        if self.result.requests >= self._wanted * WARM_UP_SHARE:
            self.result.memory.append(anonymous_memory(self._service.process.pid) / 2**20)
        print(f"{self.result.requests} requests, {len(self.result.faults)} faults", flush=True)

    def _blame(self, what: str, request: Request) -> None:
        self.result.faults.append(what)
        if len(self.result.faults) <= _MAX_SHOWN_FAULTS:
            print(f"FAULT {what}\n  {request.method!r} {request.line!r}\n  {request.headers}\n  {request.body[:500]!r}")


@contextlib.asynccontextmanager
async def connect_to_service(service: LiveService) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    address = urlsplit(service.base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def prepare_service(service: LiveService) -> None:
    """Ensure project P with topic T, subscription S, schema J and user u, and delete all else made since the start."""
    with service.http() as client:
        for registration in client.get("/registrations").json().get("user_registrations", []):
            client.delete(f"/registrations/{registration['uuid']}")
        for project in client.get("/projects").json()["projects"]:
            client.delete(f"/projects/{project['name']}")
        for user in client.get("/users").json()["users"]:
            if user["name"] not in ("admin", "push_worker_0"):
                client.delete(f"/users/{user['name']}")
        # Other connections run meanwhile, so each of these may exist already.
        client.post("/projects/P", json={})
        client.put("/projects/P/topics/T")
        client.put("/projects/P/subscriptions/S", json={"topic": "projects/P/topics/T"})
        client.post("/projects/P/schemas/J", json={"type": "json", "schema": {"type": "object"}})
        client.post("/users/u", json={"projects": [{"project": "P", "roles": ["publisher", "consumer"]}]})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--min-free-bytes", "0", "--reserve-bytes", "0", "--pull-wait", "0", "--max-data-bytes", "1500MiB"]
        with live_service(Path(folder) / "ams-data", *flags, "--segment-bytes", "64MiB") as service:
            result = asyncio.run(FuzzCampaign(service, chosen.requests, chosen.seed).run())
            ended = service.stop()
    seconds = time.monotonic() - started
    print(json.dumps({str(code): count for code, count in sorted(result.statuses.items())}))
    print(
        f"fuzz: requests {result.requests} faults {len(result.faults)} growth {result.growth:.1f} MiB"
        f" exit {ended} seconds {seconds:.0f}"
    )
    return 0 if result.good and ended == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
