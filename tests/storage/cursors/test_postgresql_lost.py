"""PostgreSQL failures under its cursors: killed, frozen, replaced by a standby, or cut off before an answer arrives.

Also the size of the table, as that needs a separate server too.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from pyroaring import BitMap64

from ams.core.errors import OUTCOME_UNKNOWN, CursorsUnavailable
from ams.core.names import SubscriptionId
from ams.storage import postgresql
from ams.storage.cursors.acks import AckProgress, AckUpdate
from ams.storage.cursors.postgresql import PostgresCursors
from local_cluster.link import Link
from local_cluster.postgres import Postgres
from simulation.histories.attempts import Outcome
from tests.storage.cursors.law import DEADLINE, SUB, TOPIC, Trial
from tests.storage.cursors.stores import make_change, settle
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.faults, pytest.mark.postgres, pytest.mark.long]
T = TypeVar("T")
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server that commits asynchronously, unless told otherwise."""
    with Postgres(tmp_path_factory.mktemp("postgres"), careless=True) as server:
        yield server


@pytest.fixture(autouse=True)
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long timeouts, so that no call fails because the machine is busy."""
    monkeypatch.setattr(postgresql, "CALL_SECONDS", 60.0)


@contextlib.asynccontextmanager
async def nodes_on(url: str) -> AsyncIterator[list[PostgresCursors]]:
    async with contextlib.AsyncExitStack() as stack:
        stores = [await PostgresCursors.open(url) for _ in range(2)]
        for each in stores:
            stack.push_async_callback(each.close)
        await stores[0].create(SUB, TOPIC, 0)
        yield stores


@contextlib.asynccontextmanager
async def run_clients(clients: list[Callable[[], Coroutine[Any, Any, None]]]) -> AsyncIterator[None]:
    over = False

    async def work(client: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not over:
            await client()
            await asyncio.sleep(0.005)

    running = [asyncio.create_task(work(client)) for client in clients]
    yield
    over = True
    await asyncio.gather(*running)


@contextlib.asynccontextmanager
async def clients_of(trial: Trial, stores: list[PostgresCursors]) -> AsyncIterator[None]:
    """Let three clients pull and acknowledge on both stores, from before an event until after it."""
    chance = random.Random(0)
    async with run_clients([lambda store=stores[number % 2]: trial.act(store, chance) for number in range(3)]):
        await wait_for_growth(trial.uses)
        yield
        await wait_for_growth(trial.uses)


async def wait_for_growth(things: list[Any] | set[int]) -> None:
    """Wait until twenty more calls were done."""
    enough = len(things) + 20
    await wait_until_async(lambda: len(things) >= enough)


async def test_many_acknowledgements_leave_a_small_table(server: Postgres) -> None:
    """It grows on a new session or a busy machine, when no rows are vacuumed; not round by round."""
    names, sizes = [f"sub-{number:03}" for number in range(250)], [0]

    async def consume(node: PostgresCursors, name: SubscriptionId) -> None:
        first = (len(sizes) - 1) * 100
        await node.hand_out(name, first, first + 1_000)
        for last in range(first, first + 100):
            await node.acknowledge(name, last, 600_000)

    async with nodes_on(server.url()) as (node, _):
        await asyncio.gather(*(node.create(name, TOPIC, 0) for name in names))
        for _ in range(8):
            await asyncio.gather(*(consume(node, name) for name in names))
            with server.open_connection() as connection:
                sizes += connection.execute("SELECT pg_total_relation_size('cursors')").fetchone()
            if sizes[-1] < 1.1 * sizes[-2]:
                return
    raise AssertionError(f"it grows with each round: {sizes}")


async def test_a_server_killed_and_started_again_loses_nothing_and_fails_no_call(server: Postgres) -> None:
    trial, settled = Trial("ordered"), set[int]()
    async with nodes_on(server.url()) as stores:
        node, other = stores
        await node.create(trial.subscription, TOPIC, 0)
        taken = await node.take_over(SUB, TOPIC)
        messages = iter(range(1, 100_000))

        async def settle_next() -> None:
            at = next(messages)
            if await settle(node, taken, AckUpdate(make_change((at, at + 1)).done, {0: at})):
                settled.add(at)

        async with clients_of(trial, stores), run_clients([settle_next] * 3):
            for _ in range(2):
                await asyncio.to_thread(server.kill, 1)
                await asyncio.to_thread(server.restart, 1)
                await wait_for_growth(trial.uses)
                await wait_for_growth(settled)

        assert await trial.violations(other) == []
        assert Outcome.UNKNOWN not in trial.outcomes()
        progress = await other.progress(SUB)
        assert set(progress.done) == settled
        assert progress.failures[0] in settled


async def where_it_stands(node: PostgresCursors) -> int:
    async def read_position() -> list[int]:
        with contextlib.suppress(CursorsUnavailable):
            return [(await node.position(SUB, TOPIC)).offset]
        return []

    return (await wait_until_async(read_position))[0]


def list_backends(server: Postgres) -> set[int]:
    """Return the processes of the server that serve connections."""
    with server.open_connection() as connection:
        return {pid for (pid,) in connection.execute(BACKENDS)}


async def test_calls_to_a_frozen_server_fail_for_good(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    async with nodes_on(server.url()) as (node, _):

        async def fails_at_once() -> bool:
            call = asyncio.create_task(node.acknowledge(SUB, 9, DEADLINE))
            for _ in range(100):
                await asyncio.sleep(0)
            at_once = call.done()
            with pytest.raises(CursorsUnavailable):
                await call
            return at_once

        await node.hand_out(SUB, 0, 10)
        before = list_backends(server)
        monkeypatch.setattr(postgresql, "STATEMENT_SECONDS", 0.6)
        monkeypatch.setattr(postgresql, "CALL_SECONDS", 1.5)
        server.freeze(1)
        try:
            with pytest.raises(CursorsUnavailable):
                await node.acknowledge(SUB, 9, DEADLINE)
            await wait_until_async(fails_at_once)
        finally:
            server.thaw(1)

        standing = await where_it_stands(node)
        await wait_until_async(
            lambda: before - list_backends(server)
        )  # it has done what it was sent, as its client left
        assert standing == (await node.position(SUB, TOPIC)).offset == 0


async def test_an_acknowledgement_that_came_in_time_is_in_time_however_long_the_server_takes(server: Postgres) -> None:
    async with nodes_on(server.url()) as (node, _):
        await node.hand_out(SUB, 0, 10)
        server.freeze(1)
        acknowledging = asyncio.create_task(node.acknowledge(SUB, 9, 2_000))
        await asyncio.sleep(2.2)
        server.thaw(1)

        await acknowledging

        assert (await node.position(SUB, TOPIC)).offset == 10


WAITING_TRIGGER = """
CREATE FUNCTION waiting() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock(7); RETURN new;
END $$;
CREATE TRIGGER waiting BEFORE UPDATE ON cursors FOR EACH ROW EXECUTE FUNCTION waiting()
"""
IS_ONE_WAITING = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"


@dataclass
class SplitNodes:
    """One node beside the server, and one that reaches it by a link."""

    server: Postgres
    link: Link
    near: PostgresCursors
    far: PostgresCursors

    async def lose_answer(self, call: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a call of the far node, and cut the link while the server executes it."""
        with self.server.open_connection() as connection:
            connection.execute("SELECT pg_advisory_lock(7)")
            calling = asyncio.create_task(call)
            await wait_until_async(lambda: connection.execute(IS_ONE_WAITING).fetchone() == (True,))
            self.link.cut()
        return calling

    async def wait_for_seek(self) -> AckProgress:
        """Wait until another node's seek is visible on the server."""
        await wait_until_async(self._is_sought)
        return await self.near.progress(SUB)

    async def wait_for_settling(self) -> AckProgress:
        """Wait until another node's change is visible on the server."""
        await wait_until_async(self._is_settled)
        return await self.near.progress(SUB)

    async def _is_sought(self) -> bool:
        return bool((await self.near.position(SUB, TOPIC)).generation)

    async def _is_settled(self) -> bool:
        return bool((await self.near.progress(SUB)).done)


