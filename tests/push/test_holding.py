"""Holding leases: what is delivered when a process stood still and somebody else may deliver what was its own."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from ams.core.clock import ManualClock
from ams.push import holding
from ams.push.holding import Holding, LeaseReply
from ams.push.leased import Leased
from ams.push.leases import Heartbeat
from ams.push.upstream import Away, Verdict
from ams.push.workers import Workers
from tests.push.keepers import MemoryUpstream, closed, pulled, target
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

ONE = target(identity="1")
LEASE_SECONDS = 60.0


class Held:
    """Workers that deliver one subscription by leases, which are given as long as `gives` is set."""

    def __init__(self, messages: int) -> None:
        self.upstream, self.sender = MemoryUpstream(messages), closed()
        self.workers = Workers(self.upstream, self.sender, ManualClock(), lambda: 0.5)
        self.gives = asyncio.Event()
        self.gives.set()
        self.heartbeats: list[Heartbeat] = []
        self.holding = Holding(self.workers, self.ask, random.Random(1))

    async def ask(self, heartbeat: Heartbeat) -> LeaseReply:
        self.heartbeats.append(heartbeat)
        await self.gives.wait()
        return LeaseReply([ONE], lease_seconds=LEASE_SECONDS, heartbeat_seconds=0.05)


@contextlib.asynccontextmanager
async def held(messages: int) -> AsyncIterator[Held]:
    """Return workers that wait for the answer to their first delivery."""
    made = Held(messages)
    running = asyncio.create_task(made.holding.run())
    try:
        await wait_until_async(lambda: made.sender.in_flight)
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await made.workers.stop(0)


def stand_still(seconds: float = LEASE_SECONDS + 10) -> None:
    """Let so much time pass at once, as for a process that is stopped, or on a machine that is frozen."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "_FINISH_SECONDS", 0.1)
    monkeypatch.setattr(holding, "_SPARE_SECONDS", 0.05)


async def test_who_stood_still_for_longer_than_the_lease_sends_and_acknowledges_nothing() -> None:
    async with held(2) as push:
        push.sender.open.set()
        push.gives.clear()
        stand_still()
        heartbeats = len(push.heartbeats)
        await wait_until_async(lambda: len(push.heartbeats) > heartbeats)
        await asyncio.sleep(0.05)

        assert push.upstream.acknowledged == []
        assert [sent.ids for sent in push.sender.sent] == [[0]]
        assert push.heartbeats[-1].held == frozenset()

        push.gives.set()
        await wait_until_async(lambda: push.upstream.acknowledged == [0, 1])


async def test_an_answer_that_is_older_than_its_lease_gives_nothing() -> None:
    async with held(1) as push:
        push.gives.clear()
        heartbeats = len(push.heartbeats)
        await wait_until_async(lambda: len(push.heartbeats) > heartbeats)
        push.gives.set()
        push.sender.open.set()
        stand_still()
        await wait_until_async(lambda: len(push.heartbeats) > heartbeats + 1)

        assert push.heartbeats[heartbeats + 1].held == frozenset()
        await wait_until_async(lambda: push.upstream.acknowledged == [0])


async def test_a_lease_counts_from_when_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer may have been under way for long, and others count from when it was given."""
    async with held(1) as push:
        ends: list[float | None] = []
        monkeypatch.setattr(push.workers, "hold_until", ends.append)
        push.gives.clear()
        heartbeats = len(push.heartbeats)
        push.holding.wake()
        await wait_until_async(lambda: len(push.heartbeats) > heartbeats)
        asked = asyncio.get_running_loop().time()
        await asyncio.sleep(0.01)
        push.gives.set()
        await wait_until_async(lambda: ends)

        assert ends[0] is not None
        assert ends[0] < asked + 60


async def test_a_lease_that_goes_on_is_delivered_by() -> None:
    async with held(3) as push:
        push.sender.open.set()
        await wait_until_async(lambda: push.upstream.acknowledged == [0, 1, 2])
        for _ in range(3):
            heartbeats = len(push.heartbeats)
            stand_still(LEASE_SECONDS / 2)
            await wait_until_async(lambda before=heartbeats: len(push.heartbeats) > before + 1)
        push.upstream.append()
        await wait_until_async(lambda: push.upstream.position() == 4)


# The upstream: what it may still do when its lease is over


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_what_came_after_the_end_of_the_lease_is_not_sent() -> None:
    upstream = MemoryUpstream()
    leased = Leased(upstream)
    leased.ends = now() + 60
    waiting = asyncio.create_task(leased.pull(ONE, max_messages=1, max_bytes=100))
    await wait_until_async(lambda: upstream.waiting)

    leased.ends = now()
    upstream.append()

    with pytest.raises(Away):
        await waiting


async def test_after_the_end_of_the_lease_nothing_is_acknowledged_nor_put_aside() -> None:
    upstream = MemoryUpstream(1)
    leased = Leased(upstream)
    leased.ends = now()

    for late in (leased.acknowledge(ONE, pulled(0)), leased.dead_letter(ONE, pulled(0), Verdict("bad", 5, 422))):
        with pytest.raises(Away):
            await late

    assert (upstream.acknowledged, upstream.dead_lettered) == ([], [])


async def test_during_the_lease_and_without_one_all_of_it_is_done() -> None:
    upstream = MemoryUpstream(2)
    leased = Leased(upstream)
    for ends, offset in ((now() + 60, 0), (None, 1)):
        leased.ends = ends
        assert await leased.pull(ONE, max_messages=1, max_bytes=100) == [pulled(offset)]
        await leased.acknowledge(ONE, pulled(offset))

    assert upstream.acknowledged == [0, 1]
