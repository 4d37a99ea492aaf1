"""The real service on a real disk that is full: refusals that say when to come again, no loss, and back by itself."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults import scene
from tests.faults.attempts import Attempt, Outcome
from tests.faults.history import History
from tests.faults.http_client import HttpClient, Traffic
from tests.faults.small_disk import SmallDisk, mounted
from tests.faults.target import SMALL, Target
from tests.faults.workload import Consumer, Publisher

MIB = 2**20
ENVIRONMENT = {**SMALL, "AMS_MIN_FREE_BYTES": "6MiB", "AMS_RESERVE_BYTES": "4MiB"}
COMES_BACK_SECONDS = 15.0
MOST_TRIES = 3_000
MORE_THAN_A_PAGE_OF_LOG_LINES = 80
"""Standard error is a file on the small disk; its last page has room left when the disk has none."""

pytestmark = [pytest.mark.faults, pytest.mark.mount]


@dataclass(frozen=True)
class Site:
    """A service on a small disk, one publisher and one consumer."""

    disk: SmallDisk
    target: Target
    traffic: Traffic
    admin: HttpClient
    publisher: Publisher
    consumer: Consumer
    history: History

    async def publish(self) -> Attempt:
        return await self.publisher.publish("t", 300)

    async def publish_until_refused(self) -> None:
        for _ in range(MOST_TRIES):
            if (await self.publish()).outcome is Outcome.REFUSED:
                return
        raise AssertionError("the disk never got full")

    async def acknowledge_one(self) -> Attempt:
        pulled = await self.consumer.pull(1)
        return await self.consumer.acknowledge(pulled.messages[0].id)

    async def acknowledge_on_a_full_disk(self) -> None:
        """Acknowledge one by one, the stranger taking whatever space is left, until that is refused."""
        for _ in range(MOST_TRIES):
            self.disk.fill()
            if (await self.acknowledge_one()).outcome is Outcome.REFUSED:
                return
        raise AssertionError("acknowledgements went on and on without any space")

    async def violations(self) -> list[str]:
        """Kill the service, so that only what was stored counts, and check the history."""
        await self.target.kill()
        await self.target.start()
        return self.history.violations(await scene.ending(self.admin, self.history.subscriptions))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, 32 * MIB) as disk:
        target, traffic = Target(folder / "data", ENVIRONMENT), Traffic()
        history = History({"s": "t"}, restarts=target.restarts)
        admin, p, c = (HttpClient(name, target, traffic) for name in ("admin", "p", "c"))
        publisher = Publisher(p, history, random.Random(1), ("t",), ((1, 1),), 0.0)
        consumer = Consumer(c, history, random.Random(2), "s")
        try:
            await target.start()
            await scene.prepare(admin, history.subscriptions)
            yield Site(disk, target, traffic, admin, publisher, consumer, history)
        finally:
            for client in (admin, p, c):
                client.close()
            await target.stop()


async def until_done(attempt: Callable[[], Awaitable[Attempt]]) -> None:
    """Try again until it works, as a client does that was told to."""
    async with asyncio.timeout(COMES_BACK_SECONDS):
        while (await attempt()).outcome is not Outcome.DONE:
            await asyncio.sleep(0.05)


async def test_a_disk_filled_by_publishing_refuses_publishes_and_takes_acknowledgements(site: Site) -> None:
    site.disk.fill(leave=16 * MIB)
    await site.publish_until_refused()

    assert site.traffic.refusals == {"publishes of 100 messages and more: 500 Backend Error": 1}
    assert site.traffic.without_retry_after == 0
    assert site.disk.free_bytes >= 4 * MIB
    assert [(await site.acknowledge_one()).outcome for _ in range(20)] == [Outcome.DONE] * 20

    site.disk.clear()
    await until_done(site.publish)
    assert await site.violations() == []


async def test_with_no_space_at_all_everything_is_refused_but_pulls_and_comes_back_by_itself(site: Site) -> None:
    await site.publish()
    await site.acknowledge_on_a_full_disk()

    assert (await site.publish()).outcome is Outcome.REFUSED
    assert (await site.consumer.pull(10)).messages
    assert site.traffic.without_retry_after == 0

    site.disk.clear()
    await until_done(site.publish)
    await until_done(site.acknowledge_one)
    assert await site.violations() == []


async def test_an_acknowledgement_answered_on_a_full_disk_is_stored(site: Site) -> None:
    await site.publish()
    await site.acknowledge_on_a_full_disk()
    await site.target.kill()
    site.disk.clear()
    await site.target.start()

    assert await site.violations() == []


async def test_a_log_of_the_service_that_cannot_be_written_either_stops_nothing(site: Site) -> None:
    await site.publish()
    await site.acknowledge_on_a_full_disk()
    for _ in range(MORE_THAN_A_PAGE_OF_LOG_LINES):
        site.disk.fill()
        assert (await site.acknowledge_one()).outcome is Outcome.REFUSED

    assert site.traffic.without_retry_after == 0
    site.disk.clear()
    await until_done(site.acknowledge_one)
    assert await site.violations() == []


async def test_a_service_started_on_a_full_disk_delivers_and_comes_back_by_itself(site: Site) -> None:
    await site.publish()
    site.disk.fill(leave=2 * MIB)
    await site.target.kill()
    await site.target.start()

    assert (await site.publish()).outcome is Outcome.REFUSED
    assert (await site.acknowledge_one()).outcome is Outcome.DONE

    site.disk.clear()
    await until_done(site.publish)
    assert await site.violations() == []
