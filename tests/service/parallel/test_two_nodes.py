"""A parallel subscription that two nodes work on in turn, over one log and one store of acknowledgements."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.core.errors import AckTimeout, OwnedElsewhere
from ams.core.parallel_options import ParallelOptions
from ams.core.supervisor import Supervisor
from ams.service.seeking import Seeker
from tests.service.parallel.site import SUB, NodeOwnership, Site, offsets
from tests.support.engines import open_engines
from tests.support.waiting import wait_until_async


class Pair:
    def __init__(self, first: Site, second: Site) -> None:
        self.first, self.second = first, second
        self.turns = [NodeOwnership(self, 1), NodeOwnership(self, 2)]
        self.owner = 1
        for site, turn in zip((first, second), self.turns, strict=True):
            site.begin_again(turn)

    @property
    def owner(self) -> int:
        return self._owner

    @owner.setter
    def owner(self, number: int) -> None:
        """Let a node own it, and both know."""
        self._owner = number
        for turn in self.turns:
            turn.believes = turn.number == number


@pytest.fixture
async def pair(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    options = getattr(request, "param", ParallelOptions())
    async with open_engines(tmp_path) as engines:
        first = await Site(engines, options).made()
        second = Site(engines, options)
        second.caller = first.caller
        yield Pair(first, second)


async def test_a_node_that_does_not_own_it_does_nothing_of_it(pair: Pair) -> None:
    await pair.first.publish(1, 2)
    given = await pair.first.pull()
    for work in (
        pair.second.pull(),
        pair.second.acknowledge(given),
        pair.second.nack(given),
        pair.second.extend(given, 30),
        pair.second.working.puller.wait(await pair.second.subscription(), "P", "one", 0),  # type: ignore[arg-type]
    ):
        with pytest.raises(OwnedElsewhere):
            await work
    await pair.first.acknowledge(given)
    assert await pair.first.floor() == 2


async def test_what_an_overtaken_node_gives_of_new_messages_comes_late(pair: Pair) -> None:
    await pair.first.publish(1)
    await pair.first.pull()
    pair.owner = 2
    await pair.second.pull()
    await pair.first.publish(2)
    pair.owner = 1  # as one that stood still believes
    given = await pair.first.pull()
    assert offsets(given) == [1]
    pair.owner = 2
    for late in (pair.second.acknowledge(given), pair.second.nack(given), pair.second.extend(given, 30)):
        with pytest.raises(AckTimeout, match=r"^ack timeout: 1-1\."):
            await late
    assert await pair.second.offsets() == [1]


async def test_what_a_node_was_about_to_store_when_it_was_overtaken_is_refused(pair: Pair) -> None:
    await pair.first.publish(1, 2)
    given = await pair.first.pull()
    pair.owner = 2
    given_again = await pair.second.pull()
    pair.owner = 1  # as one that stood still believes
    opened = await pair.first.opened()
    with pytest.raises(AckTimeout):
        await pair.first.acknowledge(given)  # finds out, and takes it over again
    assert pair.turns[0].released == [opened.subscription.id]
    assert pair.first.working.opened.get(opened.subscription.id) is not opened
    assert await pair.first.floor() == 0
    await pair.first.acknowledge(given_again)
    assert await pair.first.floor() == 2


async def test_a_node_whose_time_is_over_forgets_what_it_had_open(pair: Pair) -> None:
    await pair.first.publish(1)
    await pair.first.pull()
    subscription = (await pair.first.subscription()).id
    pair.owner = 2
    await pair.first.look()
    assert pair.first.working.opened.get(subscription) is None


async def test_when_everything_is_lost_waiting_pulls_look_again(pair: Pair) -> None:
    await pair.turns[0].start(Supervisor(), lambda: None)
    await pair.first.working.start(Supervisor())
    await pair.first.pull()
    subscription = await pair.first.subscription()
    until = asyncio.get_running_loop().time() + 60
    waiting = asyncio.create_task(
        pair.first.working.puller.wait(subscription, "P", "one", until)  # type: ignore[arg-type]
    )
    opened = await pair.first.opened()
    await wait_until_async(lambda: bool(opened.waiting))
    pair.owner = 2
    pair.turns[0].lost()
    assert await waiting
    with pytest.raises(OwnedElsewhere):
        await pair.first.pull()
    await pair.first.working.close()
    assert pair.turns[0].closed


async def test_before_a_stop_everything_is_handed_over_after_it_is_stored(pair: Pair) -> None:
    await pair.first.publish(1)
    given = await pair.first.pull()
    storing = asyncio.create_task(pair.first.acknowledge(given))
    await asyncio.sleep(0)
    await pair.first.working.hand_over()
    assert pair.turns[0].released == ["all"]
    await storing
    assert await pair.first.floor() == 1


async def test_who_delivers_by_push_seizes_it(pair: Pair) -> None:
    await pair.first.publish(1)
    await pair.first.pull()
    subscription = (await pair.first.subscription()).id
    await pair.second.working.opened.own(subscription, seizes=True)
    assert pair.owner == 2
    assert await pair.second.offsets() == [0]


async def test_a_seek_is_for_the_owner(pair: Pair) -> None:
    engines = pair.second.engines
    seeker = Seeker(engines.registry, engines.log, engines.cursors, own=pair.second.working.opened.own)
    with pytest.raises(OwnedElsewhere):
        await seeker.seek(pair.second.caller, SUB, 0)
    pair.owner = 2
    await seeker.seek(pair.second.caller, SUB, 0)


async def test_what_is_under_way_is_asked_of_the_owner(pair: Pair) -> None:
    await pair.first.pull()
    subscription = (await pair.first.subscription()).id
    assert await pair.first.working.opened.here(subscription) is pair.first.working.opened.get(subscription)
    with pytest.raises(OwnedElsewhere):
        await pair.second.working.opened.here(subscription)


async def test_what_is_not_used_for_long_is_released(pair: Pair) -> None:
    await pair.first.pull()
    pair.first.engines.clock.advance(700_000)
    await pair.first.look()
    assert pair.turns[0].released == [(await pair.first.subscription()).id]
