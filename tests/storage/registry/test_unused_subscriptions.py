"""When subscriptions were used last, and that those that are not used go; and those that are detached."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from ams.core.clock import DAY, ManualClock
from ams.core.names import new_uuid
from ams.core.parallel_options import ParallelOptions
from ams.storage.registry.counts import Rate, Tally
from ams.storage.registry.records import Project
from ams.storage.registry.registry import Registry
from ams.storage.registry.resources import Expiring, Title
from tests.storage.registry.makers import new_subscription
from tests.support.administration import make_user

TTL = DAY
GOES = ParallelOptions(expiration_ttl=TTL)


def make(registry: Registry, project: Project, name: str = "S", options: Any = GOES) -> Awaitable[Any]:
    return new_subscription(registry, project, name, options=options)


async def test_those_that_expire_come_oldest_first(registry: Registry, project: Project, clock: ManualClock) -> None:
    made = [await make(registry, project, name) for name in ("b", "a")]
    await make(registry, project, "stays", ParallelOptions())
    await make(registry, project, "ordered", None)

    listed = await registry.subscriptions.expiring()

    assert listed == [
        Expiring(each.id, Title(project.name, each.name), TTL, clock.wall(), clock.wall()) for each in made
    ]


async def test_the_latest_use_stays_whoever_stores_it(registry: Registry, project: Project, clock: ManualClock) -> None:
    one, other = await make(registry, project, "a"), await make(registry, project, "b")
    now, gone = clock.wall(), new_uuid()

    await registry.subscriptions.note_uses({})
    await registry.subscriptions.note_uses({one.id: now + 20, gone: now + 5})
    await registry.subscriptions.note_uses({one.id: now + 10, other.id: now + 7})

    found = {each.id: (each.noted - now, each.used - now) for each in await registry.subscriptions.expiring()}
    assert found == {one.id: (20, 20), other.id: (7, 7)}


async def test_of_many_uses_at_once_the_latest_stays(registry: Registry, project: Project, clock: ManualClock) -> None:
    made = [await make(registry, project, name) for name in "abc"]
    rounds = [{each.id: clock.wall() + past for each in made} for past in range(20)]

    await asyncio.gather(*map(registry.subscriptions.note_uses, rounds))

    assert [each.used - clock.wall() for each in await registry.subscriptions.expiring()] == [19, 19, 19]


async def test_a_pull_that_is_stored_is_a_use(registry: Registry, project: Project, clock: ManualClock) -> None:
    made, pulled = await make(registry, project), clock.wall() + 50
    await registry.tallies.store([], {made.id: Tally(1, 10, Rate(1, pulled, None))})

    [found] = await registry.subscriptions.expiring()

    assert (found.noted, found.used) == (clock.wall(), pulled)


async def test_an_unused_one_is_removed_once(registry: Registry, project: Project, clock: ManualClock) -> None:
    await make_user(registry, "anna", {project.id: ()})
    made, now = await make(registry, project), clock.wall()
    await registry.subscriptions.set_access_list(project.id, made.name, ["anna"])
    await registry.subscriptions.find(project.id, made.name)

    assert await registry.subscriptions.delete_unused(made.id, now) is None, "it was made just then"
    removed = await asyncio.gather(*(registry.subscriptions.delete_unused(made.id, now + 1) for _ in range(5)))

    assert [each for each in removed if each] == [made]
    assert await registry.subscriptions.find(project.id, made.name) is None
    assert await registry.subscriptions.expiring() == []


async def test_one_that_was_used_meanwhile_stays(registry: Registry, project: Project, clock: ManualClock) -> None:
    made, used = await make(registry, project), clock.wall() + 10
    await registry.subscriptions.note_uses({made.id: used})

    assert await registry.subscriptions.delete_unused(made.id, used) is None
    assert await registry.subscriptions.find(project.id, made.name) == made
    assert await registry.subscriptions.delete_unused(made.id, used + 1) == made
    assert await registry.subscriptions.delete_unused(made.id, used + 1) is None


async def test_what_is_detached_is_found_so_and_stands_nowhere(registry: Registry, project: Project) -> None:
    made, other = await make(registry, project, "a"), await make(registry, project, "b", None)
    await registry.subscriptions.change_options(project.id, made.name, lambda _: replace(GOES, detached=True))

    found = await registry.subscriptions.find(project.id, made.name)
    assert found.is_detached
    assert await registry.subscriptions.attached_ids() == {other.id}
    assert [each.id for each in await registry.subscriptions.expiring()] == [made.id]
