"""Kills the service again and again while clients use it, and checks every answer.

`python -m tests.faults.campaign --kills N --seed S` (or `make faults N=200`) shows progress, and ends with one JSON
line. The exit code is 1 when a law was broken; then it keeps data folder and history, and prints their paths.

The kills come at random moments: the simulated worlds choose theirs (`simulation.scenario`). Beside ordered
subscriptions there are parallel ones of three kinds. After the last kill their consumers drain the backlog.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulation.histories import parallel_laws as laws
from simulation.histories import parallel_scene as parallel
from simulation.histories import scene
from simulation.histories.attempts import Attempt, Ending
from simulation.histories.history import History
from simulation.histories.workload import BULK_SIZE, Consumer, Publisher, Seeker, workers_of
from tests.faults import recycling
from tests.faults.http_client import SMALL_SETTINGS, HttpClient, Target, Traffic
from tests.faults.reporting import end_campaign, say
from tests.support import shape
from tests.support.waiting import wait_until_async

TOPICS = ("jobs", "results", "alarms")
STEADY_NAME = "{}-steady"  # two consumers share it
SOUGHT_NAME = "{}-sought"  # one consumer, and one seeker who moves it meanwhile
WORKERS = 2  # of each parallel subscription

CALM_SECONDS = (0.1, 0.5)


@dataclass
class KillResult:
    seed: int
    kills: int
    violations: list[str] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    attempts: Sequence[Attempt] = ()
    messages: int = 0
    dead_letters: int = 0
    segments_reused: int = 0
    steps_ahead: int = 0
    starts: Sequence[float] = ()
    seconds: float = 0.0

    def line(self) -> str:
        names = ("kills", "seed", "messages", "dead_letters", "segments_reused", "steps_ahead")
        attempts: dict[str, Counter[str]] = defaultdict(Counter)
        for attempt in self.attempts:
            attempts[type(attempt).__name__.lower()][attempt.outcome.value] += 1
        return json.dumps(
            {name: getattr(self, name) for name in names}
            | {
                "attempts": attempts, "refused": self.traffic.refusals,
                "without_retry_after": self.traffic.without_retry_after, "dropped": self.traffic.dropped,
                "slowest_start_s": round(max(self.starts, default=0.0), 3),
                "violations": len(self.violations), "seconds": round(self.seconds, 1),
            }
        )  # fmt: skip


class KillCampaign:
    def __init__(self, data: Path, kills: int, seed: int) -> None:
        self._result = KillResult(seed, kills)
        self._target = Target(data, SMALL_SETTINGS, program=recycling.__name__)
        subscriptions = {name.format(topic): topic for topic in TOPICS for name in (STEADY_NAME, SOUGHT_NAME)}
        subscriptions[STEADY_NAME.format(parallel.TOPIC)] = parallel.TOPIC
        self.history = History(subscriptions, restarts=self._target.restarts)
        self._random = random.Random(seed)
        self._admin = self._client("admin")
        self._workers = workers_of(parallel.KINDS, WORKERS, self._client, self.history, self._random)

    async def run(self) -> KillResult:
        """Run the whole campaign; the service is stopped at the end."""
        began, result = time.monotonic(), self._result
        try:
            await self._target.start()
            await scene.prepare(self._admin, self.history.subscriptions)
            await parallel.prepare(self._admin)
            await self._kill_while_used()
            say("working until nothing is left")
            await parallel.drain(self._workers)
            say("reading all topics from their beginning")
            ending = await scene.ending(self._admin, self.history.subscriptions)
            left = await parallel.ending(self._admin)
            result.violations = await scene.count_violations(self._admin, ending)
        finally:
            for client in (self._admin, *(each.client for each in self._workers)):
                client.close()
            await self._target.stop()
        result.violations += await asyncio.to_thread(self._violations, ending, left)
        result.violations += result.traffic.violations()
        result.attempts, result.starts = self.history.attempts, self._target.starts
        result.messages = sum(len(each) for each in ending.topics.values())
        result.dead_letters = len(left.letters)
        result.segments_reused = self._target.count_log_lines(recycling.REUSED)
        result.steps_ahead = self._target.count_log_lines(recycling.AHEAD)
        result.seconds = time.monotonic() - began
        return result

    def _violations(self, ending: Ending, left: laws.ParallelEnding) -> list[str]:
        attempts, found = self.history.attempts, self.history.violations(ending)
        for each in parallel.KINDS:
            found += laws.violations(each, ending.topics[each.topic], attempts, left)
        return found

    async def _kill_while_used(self) -> None:
        users = self._users()
        async with asyncio.TaskGroup() as group:
            for user in (*users, *self._workers):
                group.create_task(user.run())
            await self._kill_all()
            with contextlib.suppress(AssertionError):  # few kills leave no time for it
                await wait_until_async(lambda: shape.is_cluster() or self._target.count_log_lines(recycling.REUSED))
            self._result.traffic.stopping = True
        for user in users:
            user.client.close()

    def _users(self) -> list[Publisher | Consumer | Seeker]:
        bulk, few = (BULK_SIZE, 3 * BULK_SIZE), ((1, 20),)
        steady = [(topic, STEADY_NAME.format(topic)) for topic in (parallel.TOPIC, *TOPICS, *TOPICS)]
        sought = [(topic, SOUGHT_NAME.format(topic)) for topic in TOPICS]
        return [
            *(self._publisher(f"p{number}", ((1, 1), (1, 1), (10, 10)), 0.03) for number in range(4)),
            *(self._publisher(f"bulk{number}", (bulk,), 0.2) for number in range(2)),
            *(
                self._publisher(f"keyed{number}", ((1, 1), (BULK_SIZE, BULK_SIZE)), 0.05, keyed=True)
                for number in range(2)
            ),
            *(self._publisher(f"work{number}", few, 0.1, (parallel.TOPIC,), ordered=True) for number in range(2)),
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

    def _client(self, name: str) -> HttpClient:
        return HttpClient(name, self._target, self._result.traffic)

    def _fork(self) -> random.Random:
        return random.Random(self._random.random())

    async def _kill_all(self) -> None:
        kills = self._result.kills
        for number in range(1, kills + 1):
            await asyncio.sleep(self._random.uniform(*CALM_SECONDS))
            await self._target.kill()
            await self._target.start()
            if number % max(1, kills // 20) == 0 or number == kills:
                say(f"kill {number} of {kills}: {len(self.history.attempts)} attempts so far")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.campaign", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, metavar="N")
    seed = random.randrange(2**32)
    parser.add_argument("--seed", type=int, default=seed, metavar="S", help="repeats the clients' decisions")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ams-faults-"))
    say(f"seed {options.seed}, data and history in {folder}")
    campaign = KillCampaign(folder / "data", options.kills, options.seed)
    try:
        result = asyncio.run(campaign.run())
    finally:
        with (folder / "history.jsonl").open("w") as file:
            campaign.history.write(file)
    print(result.line(), flush=True)
    return end_campaign(folder, result.violations)


if __name__ == "__main__":
    sys.exit(main())
