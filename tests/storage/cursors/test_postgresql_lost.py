"""PostgreSQL lost under its cursors: killed, frozen, replaced by a standby, or cut off with an answer on its way.

And, as that too needs a server of its own, how small the table stays.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.errors import OUTCOME_UNKNOWN, CursorsUnavailable
from ams.core.names import Offset, SubscriptionId
from ams.storage import postgresql
from ams.storage.cursors.acks import Change, Progress
from ams.storage.cursors.postgresql import PostgresCursors
from cluster.link import Link
from cluster.postgres import Postgres
from tests.faults.attempts import Outcome
from tests.storage.cursors.law import DEADLINE, SUB, TOPIC, Trial

pytestmark = [pytest.mark.faults, pytest.mark.postgres]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server that answers commits before they are in its log, unless it is told not to."""
    with Postgres(tmp_path_factory.mktemp("postgres"), careless=True) as server:
        yield server


@pytest.fixture
def link(server: Postgres) -> Iterator[Link]:
    with Link(server.port(1)) as link:
        yield link


@contextlib.asynccontextmanager
async def nodes_on(url: str) -> AsyncIterator[list[PostgresCursors]]:
    """Open two stores on a database, with a fresh cursor."""
    async with contextlib.AsyncExitStack() as stack:
        stores = [await opened(stack, url) for _ in range(2)]
        await stores[0].create(SUB, TOPIC, Offset(0))
        yield stores


async def opened(stack: contextlib.AsyncExitStack, url: str) -> PostgresCursors:
    store = await PostgresCursors.open(url)
    stack.push_async_callback(store.close)
    return store


@contextlib.asynccontextmanager
async def clients(trial: Trial, stores: list[PostgresCursors]) -> AsyncIterator[None]:
    """Let clients pull and acknowledge on both stores, from a moment before to a moment after."""
    over = False

    async def client(number: int) -> None:
        chance = random.Random(number)
        while not over:
            await trial.act(stores[number % 2], chance)
            await asyncio.sleep(0.005)

    running = [asyncio.create_task(client(number)) for number in range(3)]
    await asyncio.sleep(0.3)
    yield
    await asyncio.sleep(0.3)
    over = True
    await asyncio.gather(*running)


async def test_many_acknowledgements_leave_a_small_table(server: Postgres) -> None:
    """On a server of its own, since whoever just logs in holds up the cleaning of rows for that moment."""
    names = [SubscriptionId(f"sub-{number:03}") for number in range(250)]

    async def consume(node: PostgresCursors, name: SubscriptionId) -> None:
        await node.create(name, TOPIC, Offset(0))
        await node.hand_out(name, 0, Offset(1_000))
        for last in range(100):
            await node.acknowledge(name, Offset(last), DEADLINE)

    async with nodes_on(server.url()) as (node, _):
        await asyncio.gather(*(consume(node, name) for name in names))

    with server.connected() as connection:
        size = connection.execute("SELECT pg_total_relation_size('cursors')").fetchone()
    assert size is not None
    assert size[0] < 1_000_000


async def test_a_server_killed_and_started_again_loses_no_acknowledgement_and_fails_no_call(server: Postgres) -> None:
    trial = Trial()
    async with nodes_on(server.url()) as stores:
        async with clients(trial, stores):
            for _ in range(2):
                await asyncio.to_thread(server.kill, 1)
                await asyncio.sleep(0.3)
                await asyncio.to_thread(server.restart, 1)
                await asyncio.sleep(0.5)

        assert await trial.violations(stores[1]) == []
        assert Outcome.UNKNOWN not in trial.outcomes()


async def test_a_standby_takes_over_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    trial = Trial()
    with Postgres(tmp_path, standbys=2, careless=True) as servers:
        async with nodes_on(servers.url()) as stores:
            async with clients(trial, stores):
                await asyncio.to_thread(servers.kill, 1)
                await asyncio.sleep(0.3)
                await asyncio.to_thread(servers.promote)
                before = len(trial.uses)
                await until_answered(stores[0])
                await until_answered(stores[1])

            assert await trial.violations(stores[1]) == []
            assert Outcome.DONE in [use.outcome for use in trial.uses[before:]]


