"""Holding leases: what is delivered when a process stood still and somebody else may deliver what was its own."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator

import pytest

from ams.core.clock import ManualClock
from ams.push import holding
from ams.push.holding import Holding, LeaseReply
from ams.push.leases import Heartbeat
from ams.push.workers import Workers
from tests.push.keepers import MemoryUpstream, ScriptedSender, target, until

ONE = target(identity="1")
LEASE_SECONDS = 0.5
STILL_SECONDS = 0.7


class Held:
    """Workers that deliver one subscription by leases, which are given as long as `gives` is set."""

    def __init__(self, messages: int) -> None:
        self.upstream, self.sender = MemoryUpstream(messages), ScriptedSender()
        self.sender.open.clear()
        self.workers = Workers(self.upstream, self.sender, ManualClock(), lambda: 0.5)
        self.gives = asyncio.Event()
        self.gives.set()
        self.heartbeats: list[Heartbeat] = []
        self.holding = Holding(self.workers, self.ask, random.Random(1))

    async def ask(self, heartbeat: Heartbeat) -> LeaseReply:
        self.heartbeats.append(heartbeat)
        await self.gives.wait()
        return LeaseReply([ONE], lease_seconds=LEASE_SECONDS, heartbeat_seconds=LEASE_SECONDS / 10)


@contextlib.asynccontextmanager
async def held(messages: int) -> AsyncIterator[Held]:
    """Return workers that wait for the answer to their first delivery."""
    made = Held(messages)
    running = asyncio.create_task(made.holding.run())
    try:
        await until(lambda: made.sender.in_flight)
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        async with asyncio.timeout(5):
            await made.workers.stop(0)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "_FINISH_SECONDS", 0.1)
    monkeypatch.setattr(holding, "_SPARE_SECONDS", 0.05)


async def test_who_stood_still_for_longer_than_the_lease_sends_and_acknowledges_nothing() -> None:
    async with held(2) as push:
        push.sender.open.set()
        push.gives.clear()
        time.sleep(STILL_SECONDS)  # as a process that is stopped, or a machine that is frozen
        heartbeats = len(push.heartbeats)
        await until(lambda: len(push.heartbeats) > heartbeats)
        await asyncio.sleep(0.05)

        assert push.upstream.acknowledged == []
        assert [sent.ids for sent in push.sender.sent] == [[0]]
        assert push.heartbeats[-1].held == frozenset()

        push.gives.set()
        await until(lambda: push.upstream.acknowledged == [0, 1])


async def test_an_answer_that_is_older_than_its_lease_gives_nothing() -> None:
    async with held(1) as push:
        push.gives.clear()
        heartbeats = len(push.heartbeats)
        await until(lambda: len(push.heartbeats) > heartbeats)
        push.gives.set()
        push.sender.open.set()
        time.sleep(STILL_SECONDS)  # as above
        await until(lambda: len(push.heartbeats) > heartbeats + 1)

        assert push.heartbeats[heartbeats + 1].held == frozenset()
        await until(lambda: push.upstream.acknowledged == [0])


async def test_a_lease_counts_from_when_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer may have been under way for long, and others count from when it was given."""
    monkeypatch.setattr(f"{__name__}.LEASE_SECONDS", 60.0)
    async with held(1) as push:
        ends: list[float | None] = []
        monkeypatch.setattr(push.workers, "hold_until", ends.append)
        push.gives.clear()
        heartbeats = len(push.heartbeats)
        push.holding.wake()
        await until(lambda: len(push.heartbeats) > heartbeats)
        asked = asyncio.get_running_loop().time()
        await asyncio.sleep(0.1)
        push.gives.set()
        await until(lambda: ends)

        assert ends[0] is not None
        assert ends[0] < asked + 60


async def test_a_lease_that_goes_on_is_delivered_by() -> None:
    async with held(3) as push:
        push.sender.open.set()
        await until(lambda: push.upstream.acknowledged == [0, 1, 2])
        await asyncio.sleep(2 * LEASE_SECONDS)
        push.upstream.append()
        await until(lambda: push.upstream.position() == 4)
