"""Every keeper of leases, over subscriptions that exist, with a time that can be moved."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text

from ams.core.clock import ManualClock
from ams.core.names import SubscriptionId, SubscriptionName, TopicName
from ams.push.leases import Leases, MemoryLeases
from ams.storage.registry.registry import Registry
from tests.support.administration import KEY, make_project, url_of

KINDS = ("memory", "sqlite", "postgresql")


@dataclass
class Keeper:
    leases: Leases
    subscriptions: Sequence[SubscriptionId]
    pass_time: Callable[[float], Awaitable[None]]
    """Moves the time by so many seconds."""
    registry: Registry | None = None
    clock: ManualClock | None = None
    """Of the keeper that forgets all when its process ends."""

    def restart(self) -> None:
        """Begin another life of the process; holders elsewhere live on."""
        assert self.clock
        self.leases = MemoryLeases(self.clock, settled=False)

    async def close(self) -> None:
        if self.registry:
            await self.registry.close()


async def opened(kind: str, folder: Path, count: int) -> Keeper:
    """Return a keeper over so many subscriptions."""
    if kind == "memory":
        return in_memory(count)
    clock = ManualClock()
    registry = await Registry.open(url_of(kind, folder), KEY, clock=clock)
    project = await make_project(registry)
    names = [SubscriptionId(f"s{number:04}") for number in range(count)]
    for each in names:
        await registry.subscriptions.create(each, project.id, SubscriptionName(each), TopicName("T"), 10)

    async def pass_time(seconds: float) -> None:
        clock.advance(round(seconds * 1000))
        if kind == "postgresql":  # whose clock is its own: so the leases are made older
            age = text("UPDATE push_holders SET until = until - :age")
            await registry._database.put(lambda connection: connection.execute(age, {"age": round(seconds * 1000)}))

    return Keeper(registry.push_leases, names, pass_time, registry)


def in_memory(count: int) -> Keeper:
    """Return the keeper that never waits for anything."""
    clock = ManualClock()

    async def pass_time(seconds: float) -> None:
        clock.advance(round(seconds * 1000))

    names = [SubscriptionId(f"s{number:04}") for number in range(count)]
    return Keeper(MemoryLeases(clock, settled=True), names, pass_time, clock=clock)
