"""A parallel subscription that two nodes work on in turn, over one log and one store of acknowledgements."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ams.core.errors import AckTimeout, OwnedElsewhere
from ams.core.names import SubscriptionId
from ams.core.parallel_options import ParallelOptions
from ams.core.supervisor import Supervisor
from ams.service.dead_letters import DeadLetters
from ams.service.parallel.working import Working
from ams.service.seeking import Seeker
from tests.service.parallel.site import SUB, Site, offsets
from tests.support.engines import open_engines


class Baton:
    """Says which of the nodes has everything."""

    def __init__(self) -> None:
        self.holder = 1


class Turn:
    """Ownership of a node that has what the baton says, and what it was told."""

    def __init__(self, baton: Baton, number: int) -> None:
        self.baton, self.number = baton, number
        self.released: list[SubscriptionId] = []
        self.closed = False
        self.lost: Callable[[], None] = lambda: None

    def holds(self, subscription: SubscriptionId) -> bool:
        return self.baton.holder == self.number

    async def claim(self, subscription: SubscriptionId, *, seizes: bool = False) -> None:
        if seizes:
            self.baton.holder = self.number
        if self.baton.holder != self.number:
            raise OwnedElsewhere(subscription=subscription, node=str(self.baton.holder), url="http://other")

    async def look(self, subscription: SubscriptionId) -> None:
        await self.claim(subscription)

    def release(self, subscription: SubscriptionId) -> None:
        self.released.append(subscription)

    def doubt(self, subscription: SubscriptionId) -> None:
        raise AssertionError

    async def start(self, supervisor: Supervisor, lost: Callable[[], None]) -> None:
        self.lost = lost

    async def leave(self) -> None:
        self.released.append(SubscriptionId("all"))

    async def close(self) -> None:
        self.closed = True


class Pair:
    """The same subscription as two nodes see it."""

    def __init__(self, first: Site, second: Site) -> None:
        self.first, self.second = first, second
        self.baton = Baton()
        self.turns = [self._own(first, 1), self._own(second, 2)]

    def _own(self, site: Site, number: int) -> Turn:
        turn, engines = Turn(self.baton, number), site.engines
        letters = DeadLetters(engines.registry, engines.log, engines.cursors, engines.counts)
        site.working = Working(site.deliverer, engines.cursors, letters, engines.clock, turn)
        return turn


@pytest.fixture
async def pair(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    options = getattr(request, "param", ParallelOptions())
    async with open_engines(tmp_path) as engines:
        first = await Site(engines, options).made()
        second = Site(engines, options)
        second.caller = first.caller
        yield Pair(first, second)


exactly_once = pytest.mark.parametrize(
    "pair", [ParallelOptions(enable_exactly_once_delivery=True)], indirect=True, ids=[""]
)


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


async def test_the_next_owner_takes_ids_of_the_one_before(pair: Pair) -> None:
    await pair.first.publish(1, 2, 3)
    given = await pair.first.pull()
    await pair.first.acknowledge(given[:1])
    pair.baton.holder = 2
    await pair.second.acknowledge(given[1:2])
    with pytest.raises(OwnedElsewhere):
        await pair.first.acknowledge(given[2:])
    assert pair.first.working.opened.get((await pair.first.subscription()).id) is None
    assert offsets(await pair.second.pull()) == [2]


async def test_what_an_overtaken_node_gives_of_new_messages_comes_late(pair: Pair) -> None:
    await pair.first.publish(1)
    await pair.first.pull()
    pair.baton.holder = 2
    await pair.second.pull()
    await pair.first.publish(2)
    pair.baton.holder = 1  # as one that stood still believes
    given = await pair.first.pull()
    assert offsets(given) == [1]
    pair.baton.holder = 2
    for late in (pair.second.acknowledge(given), pair.second.nack(given), pair.second.extend(given, 30)):
        with pytest.raises(AckTimeout, match=r"^ack timeout: 1-1\."):
            await late
    assert offsets(await pair.second.pull()) == [1]


async def test_what_a_node_was_about_to_store_when_it_was_overtaken_is_refused(pair: Pair) -> None:
    await pair.first.publish(1, 2)
    given = await pair.first.pull()
    pair.baton.holder = 2
    given_again = await pair.second.pull()
    pair.baton.holder = 1  # as one that stood still believes
    opened = pair.first.working.opened.get((await pair.first.subscription()).id)
    assert opened is not None
    with pytest.raises(AckTimeout):
        await pair.first.acknowledge(given)  # finds out, and takes it over again
    assert pair.turns[0].released == [opened.subscription.id]
    assert pair.first.working.opened.get(opened.subscription.id) is not opened
    assert await pair.first.floor() == 0
    await pair.first.acknowledge(given_again)
    assert await pair.first.floor() == 2


@exactly_once
async def test_what_may_be_out_is_withheld_by_the_next_owner(pair: Pair) -> None:
    await pair.first.publish(*range(4))
    given = await pair.first.pull(2)
    await pair.first.acknowledge(given[:1])
    pair.baton.holder = 2
    assert await pair.second.pull() == []
    await pair.second.acknowledge(given[1:])
    pair.second.engines.clock.advance(20_000)
    assert offsets(await pair.second.pull()) == [2, 3]


async def test_a_node_whose_time_is_over_forgets_what_it_had_open(pair: Pair) -> None:
    await pair.first.publish(1)
    await pair.first.pull()
    subscription = (await pair.first.subscription()).id
    pair.baton.holder = 2
    await pair.first.look()
    assert pair.first.working.opened.get(subscription) is None


async def test_when_everything_is_lost_waiting_pulls_look_again(pair: Pair) -> None:
    await pair.turns[0].start(Supervisor(), lambda: None)
    await pair.first.working.start(Supervisor())
    await pair.first.pull()
    subscription = await pair.first.subscription()
    until = asyncio.get_running_loop().time() + 20
    waiting = asyncio.create_task(
        pair.first.working.puller.wait(subscription, "P", "one", until)  # type: ignore[arg-type]
    )
    while not pair.first.deliverer.waiting:
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    pair.baton.holder = 2
    pair.turns[0].lost()
    assert await asyncio.wait_for(waiting, 5)
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
    assert pair.baton.holder == 2
    assert offsets(await pair.second.pull()) == [0]


async def test_a_seek_is_for_the_owner(pair: Pair) -> None:
    engines = pair.second.engines
    seeker = Seeker(engines.registry, engines.log, engines.cursors, own=pair.second.working.opened.own)
    with pytest.raises(OwnedElsewhere):
        await seeker.seek(pair.second.caller, SUB, 0)
    pair.baton.holder = 2
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
