"""Users of the cluster during a fault: those of the single-node campaign, and others that read and wait.

They are few and slow: brokers, databases, nodes and clients share one small machine. The measured effect is the
fault's, not the machine's limit.
"""

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Protocol

from simulation.histories import parallel_scene as parallel
from simulation.histories.attempts import Ack, Outcome
from simulation.histories.client import PROJECT
from simulation.histories.history import History
from simulation.histories.workload import Consumer, Publisher, Seeker, Worker, workers_of
from tests.faults.cluster.calls import WORK, CallLog
from tests.faults.cluster.clients import Front, FrontClient

DEADLINE_SECONDS = 1  # of the subscriptions of those who acknowledge too late on purpose
LATE_SECONDS = 1.3  # how long they wait then: after the answer to their pull, so surely longer than the deadline


class User(Protocol):
    async def run(self) -> None: ...


class Names:
    """Names of a run's topics and subscriptions; each run has its own."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.topics = (f"{run}-jobs", f"{run}-results")
        self.work, self.google, self.library = (f"{run}-{what}" for what in ("work", "google", "library"))
        self.late = f"{run}-jobs-late"
        self.sought = f"{run}-results-sought"
        steady = {self.steady(topic): topic for topic in (*self.topics, self.work, self.google)}
        self.subscriptions = {**steady, self.sought: self.topics[1], self.late: self.topics[0]}
        """Subscriptions whose cursor is checked, and their topics."""

    def steady(self, topic: str) -> str:
        return f"{topic}-steady"


def make_users(names: Names, history: History, front: Front, log: CallLog, chance: random.Random) -> list[User]:
    def client(name: str) -> FrontClient:
        return FrontClient(f"{names.run}-{name}", front, log)

    def fork() -> random.Random:
        return random.Random(chance.random())

    def publisher(name: str, size: int, pause: float, *, keyed: bool = False, topics: tuple[str, ...] = ()) -> User:
        return Publisher(client(name), history, fork(), topics or names.topics, ((size, size),), pause, keyed)

    def consumer(name: str, subscription: str) -> User:
        return Consumer(client(name), history, fork(), subscription, pause=0.4)

    first = names.topics[:1]
    return [
        *(publisher(f"p{number}", 1, 0.2) for number in range(4)), publisher("ten", 10, 0.4),
        *(publisher(f"hundred{number}", 100, 2.0, topics=first) for number in range(2)),
        *(publisher(f"thousand{number}", 1000, 5.0, topics=first) for number in range(2)),
        publisher("keyed", 10, 0.5, keyed=True),
        *(consumer(f"c{number}{topic}", names.steady(topic)) for number in (1, 2) for topic in names.topics),
        consumer("c3", names.sought), consumer("c4", names.steady(names.work)),
        consumer("c5", names.steady(names.google)),
        Publisher(client("jobs"), history, fork(), (names.work,), ((1, 20),), 0.5, ordered=True),
        Publisher(client("google"), history, fork(), (names.google,), ((1, 20),), 0.5, ordered=True),
        Seeker(client("k"), history, fork(), names.sought, pause=1.0),
        LateAcknowledger(client("late"), history, log, names.late),
        *(Reader(client(f"r{number}"), names.topics[number]) for number in range(2)),
    ]  # fmt: skip


def make_workers(names: Names, history: History, front: Front, log: CallLog, chance: random.Random) -> list[Worker]:
    kinds = parallel.kinds_of(names.work)
    return workers_of(kinds, 2, lambda name: FrontClient(name, front, log, WORK), history, chance, pause=0.5)


@dataclass(frozen=True)
class Reader:
    client: FrontClient
    topic: str

    async def run(self) -> None:
        paths = (f"/topics/{self.topic}", "/topics", "/subscriptions", "")
        while self.client.goes_on:
            for path in paths:
                await self.client.attempt(self.client.next_request(), path, None, method="GET")
                await asyncio.sleep(0.2)


@dataclass(frozen=True)
class LateAcknowledger:
    """Acknowledges alternately in time and too late, and knows which ones must be refused."""

    client: FrontClient
    history: History
    log: CallLog
    subscription: str

    async def run(self) -> None:
        consumer = Consumer(self.client, self.history, random.Random(0), self.subscription)
        path = f"{PROJECT.removeprefix('/v1/')}/subscriptions/{self.subscription}"
        late, unanswered = False, -1
        while self.client.goes_on:
            began = time.monotonic()
            pulled = await consumer.pull(1)
            if not pulled.messages:
                await asyncio.sleep(0.1)
                continue
            await asyncio.sleep(LATE_SECONDS if late else 0.1)
            ack = await consumer.acknowledge(pulled.messages[0].id)
            if ack.last > unanswered:  # else the acknowledgement without an answer may have been done since
                self._judge(ack, late=late, whole=time.monotonic() - began, path=path)
            if ack.outcome is Outcome.UNKNOWN:
                unanswered = ack.last
            late = not late

    def _judge(self, ack: Ack, *, late: bool, whole: float, path: str) -> None:
        """Note an acknowledgement accepted after its deadline, or refused before it."""
        if late and ack.outcome is Outcome.DONE:
            self.log.wrong.append(f"law 3: an acknowledgement of {path}:{ack.last} was taken after its deadline")
        if not late and ack.outcome is Outcome.REFUSED and whole < DEADLINE_SECONDS:
            self.log.wrong.append(f"law 5: an acknowledgement of {path}:{ack.last} in time ({whole:.2f} s) was refused")
