"""A subscription goes from node to node at any moment, also before the last one notices: what holds all the same."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ams.core.ack_ids import AckId, NeverGiven, read_hand_out
from ams.core.errors import AckTimeout, OwnedElsewhere
from ams.core.names import Offset
from ams.core.parallel_options import ParallelOptions
from ams.core.supervisor import Supervisor
from ams.service.parallel.settling import LATE
from ams.service.seeking import Seeker
from tests.service.parallel.site import SUB, NodeOwnership, Site, offsets
from tests.support.engines import Engines, open_engines
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
    engines, subscription = pair.second.engines, await pair.second.subscription()
    seeker = Seeker(engines.registry, engines.log, engines.cursors, own=pair.second.working.opened.own)
    for work in (
        pair.second.pull(),
        pair.second.acknowledge(given),
        pair.second.nack(given),
        pair.second.extend(given, 30),
        pair.second.working.puller.wait(subscription, "P", "one", 0),
        pair.second.working.opened.here(subscription.id),
        seeker.seek(pair.second.caller, SUB, 0),
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
    waiting = asyncio.create_task(pair.first.working.puller.wait(subscription, "P", "one", until))
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


async def test_what_is_not_used_for_long_is_released(pair: Pair) -> None:
    await pair.first.pull()
    pair.first.engines.clock.advance(700_000)
    await pair.first.look()
    assert pair.turns[0].released == [(await pair.first.subscription()).id]


NODES = 3
LEASE = 10_000  # milliseconds: the deadline of the subscription


class Town:
    """Nodes that share a subscription, and what their clients know of it."""

    def __init__(self, sites: list[Site], *, is_exact: bool) -> None:
        self.sites, self.is_exact = sites, is_exact
        self.clock = sites[0].engines.clock
        self.owner = 0
        self.beliefs = [NodeOwnership(self, number) for number in range(len(sites))]
        for site, belief in zip(sites, self.beliefs, strict=True):
            site.begin_again(belief)
        self.published = 0
        self.ids: list[AckId] = []
        self.done: set[Offset] = set()  # of which somebody was told that it is acknowledged
        self.leases: dict[Offset, int] = {}
        """Until when a client may rely on a message being its own alone, with exactly-once delivery."""

    async def publish(self, count: int) -> None:
        await self.sites[0].publish(*range(self.published, self.published + count))
        self.published += count

    async def pull(self, node: int, most: int) -> None:
        try:
            found = await self.sites[node].pull(most)
        except OwnedElsewhere:
            return
        now = self.clock.monotonic()
        for each in found:
            assert each.offset not in self.done, "what was acknowledged came again"
            assert not self.is_exact or self.leases.get(each.offset, 0) <= now, "it was on lease"
            self.leases[each.offset] = now + LEASE
        self.ids += found

    async def acknowledge(self, node: int, first: int, count: int) -> None:
        wanted = self.ids[first : first + count]
        settled = await self._settled(node, wanted, self.sites[node].acknowledge(wanted))
        self.done |= {each.offset for each in settled}

    async def nack(self, node: int, first: int, count: int) -> None:
        wanted = self.ids[first : first + count]
        for each in await self._settled(node, wanted, self.sites[node].nack(wanted)):
            self.leases.pop(each.offset, None)

    async def extend(self, node: int, first: int, count: int) -> None:
        wanted = self.ids[first : first + count]
        for each in await self._settled(node, wanted, self.sites[node].extend(wanted, 20)):
            self.leases[each.offset] = self.clock.monotonic() + 2 * LEASE

    async def _settled(self, node: int, wanted: list[AckId], work: Coroutine[Any, Any, None]) -> list[AckId]:
        """Return the ids that a client was told to be settled."""
        if not wanted:
            work.close()
            return []
        try:
            await work
        except OwnedElsewhere:
            return []
        except AckTimeout as error:
            late = set(error.message.removeprefix(f"{LATE}: ").split(", "))
            return [each for each in wanted if f"{each.offset}-{each.hand_out}" not in late]
        return wanted

    async def change(self, node: int, notices: bool) -> None:
        """Let another node own it; the one before may go on believing that it does."""
        if notices:
            self.beliefs[self.owner].believes = False
        self.owner = node

    async def kill(self, node: int) -> None:
        working = self.sites[node].working
        for opened in list(working.opened.all()):
            working.opened.forget(opened.subscription.id)
        self.beliefs[node].believes = False

    async def pass_time(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    async def finish(self) -> None:
        """Acknowledge everything that comes; nothing else may be left."""
        for _ in range(6):
            self.clock.advance(3 * LEASE)
            before = len(self.ids)
            await self.pull(self.owner, 1000)
            await self.acknowledge(self.owner, before, 1000)
        assert self.done == set(range(self.published))
        assert await self.sites[self.owner].floor() == self.published


node = st.integers(0, NODES - 1)
some = st.integers(1, 6)
place = st.integers(0, 20)
steps = st.one_of(
    st.tuples(st.just("publish"), some), st.tuples(st.just("pull"), node, some),
    st.tuples(st.just("pull"), node, some), st.tuples(st.just("acknowledge"), node, place, some),
    st.tuples(st.just("nack"), node, place, some), st.tuples(st.just("extend"), node, place, some),
    st.tuples(st.just("change"), node, st.booleans()), st.tuples(st.just("kill"), node),
    st.tuples(st.just("pass_time"), st.sampled_from([1000, LEASE - 1, LEASE + 200, 2 * LEASE + 200])),
)  # fmt: skip


@pytest.mark.parametrize("what", ["acknowledge", "nack", "extend"])
async def test_a_node_that_believes_wrongly_sends_a_client_with_an_id_of_the_owner_to_it(what: str, tmp_path: Path):
    async with open_engines(tmp_path) as engines:
        town = await towns(engines, is_exact=False)
        await town.pull(0, 2)
        await town.change(1, notices=False)
        await town.pull(1, 2)
        given = town.ids[2:]
        asked = {
            "acknowledge": lambda site: site.acknowledge(given),
            "nack": lambda site: site.nack(given),
            "extend": lambda site: site.extend(given, 20),
        }[what]

        assert len(given) == 2
        assert town.beliefs[0].believes
        with pytest.raises(OwnedElsewhere) as elsewhere:
            await asked(town.sites[0])
        assert elsewhere.value.node == "1"
        await asked(town.sites[1])
        forged = read_hand_out(given[0].hand_out)._replace(run=99).text
        with pytest.raises(NeverGiven):
            await town.sites[1].acknowledge([AckId(given[0].offset, forged)])


async def towns(engines: Engines, *, is_exact: bool) -> Town:
    """Return three nodes of one subscription on a topic with four messages."""
    sites = [Site(engines, ParallelOptions(enable_exactly_once_delivery=is_exact)) for _ in range(NODES)]
    await sites[0].made()
    for each in sites[1:]:
        each.caller = sites[0].caller
    town = Town(sites, is_exact=is_exact)
    await town.publish(4)
    return town


@pytest.mark.parametrize("is_exact", [False, pytest.param(True, marks=pytest.mark.long)], ids=["plain", "exactly once"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=5, max_size=40))
def test_whoever_owns_it_nothing_acknowledged_returns_and_nothing_else_is_lost(
    is_exact: bool, walk: list[tuple[Any, ...]]
) -> None:
    async def run(folder: Path) -> None:
        async with open_engines(folder) as engines:
            town = await towns(engines, is_exact=is_exact)
            for name, *given in walk:
                await getattr(town, name)(*given)
            await town.finish()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