@pytest.fixture
async def split_nodes(server: Postgres) -> AsyncIterator[SplitNodes]:
    url = server.url()
    with Link(server.port(1)) as link:
        by_link = url.replace(f":{server.port(1)}/", f":{link.port}/")
        async with nodes_on(url) as (near, _), nodes_on(by_link) as (far, _):
            await far.position(SUB, TOPIC)
            with server.open_connection() as connection:
                connection.execute(WAITING_TRIGGER)
            yield SplitNodes(server, link, near, far)
            with server.open_connection() as connection:
                connection.execute("DROP FUNCTION waiting CASCADE")


async def test_a_seek_whose_answer_was_lost_is_not_done_a_second_time(split_nodes: SplitNodes) -> None:
    seeking = await split_nodes.lose_answer(split_nodes.far.seek(SUB, TOPIC, 50))
    await split_nodes.wait_for_seek()
    await split_nodes.near.hand_out(SUB, 1, 60)
    await split_nodes.near.acknowledge(SUB, 54, DEADLINE)
    split_nodes.link.restore()

    assert await seeking
    assert await split_nodes.near.position(SUB, TOPIC) == (55, 1, 0)


async def test_a_change_without_an_answer_is_unknown(split_nodes: SplitNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    seeking = await split_nodes.lose_answer(split_nodes.far.seek(SUB, TOPIC, 50))
    monkeypatch.setattr(postgresql, "CALL_SECONDS", 1.0)

    with pytest.raises(CursorsUnavailable, match=f"^{OUTCOME_UNKNOWN}$"):
        await seeking
    with pytest.raises(CursorsUnavailable, match="^Backend Error$"):
        await split_nodes.far.seek(SUB, TOPIC, 60)
    monkeypatch.setattr(postgresql, "CALL_SECONDS", 60.0)
    await split_nodes.wait_for_seek()
    split_nodes.link.restore()


async def test_what_was_settled_while_the_answer_was_lost_is_settled_once_and_answered(split_nodes: SplitNodes) -> None:
    taken = await split_nodes.far.take_over(SUB, TOPIC)
    settling = await split_nodes.lose_answer(
        settle(split_nodes.far, taken, AckUpdate(make_change((3, 5)).done, {1: 1}))
    )
    await split_nodes.wait_for_settling()
    split_nodes.link.restore()

    assert await settling
    assert await settle(split_nodes.far, taken, make_change((6, 7)))
    progress = await split_nodes.near.progress(SUB)
    assert (list(progress.done), progress.failures) == ([3, 4, 6], {1: 1})


async def test_a_change_whose_answer_was_lost_while_another_took_over_is_unknown(split_nodes: SplitNodes) -> None:
    taken = await split_nodes.far.take_over(SUB, TOPIC)
    settling = await split_nodes.lose_answer(settle(split_nodes.far, taken, make_change((3, 5))))
    await split_nodes.wait_for_settling()
    assert list((await split_nodes.near.take_over(SUB, TOPIC)).done) == [3, 4]
    split_nodes.link.restore()

    with pytest.raises(CursorsUnavailable, match=f"^{OUTCOME_UNKNOWN}$"):
        await settling
    assert not await settle(split_nodes.far, taken, make_change((6, 7)))


async def test_a_snapshot_whose_answer_was_lost_is_not_restored_a_second_time(split_nodes: SplitNodes) -> None:
    await split_nodes.far.take_over(SUB, TOPIC)
    restoring = await split_nodes.lose_answer(split_nodes.far.restore(SUB, TOPIC, 2, BitMap64([4])))
    progress = await split_nodes.wait_for_seek()
    assert await settle(split_nodes.near, progress, make_change((2, 3)))
    split_nodes.link.restore()

    assert await restoring == progress.epoch
    progress = await split_nodes.near.progress(SUB)
    assert (progress.floor, list(progress.done)) == (3, [4])
