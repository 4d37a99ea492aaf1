"""Google's clients for Python on parallel subscriptions of a cluster, by streams to any node."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import grpc

from tests.faults.attempts import Attempt, Held
from tests.faults.cluster.course import Course
from tests.faults.history import History
from tests.faults.http_client import Client, Traffic
from tests.faults.parallel import google, laws
from tests.faults.parallel import scene as parallel
from tests.faults.parallel.attempts import worked
from tests.faults.parallel.laws import Parallel, ParallelEnding, TakeOvers
from tests.faults.parallel.observed import ON_ITS_WAY, Moment, Observer, as_told

EACH = 2
"""Clients of a subscription."""
FLOWS_SECONDS = 5.0
"""After it was released, all that was held up has come to the clients."""


class Streams:
    """A plain subscription, an exactly-once one and a keyed one of a topic, and their clients."""

    def __init__(self, topic: str, history: History, course: Course, chance: random.Random) -> None:
        self.kinds: Sequence[Parallel] = google.kinds_of(topic)
        self._history, self._course, self._chance = history, course, chance
        self._traffic = Traffic()
        self._clients: list[google.Subscriber] = []
        self._ended: list[str] = []

    async def start(self, admin: Client, channel: Callable[[], grpc.Channel]) -> None:
        """Make the subscriptions, and begin to consume, each client by a channel of its own."""
        await parallel.prepare(admin, self.kinds)
        self._clients = google.subscribers_of(self.kinds, EACH, self._observer, self._chance)
        for each in self._clients:
            each.start(channel())

    async def work_to_the_end(self, admin: Client) -> None:
        """Return when nothing is left, or after a while."""
        for each in self._clients:
            each.has_whims = False
        await parallel.wait_for_end(admin, self.kinds)
        self._ended = [sentence for each in self._clients for sentence in each.violations()]

    async def stop(self) -> None:
        """End all clients."""
        await google.stop(self._clients)

    def violations(self, held: Sequence[Held], attempts: Sequence[Attempt], left: ParallelEnding) -> Iterator[str]:
        """Yield the broken laws; `held` is the topic."""
        told = as_told(self.kinds, attempts)
        for each in laws.with_more_attempts(self.kinds):
            yield from laws.violations(each, held, told, left)
        yield from self._ended
        yield from self._traffic.violations()

    @property
    def worked(self) -> int:
        """How many messages were acknowledged for sure."""
        return worked(as_told(self.kinds, self._history.attempts), *(each.name for each in self.kinds))

    @property
    def taken_over(self) -> int:
        """How often another node took one of the subscriptions over."""
        return sum(len(TakeOvers(each, self._history.attempts)) for each in self.kinds)

    def _observer(self, name: str, kind: Parallel) -> Observer:
        return Observer(name, kind, self._history, partial(moment_in, self._course), self._traffic)


def moment_in(course: Course) -> Moment:
    """Return this moment; from when the fault came, calls may fail, until another node owns the subscription."""
    now = time.monotonic()
    is_hurt = bool(course.began)
    is_late = is_hurt and now < course.released + FLOWS_SECONDS
    return Moment(now, int(is_hurt), not is_hurt, (course.began if is_late else now) - ON_ITS_WAY)
