"""A service that is killed and restarted, and a client that retries and records the answers."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.connection import CLOSED, Address, Connection, Response, SerialClient, connect, request
from simulation.histories.attempts import Outcome
from simulation.histories.client import LATE, PROJECT, Client, Kind, Tried, encode_body, to_tried
from tests.support.service import LiveService, live_service

SMALL_SETTINGS = {
    "AMS_MIN_FREE_BYTES": "0", "AMS_RESERVE_BYTES": "0", "AMS_SEGMENT_BYTES": "1MiB", "AMS_PULL_WAIT": "300ms",
    "AMS_LOG_LEVEL": "warning",
}  # fmt: skip
"""Settings for short lives: segments are sealed and indexed often, waiting pulls end soon."""


class Target:
    def __init__(
        self, data: Path, environment: Mapping[str, str] = SMALL_SETTINGS, *, program: str = "ams.cli.main"
    ) -> None:
        self.data = data
        self.up = asyncio.Event()
        self.deaths = 0
        self.starts: list[float] = []
        self.restarts: list[float] = []
        self._environment = dict(environment)
        self._program = program
        self._stack = contextlib.ExitStack()
        self._live: LiveService | None = None

    @property
    def live(self) -> LiveService:
        assert self._live is not None
        return self._live

    def count_log_lines(self, line: str) -> int:
        return (self.data.parent / f"{self.data.name}.stderr").read_text().splitlines().count(line)

    async def start(self) -> None:
        began = time.perf_counter()
        manager = live_service(self.data, environment=self._environment, program=self._program)
        self._live = await asyncio.to_thread(self._stack.enter_context, manager)
        self.starts.append(time.perf_counter() - began)
        if self.deaths:
            self.restarts.append(time.monotonic())
        self.up.set()

    async def kill(self) -> None:
        """SIGKILL it; returns when it is dead."""
        self.up.clear()
        self.deaths += 1
        self.live.process.kill()
        await self.stop()

    async def terminate(self) -> int:
        """SIGTERM it; returns its exit code."""
        self.up.clear()
        self.deaths += 1
        code = await asyncio.to_thread(self.live.stop)
        await self.stop()
        return code

    async def stop(self) -> None:
        self.up.clear()
        await asyncio.to_thread(self._stack.close)


ANSWER_SECONDS = 30.0
END_OF_TIME = float("inf")
RIGHT_REFUSALS = (": 400 wrong ack", ": 400 no ack pending", f": 408 {LATE}")
"""Acknowledgements after a seek, without a delivery, or after the end of a lease."""


@dataclass
class Traffic:
    """Outcomes of requests."""

    refusals: Counter[str] = field(default_factory=Counter)
    without_retry_after: int = 0  # refusals for a reason of the service's own (5xx) that do not say when to try again
    dropped: int = 0
    stopping: bool = False

    def violations(self) -> Iterator[str]:
        """Yield answers that no client may get while the only fault is a kill."""
        if self.dropped:
            yield f"{self.dropped} requests were never answered, and nobody had killed the service"
        if self.without_retry_after:
            yield f"{self.without_retry_after} errors of the 500s did not say when to try again"
        for refusal, times in self.refusals.items():
            if not refusal.endswith(RIGHT_REFUSALS):
                yield f"{times} times refused for no reason: {refusal}"


class HttpClient(Client):
    """One client with one connection to a service that is killed and started again."""

    def __init__(self, name: str, target: Target, traffic: Traffic) -> None:
        super().__init__(name, traffic)
        self._target, self._traffic = target, traffic

    async def attempt(
        self, name: str, path: str, body: object, kind: Kind = Kind.OTHER, *, method: str = "POST", **headers: str
    ) -> Tried:
        connection, deaths = await self._current_connection()
        pieces = request(method, PROJECT + path, self._target.live.token, encode_body(body), **headers)
        started = time.monotonic()
        answer = await ask(connection, pieces, ANSWER_SECONDS)
        ended = time.monotonic()
        if answer.status == CLOSED:
            self.close()
            return to_tried(name, started, self._note_unanswered(deaths, ended), Outcome.UNKNOWN, answer)
        outcome = Outcome.DONE if answer.status == 200 else Outcome.REFUSED
        found = to_tried(name, started, ended, outcome, answer)
        if outcome is Outcome.REFUSED:
            self._note_refused(kind, answer, found.refusal)
        return found

    async def must(self, path: str, body: object, *, method: str = "POST") -> Any:
        found = await self.attempt(self.next_request(), path, body, method=method)
        assert found.is_done, f"{method} {path} was not answered with success: {dict(self._traffic.refusals)}"
        return found.document

    async def _current_connection(self) -> tuple[Connection, int]:
        """Return a connection to the current service, and how often that had died before."""
        while True:
            await self._target.up.wait()
            deaths = self._target.deaths
            connection = await self._connect()
            if connection is not None and self._target.up.is_set() and self._target.deaths == deaths:
                return connection, deaths

    async def _connect(self) -> Connection | None:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = await connect(Address.of(self._target.live.base_url))
            except OSError:
                self._connection = None
                await asyncio.sleep(0.01)
        return self._connection

    def _note_refused(self, kind: Kind, answer: Response, text: str) -> None:
        said = LATE if text.startswith(f"{LATE}: ") else text  # the ids are others each time
        self._traffic.refusals[f"{kind.value}: {answer.status} {said}"] += 1
        self._traffic.without_retry_after += answer.status >= 500 and not answer.retry_after

    def _note_unanswered(self, deaths: int, ended: float) -> float:
        """Note an unanswered request; return the time after which it can no longer take effect."""
        if self._target.deaths > deaths:
            return ended
        self._traffic.dropped += 1
        return END_OF_TIME


async def ask(connection: Connection, pieces: tuple[bytes, ...], seconds: float) -> Response:
    """Send one request; `CLOSED` when there is no answer in time."""
    try:
        async with asyncio.timeout(seconds):
            return await SerialClient(connection).ask(pieces)
    except (TimeoutError, OSError):
        return Response(CLOSED)
