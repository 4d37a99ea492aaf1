"""Clients of the real use cases and engines in this process: faults can be planted in what they stand on.

The use cases get the engines they are given, so a test may put something faulty between; every call is noted in the
history as a client over HTTP would note it.
"""

import time
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TypeVar

from ams.access.admission import Caller
from ams.core.errors import AmsError, OutcomeUnknown
from ams.core.messages import Stored, message, parse
from ams.core.names import Offset, SubscriptionName, TopicId, TopicName
from ams.service.delivering import Deliverer
from ams.service.publishing import Publisher
from ams.service.seeking import Seeker
from ams.service.validators import Validators
from ams.storage.cursors.base import Cursors
from ams.storage.files import Disk
from ams.storage.log.base import Log
from ams.storage.registry.registry import Registry
from ams.validation.long_checks import LongChecks
from ams.workers import Pool
from tests.faults import payload
from tests.faults.attempts import Ack, Ending, Facts, Held, Outcome, Publish, Pull, Seek
from tests.faults.history import History
from tests.support.administration import make_project
from tests.support.engines import Engines, open_engines
from tests.support.unreliable_disk import UnreliableDisk

TOPIC, SUBSCRIPTION = TopicName("t"), SubscriptionName("s")
_ALL = 2**30
_T = TypeVar("_T")
_D = TypeVar("_D", bound=UnreliableDisk)


def disk_with(folder: Path, disk: _D) -> _D:
    """Put an existing folder, safely stored, on a disk in memory."""
    disk.make_folder(str(folder))
    for parent in folder.parents:
        disk.sync_folder(str(parent))
    return disk


class Cut(Exception):
    """The service is gone: whoever waits gets no answer."""


async def prepare(folder: Path, files: Disk | None = None) -> None:
    """Make the project, its topic and its subscription in a new folder."""
    async with open_engines(folder, files=files) as engines:
        await make_project(engines.registry)
        caller = await engines.caller()
        await engines.topics.create(caller, TOPIC)
        await engines.subscriptions.create(caller, SUBSCRIPTION, f"projects/P/topics/{TOPIC}")


@dataclass(frozen=True)
class Clients:
    """Who uses the service; `log` and `cursors` may be faulty."""

    registry: Registry
    caller: Caller
    log: Log
    cursors: Cursors
    history: History = field(default_factory=lambda: History({SUBSCRIPTION: TOPIC}))
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    @classmethod
    async def of(cls, engines: Engines) -> "Clients":
        """Return clients of the engines as they are."""
        return cls(engines.registry, await engines.caller(), engines.log, engines.cursors)

    async def again(self, engines: Engines) -> "Clients":
        """Return the same clients, with the same history, of a service started again."""
        self.history.restarts.append(time.monotonic())
        return replace(await Clients.of(engines), history=self.history, numbers=self.numbers)

    async def publish(self, size: int) -> Publish:
        """Publish one request."""
        request = self._request()
        names = tuple(f"{request}/{place}" for place in range(size))
        bodies = (payload.message(name) for name in names)
        publisher = self.publisher
        topic = await publisher.topic(self.caller, TOPIC)
        publishing = publisher.publish(topic, [message(each["data"], each["attributes"]) for each in bodies])
        facts, appended = await _tried(request, publishing)
        ids = tuple(range(appended.first, appended.first + appended.count)) if appended else ()
        attempt = Publish(**facts, topic=TOPIC, names=names, ids=ids)
        self.history.add(attempt)
        return attempt

    async def pull(self, size: int = 1_000) -> Pull:
        """Pull once, without waiting."""
        deliverer = self._deliverer()
        subscription = await deliverer.to_pull(self.caller, SUBSCRIPTION)
        facts, stored = await _tried(self._request(), deliverer.pull(subscription, size, wait=False))
        messages = tuple(_held(each.offset, each.fragment) for each in stored or ())
        attempt = Pull(**facts, subscription=SUBSCRIPTION, messages=messages)
        self.history.add(attempt)
        return attempt

    async def acknowledge(self, last: int) -> Ack:
        """Acknowledge up to an id."""
        facts, _ = await _tried(self._request(), self._acknowledge(last))
        attempt = Ack(**facts, subscription=SUBSCRIPTION, last=last)
        self.history.add(attempt)
        return attempt

    async def _acknowledge(self, last: int) -> None:
        deliverer = self._deliverer()
        subscription = await deliverer.to_acknowledge(self.caller, SUBSCRIPTION)
        await deliverer.acknowledge(subscription, (last,))

    async def seek(self, offset: int) -> Seek:
        """Move the subscription."""
        seeker = Seeker(self.registry, self.log, self.cursors)
        facts, _ = await _tried(self._request(), seeker.seek(self.caller, SUBSCRIPTION, offset))
        attempt = Seek(**facts, subscription=SUBSCRIPTION, offset=offset)
        self.history.add(attempt)
        return attempt

    async def violations(self, engines: Engines) -> list[str]:
        """Check the history against what the engines, without any fault between, hold now."""
        topic = await topic_of(self)
        stored: list[Stored] = []
        while more := await engines.log.read(topic, Offset(len(stored)), max_messages=_ALL, max_bytes=_ALL):
            stored += more
        offsets = await Seeker(engines.registry, engines.log, engines.cursors).offsets(self.caller, SUBSCRIPTION)
        held = [_held(each.offset, each.fragment) for each in stored]
        return self.history.violations(Ending({TOPIC: held}, {SUBSCRIPTION: offsets.current}))

    @property
    def publisher(self) -> Publisher:
        """The use case of publishing, on these engines."""
        return Publisher(self.registry, self.log, 1_500_000, Validators(self.registry, LongChecks(Pool())))

    def _deliverer(self) -> Deliverer:
        return Deliverer(self.registry, self.log, self.cursors, _ALL, _ALL, 0.0)

    def _request(self) -> str:
        return f"r{next(self.numbers)}"


async def topic_of(clients: Clients) -> TopicId:
    """Return the identity of the topic."""
    return (await clients.publisher.topic(clients.caller, TOPIC)).id


async def _tried(request: str, call: Awaitable[_T]) -> tuple[Facts, _T | None]:
    started = time.monotonic()
    answer: _T | None = None
    try:
        answer, outcome = await call, Outcome.DONE
    except (Cut, OutcomeUnknown):
        outcome = Outcome.UNKNOWN
    except AmsError:
        outcome = Outcome.REFUSED
    return Facts(request=request, started=started, ended=time.monotonic(), outcome=outcome), answer


def _held(offset: int, fragment: bytes) -> Held:
    read = parse(fragment)
    return Held(offset, payload.name_of(read.attributes, read.data))
