"""The real service on a full real disk: refusals with Retry-After, no loss, and recovery by itself."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from simulation.histories.attempts import Attempt, Outcome
from simulation.histories.workload import Consumer, Publisher
from tests.faults.http_client import SMALL_SETTINGS, HttpClient
from tests.faults.scene import Stage
from tests.faults.small_disk import LOG_LINES_PER_PAGE, MIB, SmallDisk, mount_disk
from tests.support.waiting import wait_until_async

ENVIRONMENT = {**SMALL_SETTINGS, "AMS_MIN_FREE_BYTES": "6MiB", "AMS_RESERVE_BYTES": "4MiB"}
MOST_TRIES = 3_000

pytestmark = [pytest.mark.faults, pytest.mark.mount, pytest.mark.long]


class FullDiskSite(Stage):
    """A service on a small disk, one publisher and one consumer."""

    def __init__(self, disk: SmallDisk) -> None:
        super().__init__(disk.folder / "data", {"s": "t"}, ENVIRONMENT)
        self.disk = disk
        self._publisher = Publisher(self.client("p"), self.history, random.Random(1), ("t",), ((1, 1),), 0.0)
        self.consumer = Consumer(self.client("c"), self.history, random.Random(2), "s")

    async def publish(self) -> Attempt:
        return await self._publisher.publish("t", 300)

    async def acknowledge_one(self) -> Attempt:
        return await self.consumer.acknowledge((await self.consumer.pull(1)).messages[0].id)

    async def acknowledge_on_a_full_disk(self) -> None:
        """Acknowledge one by one while the foreign file takes all free space, until one is refused."""

        async def acknowledge() -> Attempt:
            self.disk.fill()
            return await self.acknowledge_one()

        await try_until(Outcome.REFUSED, acknowledge)

    async def violations(self) -> list[str]:
        """Kill the service, so that only stored data counts, and check the history."""
        await self.target.kill()
        await self.target.start()
        return self.history.violations(await self.ending())


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FullDiskSite]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with mount_disk(folder, 32 * MIB) as disk:
        async with FullDiskSite(disk) as site:
            await site.prepare()
            await site.admin.must(":modifyQuotas", {"quotas": {"storedBytes": 2**40}})  # more than the disk has
            yield site


async def try_until(outcome: Outcome, attempt: Callable[[], Awaitable[Attempt]]) -> None:
    for _ in range(MOST_TRIES):
        if (await attempt()).outcome is outcome:
            return
    raise AssertionError(f"never {outcome}")


async def until_done(attempt: Callable[[], Awaitable[Attempt]]) -> None:
    """Retry until success, as a client does after Retry-After."""

    async def is_done() -> bool:
        return (await attempt()).outcome is Outcome.DONE

    await wait_until_async(is_done)


async def test_a_disk_filled_by_publishing_refuses_publishes_and_takes_acknowledgements(site: FullDiskSite) -> None:
    site.disk.fill(leave=16 * MIB)
    await try_until(Outcome.REFUSED, site.publish)

    assert site.traffic.refusals == {"publishes of 100 messages and more: 500 Backend Error": 1}
    assert site.traffic.without_retry_after == 0
    assert site.disk.free_bytes >= 4 * MIB
    assert [(await site.acknowledge_one()).outcome for _ in range(20)] == [Outcome.DONE] * 20

    site.disk.clear()
    await until_done(site.publish)
    assert await site.violations() == []


async def test_with_no_space_even_for_the_log_only_pulls_work_and_it_recovers_by_itself(site: FullDiskSite) -> None:
    await site.publish()
    await site.acknowledge_on_a_full_disk()

    assert (await site.publish()).outcome is Outcome.REFUSED
    assert (await site.consumer.pull(10)).messages
    for _ in range(LOG_LINES_PER_PAGE):
        site.disk.fill()
        assert (await site.acknowledge_one()).outcome is Outcome.REFUSED
    assert site.traffic.without_retry_after == 0

    site.disk.clear()
    await until_done(site.publish)
    await until_done(site.acknowledge_one)
    assert await site.violations() == []


async def test_schemas_fill_no_disk_and_all_others_go_on(site: FullDiskSite) -> None:
    """Four clients of the flood at once, without a quota: only the disk limits it."""
    for _ in range(3):
        assert (await site.publish()).outcome is Outcome.DONE
    await site.admin.must(":modifyQuotas", {"quotas": {"schemas": 0, "schemaBytes": 0}})
    schema = {"type": "json", "schema": {"description": "x" * 240_000}}
    flood = [site.admin] + [site.client(f"flood-{n}") for n in range(3)]

    async def post(client: HttpClient, names: Iterator[int]) -> int:
        for n in names:
            if not (await client.attempt(f"schema {n}", f"/schemas/s{n}", schema)).is_done:
                return n
        raise AssertionError("the disk never got full")

    names = iter(range(400))
    refused = await asyncio.gather(*(post(each, names) for each in flood))
    assert site.traffic.refusals == {"other requests: 500 Backend Error": len(flood)}
    assert (site.target.data / "log" / "reserve").exists()

    for run in range(2):
        assert [(await site.acknowledge_one()).outcome for _ in range(20)] == [Outcome.DONE] * 20
        await site.admin.must(f"/schemas/s{run}", None, method="DELETE")
        assert '"schemas:delete"' in (site.target.data / "audit.jsonl").read_text().splitlines()[-1]
        await site.target.kill()
        await site.target.start()
    for n in range(2, min(refused)):
        await site.admin.must(f"/schemas/s{n}", None, method="DELETE")
    await site.admin.must("/schemas/again", schema)


async def test_a_start_on_a_full_disk_has_what_was_answered_delivers_and_recovers_by_itself(site: FullDiskSite) -> None:
    await site.publish()
    await site.acknowledge_on_a_full_disk()
    await site.target.kill()
    site.disk.clear()
    site.disk.fill(leave=2 * MIB)
    await site.target.start()

    assert (await site.publish()).outcome is Outcome.REFUSED
    assert (await site.acknowledge_one()).outcome is Outcome.DONE

    site.disk.clear()
    await until_done(site.publish)
    assert await site.violations() == []
