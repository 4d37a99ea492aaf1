"""Ownership of subscriptions: the contract of its stores, and how nodes notice a change."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.cluster import ownership
from ams.cluster.lease_table import PARALLEL, Holder, LeaseTable
from ams.cluster.leases import LEASE_SECONDS
from ams.cluster.ownership import Ownership
from ams.cluster.ownership import SharedOwnership as Node
from ams.core.errors import Overloaded, OwnedElsewhere, RegistryUnavailable, SubscriptionGone
from ams.core.names import SubscriptionId
from ams.core.supervisor import Supervisor
from ams.storage.registry.registry import Registry
from tests.service.interference import fail_calls
from tests.storage.registry.makers import new_subscription
from tests.support.administration import ENGINES, age_leases, make_project, open_registry_at, url_of
from tests.support.clock import ManualClock
from tests.support.waiting import wait_until_async

ONE, TWO = "s1", "s2"


class Nodes:
    def __init__(self, kind: str, registry: Registry, clock: ManualClock) -> None:
        self._kind, self.registry, self._clock = kind, registry, clock
        self.leases = LeaseTable(registry, PARALLEL)
        self._supervisor = Supervisor()
        self._made: list[Node] = []
        self.lost: list[str] = []

    async def node(self, name: str) -> Node:
        made = Node(self.leases, Holder(name, f"http://{name}:8080", f"{name}:8085"))
        await made.start(self._supervisor, lambda: self.lost.append(name))
        self._made.append(made)
        return made

    async def pass_time(self, seconds: float) -> None:
        self._clock.advance(round(seconds * 1000))
        if self._kind == "postgresql":  # whose clock is its own: so what is owned is made older
            await age_leases(self.registry, seconds * 1000)

    async def kill(self, node: Node) -> None:
        node._rounds.cancel()
        self._made.remove(node)
        await self.pass_time(LEASE_SECONDS)

    async def close(self) -> None:
        for each in self._made:
            await each.close()


@contextlib.asynccontextmanager
async def nodes_on(kind: str, folder: Path) -> AsyncIterator[Nodes]:
    clock = ManualClock()
    async with open_registry_at(url_of(kind, folder), clock) as registry:
        project = await make_project(registry)
        for each in (ONE, TWO):
            await new_subscription(registry, project, each, id=each)
        made = Nodes(kind, registry, clock)
        yield made
        await made.close()


@pytest.fixture(params=ENGINES)
async def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Nodes]:
    async with nodes_on(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=["alone", *ENGINES])
async def single_ownership(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ownership]:
    if request.param == "alone":
        yield Ownership()
        return
    async with nodes_on(request.param, tmp_path) as made:
        yield await made.node("a")


@pytest.fixture
async def a(nodes: Nodes) -> Node:
    return await nodes.node("a")


@pytest.fixture
async def b(nodes: Nodes) -> Node:
    return await nodes.node("b")


async def owner_of(node: Node, subscription: SubscriptionId = ONE) -> tuple[str, str]:
    with pytest.raises(OwnedElsewhere) as refused:
        await node.claim(subscription)
    assert refused.value.pubsub == f"{refused.value.node}:8085"
    return refused.value.node, refused.value.url


async def test_the_first_claim_owns_it_and_a_released_one_is_free_at_once(single_ownership: Ownership) -> None:
    for _ in range(2):
        await single_ownership.claim(ONE)
        assert single_ownership.holds(ONE)
    single_ownership.release(ONE)
    await single_ownership.claim(ONE)
    await single_ownership.claim(TWO)  # in a turn after that of the release
    assert single_ownership.holds(ONE)
    await single_ownership.leave()
    await single_ownership.claim(ONE)
    assert single_ownership.holds(ONE)


async def test_others_hear_who_owns_it_and_how_that_node_is_reached(a: Node, b: Node) -> None:
    await a.claim(ONE)
    assert await owner_of(b) == ("a", "http://a:8080")
    assert not b.holds(ONE)
    await b.claim(TWO)
    assert await owner_of(a, TWO) == ("b", "http://b:8080")


async def test_of_many_that_claim_at_once_each_is_owned_by_one(nodes: Nodes) -> None:
    all_nodes = [await nodes.node(name) for name in "abcd"]
    await asyncio.gather(*[each.claim(ONE) for each in all_nodes], return_exceptions=True)
    assert [each.holds(ONE) for each in all_nodes].count(True) == 1


async def test_who_stops_in_order_leaves_everything_to_others_at_once(a: Node, b: Node) -> None:
    await a.claim(ONE)
    await a.close()
    await b.claim(ONE)
    assert not a.holds(ONE)
    with pytest.raises(Overloaded):
        await a.claim(TWO)


async def test_what_is_released_is_free_for_others(a: Node, b: Node) -> None:
    await a.claim(ONE)
    await a.claim(TWO)
    a.release(ONE)

    async def is_free() -> bool:
        b.doubt(ONE)
        with contextlib.suppress(OwnedElsewhere):
            await b.claim(ONE)
        return b.holds(ONE)

    await wait_until_async(is_free)
    assert a.holds(TWO)


async def test_a_node_that_was_silent_for_too_long_loses_everything_and_says_so(nodes: Nodes, a: Node) -> None:
    await a.claim(ONE)
    await nodes.pass_time(LEASE_SECONDS)
    await a.turn()
    assert not a.holds(ONE)
    assert nodes.lost == ["a"]
    await a.claim(ONE)
    assert a.holds(ONE)


async def test_a_renewal_keeps_everything(nodes: Nodes, a: Node, b: Node) -> None:
    await a.claim(ONE)
    for _ in range(3):
        await nodes.pass_time(LEASE_SECONDS - 1)
        await a.turn()
    assert a.holds(ONE)
    assert (await owner_of(b))[0] == "a"
    assert nodes.lost == []


async def test_who_delivers_it_by_push_takes_it_from_any_other_node(a: Node, b: Node) -> None:
    await a.claim(ONE)
    await b.claim(ONE, seizes=True)
    assert b.holds(ONE)
    a.release(ONE)  # as it does when it finds out
    await a.turn()
    assert (await owner_of(a))[0] == "b"


async def test_who_only_looks_claims_nothing(nodes: Nodes, a: Node, b: Node) -> None:
    await a.look(ONE)
    assert not a.holds(ONE)
    await b.claim(ONE)
    with pytest.raises(OwnedElsewhere) as refused:
        await a.look(ONE)
    assert (refused.value.node, refused.value.url, refused.value.pubsub) == ("b", "http://b:8080", "b:8085")
    await b.look(ONE)
    await nodes.kill(b)
    a.doubt(ONE)
    await a.look(ONE)


async def test_a_deleted_subscription_is_owned_by_nobody(a: Node) -> None:
    with pytest.raises(SubscriptionGone):
        await a.claim("never")


async def test_a_node_without_answers_owns_nothing(nodes: Nodes, a: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await a.claim(ONE)
    now = ownership._now()

    with fail_calls(nodes.leases, "turn", RegistryUnavailable):
        for passed in (0, LEASE_SECONDS):
            monkeypatch.setattr(ownership, "_now", lambda passed=passed: now + passed)
            assert a.holds(ONE) is not bool(passed)
            with pytest.raises(RegistryUnavailable):
                await a.claim(TWO)
        await wait_until_async(lambda: nodes.lost == ["a"])


async def test_nodes_that_live_are_known_and_one_that_died_is_not(nodes: Nodes, a: Node, b: Node) -> None:
    await a.claim(ONE)
    await b.turn()
    assert await alive_urls(nodes) == ["http://a:8080", "http://b:8080"]

    await nodes.kill(a)
    await b.turn()

    assert await alive_urls(nodes) == ["http://b:8080"]


async def test_a_node_that_owns_nothing_is_known_all_the_same(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "RENEW_SECONDS", 0.01)

    await nodes.node("a")

    async def is_known() -> bool:
        return await alive_urls(nodes) == ["http://a:8080"]

    await wait_until_async(is_known)


async def alive_urls(nodes: Nodes) -> list[str]:
    return [each.url for each in await nodes.leases.holders()]
