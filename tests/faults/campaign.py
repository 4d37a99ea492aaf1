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
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.faults import recycling, scene
from tests.faults.attempts import Ending
from tests.faults.history import History
from tests.faults.http_client import HttpClient, Kind, Traffic
from tests.faults.parallel import google, laws, short_leases
from tests.faults.parallel import scene as parallel
from tests.faults.parallel.attempts import worked
from tests.faults.parallel.laws import Parallel
from tests.faults.parallel.observed import Observer, moment_at
from tests.faults.parallel.workload import workers_of
from tests.faults.result import AIMS, Result
from tests.faults.target import SMALL, Target
from tests.faults.workload import BULK, Consumer, Publisher, Seeker

TOPICS = ("jobs", "results", "alarms")
STEADY = "{}-steady"
"""Two consumers share it."""
SOUGHT = "{}-sought"
"""One consumer, and one seeker who moves it meanwhile."""
WORKERS = 2
"""Of each parallel subscription."""

CALM_SECONDS = (0.1, 0.5)
"""How long clients work between a start and the next aim."""
AFTER_BEGIN_SECONDS = 0.005
"""A kill comes at most this long after the request it is aimed at began."""
AIM_SECONDS = 10.0
"""After that the service is killed at whatever moment it is."""

SHOWN = 50
"""Violations that are told one by one."""

Say = Callable[[str], None]


