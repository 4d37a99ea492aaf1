"""A parallel subscription over the real log and the real cursors, and its consumers."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ams.cluster.ownership import Ownership
from ams.core.ack_ids import AckId
from ams.core.errors import OwnedElsewhere
from ams.core.messages import attributes_of, message
from ams.core.names import Offset, SubscriptionId, TopicName
from ams.core.parallel_options import DeadLetterPolicy, ParallelOptions, RetryPolicy
from ams.core.retention_clock import RetentionClock
from ams.core.supervisor import Supervisor
from ams.service.dead_letters import DeadLetters
from ams.service.delivery import Deliverer
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.parallel.open_subscriptions import OpenSubscription
from ams.storage.registry.records import Subscription, Topic
from tests.support.administration import make_project
from tests.support.engines import Engines

P = "P"
TOPIC, LETTERS, SUB = "t", "letters", "s"
LEASE_PASSED_MS = 10_200  # milliseconds: the default deadline plus a little more than the interval of the lease sweeper
RETRY_POLICY = RetryPolicy(2000, 8000)
DEAD_LETTER_POLICY = DeadLetterPolicy("letters", 5)


class NodeOwnership(Ownership):
    """A node's view of its ownership, which may be wrong; a claimer gets the owner's name."""

    has_others = True

    def __init__(self, owned: Any, number: int) -> None:
        self.owned, self.number, self.believes = owned, number, False
        self.released: list[str] = []
        self.closed = False
        self.lost: Callable[[], None] = lambda: None

    def holds(self, subscription: SubscriptionId) -> bool:
        return self.believes

    async def claim(self, subscription: SubscriptionId, *, seizes: bool = False) -> None:
        if seizes:
            self.owned.owner = self.number
        self.believes = self.owned.owner == self.number
        if not self.believes:
            raise OwnedElsewhere(subscription=subscription, node=str(self.owned.owner), url="http://other")

    async def look(self, subscription: SubscriptionId) -> None:
        await self.claim(subscription)

    def release(self, subscription: SubscriptionId) -> None:
        self.released.append(subscription)
        self.believes = False

    async def start(self, supervisor: Supervisor, lost: Callable[[], None]) -> None:
        self.lost = lost

    async def leave(self) -> None:
        self.released.append("all")

    async def close(self) -> None:
        self.closed = True


class ParallelSite:
    """One parallel subscription, and its consumers."""

    def __init__(self, engines: Engines, options: ParallelOptions) -> None:
        self.engines, self.options = engines, options
        self.begin_again()

    def begin_again(self, ownership: Ownership | None = None) -> None:
        """Drop all memory-only state, as a kill does."""
        engines = self.engines
        letters = DeadLetters(engines.registry, engines.log, engines.cursors, engines.counts, engines.stored)
        self.deliverer = Deliverer(
            engines.registry, engines.log, engines.cursors, 1000, 2**24, 3.0, counts=engines.counts
        )
        self.working = ParallelSubscriptions(
            self.deliverer, letters, engines.clock, ownership or Ownership(),
            RetentionClock(engines.clock),
        )  # fmt: skip

    async def prepare(self) -> "ParallelSite":
        await make_project(self.engines.registry)
        self.caller = await self.engines.caller()
        for name in (TOPIC, LETTERS):
            await self.engines.topics.create(self.caller, name)
        await self.engines.subscriptions.create(self.caller, SUB, "projects/P/topics/t", options=self.options)
        return self

    async def subscription(self) -> Subscription:
        return await self.deliverer.to_acknowledge(self.caller, SUB)

    async def open_subscription(self) -> OpenSubscription:
        return self.working.opened.get((await self.subscription()).id)

    async def topic(self, name: TopicName = TOPIC) -> Topic:
        return await self.engines.registry.topics.find(self.caller.here.id, name)

    async def publish(self, *numbers: int, key: Callable[[int], str] = lambda _: "", topic: TopicName = TOPIC) -> None:
        """Publish messages, each with its number as an attribute."""
        await self.engines.log.append(
            (await self.topic(topic)).id,
            [message("QQ==", {"n": str(each)}, ordering_key=key(each)) for each in numbers],
        )

    async def pull(self, most: int = 100, holder: str = "one", **more: Any) -> list[AckId]:
        lots = await self.working.puller.pull(await self.subscription(), most, holder=holder, **more)
        return [AckId(each.offset, lot.hand_out) for lot in lots for each in lot.messages]

    async def publish_and_pull(self, *numbers: int) -> list[AckId]:
        """Publish messages, and pull all."""
        await self.publish(*numbers)
        return await self.pull()

    async def offsets(self, most: int = 100, holder: str = "one", **more: Any) -> list[int]:
        """Pull; return the offsets of the messages."""
        return offsets(await self.pull(most, holder, **more))

    async def acknowledge(self, ids: Sequence[AckId]) -> None:
        await self.working.settler.acknowledge(await self.subscription(), group_ids(ids))

    async def nack(self, ids: Sequence[AckId], wait: int | None = None) -> None:
        await self.working.settler.nack(await self.subscription(), group_ids(ids), wait)

    async def extend(self, ids: Sequence[AckId], seconds: int) -> None:
        await self.working.settler.extend(await self.subscription(), group_ids(ids), seconds, holder="one")

    async def fail(self, times: int) -> None:
        """Pull a message and nack it, so many times."""
        for _ in range(times):
            await self.nack(await self.pull(1))

    async def look(self) -> None:
        await self.working.sweeper.sweep_once(_raise)

    async def floor(self) -> int:
        subscription = await self.subscription()
        return (await self.engines.cursors.position(subscription.id, (await self.topic()).id)).offset

    async def letters(self) -> list[dict[str, str]]:
        """Return the attributes of the dead letters."""
        stored = await self.engines.log.read((await self.topic(LETTERS)).id, 0, max_messages=100, max_bytes=2**20)
        return [dict(attributes_of(each.fragment)) for each in stored]


def before_the_next_lease(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]) -> None:
    """Run something between the read of the next pull and its lease, while its answer waits for its turn."""
    turn = Deliverer.turn

    async def acting(deliverer: Deliverer, size: int, project: str | None) -> None:
        monkeypatch.setattr(Deliverer, "turn", turn)
        await act()
        await turn(deliverer, size, project)

    monkeypatch.setattr(Deliverer, "turn", acting)


def _raise(_: str) -> None:
    raise  # the exception at hand


def group_ids(ids: Sequence[AckId]) -> dict[str, list[Offset]]:
    """Group ids by their hand-outs, as requests do."""
    found: dict[str, list[Offset]] = {}
    for each in ids:
        found.setdefault(each.hand_out, []).append(each.offset)
    return found


def offsets(ids: Sequence[AckId]) -> list[int]:
    return [each.offset for each in ids]


def with_options(**options: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("site", [ParallelOptions(**options)], indirect=True, ids=[""])
