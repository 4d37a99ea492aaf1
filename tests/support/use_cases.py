"""Project `P` with topic `t` and subscription `s` on the real engines, for tests of publishing and delivering."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ams.access.admission import Caller
from ams.core.messages import Stored, message
from ams.core.names import SubscriptionName, TopicName
from ams.service.delivery import Deliverer, Gone
from ams.service.publishing import Publisher
from ams.service.subscription_offsets import Seeker
from ams.service.validators import Validators
from ams.storage.log.embedded import LogOptions
from ams.storage.registry.records import Subscription
from ams.validation.long_checks import LongChecks
from ams.workers.pool import Pool
from tests.support.administration import make_project
from tests.support.engines import Engines, open_engines

TOPIC = TopicName("t")
SUB = SubscriptionName("s")


@dataclass(frozen=True)
class UseCases:
    engines: Engines
    caller: Caller
    pool: Pool = field(default_factory=Pool)

    @property
    def validators(self) -> Validators:
        """Validators with an empty cache."""
        return Validators(self.engines.registry, LongChecks(self.pool))

    @property
    def publisher(self) -> Publisher:
        engines = self.engines
        return Publisher(engines.registry, engines.log, 1_500_000, self.validators, engines.counts, engines.stored)

    @property
    def seeker(self) -> Seeker:
        return Seeker(self.engines.registry, self.engines.log, self.engines.cursors)

    def deliverer(self, *, max_messages: int = 1_000, wait_seconds: float = 3.0) -> Deliverer:
        engines = self.engines
        return Deliverer(
            engines.registry, engines.log, engines.cursors, max_messages, 2**24, wait_seconds, counts=engines.counts
        )

    async def subscription(self) -> Subscription:
        return await self.deliverer().to_pull(self.caller, SUB)

    async def publish(self, count: int, first: int = 0) -> int:
        """Publish messages with their number in an attribute; return the first id."""
        topic = await self.publisher.topic(self.caller, TOPIC)
        numbered = [message("", {"n": str(number)}) for number in range(first, first + count)]
        return (await self.publisher.publish(topic, numbered)).first

    async def publish_data(self, count: int, size: int) -> None:
        await self.publisher.publish(await self.publisher.topic(self.caller, TOPIC), [message("A" * size)] * count)

    async def acknowledge(self, numbers: Sequence[int]) -> None:
        deliverer = self.deliverer()
        await deliverer.acknowledge(await deliverer.to_acknowledge(self.caller, SUB), numbers)


async def pulled_later(
    deliverer: Deliverer, subscription: Subscription, count: int, seconds: float, left: Gone | None = None
) -> Sequence[Stored]:
    """Pull as a request does that waits for its first message."""
    until = asyncio.get_running_loop().time() + seconds
    found = await deliverer.pull(subscription, count, wait=True)
    while not found and await deliverer.wait(subscription, until, left):
        found = await deliverer.pull(subscription, count, wait=True)
    return found


@contextlib.asynccontextmanager
async def open_use_cases(folder: Path, options: LogOptions | None = None) -> AsyncIterator[UseCases]:
    """Open the engines in a folder and make the project, the topic and the subscription."""
    async with open_engines(folder, options) as engines:
        await make_project(engines.registry)
        caller = await engines.caller()
        await engines.topics.create(caller, TOPIC)
        await engines.subscriptions.create(caller, SUB, "projects/P/topics/t")
        pool = Pool()
        try:
            yield UseCases(engines, caller, pool)
        finally:
            await pool.close()
