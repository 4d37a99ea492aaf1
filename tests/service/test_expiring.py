"""Subscriptions that nobody uses, and snapshots whose time is over."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ams.core.clock import DAY, Milliseconds
from ams.core.names import Offset, ProjectName, SnapshotName, SubscriptionName, TopicName
from ams.core.parallel_options import ParallelOptions
from ams.service.expiring import ACTOR, MARGIN, STORED_EVERY, Expiry
from ams.storage.audit.event import AuditEvent
from ams.storage.registry.records import Snapshot, Subscription
from tests.support.administration import make_project
from tests.support.engines import Engines, open_engines

P, T, S = ProjectName("P"), TopicName("t"), SubscriptionName("s")
TTL = Milliseconds(DAY)
MOMENT = 1000


class Site:
    """A service that looks for what has expired when a test says so."""

    def __init__(self, engines: Engines) -> None:
        self.engines = engines
        self.events: list[AuditEvent] = []
        self.started_again()

    def started_again(self) -> None:
        """Forget what was noted in memory alone."""
        engines = self.engines
        engines.counts.pulled.clear()
        engines.counts.acknowledged.clear()
        self.expiry = Expiry(engines.registry, engines.counts, engines.subscriptions, self, engines.clock)

    async def record(self, event: AuditEvent) -> None:
        """Keep an event, as the audit trail does."""
        self.events.append(event)

    async def made(self, **options: Any) -> Subscription:
        await make_project(self.engines.registry)
        self.caller = await self.engines.caller()
        await self.engines.topics.create(self.caller, T)
        return await self.engines.subscriptions.create(
            self.caller, S, "projects/P/topics/t", options=ParallelOptions(**options)
        )

    async def after(self, milliseconds: int) -> bool:
        """Look after a time; return whether the subscription is there."""
        self.engines.clock.advance(milliseconds)
        await self.expiry.round()
        return await self.engines.registry.subscriptions.find(self.caller.here.id, S) is not None


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with open_engines(tmp_path) as engines:
        yield Site(engines)


async def test_what_was_not_used_for_its_time_goes_and_that_is_recorded(site: Site) -> None:
    made = await site.made(expiration_ttl=TTL)

    assert await site.after(TTL + MARGIN)
    assert not await site.after(MOMENT)
    assert made.id not in await site.engines.cursors.subscriptions()
    [event] = site.events
    assert (event.actor, event.action, event.resource) == (ACTOR, "subscriptions:delete", "/projects/P/subscriptions/s")


@pytest.mark.parametrize("use", ["pull", "acknowledgement", "request"])
async def test_a_use_lets_it_stay_also_after_a_restart(site: Site, use: str) -> None:
    made = await site.made(expiration_ttl=TTL)
    assert await site.after(TTL)
    if use == "pull":
        site.engines.counts.note_pull(made.id)
    elif use == "acknowledgement":
        site.engines.counts.note_acknowledgement(made.id)
    else:
        site.expiry.note(made.id)
    await site.expiry.round()
    site.started_again()

    assert await site.after(TTL + MARGIN)
    assert not await site.after(MOMENT)


async def test_uses_are_stored_seldom(site: Site) -> None:
    made = await site.made(expiration_ttl=TTL)
    stored = []
    for _ in range(4):
        site.engines.clock.advance(STORED_EVERY // 2)
        site.engines.counts.note_pull(made.id)
        await site.expiry.round()
        [found] = await site.engines.registry.subscriptions.expiring()
        stored.append(found.noted - made.created_on)

    assert stored == [0, STORED_EVERY, STORED_EVERY, 2 * STORED_EVERY]


async def test_nothing_goes_soon_after_a_start_so_that_clients_can_come_back(site: Site) -> None:
    made = await site.made(expiration_ttl=TTL)
    site.engines.clock.advance(30 * DAY)
    site.started_again()

    assert await site.after(MOMENT)
    assert await site.after(MARGIN - 2 * MOMENT)
    site.engines.counts.note_pull(made.id)
    assert await site.after(2 * MOMENT)


async def test_a_use_that_another_node_stored_counts(site: Site) -> None:
    made = await site.made(expiration_ttl=TTL)
    site.engines.clock.advance(TTL)
    await site.engines.registry.subscriptions.note_uses({made.id: site.engines.clock.wall()})

    assert await site.after(TTL + MARGIN)
    assert not await site.after(MOMENT)


async def test_snapshots_whose_time_is_over_are_removed_and_a_subscription_without_a_policy_is_not(site: Site) -> None:
    await site.made()
    assert await site.after(400 * DAY)
    registry, clock, project = site.engines.registry, site.engines.clock, site.caller.here.id
    topic = await registry.topics.find(project, T)
    assert topic is not None
    until = Milliseconds(clock.wall() + MOMENT)
    made = Snapshot(project, SnapshotName("N"), topic.id, T, Offset(0), clock.wall(), until)
    assert await registry.snapshots.create(made)
    clock.advance(MOMENT)
    assert await registry.snapshots.delete_expired() == 1
    assert await registry.snapshots.create(made)
    await site.expiry.round()

    assert await registry.snapshots.delete_expired() == 0
