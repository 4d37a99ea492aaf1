"""Kills the service again and again while clients use it, and checks everything they were told.

`python -m tests.faults.campaign --kills N --seed S` (or `make faults N=200`) shows how it gets on, and ends with one
JSON line. The exit code is 1 when a law was broken; the data folder and the history are kept then, and named.

The kills are aimed in turn at publishes of 100 messages and more, at acknowledgements, at acknowledgements and nacks of
leases, at those of Google's clients, and at any moment. What was really hit (a request of that kind that never got its
answer) is counted apart.

Beside ordered subscriptions there are parallel ones of three kinds (`tests.faults.parallel`), and as many of another
topic whose consumers are Google's client for Python. When the kills are over the consumers go on until nothing is left.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc

from local_cluster.ports import free_port
from simulation.histories import parallel_laws as laws
from simulation.histories import parallel_scene as parallel
from simulation.histories import scene
from simulation.histories.attempts import Attempt, Ending
from simulation.histories.client import Kind
from simulation.histories.history import History
from simulation.histories.workload import BULK, Consumer, Publisher, Seeker, workers_of
from tests.faults import recycling
from tests.faults.http_client import SMALL, HttpClient, Target, Traffic
from tests.faults.parallel import google
from tests.faults.parallel.google import moment_at
from tests.faults.reporting import end_campaign, say
from tests.support import shape
from tests.support.waiting import wait_until_async

TOPICS = ("jobs", "results", "alarms")
STEADY = "{}-steady"  # two consumers share it
SOUGHT = "{}-sought"  # one consumer, and one seeker who moves it meanwhile
AIMS = (Kind.BULK, Kind.ACK, Kind.SETTLE, Kind.GOOGLE, Kind.OTHER)
"""What kills are aimed at, in turn; `OTHER` is any moment."""
WORKERS = 2  # of each parallel subscription

CALM_SECONDS = (0.1, 0.5)
AFTER_BEGIN_SECONDS = 0.005  # a kill comes at most this long after the request it is aimed at began
AIM_SECONDS = 10.0  # after that the service is killed at whatever moment it is

TRIES = 5


@dataclass
class Result:
    seed: int
    kills: int
    aimed: Counter[Kind] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    attempts: Sequence[Attempt] = ()
    messages: int = 0
    dead_letters: int = 0
    streamed: int = 0  # messages that clients of Google have acknowledged for sure
    segments_reused: int = 0
    steps_ahead: int = 0
    starts: Sequence[float] = ()
    seconds: float = 0.0

    def hit(self, kind: Kind) -> int:
        return sum(each is kind for _, each in self.traffic.hits)

    def line(self) -> str:
        names = ("kills", "seed", "messages", "dead_letters", "streamed", "segments_reused", "steps_ahead")
        attempts: dict[str, Counter[str]] = defaultdict(Counter)
        for attempt in self.attempts:
            attempts[type(attempt).__name__.lower()][attempt.outcome.value] += 1
        return json.dumps(
            {name: getattr(self, name) for name in names}
            | {
                "aimed_at": {kind.value: self.aimed[kind] for kind in AIMS[:-1]} | {"any moment": self.aimed[AIMS[-1]]},
                "hit": {kind.value: self.hit(kind) for kind in Kind}, "attempts": attempts,
                "refused": self.traffic.refusals, "without_retry_after": self.traffic.without_retry_after,
                "dropped": self.traffic.dropped, "slowest_start_s": round(max(self.starts, default=0.0), 3),
                "violations": len(self.violations), "seconds": round(self.seconds, 1),
            }
        )  # fmt: skip


class Campaign:
    def __init__(self, data: Path, kills: int, seed: int) -> None:
        self._result = Result(seed, kills)
        self._port = free_port()
        environment = {**SMALL, "AMS_PUBSUB_PORT": str(self._port), "AMS_PUBSUB_EMULATOR": "true"}
        self._target = Target(data, environment, program=recycling.__name__)
        subscriptions = {name.format(topic): topic for topic in TOPICS for name in (STEADY, SOUGHT)}
        subscriptions |= {STEADY.format(topic): topic for topic in (parallel.TOPIC, google.TOPIC)}
        self.history = History(subscriptions, restarts=self._target.restarts)
        self._random = random.Random(seed)
        self._admin = self._client("admin")
        self._workers = workers_of(parallel.KINDS, WORKERS, self._client, self.history, self._random)
        now = partial(moment_at, self._target)
        self._streams = google.Streams(google.TOPIC, self.history, now, self._result.traffic, self._random)

    async def run(self) -> Result:
        """Do it all; the service is gone at the end."""
        began, result = time.monotonic(), self._result
        try:
            await self._target.start()
            await scene.prepare(self._admin, self.history.subscriptions)
            await parallel.prepare(self._admin)
            await self._streams.start(self._admin, self._channel)
            await self._kill_while_used()
            say("working until nothing is left")
            await parallel.drain(self._workers)
            await self._streams.work_to_the_end(self._admin)
            say("reading all topics from their beginning")
            ending = await scene.ending(self._admin, self.history.subscriptions)
            left = [await parallel.ending(self._admin, kinds) for kinds in (parallel.KINDS, google.KINDS)]
            result.violations = await scene.miscounted(self._admin, ending)
        finally:
            await self._streams.stop()
            for client in (self._admin, *(each.client for each in self._workers)):
                client.close()
            await self._target.stop()
        result.violations += await asyncio.to_thread(self._violations, ending, left)
        result.violations += result.traffic.violations()
        result.attempts, result.starts = self.history.attempts, self._target.starts
        result.messages = sum(len(each) for each in ending.topics.values())
        result.dead_letters = sum(len(each.letters) for each in left)
        result.streamed = self._streams.worked
        result.segments_reused = self._target.told(recycling.REUSED)
        result.steps_ahead = self._target.told(recycling.AHEAD)
        result.seconds = time.monotonic() - began
        return result

    def _violations(self, ending: Ending, left: Sequence[laws.ParallelEnding]) -> list[str]:
        attempts, found = self.history.attempts, self.history.violations(ending)
        for each in parallel.KINDS:
            found += laws.violations(each, ending.topics[each.topic], attempts, left[0])
        found += self._streams.violations(ending.topics[google.TOPIC], attempts, left[1], in_cluster=False)
        return found

    async def _kill_while_used(self) -> None:
        users = self._users()
        async with asyncio.TaskGroup() as group:
            for user in (*users, *self._workers):
                group.create_task(user.run())
            await self._kill_all()
            with contextlib.suppress(AssertionError):  # few kills leave no time for it
                await wait_until_async(lambda: shape.is_cluster() or self._target.told(recycling.REUSED))
            self._result.traffic.stopping = True
        for user in users:
            user.client.close()

    def _users(self) -> list[Publisher | Consumer | Seeker]:
        bulk, few = (BULK, 3 * BULK), ((1, 20),)
        steady = [(topic, STEADY.format(topic)) for topic in (parallel.TOPIC, google.TOPIC, *TOPICS, *TOPICS)]
        sought = [(topic, SOUGHT.format(topic)) for topic in TOPICS]
        return [
            *(self._publisher(f"p{number}", ((1, 1), (1, 1), (10, 10)), 0.03) for number in range(4)),
            *(self._publisher(f"bulk{number}", (bulk,), 0.2) for number in range(2)),
            *(self._publisher(f"keyed{number}", ((1, 1), (BULK, BULK)), 0.05, keyed=True) for number in range(2)),
            *(self._publisher(f"work{number}", few, 0.1, (parallel.TOPIC,), ordered=True) for number in range(2)),
            self._publisher("google1", few, 0.15, (google.TOPIC,), ordered=True),
            *(
                Consumer(self._client(f"{topic}-c{number}"), self.history, self._fork(), subscription)
                for number, (topic, subscription) in enumerate([*steady, *sought])
            ),
            *(Seeker(self._client(f"{topic}-k"), self.history, self._fork(), name) for topic, name in sought),
        ]

    def _publisher(
        self, name: str, sizes: tuple[tuple[int, int], ...], pause: float, topics: tuple[str, ...] = TOPICS, **how: bool
    ) -> Publisher:
        return Publisher(self._client(name), self.history, self._fork(), topics, sizes, pause, **how)

    def _channel(self) -> grpc.Channel:
        return grpc.insecure_channel(f"127.0.0.1:{self._port}", options=google.SOON)

    def _client(self, name: str) -> HttpClient:
        return HttpClient(name, self._target, self._result.traffic)

    def _fork(self) -> random.Random:
        return random.Random(self._random.random())

    async def _kill_all(self) -> None:
        """Kill at each aim in turn, and at those that were never hit once more."""
        for number in range(self._result.kills):
            await self._kill(AIMS[number % len(AIMS)])
            self._show(number + 1)
        missed = [aim for aim in AIMS[:-1] if self._result.aimed[aim] and not self._result.hit(aim)]
        for aim in missed:
            for _ in range(TRIES):
                if not self._result.hit(aim):
                    self._result.kills += 1
                    await self._kill(aim)

    async def _kill(self, aim: Kind) -> None:
        self._result.aimed[aim] += 1
        await self._take_aim(aim)
        await self._target.kill()
        await self._target.start()

    async def _take_aim(self, aim: Kind) -> None:
        """Return when the service is to die."""
        await asyncio.sleep(self._random.uniform(*CALM_SECONDS))
        if aim is Kind.OTHER:
            return
        traffic = self._result.traffic
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AIM_SECONDS):
                while True:
                    await traffic.next(aim)
                    await asyncio.sleep(self._random.uniform(0, AFTER_BEGIN_SECONDS))
                    if traffic.flying[aim]:  # and not answered meanwhile
                        return

    def _show(self, number: int) -> None:
        kills = self._result.kills
        if number % max(1, kills // 20) == 0 or number == kills:
            hits = ", ".join(f"{self._result.hit(kind)} hit {kind.value}" for kind in AIMS[:-1])
            say(f"kill {number} of {kills}: {hits}; {len(self.history.attempts)} attempts so far")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.campaign", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, metavar="N")
    seed = random.randrange(2**32)
    parser.add_argument("--seed", type=int, default=seed, metavar="S", help="repeats the clients' decisions")
    options = parser.parse_args()
    logging.getLogger("google").setLevel(logging.CRITICAL)  # its clients tell of every kill
    folder = Path(tempfile.mkdtemp(prefix="ams-faults-"))
    say(f"seed {options.seed}, data and history in {folder}")
    campaign = Campaign(folder / "data", options.kills, options.seed)
    try:
        result = asyncio.run(campaign.run())
    finally:
        with (folder / "history.jsonl").open("w") as file:
            campaign.history.write(file)
    print(result.line(), flush=True)
    return end_campaign(folder, result.violations)


if __name__ == "__main__":
    sys.exit(main())
