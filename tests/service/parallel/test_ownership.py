"""Which node works on a subscription: what keepers of ownership promise, and what nodes find out by themselves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from ams.core.clock import ManualClock
from ams.core.errors import Overloaded, OwnedElsewhere, RegistryUnavailable, SubscriptionGone
from ams.core.names import SubscriptionId, SubscriptionName, TopicName
from ams.core.supervisor import Supervisor
from ams.service.parallel import ownership
from ams.service.parallel.ownership import Alone, Ownership, Shared
from ams.storage.registry.owners import OWNED_SECONDS, Node
from ams.storage.registry.registry import Registry
from tests.support.administration import KEY, make_project, url_of

ONE, TWO = SubscriptionId("s1"), SubscriptionId("s2")


class Nodes:
    """Nodes over one registry, whose time can be moved."""

    def __init__(self, kind: str, registry: Registry, clock: ManualClock) -> None:
        self._kind, self.registry, self._clock = kind, registry, clock
        self._supervisor = Supervisor()
        self._made: list[Shared] = []
        self.lost: list[str] = []

    async def node(self, name: str) -> Shared:
        """Return a node that has started."""
        made = Shared(self.registry.owners, Node(name, f"http://{name}:8080", f"{name}:8085"))
        await made.start(self._supervisor, lambda: self.lost.append(name))
        self._made.append(made)
        return made

    async def pass_time(self, seconds: float) -> None:
        """Move the database's time."""
        self._clock.advance(round(seconds * 1000))
        if self._kind == "postgresql":  # whose clock is its own: so what is owned is made older
            age = text("UPDATE parallel_nodes SET until = until - :age")
            await self.registry._database.put(
                lambda connection: connection.execute(age, {"age": round(seconds * 1000)})
            )

    async def kill(self, node: Shared) -> None:
        """End a node in the middle of its work, and let what it owned end."""
        node._rounds.cancel()
        self._made.remove(node)
        await self.pass_time(OWNED_SECONDS)

    async def close(self) -> None:
        for each in self._made:
            await each.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Nodes]:
    clock = ManualClock()
    registry = await Registry.open(url_of(request.param, tmp_path), KEY, clock=clock)
    project = await make_project(registry)
    for each in (ONE, TWO):
        await registry.subscriptions.create(each, project.id, SubscriptionName(each), TopicName("T"), 10)
    made = Nodes(request.param, registry, clock)
    yield made
    await made.close()
    await registry.close()


