"""Expiry: messages by retention, unused subscriptions, and old snapshots."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ams.access.admission import Caller
from ams.core.clock import DAY
from ams.core.errors import AlreadyExists, LogUnavailable
from ams.core.names import TopicId, TopicName
from ams.core.parallel_options import ParallelOptions
from ams.core.retention_clock import RetentionClock
from ams.service.retention import Losses, LossTotal, Retention
from ams.service.subscriptions import EXPIRY_ACTOR, EXPIRY_MARGIN, Expiry
from ams.storage.log.base import Bounds
from ams.storage.registry.records import Snapshot, Subscription
from tests.service.interference import fail_calls
from tests.support.administration import KeptTrail, make_project
from tests.support.engines import Engines, open_engines
from tests.support.use_cases import SUB, TOPIC, UseCases

T = "T"


async def get_retention(engines: Engines, name: TopicName = T) -> int | None:
    return await engines.log.retention((await engines.topics.show(await engines.caller(), name)).id)


async def test_a_topic_follows_its_project_though_that_was_renamed(engines: Engines, caller: Caller) -> None:
    """`caller` was admitted under the old name, which another project has by now."""
    await engines.retention.of_project(caller, 3600)
    await engines.topics.create(caller, T)
    await engines.retention.of_topic(caller, T, 60)
    await engines.projects.update(caller, name="Q")
    await make_project(engines.registry)

    made = await engines.topics.create(caller, "new")
    topic = await engines.retention.of_topic(caller, T, 0)

    assert (await engines.log.retention(topic.id), await engines.log.retention(made.id)) == (3_600_000, 3_600_000)


async def test_topics_of_a_changing_project_keep_what_the_registry_says(engines: Engines, caller: Caller) -> None:
    async def change() -> None:
        for seconds in range(1, 15):
            await engines.retention.of_project(caller, seconds)

    async def create(maker: int) -> None:
        for number in range(10):
            name = f"t{maker}-{number}"
            await engines.topics.create(caller, name)
            if number % 3 == 0:
                await engines.retention.of_topic(caller, name, 0 if number % 2 else 100)

    await asyncio.gather(change(), *(create(maker) for maker in range(4)))

    told = {topic: await engines.log.retention(topic) for topic in await engines.log.topics()}
    assert told == await engines.registry.topics.retentions()


async def test_what_a_crash_left_undone_is_done_at_the_next_start(tmp_path: Path) -> None:
    async with open_engines(tmp_path) as engines:
        await make_project(engines.registry)
        caller = await engines.caller()
        for name in ("own", "heir", "right"):
            await engines.topics.create(caller, name)
        await engines.registry.topics.set_retention(caller.here.id, "own", 60_000)
        await engines.registry.projects.set_retention(caller.here.id, 90_000)

    async with open_engines(tmp_path) as engines:
        retention = Retention(engines.registry, engines.log)
        assert await retention.settle() == 3
        assert (await get_retention(engines, "own"), await get_retention(engines, "heir")) == (60_000, 90_000)
        assert await retention.settle() == 0


async def test_a_log_that_cannot_follow_a_stored_change_follows_in_a_later_round(engines: Engines, caller: Caller):
    await engines.topics.create(caller, T)
    await engines.topics.create(caller, "heir")

    with fail_calls(engines.log, "set_retention", LogUnavailable):
        await engines.retention.of_topic(caller, T, 60)
        await engines.retention.of_project(caller, 90)
        with pytest.raises(LogUnavailable):
            await engines.retention.catch_up()
    assert await get_retention(engines) is None

    await engines.retention.catch_up()

    assert [await get_retention(engines), await get_retention(engines, "heir")] == [60_000, 90_000]


PAST_RETENTION_MS = 7 * 86_400_000 + 2_000


async def lose(use_cases: UseCases, messages: int) -> None:
    await use_cases.publish(messages)
    use_cases.engines.clock.advance(PAST_RETENTION_MS)


def losses_of(use_cases: UseCases) -> Losses:
    return Losses(use_cases.engines.registry, use_cases.engines.log, use_cases.engines.cursors)


async def total(use_cases: UseCases, known: LossTotal | None = None) -> int:
    found = known or LossTotal(use_cases.engines.log, use_cases.engines.cursors)
    await found.look()
    return found.messages


async def test_losses_are_told_before_anybody_met_them_and_not_twice_after(use_cases: UseCases) -> None:
    subscription = await use_cases.subscription()
    await lose(use_cases, 3)
    assert (await losses_of(use_cases).of(subscription), await total(use_cases)) == (3, 3)
    assert await use_cases.engines.cursors.lost_messages(subscription.id, {}) == 0, "nothing moves"

    await use_cases.deliverer().pull(subscription, 1, wait=False)
    assert (await losses_of(use_cases).of(subscription), await total(use_cases)) == (3, 3)

    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
    assert await losses_of(use_cases).of(subscription) == 3


@pytest.mark.parametrize("met", [True, False], ids=["met", "met by nobody"])
async def test_the_total_outlives_a_subscription_and_a_restart(use_cases: UseCases, met: bool) -> None:
    await lose(use_cases, 3)
    if met:
        await use_cases.deliverer().pull(await use_cases.subscription(), 1, wait=False)

    await use_cases.engines.subscriptions.delete(use_cases.caller, SUB)

    assert await total(use_cases) == 3
    await use_cases.engines.subscriptions.create(use_cases.caller, SUB, "projects/P/topics/t")
    await lose(use_cases, 2)
    assert await total(use_cases) == 5


async def test_a_loss_is_stored_before_a_seek_passes_it(use_cases: UseCases) -> None:
    await lose(use_cases, 3)
    await use_cases.publish(4)
    await use_cases.seeker.seek(use_cases.caller, SUB, 7)
    assert await losses_of(use_cases).of(await use_cases.subscription()) == 3


async def test_a_total_that_was_told_never_falls_nor_hides_what_is_lost_later(use_cases: UseCases) -> None:
    """A deleted topic takes its unread messages with it."""
    known = LossTotal(use_cases.engines.log, use_cases.engines.cursors)
    await lose(use_cases, 3)
    assert await total(use_cases, known) == 3

    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)

    assert (await total(use_cases, known), await total(use_cases)) == (3, 3)
    await use_cases.engines.topics.create(use_cases.caller, TOPIC)
    await use_cases.deliverer().pull(await use_cases.subscription(), 1, wait=False)
    await lose(use_cases, 2)
    assert await total(use_cases, known) == await total(use_cases) == 5


async def test_a_loss_is_told_once_also_when_a_broker_that_kept_more_leads_for_a_while(use_cases: UseCases) -> None:
    known, bounds = LossTotal(use_cases.engines.log, use_cases.engines.cursors), use_cases.engines.log.all_bounds
    await lose(use_cases, 3)
    assert await total(use_cases, known) == 3

    async def of_another_broker() -> dict[TopicId, Bounds]:
        return {topic: each._replace(oldest=1) for topic, each in (await bounds()).items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(use_cases.engines.log, "all_bounds", of_another_broker)
        assert await total(use_cases, known) == 3

    assert await total(use_cases, known) == await total(use_cases) == 3


TTL = DAY
MOMENT = 1000


class ExpirySite(KeptTrail):
    """A service whose expiry runs on demand."""

    def __init__(self, engines: Engines) -> None:
        super().__init__()
        self.engines = engines
        self.started_again()

    def started_again(self) -> None:
        """Drop memory-only state."""
        engines = self.engines
        engines.counts.pulled.clear()
        engines.counts.acknowledged_at.clear()
        retention_clock = RetentionClock(engines.clock)
        self.expiry = Expiry(
            engines.registry, engines.counts, engines.subscriptions, self, engines.clock, retention_clock
        )

    async def prepare(self, **options: Any) -> Subscription:
        await make_project(self.engines.registry)
        self.caller = await self.engines.caller()
        await self.engines.topics.create(self.caller, TOPIC)
        return await self.engines.subscriptions.create(
            self.caller, SUB, "projects/P/topics/t", options=ParallelOptions(**options)
        )

    async def snapshot(self, milliseconds: int) -> Snapshot:
        """Return a snapshot N of now with this lifetime; it is not stored yet."""
        topic = await self.engines.registry.topics.find(self.caller.here.id, TOPIC)
        now = self.engines.clock.wall()
        return Snapshot(topic.project_id, "N", topic.id, TOPIC, 0, now, now + milliseconds)

    async def still_exists_after(self, milliseconds: int) -> bool:
        self.engines.clock.advance(milliseconds)
        await self.expiry.round()
        return await self.engines.registry.subscriptions.find(self.caller.here.id, SUB) is not None


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[ExpirySite]:
    async with open_engines(tmp_path) as engines:
        yield ExpirySite(engines)


async def test_what_was_not_used_for_its_time_goes_and_that_is_recorded(site: ExpirySite) -> None:
    made = await site.prepare(expiration_ttl=TTL)

    assert await site.still_exists_after(TTL + EXPIRY_MARGIN)
    assert not await site.still_exists_after(MOMENT)
    assert made.id not in await site.engines.cursors.places()
    [event] = site.events
    assert (event.actor, event.action, event.resource) == (
        EXPIRY_ACTOR, "subscriptions:delete", "/projects/P/subscriptions/s",
    )  # fmt: skip


@pytest.mark.parametrize("use", ["pull", "acknowledgement", "request", "on another node"])
async def test_a_use_lets_it_stay_also_after_a_restart(site: ExpirySite, use: str) -> None:
    made = await site.prepare(expiration_ttl=TTL)
    assert await site.still_exists_after(TTL)
    if use == "pull":
        site.engines.counts.note_pull(made.id)
    elif use == "acknowledgement":
        site.engines.counts.note_acknowledgement(made.id)
    elif use == "request":
        site.expiry.note(made.id)
    else:
        await site.engines.registry.subscriptions.note_uses({made.id: site.engines.clock.wall()})
    await site.expiry.round()
    site.started_again()

    assert await site.still_exists_after(TTL + EXPIRY_MARGIN)
    assert not await site.still_exists_after(MOMENT)


async def test_nothing_goes_soon_after_a_start_so_that_clients_can_come_back(site: ExpirySite) -> None:
    made = await site.prepare(expiration_ttl=TTL)
    site.engines.clock.advance(30 * DAY)
    site.started_again()

    assert await site.still_exists_after(MOMENT)
    assert await site.still_exists_after(EXPIRY_MARGIN - 2 * MOMENT)
    site.engines.counts.note_pull(made.id)
    assert await site.still_exists_after(2 * MOMENT)


async def test_expired_snapshots_are_removed_and_a_subscription_without_a_policy_is_not(site: ExpirySite) -> None:
    await site.prepare()
    assert await site.still_exists_after(400 * DAY)
    registry, clock = site.engines.registry, site.engines.clock
    made = await site.snapshot(MOMENT)
    assert await registry.snapshots.create(made)
    clock.advance(MOMENT)
    assert await registry.snapshots.delete_expired(clock.wall()) == 1
    assert await registry.snapshots.create(made)
    await site.expiry.round()

    assert await registry.snapshots.delete_expired(clock.wall()) == 0


async def test_a_clock_that_leaps_ahead_removes_neither_subscriptions_nor_snapshots(site: ExpirySite) -> None:
    await site.prepare(expiration_ttl=TTL)
    registry, clock, project = site.engines.registry, site.engines.clock, site.caller.here.id
    await registry.snapshots.create(await site.snapshot(DAY))
    await site.still_exists_after(2 * EXPIRY_MARGIN)
    clock.step(8 * DAY)
    assert await site.still_exists_after(MOMENT)
    assert await registry.snapshots.find(project, "N") is not None
    assert await registry.snapshots.floors(), "what it needs is kept"
    with pytest.raises(AlreadyExists):
        await registry.snapshots.create(await site.snapshot(DAY))
    clock.step(-8 * DAY)
    assert await registry.snapshots.find(project, "N") is not None