async def test_calls_to_a_frozen_server_fail_in_time_then_at_once_and_it_does_nothing_of_them_later(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "STATEMENT_SECONDS", 0.6)
    monkeypatch.setattr(postgresql, "CALL_SECONDS", 1.5)
    async with nodes_on(server.url()) as stores:
        node = stores[0]
        await node.hand_out(SUB, 0, Offset(10))
        server.freeze(1)
        try:
            async with asyncio.timeout(4 * postgresql.CALL_SECONDS):
                assert await seconds_to_fail(node) >= postgresql.STATEMENT_SECONDS
            assert await seconds_to_fail(node) < postgresql.STATEMENT_SECONDS  # so it waited for nothing
        finally:
            server.thaw(1)

        standing = await until_answered(node)
        await asyncio.sleep(0.2)
        assert standing == (await node.position(SUB, TOPIC)).offset == 0


async def test_an_acknowledgement_that_came_in_time_is_in_time_however_long_the_server_takes(server: Postgres) -> None:
    async with nodes_on(server.url()) as (node, _):
        await node.hand_out(SUB, 0, Offset(10))
        server.freeze(1)
        acknowledging = asyncio.create_task(node.acknowledge(SUB, Offset(9), Milliseconds(1_000)))
        await asyncio.sleep(1.2)
        server.thaw(1)

        await acknowledging

        assert (await node.position(SUB, TOPIC)).offset == 10


async def seconds_to_fail(node: PostgresCursors) -> float:
    """Return how long an acknowledgement takes that must fail."""
    began = time.monotonic()
    with pytest.raises(CursorsUnavailable):
        await node.acknowledge(SUB, Offset(9), DEADLINE)
    return time.monotonic() - began


async def until_answered(node: PostgresCursors) -> int:
    """Return where the cursor stands, as soon as that can be told again."""
    for _ in range(100):
        with contextlib.suppress(CursorsUnavailable):
            return (await node.position(SUB, TOPIC)).offset
        await asyncio.sleep(0.1)
    raise AssertionError("the database did not come back")


async def test_a_seek_whose_answer_was_lost_is_not_done_a_second_time(server: Postgres, link: Link) -> None:
    near = server.url()
    far = near.replace(f":{server.port(1)}/", f":{link.port}/")
    async with nodes_on(near) as (here, _), nodes_on(far) as (there, _):
        await there.position(SUB, TOPIC)
        with server.connected() as connection:
            connection.execute(_SLOW)
        seeking = asyncio.create_task(there.seek(SUB, TOPIC, Offset(50)))
        await asyncio.sleep(0.15)  # the statement is being done
        link.cut()
        await sought(here)
        await here.hand_out(SUB, 1, Offset(60))
        await here.acknowledge(SUB, Offset(54), DEADLINE)
        link.restore()

        assert await seeking
        assert await here.position(SUB, TOPIC) == (55, 1, 0)
        with server.connected() as connection:
            connection.execute("DROP FUNCTION slowly CASCADE")


async def test_a_change_whose_answer_was_lost_with_the_server_is_said_to_be_unknown(
    server: Postgres, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = server.url()
    far = near.replace(f":{server.port(1)}/", f":{link.port}/")
    async with nodes_on(near) as (here, _), nodes_on(far) as (there, _):
        await there.position(SUB, TOPIC)
        with server.connected() as connection:
            connection.execute(_SLOW)
        monkeypatch.setattr(postgresql, "CALL_SECONDS", 1.0)
        seeking = asyncio.create_task(there.seek(SUB, TOPIC, Offset(50)))
        await asyncio.sleep(0.15)  # the statement is being done
        link.cut()

        with pytest.raises(CursorsUnavailable, match=f"^{OUTCOME_UNKNOWN}$"):
            await seeking
        with pytest.raises(CursorsUnavailable, match="^Backend Error$"):
            await there.seek(SUB, TOPIC, Offset(60))
        monkeypatch.undo()
        await sought(here)
        link.restore()
        with server.connected() as connection:
            connection.execute("DROP FUNCTION slowly CASCADE")


async def sought(node: PostgresCursors) -> None:
    """Wait until somebody's seek is seen."""
    while not (await node.position(SUB, TOPIC)).generation:
        await asyncio.sleep(0.02)


_SLOW = """
CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN new; END $$;
CREATE TRIGGER slowly BEFORE UPDATE ON cursors FOR EACH ROW EXECUTE FUNCTION slowly()
"""


async def test_a_server_killed_and_started_again_loses_nothing_that_was_settled(server: Postgres) -> None:
    stored: set[int] = set()
    over = False

    async def consumer(node: PostgresCursors, taken: Progress, first: int) -> None:
        for at in range(first, 10_000, 3):
            if over:
                return
            if await node.settle(SUB, taken.epoch, taken.run, Change([(Offset(at), Offset(at + 1))], {Offset(0): at})):
                stored.add(at)
            await asyncio.sleep(0.005)

    async with nodes_on(server.url()) as (node, other):
        taken = await node.take_over(SUB, TOPIC)
        consumers = [asyncio.create_task(consumer(node, taken, first)) for first in (1, 2, 3)]
        for _ in range(2):
            await asyncio.sleep(0.2)
            await asyncio.to_thread(server.kill, 1)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.restart, 1)
        await asyncio.sleep(0.3)
        over = True
        await asyncio.gather(*consumers)

        progress = await other.progress(SUB)
        assert set(progress.done) == stored
        assert len(stored) > 50
        assert progress.failures[Offset(0)] in range(max(stored) - 10, max(stored) + 1)