@pytest.fixture(params=["alone", "sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def single(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ownership]:
    """Every keeper, with one node."""
    if request.param == "alone":
        yield Alone()
        return
    registry = await Registry.open(url_of(request.param, tmp_path), KEY, clock=ManualClock())
    project = await make_project(registry)
    await registry.subscriptions.create(ONE, project.id, SubscriptionName("s1"), TopicName("T"), 10)
    made = Shared(registry.owners, Node("a", ""))
    await made.start(Supervisor(), lambda: None)
    yield made
    await made.close()
    await registry.close()


async def owner_of(node: Shared, subscription: SubscriptionId = ONE) -> tuple[str, str]:
    """Return whom a node that asks is sent to."""
    with pytest.raises(OwnedElsewhere) as refused:
        await node.claim(subscription)
    assert refused.value.pubsub == f"{refused.value.node}:8085"
    return refused.value.node, refused.value.url


async def until(what: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await what():
            await asyncio.sleep(0.02)


async def test_who_claims_first_owns_it_also_when_it_claims_again(single: Ownership) -> None:
    await single.claim(ONE)
    assert single.holds(ONE)
    await single.claim(ONE)
    assert single.holds(ONE)


async def test_what_was_released_may_be_claimed_at_once(single: Ownership) -> None:
    await single.claim(ONE)
    single.release(ONE)
    await single.claim(ONE)
    await asyncio.sleep(0.1)
    assert single.holds(ONE)
    await single.leave()
    await single.claim(ONE)
    assert single.holds(ONE)


async def test_others_hear_who_owns_it_and_how_that_node_is_reached(nodes: Nodes) -> None:
    a, b = await nodes.node("a"), await nodes.node("b")
    await a.claim(ONE)
    assert await owner_of(b) == ("a", "http://a:8080")
    assert not b.holds(ONE)
    await b.claim(TWO)
    assert await owner_of(a, TWO) == ("b", "http://b:8080")


async def test_of_many_that_claim_at_once_each_is_owned_by_one(nodes: Nodes) -> None:
    all_nodes = [await nodes.node(name) for name in "abcd"]
    await asyncio.gather(*[each.claim(ONE) for each in all_nodes], return_exceptions=True)
    assert [each.holds(ONE) for each in all_nodes].count(True) == 1


async def test_claims_made_at_once_are_one_question(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    a, asked = await nodes.node("a"), []
    turn = nodes.registry.owners.turn

    async def counted(node: Node, wanted: set[SubscriptionId], **more: object) -> object:
        asked.append(sorted(wanted))
        return await turn(node, wanted, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(nodes.registry.owners, "turn", counted)
    await asyncio.gather(a.claim(ONE), a.claim(TWO), a.claim(ONE))
    assert asked == [[ONE, TWO]]


async def test_a_node_that_dies_owns_nothing_after_a_while(nodes: Nodes) -> None:
    a, b = await nodes.node("a"), await nodes.node("b")
    await a.claim(ONE)
    await nodes.kill(a)
    await b.claim(ONE)
    assert b.holds(ONE)


async def test_what_is_known_of_another_node_is_asked_anew_when_in_doubt(nodes: Nodes) -> None:
    a, b = await nodes.node("a"), await nodes.node("b")
    await a.claim(ONE)
    await owner_of(b)
    await nodes.kill(a)
    assert (await owner_of(b))[0] == "a"
    b.doubt(ONE)
    await b.claim(ONE)


async def test_who_stops_in_order_leaves_everything_to_others_at_once(nodes: Nodes) -> None:
    a, b = await nodes.node("a"), await nodes.node("b")
    await a.claim(ONE)
    await a.close()
    await b.claim(ONE)
    assert not a.holds(ONE)
    with pytest.raises(Overloaded):
        await a.claim(TWO)


async def test_what_is_released_is_free_for_others(nodes: Nodes) -> None:
    a, b = await nodes.node("a"), await nodes.node("b")
    await a.claim(ONE)
    await a.claim(TWO)
    a.release(ONE)

    async def is_free() -> bool:
        b.doubt(ONE)
        await b.claim(ONE)
        return True

    await until(lambda: _unless_elsewhere(is_free))
    assert a.holds(TWO)


async def _unless_elsewhere(work: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await work()
    except OwnedElsewhere:
        return False


async def test_a_node_that_was_silent_for_too_long_loses_everything_and_says_so(nodes: Nodes) -> None:
    a = await nodes.node("a")
    await a.claim(ONE)
    await nodes.pass_time(OWNED_SECONDS)
    await a.turn()
    assert not a.holds(ONE)
    assert nodes.lost == ["a"]
    await a.claim(ONE)
    assert a.holds(ONE)


async def test_a_renewal_keeps_everything(nodes: Nodes) -> None:
    a, b = await nodes.node("a"), await nodes.node("b")
    await a.claim(ONE)
    for _ in range(3):
        await nodes.pass_time(OWNED_SECONDS - 1)
        await a.turn()
    assert a.holds(ONE)
    assert (await owner_of(b))[0] == "a"
    assert nodes.lost == []


async def test_who_delivers_it_by_push_takes_it_from_any_other_node(nodes: Nodes) -> None:
    a, b = await nodes.node("a"), await nodes.node("b")
    await a.claim(ONE)
    await b.claim(ONE, seizes=True)
    assert b.holds(ONE)
    a.release(ONE)  # as it does when it finds out
    await a.turn()
    assert (await owner_of(a))[0] == "b"


async def test_who_only_looks_claims_nothing(nodes: Nodes) -> None:
    a, b = await nodes.node("a"), await nodes.node("b")
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


async def test_a_deleted_subscription_is_owned_by_nobody(nodes: Nodes) -> None:
    a = await nodes.node("a")
    with pytest.raises(SubscriptionGone):
        await a.claim(SubscriptionId("never"))


async def test_a_node_without_answers_owns_nothing_any_more_by_its_own_clock(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await nodes.node("a")
    await a.claim(ONE)

    async def away(*_: object, **__: object) -> None:
        raise RegistryUnavailable

    monkeypatch.setattr(nodes.registry.owners, "turn", away)
    with pytest.raises(RegistryUnavailable):
        await a.claim(TWO)
    assert a.holds(ONE)
    now = ownership._now()
    monkeypatch.setattr(ownership, "_now", lambda: now + OWNED_SECONDS)
    assert not a.holds(ONE)
    with pytest.raises(RegistryUnavailable):
        await a.claim(TWO)

    async def is_lost() -> bool:
        return nodes.lost == ["a"]

    await until(is_lost)


async def test_nodes_that_live_are_known_and_one_that_died_is_not(nodes: Nodes) -> None:
    first, idle = await nodes.node("a"), await nodes.node("b")
    await first.claim(ONE)
    await idle.turn()
    assert await alive(nodes) == ["http://a:8080", "http://b:8080"]

    await nodes.kill(first)
    await idle.turn()

    assert await alive(nodes) == ["http://b:8080"]


async def test_a_node_that_owns_nothing_is_known_all_the_same(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "RENEW_SECONDS", 0.01)

    await nodes.node("a")

    async with asyncio.timeout(20):
        while await alive(nodes) != ["http://a:8080"]:
            await asyncio.sleep(0.01)


async def alive(nodes: Nodes) -> list[str]:
    return [each.url for each in await nodes.registry.owners.nodes()]