class Campaign:
    """One service, its clients, and the one who kills it."""

    def __init__(self, data: Path, kills: int, seed: int, say: Say) -> None:
        self._result = Result(seed, kills)
        self._port = google.free_port()
        environment = {**SMALL, "AMS_PUBSUB_PORT": str(self._port), "AMS_PUBSUB_EMULATOR": "true"}
        self._target = Target(data, environment, program=short_leases.__name__)
        subscriptions = {name.format(topic): topic for topic in TOPICS for name in (STEADY, SOUGHT)}
        subscriptions |= {STEADY.format(topic): topic for topic in (parallel.TOPIC, google.TOPIC)}
        self.history = History(subscriptions, restarts=self._target.restarts)
        self._random = random.Random(seed)
        self._say = say
        self._admin = self._client("admin")
        self._workers = workers_of(parallel.KINDS, WORKERS, self._client, self.history, self._random)
        self._subscribers: list[google.Subscriber] = []

    async def run(self) -> Result:
        """Do it all; the service is gone at the end."""
        began = time.monotonic()
        try:
            await self._target.start()
            await scene.prepare(self._admin, self.history.subscriptions)
            await parallel.prepare(self._admin)
            await parallel.prepare(self._admin, google.KINDS)
            self._subscribers = google.subscribers_of(google.KINDS, WORKERS, self._observer, self._random)
            for each in self._subscribers:
                each.start(google.plain(f"127.0.0.1:{self._port}"))
            await self._kill_while_used()
            self._say("working until nothing is left")
            for each in self._subscribers:
                each.has_whims = False
            await parallel.drain(self._workers)
            await parallel.wait_for_end(self._admin, google.KINDS)
            ended = [sentence for each in self._subscribers for sentence in each.violations()]
            self._say("reading all topics from their beginning")
            ending = await scene.ending(self._admin, self.history.subscriptions)
            endings = {kinds: await parallel.ending(self._admin, kinds) for kinds in (parallel.KINDS, google.KINDS)}
        finally:
            await google.stop(self._subscribers)
            for client in (self._admin, *(each.client for each in self._workers)):
                client.close()
            await self._target.stop()
        result = self._result
        result.violations = [
            *await asyncio.to_thread(self._violations, ending, endings),
            *ended,
            *result.traffic.violations(),
        ]
        result.attempts, result.starts = self.history.attempts, self._target.starts
        result.messages = sum(len(each) for each in ending.topics.values())
        result.letters = sum(len(each.letters) for each in endings.values())
        result.streamed = worked(self.history.attempts, *(each.name for each in google.KINDS))
        result.reused, result.ahead = self._target.told(recycling.REUSED), self._target.told(recycling.AHEAD)
        result.seconds = time.monotonic() - began
        return result

    def _violations(self, ending: Ending, endings: Mapping[tuple[Parallel, ...], laws.ParallelEnding]) -> list[str]:
        found = self.history.violations(ending)
        for kinds, parallel_ending in endings.items():
            for each in kinds:
                held = ending.topics[each.topic]
                found += laws.violations(each, held, self.history.attempts, parallel_ending)
        return found

    async def _kill_while_used(self) -> None:
        users = self._users()
        async with asyncio.TaskGroup() as group:
            for user in (*users, *self._workers):
                group.create_task(user.run())
            await self._kill_all()
            self._result.traffic.stopping = True
        for user in users:
            user.client.close()

    def _users(self) -> list[Publisher | Consumer | Seeker]:
        publishers = [self._publisher(f"p{number}", ((1, 1), (1, 1), (10, 10)), 0.03) for number in range(4)]
        publishers += [self._publisher(f"bulk{number}", ((BULK, 3 * BULK),), 0.2) for number in range(2)]
        publishers += [
            self._publisher(f"keyed{number}", ((1, 1), (BULK, BULK)), 0.05, keyed=True) for number in range(2)
        ]
        publishers += [self._ordered(f"work{number}", parallel.TOPIC, 0.1) for number in range(2)]
        publishers += [self._ordered("google1", google.TOPIC, 0.15)]
        steady = [self._consumer(f"{topic}-c1", STEADY.format(topic)) for topic in (parallel.TOPIC, google.TOPIC)]
        return [*publishers, *steady, *(user for topic in TOPICS for user in self._users_of(topic))]

    def _users_of(self, topic: str) -> list[Consumer | Seeker]:
        return [
            self._consumer(f"{topic}-c1", STEADY.format(topic)),
            self._consumer(f"{topic}-c2", STEADY.format(topic)),
            self._consumer(f"{topic}-c3", SOUGHT.format(topic)),
            Seeker(self._client(f"{topic}-k"), self.history, self._fork(), SOUGHT.format(topic)),
        ]

    def _consumer(self, name: str, subscription: str) -> Consumer:
        return Consumer(self._client(name), self.history, self._fork(), subscription)

    def _publisher(
        self, name: str, sizes: tuple[tuple[int, int], ...], pause: float, *, keyed: bool = False
    ) -> Publisher:
        return Publisher(self._client(name), self.history, self._fork(), TOPICS, sizes, pause, keyed)

    def _ordered(self, name: str, topic: str, pause: float) -> Publisher:
        client, chance = self._client(name), self._fork()
        return Publisher(client, self.history, chance, (topic,), ((1, 20),), pause, ordered=True)

    def _observer(self, name: str, kind: Parallel) -> Observer:
        return Observer(name, kind, self.history, partial(moment_at, self._target), self._result.traffic)

    def _client(self, name: str) -> HttpClient:
        return HttpClient(name, self._target, self._result.traffic)

    def _fork(self) -> random.Random:
        return random.Random(self._random.random())

    async def _kill_all(self) -> None:
        for number in range(self._result.kills):
            aim = AIMS[number % len(AIMS)]
            self._result.aimed[aim] += 1
            await self._take_aim(aim)
            await self._target.kill()
            await self._target.start()
            self._show(number + 1)

    async def _take_aim(self, aim: Kind) -> None:
        """Return when the service is to die."""
        await asyncio.sleep(self._random.uniform(*CALM_SECONDS))
        if aim is Kind.OTHER:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AIM_SECONDS):
                await self._hit(aim, self._result.traffic)

    async def _hit(self, aim: Kind, traffic: Traffic) -> None:
        while True:
            await traffic.next(aim)
            await asyncio.sleep(self._random.uniform(0, AFTER_BEGIN_SECONDS))
            if traffic.flying[aim]:  # and not answered meanwhile
                return

    def _show(self, number: int) -> None:
        kills = self._result.kills
        if number % max(1, kills // 20) == 0 or number == kills:
            hits = ", ".join(f"{self._result.hit(kind)} hit {kind.value}" for kind in AIMS[:-1])
            self._say(f"kill {number} of {kills}: {hits}; {len(self.history.attempts)} attempts so far")


def main() -> int:
    """Run a campaign from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.campaign", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="repeats the clients' decisions")
    options = parser.parse_args()
    logging.getLogger("google").setLevel(logging.CRITICAL)  # its clients tell of every kill
    seed = random.randrange(2**32) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="ams-faults-"))
    _say(f"seed {seed}, data in {folder}")
    campaign = Campaign(folder / "data", options.kills, seed, _say)
    try:
        result = asyncio.run(campaign.run())
    except BaseException:
        _keep(folder, campaign.history)
        raise
    print(result.line(), flush=True)
    if not result.violations:
        shutil.rmtree(folder)
        return 0
    for violation in result.violations[:SHOWN]:
        _say(violation)
    _say(f"{len(result.violations)} violations")
    _keep(folder, campaign.history)
    return 1


def _keep(folder: Path, history: History) -> None:
    with (folder / "history.jsonl").open("w") as file:
        history.write(file)
    _say(f"kept: {folder}/data, {folder}/history.jsonl")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
