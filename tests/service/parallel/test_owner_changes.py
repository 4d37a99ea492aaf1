"""The ownership of a subscription moves between nodes at any moment, also before the old owner notices."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
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
from ams.service.parallel.settlement import LateIds
from ams.service.subscription_offsets import Seeker
from tests.service.parallel.site import SUB, NodeOwnership, ParallelSite, offsets
from tests.support.engines import Engines, open_engines
from tests.support.waiting import wait_until_async

NODES = 3
LEASE = 10_000  # milliseconds: the deadline of the subscription


class Town:
    """Nodes that share a subscription, and their clients' knowledge of it."""

    def __init__(self, sites: list[ParallelSite], *, is_exact: bool, keys: int = 0) -> None:
        """Messages have so many ordering keys in turn."""
        self.sites, self.is_exact = sites, is_exact
        self.key: Callable[[int], str] = lambda number: str(number % keys) if keys else ""
        self.first, self.second, *_ = sites
        self.clock = sites[0].engines.clock
        self.owner = 0
        self.beliefs = [NodeOwnership(self, number) for number in range(len(sites))]
        for site, belief in zip(sites, self.beliefs, strict=True):
            site.begin_again(belief)
        self.published = 0
        self.ids: list[AckId] = []
        self.done: set[Offset] = set()  # of which somebody was told that it is acknowledged
        self.leases: dict[Offset, int] = {}
        """With exactly-once delivery: until then a client may rely on its exclusive lease of a message."""

    def give(self, node: int) -> None:
        """Make a node the owner, and tell all nodes."""
        self.owner = node
        for belief in self.beliefs:
            belief.believes = belief.number == node

    async def publish(self, count: int) -> None:
        await self.sites[0].publish(*range(self.published, self.published + count), key=self.key)
        self.published += count

    async def pull(self, node: int, most: int) -> None:
        try:
            found = await self.sites[node].pull(most)
        except OwnedElsewhere:
            return
        now = self.clock.monotonic()
        for place, each in enumerate(found):
            assert each.offset not in self.done, "what was acknowledged came again"
            earlier = {at for at in range(each.offset) if self.key(at) == self.key(each.offset) != ""}
            assert earlier <= self.done | {e.offset for e in found[:place]}, "a key is out of order"
            assert not self.is_exact or self.leases.get(each.offset, 0) <= now, "it was on lease"
            self.leases[each.offset] = now + LEASE
        self.ids += found

    async def acknowledge(self, node: int, first: int, count: int) -> None:
        self.done |= {each.offset for each in await self._settle_ids("acknowledge", node, first, count)}

    async def nack(self, node: int, first: int, count: int) -> None:
        for each in await self._settle_ids("nack", node, first, count):
            self.leases.pop(each.offset, None)

    async def extend(self, node: int, first: int, count: int) -> None:
        for each in await self._settle_ids("extend", node, first, count, 20):
            self.leases[each.offset] = self.clock.monotonic() + 2 * LEASE

    async def _settle_ids(self, what: str, node: int, first: int, count: int, *more: int) -> list[AckId]:
        """Settle ids; return those reported as settled to a client."""
        wanted = self.ids[first : first + count]
        if not wanted:
            return []
        try:
            await getattr(self.sites[node], what)(wanted, *more)
        except OwnedElsewhere:
            return []
        except LateIds as error:  # late, or out of order
            return [each for each in wanted if each not in error.ids]
        return wanted

    async def change(self, node: int, notices: bool) -> None:
        """Make another node the owner; the old one may still believe that it is."""
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
        """Acknowledge all remaining messages, and check that no other is left."""
        for _ in range(6):
            self.clock.advance(3 * LEASE)
            before = len(self.ids)
            await self.pull(self.owner, 1000)
            await self.acknowledge(self.owner, before, 1000)
        assert self.done == set(range(self.published))
        assert await self.sites[self.owner].floor() == self.published


async def make_town(engines: Engines, *, is_exact: bool, keys: int = 0) -> Town:
    options = ParallelOptions(enable_exactly_once_delivery=is_exact, enable_message_ordering=keys > 0)
    sites = [ParallelSite(engines, options) for _ in range(NODES)]
    await sites[0].prepare()
    for each in sites[1:]:
        each.caller = sites[0].caller
    return Town(sites, is_exact=is_exact, keys=keys)


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    """Nodes of which the first owns the subscription."""
    async with open_engines(tmp_path) as engines:
        made = await make_town(engines, is_exact=False)
        made.give(0)
        yield made


async def test_a_node_that_does_not_own_it_does_nothing_of_it(town: Town) -> None:
    await town.first.publish(1, 2)
    given = await town.first.pull()
    engines, subscription = town.second.engines, await town.second.subscription()
    seeker = Seeker(engines.registry, engines.log, engines.cursors, working=town.second.working)
    for work in (
        town.second.pull(), town.second.acknowledge(given), town.second.nack(given), town.second.extend(given, 30),
        town.second.working.puller.wait(subscription, "one", 0),
        town.second.working.opened.here(subscription.id), seeker.seek(town.second.caller, SUB, 0),
    ):  # fmt: skip
        with pytest.raises(OwnedElsewhere):
            await work
    await town.first.acknowledge(given)
    assert await town.first.floor() == 2


