"""A parallel subscription over the real log and the real cursors, and what consumers do with it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ams.core.ack_ids import AckId, AckIds
from ams.core.clock import Milliseconds
from ams.core.errors import CursorsUnavailable
from ams.core.messages import attributes_of, message
from ams.core.names import Offset, ProjectName, SubscriptionName, TopicName
from ams.core.parallel_options import DeadLetterPolicy, ParallelOptions, RetryPolicy
from ams.service.dead_letters import DeadLetters
from ams.service.delivering import Deliverer
from ams.service.parallel.ownership import Ownership
from ams.service.parallel.pulling import Lot
from ams.service.parallel.working import Working
from ams.storage.registry.records import Subscription
from tests.support.administration import make_project
from tests.support.engines import Engines

P = ProjectName("P")
TOPIC, LETTERS, SUB = TopicName("t"), TopicName("letters"), SubscriptionName("s")
LATE = 10_200
"""Milliseconds: more than the default deadline, by a little more than leases are looked at together."""
WAITS = RetryPolicy(Milliseconds(2000), Milliseconds(8000))
DIES = DeadLetterPolicy("letters", 5)


class Site:
    """One parallel subscription, and what consumers do with it."""

    def __init__(self, engines: Engines, options: ParallelOptions) -> None:
        self.engines, self.options = engines, options
        self.begin_again()

    def begin_again(self, ownership: Ownership | None = None) -> None:
        """Forget what only memory knows, as a process that is killed."""
        engines = self.engines
        letters = DeadLetters(engines.registry, engines.log, engines.cursors, engines.counts)
        self.deliverer = Deliverer(
            engines.registry, engines.log, engines.cursors, 1000, 2**24, 3.0, counts=engines.counts
        )
        self.working = Working(self.deliverer, engines.cursors, letters, engines.clock, ownership)

    async def made(self) -> "Site":
        """Make the topics and the subscription."""
        await make_project(self.engines.registry)
        self.caller = await self.engines.caller()
        for name in (TOPIC, LETTERS):
            await self.engines.topics.create(self.caller, name)
        await self.engines.subscriptions.create(self.caller, SUB, "projects/P/topics/t", options=self.options)
        return self

    async def subscription(self) -> Subscription:
        """Return it as it is now."""
        return await self.deliverer.to_acknowledge(self.caller, SUB)

    async def publish(self, *numbers: int, key: Callable[[int], str] = lambda _: "", topic: TopicName = TOPIC) -> None:
        """Publish messages, each with its number as an attribute."""
        found = await self.engines.registry.topics.find(self.caller.here.id, topic)
        assert found is not None
        await self.engines.log.append(
            found.id, [message("QQ==", {"n": str(each)}, ordering_key=key(each)) for each in numbers]
        )

    async def pull(self, most: int = 100, holder: str = "one") -> list[AckId]:
        """Lease messages; return their ids."""
        return ids_of(await self.working.puller.pull(await self.subscription(), most, project=P, holder=holder))

    async def acknowledge(self, ids: Sequence[AckId]) -> None:
        """Acknowledge."""
        await self.working.settler.acknowledge(await self.subscription(), P, grouped(ids))

    async def nack(self, ids: Sequence[AckId], wait: int | None = None) -> None:
        """Give back."""
        waits = None if wait is None else Milliseconds(wait)
        await self.working.settler.nack(await self.subscription(), P, grouped(ids), waits)

    async def extend(self, ids: Sequence[AckId], seconds: int) -> None:
        """Extend."""
        await self.working.settler.extend(await self.subscription(), P, grouped(ids), seconds, holder="one")

    async def fail(self, times: int) -> None:
        """Pull a message and give it back, so many times."""
        for _ in range(times):
            await self.nack(await self.pull(1))

    def before_the_next_lease(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do something between the read of the next pull and its lease."""
        puller = self.working.puller
        whole = puller._afforded

        async def afforded(*given: Any) -> Any:
            found = await whole(*given)
            await act()
            return found

        puller._afforded = afforded  # type: ignore[method-assign]

    async def look(self) -> None:
        """Let the keeper look."""
        await self.working.keeper.look(_raise)

    async def floor(self) -> int:
        """Return where the subscription stands."""
        subscription = await self.subscription()
        found = await self.engines.registry.topics.find(self.caller.here.id, TOPIC)
        assert found is not None
        return (await self.engines.cursors.position(subscription.id, found.id)).offset

    async def letters(self) -> list[dict[str, str]]:
        """Return the attributes of what was put aside."""
        found = await self.engines.registry.topics.find(self.caller.here.id, LETTERS)
        assert found is not None
        stored = await self.engines.log.read(found.id, Offset(0), max_messages=100, max_bytes=2**20)
        return [dict(attributes_of(each.fragment)) for each in stored]


def _raise(_: str) -> None:
    raise  # the exception at hand


def grouped(ids: Sequence[AckId]) -> AckIds:
    found: dict[str, list[Offset]] = {}
    for each in ids:
        found.setdefault(each.hand_out, []).append(each.offset)
    return found


def ids_of(lots: Sequence[Lot]) -> list[AckId]:
    return [AckId(each.offset, lot.hand_out) for lot in lots for each in lot.messages]


def offsets(ids: Sequence[AckId]) -> list[int]:
    return [each.offset for each in ids]


def with_options(**options: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("site", [ParallelOptions(**options)], indirect=True, ids=[""])


async def unavailable(*_: object) -> bool:
    raise CursorsUnavailable
