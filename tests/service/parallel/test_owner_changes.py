"""A subscription goes from node to node at any moment, also before the last one notices: what holds all the same."""

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ams.core.ack_ids import AckId, NeverGiven, read_hand_out
from ams.core.errors import AckTimeout, OwnedElsewhere
from ams.core.names import Offset
from ams.core.parallel_options import ParallelOptions
from ams.service.parallel.settling import LATE
from tests.service.parallel.site import NodeOwnership, Site
from tests.support.engines import Engines, open_engines

NODES = 3
LEASE = 10_000
"""Milliseconds: the deadline of the subscription."""


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
        self.done: set[Offset] = set()
        """Of which somebody was told that it is acknowledged."""
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
        assert self.done == {Offset(each) for each in range(self.published)}
        assert await self.sites[self.owner].floor() == self.published


node = st.integers(0, NODES - 1)
some = st.integers(1, 6)
place = st.integers(0, 20)
steps = st.one_of(
    st.tuples(st.just("publish"), some),
    st.tuples(st.just("pull"), node, some),
    st.tuples(st.just("pull"), node, some),
    st.tuples(st.just("acknowledge"), node, place, some),
    st.tuples(st.just("nack"), node, place, some),
    st.tuples(st.just("extend"), node, place, some),
    st.tuples(st.just("change"), node, st.booleans()),
    st.tuples(st.just("kill"), node),
    st.tuples(st.just("pass_time"), st.sampled_from([1000, LEASE - 1, LEASE + 200, 2 * LEASE + 200])),
)


@pytest.mark.parametrize("what", ["acknowledge", "nack", "extend"])
async def test_a_node_that_believes_wrongly_sends_a_client_with_an_id_of_the_owner_to_it(
    what: str, tmp_path: Path
) -> None:
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