async def test_what_an_overtaken_node_gives_of_new_messages_comes_late(town: Town) -> None:
    await town.first.publish(1)
    await town.first.pull()
    town.give(1)
    await town.second.pull()
    await town.first.publish(2)
    town.give(0)  # as one that stood still believes
    given = await town.first.pull()
    assert offsets(given) == [1]
    town.give(1)
    for late in (town.second.acknowledge(given), town.second.nack(given), town.second.extend(given, 30)):
        with pytest.raises(AckTimeout, match=r"^ack timeout: 1-1\."):
            await late
    assert await town.second.offsets() == [1]


async def test_what_a_node_was_about_to_store_when_it_was_overtaken_is_refused(town: Town) -> None:
    await town.first.publish(1, 2)
    given = await town.first.pull()
    town.give(1)
    given_again = await town.second.pull()
    town.give(0)  # as one that stood still believes
    opened = await town.first.open_subscription()
    with pytest.raises(AckTimeout):
        await town.first.acknowledge(given)  # finds out, and takes it over again
    assert town.beliefs[0].released == [opened.subscription.id]
    assert town.first.working.opened.get(opened.subscription.id) is not opened
    assert await town.first.floor() == 0
    await town.first.acknowledge(given_again)
    assert await town.first.floor() == 2


async def test_a_node_whose_time_is_over_forgets_what_it_had_open(town: Town) -> None:
    await town.first.publish(1)
    await town.first.pull()
    subscription = (await town.first.subscription()).id
    town.give(1)
    await town.first.look()
    assert town.first.working.opened.get(subscription) is None


async def test_when_everything_is_lost_waiting_pulls_look_again(town: Town) -> None:
    await town.beliefs[0].start(Supervisor(), lambda: None)
    await town.first.working.start(Supervisor())
    await town.first.pull()
    subscription = await town.first.subscription()
    until = asyncio.get_running_loop().time() + 60
    waiting = asyncio.create_task(town.first.working.puller.wait(subscription, "one", until))
    opened = await town.first.open_subscription()
    await wait_until_async(lambda: bool(opened.waiting))
    town.give(1)
    town.beliefs[0].lost()
    assert await waiting
    with pytest.raises(OwnedElsewhere):
        await town.first.pull()
    await town.first.working.close()
    assert town.beliefs[0].closed


async def test_before_a_stop_everything_is_handed_over_after_it_is_stored(town: Town) -> None:
    await town.first.publish(1)
    storing = asyncio.create_task(town.first.acknowledge(await town.first.pull()))
    await asyncio.sleep(0)
    await town.first.working.hand_over()
    assert town.beliefs[0].released == ["all"]
    await storing
    assert await town.first.floor() == 1


async def test_what_is_not_used_for_long_is_released(town: Town) -> None:
    await town.first.pull()
    town.first.engines.clock.advance(700_000)
    await town.first.look()
    assert town.beliefs[0].released == [(await town.first.subscription()).id]


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


@pytest.mark.parametrize(("what", "more"), [("acknowledge", ()), ("nack", ()), ("extend", (20,))])
async def test_a_mistaken_node_sends_ids_of_the_owner_to_it(what: str, more: tuple[int, ...], tmp_path: Path) -> None:
    async with open_engines(tmp_path) as engines:
        town = await make_town(engines, is_exact=False)
        await town.publish(4)
        await town.pull(0, 2)
        await town.change(1, notices=False)
        await town.pull(1, 2)
        given = town.ids[2:]

        assert len(given) == 2
        assert town.beliefs[0].believes
        with pytest.raises(OwnedElsewhere) as elsewhere:
            await getattr(town.first, what)(given, *more)
        assert elsewhere.value.node == "1"
        await getattr(town.second, what)(given, *more)
        forged = read_hand_out(given[0].hand_out)._replace(run=99).text
        with pytest.raises(NeverGiven):
            await town.sites[1].acknowledge([AckId(given[0].offset, forged)])


@pytest.mark.parametrize(
    ("is_exact", "keys"), [(False, 0), pytest.param(True, 0, marks=pytest.mark.long), (True, 2)],
    ids=["plain", "exactly once", "exactly once and by keys"],
)  # fmt: skip
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=5, max_size=40))
def test_owners_lose_nothing_and_repeat_nothing_done(is_exact: bool, keys: int, walk: list[tuple[Any, ...]]) -> None:
    async def run_walk(folder: Path) -> None:
        async with open_engines(folder) as engines:
            town = await make_town(engines, is_exact=is_exact, keys=keys)
            await town.publish(4)
            for name, *given in walk:
                await getattr(town, name)(*given)
            await town.finish()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run_walk(Path(folder)))
