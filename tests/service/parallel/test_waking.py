"""Which pulls that wait look again when something has changed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.service.parallel.site import P, Site


@contextlib.asynccontextmanager
async def waiting_for(site: Site, holder: str) -> AsyncIterator["asyncio.Future[bool]"]:
    """Let a consumer wait for something to pull."""
    until = asyncio.get_running_loop().time() + 30
    waiting = asyncio.ensure_future(site.working.puller.wait(await site.subscription(), P, holder, until))
    await asyncio.sleep(0.02)
    yield waiting
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_an_acknowledgement_wakes_nobody_who_has_room_and_nothing_to_get(site: Site) -> None:
    await site.publish(0, 1)
    [first, second] = await site.pull()
    async with waiting_for(site, "two") as waiting:
        await site.acknowledge([first])
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await site.nack([second])
        assert await asyncio.wait_for(waiting, 5)


async def test_an_acknowledgement_wakes_who_had_no_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.service.parallel.shares.MAX_OUT", 4)
    await site.publish(*range(9))
    ids = await site.pull(2, "one")
    assert await site.pull(9, "one") == []
    async with waiting_for(site, "one") as waiting:
        await site.acknowledge(ids[:1])
        assert await asyncio.wait_for(waiting, 5)
    assert len(await site.pull(9, "one")) == 2


async def test_an_acknowledgement_wakes_who_gets_nothing_new_before_some_are_done(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ams.service.parallel.shares.MAX_SPAN", 2)
    await site.publish(*range(4))
    ids = await site.pull(2)
    assert await site.pull(2) == []
    async with waiting_for(site, "two") as waiting:
        await site.acknowledge(ids[1:])
        await asyncio.sleep(0.02)
        assert not waiting.done(), "the oldest is not done"
        await site.acknowledge(ids[:1])
        assert await asyncio.wait_for(waiting, 5)


async def test_a_pull_that_waits_leaves_nothing_behind(site: Site) -> None:
    await site.pull()
    opened = site.working.opened.get((await site.subscription()).id)
    assert opened is not None
    async with waiting_for(site, "one"), waiting_for(site, "one"), waiting_for(site, "two"):
        assert [len(each) for each in opened.waiting.values()] == [2, 1]
    assert not opened.waiting


async def test_nothing_comes_for_a_consumer_who_has_no_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.service.parallel.shares.MAX_OUT", 4)
    await site.publish(*range(9))
    ids = await site.pull(2, "one")
    await site.nack(await site.pull(1, "two"), 0)
    subscription = (await site.subscription()).id
    for_two = site.working.puller.coming(subscription, 0.02, holder="two")
    assert for_two is not None
    await for_two
    for_one = site.working.puller.coming(subscription, 0.02, holder="one")
    assert for_one is not None
    with pytest.raises(TimeoutError):
        await for_one
    await site.acknowledge(ids)