async def test_what_was_settled_while_the_answer_was_lost_is_settled_once_and_answered(
    server: Postgres, link: Link
) -> None:
    near = server.url()
    far = near.replace(f":{server.port(1)}/", f":{link.port}/")
    async with nodes_on(near) as (here, _), nodes_on(far) as (there, _):
        taken = await there.take_over(SUB, TOPIC)
        change = Change([(Offset(3), Offset(5))], {Offset(1): 1})
        with server.connected() as connection:
            connection.execute(_SLOW)
        settling = asyncio.create_task(there.settle(SUB, taken.epoch, taken.run, change))
        await asyncio.sleep(0.15)  # the statement is being done
        link.cut()
        while not (await here.progress(SUB)).done:
            await asyncio.sleep(0.02)
        link.restore()

        assert await settling
        assert await there.settle(SUB, taken.epoch, taken.run, Change([(Offset(6), Offset(7))]))
        progress = await here.progress(SUB)
        assert (list(progress.done), progress.failures) == ([3, 4, 6], {1: 1})
        with server.connected() as connection:
            connection.execute("DROP FUNCTION slowly CASCADE")


async def test_a_change_whose_answer_was_lost_while_another_took_over_is_unknown(server: Postgres, link: Link) -> None:
    near = server.url()
    far = near.replace(f":{server.port(1)}/", f":{link.port}/")
    async with nodes_on(near) as (here, _), nodes_on(far) as (there, _):
        taken = await there.take_over(SUB, TOPIC)
        with server.connected() as connection:
            connection.execute(_SLOW)
        settling = asyncio.create_task(there.settle(SUB, taken.epoch, taken.run, Change([(Offset(3), Offset(5))])))
        await asyncio.sleep(0.15)  # the statement is being done
        link.cut()
        while not (await here.progress(SUB)).done:
            await asyncio.sleep(0.02)
        assert list((await here.take_over(SUB, TOPIC)).done) == [3, 4]
        link.restore()

        with pytest.raises(CursorsUnavailable, match=f"^{OUTCOME_UNKNOWN}$"):
            await settling
        assert not await there.settle(SUB, taken.epoch, taken.run, Change([(Offset(6), Offset(7))]))
        with server.connected() as connection:
            connection.execute("DROP FUNCTION slowly CASCADE")


async def test_a_snapshot_whose_answer_was_lost_is_not_restored_a_second_time(server: Postgres, link: Link) -> None:
    near = server.url()
    far = near.replace(f":{server.port(1)}/", f":{link.port}/")
    async with nodes_on(near) as (here, _), nodes_on(far) as (there, _):
        await there.take_over(SUB, TOPIC)
        with server.connected() as connection:
            connection.execute(_SLOW)
        restoring = asyncio.create_task(there.restore(SUB, TOPIC, Offset(2), BitMap64([4])))
        await asyncio.sleep(0.15)  # the statement is being done
        link.cut()
        await sought(here)
        progress = await here.progress(SUB)
        assert await here.settle(SUB, progress.epoch, progress.run, Change([(Offset(2), Offset(3))]))
        link.restore()

        assert await restoring == progress.epoch
        assert [(each.floor, list(each.done)) for each in [await here.progress(SUB)]] == [(3, [4])]
        with server.connected() as connection:
            connection.execute("DROP FUNCTION slowly CASCADE")
