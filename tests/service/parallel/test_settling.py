"""What consumers settle by ids: what is acknowledged, extended, given back, and which ids count no more."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ams.core.ack_ids import AckId, NeverGiven
from ams.core.errors import AckTimeout, CursorsUnavailable
from ams.core.names import Offset
from ams.service.parallel.settling import SHOWN_IDS, SLICE
from tests.service.interference import failing
from tests.service.parallel.site import LATE, Site


async def turns_during(work: Coroutine[Any, Any, object]) -> int:
    """Return how often something else had a turn of the event loop meanwhile."""
    turns, task = 0, asyncio.ensure_future(work)
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns


async def test_very_many_ids_are_dealt_with_in_slices_others_having_turns_in_between(site: Site) -> None:
    await site.publish(*range(4))
    many = await site.pull() * SLICE
    assert await turns_during(site.extend(many, 60)) >= 8
    assert await turns_during(site.nack(many, 0)) >= 8
    assert await turns_during(site.acknowledge(await site.pull() * SLICE)) >= 8
    assert await site.floor() == 4


async def test_of_very_many_ids_nothing_is_done_when_some_were_never_given(site: Site) -> None:
    await site.publish(*range(4))
    given = await site.pull()
    bad, worse = (AckId(Offset(offset), given[0].hand_out) for offset in (9, 10))
    for work in (site.acknowledge, site.nack, lambda ids: site.extend(ids, 30)):
        with pytest.raises(NeverGiven, match="^Invalid ack id$") as error:
            await work([bad, *given * SLICE, worse, bad])
        assert set(error.value.ids) == {bad, worse}
    assert (await site.floor(), await site.pull()) == (0, [])
    await site.acknowledge(given)


async def test_of_very_many_ids_those_that_are_late_are_counted_and_the_others_are_done(site: Site) -> None:
    await site.publish(*range(2 * SLICE + 2))
    late = await site.pull(SLICE + 1)
    site.engines.clock.advance(LATE)
    good = await site.pull(2 * SLICE + 2)
    with pytest.raises(AckTimeout, match=f"^ack timeout: 0-.* and {len(late) - SHOWN_IDS} more$"):
        await site.acknowledge([*late, *good])
    assert await site.floor() == len(good)


async def test_a_repeated_acknowledgement_is_stored_when_the_one_before_it_cannot_be(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(0)
    ids = await site.pull()
    settle, begun, fails = site.engines.cursors.settle, asyncio.Event(), asyncio.Event()

    async def fail(*_: object) -> bool:
        begun.set()
        monkeypatch.setattr(site.engines.cursors, "settle", settle)
        await fails.wait()
        raise CursorsUnavailable

    monkeypatch.setattr(site.engines.cursors, "settle", fail)
    first = asyncio.create_task(site.acknowledge(ids))
    await begun.wait()
    repeated = asyncio.create_task(site.acknowledge(ids))
    for _ in range(20):
        await asyncio.sleep(0)
    fails.set()
    with pytest.raises(CursorsUnavailable):
        await first
    await repeated
    assert await site.floor() == 1


async def test_an_acknowledgement_that_could_not_be_stored_leaves_the_lease_as_it_was(site: Site) -> None:
    await site.publish(0)
    ids = await site.pull()
    with failing(site.engines.cursors, "settle", CursorsUnavailable), pytest.raises(CursorsUnavailable):
        await site.acknowledge(ids)
    assert await site.pull() == []
    await site.acknowledge(ids)
    assert await site.floor() == 1


async def test_an_acknowledgement_is_stored_also_when_its_client_leaves(site: Site) -> None:
    await site.publish(0)
    ids = await site.pull()
    leaving = asyncio.ensure_future(site.acknowledge(ids))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    await site.acknowledge(ids)
    assert await site.floor() == 1
