"""Acknowledgements one by one in PostgreSQL: several nodes on one database, tables of before, and damage."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from ams.core.clock import ManualClock, SystemClock
from ams.core.errors import OUTCOME_UNKNOWN, CursorsUnavailable, Damaged
from ams.core.names import Offset, SubscriptionId, new_uuid
from ams.core.offsets import ranges_of
from ams.storage import postgresql
from ams.storage.cursors import acks, entries
from ams.storage.cursors import postgresql_acks as ack_rows
from ams.storage.cursors import postgresql_rows as rows
from ams.storage.cursors.acks import Change, Progress
from ams.storage.cursors.entries import Kept
from ams.storage.cursors.postgresql import PostgresCursors
from ams.storage.cursors.postgresql_acks import Standing
from ams.storage.cursors.postgresql_connection import Call, fold
from ams.storage.cursors.postgresql_rows import DatabaseTime, Row
from tests.storage.cursors.clocks import StandingTime
from tests.storage.cursors.naive import Deed, Naive, answered, expected, facts_of, plans
from tests.storage.cursors.stores import SUB, TOPIC

OTHER_SUB = SubscriptionId("sub-2")
_TABLES_OF_1 = """
CREATE TABLE cursors (
    subscription text COLLATE "C" PRIMARY KEY, topic uuid NOT NULL, "offset" bigint NOT NULL,
    generation bigint NOT NULL, handed bigint[] NOT NULL, lost bigint NOT NULL, version bigint NOT NULL
);
CREATE TABLE cursor_store (
    number integer PRIMARY KEY CHECK (number = 1), format integer NOT NULL, lost bigint NOT NULL
);
INSERT INTO cursor_store VALUES (1, 1, 4);
"""


def done(*ranges: tuple[int, int]) -> Change:
    return Change([(Offset(begin), Offset(end)) for begin, end in ranges])


async def settle(node: PostgresCursors, taken: Progress, change: Change) -> bool:
    return await node.settle(SUB, taken.epoch, taken.run, change)


@pytest.fixture
async def nodes(postgres_url: str) -> AsyncIterator[list[PostgresCursors]]:
    stores = [await PostgresCursors.open(postgres_url) for _ in range(2)]
    await stores[0].create(SUB, TOPIC, Offset(0))
    yield stores
    for each in stores:
        await each.close()


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator["postgresql.Connection"]:
    connection = await postgresql.connect(postgresql.conninfo(postgres_url))
    yield connection
    await connection.close()


async def test_a_node_whose_subscription_another_has_taken_over_stores_nothing_any_more(
    nodes: list[PostgresCursors],
) -> None:
    one, two = nodes
    before = await one.take_over(SUB, TOPIC)
    assert await settle(one, before, done((3, 5)))
    now = await two.take_over(SUB, TOPIC)
    assert ranges_of(now.done) == [(3, 5)]

    answers = await asyncio.gather(settle(one, before, done((0, 9))), settle(two, now, done((6, 7))))

    assert answers == [False, True]
    assert ranges_of((await one.progress(SUB)).done) == [(3, 5), (6, 7)]


async def test_a_seek_on_another_node_ends_what_was_given_before(nodes: list[PostgresCursors]) -> None:
    one, two = nodes
    taken = await one.take_over(SUB, TOPIC)
    await settle(one, taken, done((3, 5)))
    await two.seek(SUB, TOPIC, Offset(1))

    assert not await settle(one, taken, done((1, 9)))
    progress = await two.progress(SUB)
    assert (progress.floor, len(progress.done), progress.run) == (1, 0, taken.run)
    assert await settle(one, progress, done((4, 5)))
    assert ranges_of((await two.progress(SUB)).done) == [(4, 5)]


async def test_retention_on_another_node_goes_with_what_is_settled_meanwhile(nodes: list[PostgresCursors]) -> None:
    one, two = nodes
    taken = await one.take_over(SUB, TOPIC)

    async def settling() -> None:
        for at in range(1, 100, 2):
            assert await settle(one, taken, done((at, at + 1)))

    async def retaining() -> None:
        for oldest in range(10, 60, 10):
            await two.retain(SUB, taken.epoch, Offset(oldest))
            await asyncio.sleep(0.01)

    await asyncio.gather(settling(), retaining())

    progress = await two.progress(SUB)
    assert (progress.floor, list(progress.done)) == (50, list(range(51, 100, 2)))
    lost = await two.lost_in_all({})
    assert 25 <= lost <= 50
    assert await one.lost_in_all({TOPIC: Offset(60)}) == lost + 5


class World:
    """Two stores on one database, and the loop they live in."""

    def __init__(self, runner: asyncio.Runner, url: str) -> None:
        self.runner = runner
        self.stores = [runner.run(PostgresCursors.open(url, time=StandingTime(ManualClock()))) for _ in range(2)]


@pytest.fixture
def world(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(entries, "MAX_DELTAS", 4)
    with asyncio.Runner() as runner:
        world = World(runner, postgres_url)
        yield world
        for store in world.stores:
            runner.run(store.close())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_two_nodes_do_what_sets_of_numbers_say(world: World, plan: list[tuple[Deed, bool]]) -> None:
    world.runner.run(follow(world, plan))


async def follow(world: World, plan: list[tuple[Deed, bool]]) -> None:
    subscription, model = SubscriptionId(new_uuid()), Naive()
    await world.stores[0].create(subscription, TOPIC, Offset(0))
    for deed, second in plan:
        store, other = world.stores[second], world.stores[not second]
        answer = await answered(deed, store, subscription, model)
        assert answer == expected(deed, model), deed
        if not model.is_gone:
            progress = await other.progress(subscription)
            assert facts_of(progress, await other.lost(subscription, {})) == model.facts()
            assert progress.epoch == model.epoch
    await world.stores[0].drop(subscription)


async def test_a_subscription_whose_entries_are_damaged_disturbs_no_other(
    nodes: list[PostgresCursors], connection: "postgresql.Connection"
) -> None:
    one, two = nodes
    await one.create(OTHER_SUB, TOPIC, Offset(0))
    taken = await one.take_over(SUB, TOPIC)
    await one.take_over(OTHER_SUB, TOPIC)
    await settle(one, taken, done((3, 5)))
    await connection.execute("UPDATE acks SET entry = '\\x01aabbccdd90'::bytea")

    damaged, sound = await asyncio.gather(
        two.take_over(SUB, TOPIC), two.take_over(OTHER_SUB, TOPIC), return_exceptions=True
    )

    assert isinstance(damaged, Damaged)
    assert f"subscription {SUB} an entry that does not match its checksum" in str(damaged)
    assert isinstance(sound, Progress)
    with pytest.raises(Damaged):
        await two.progress(SUB)
    assert await two.lost_in_all({TOPIC: Offset(1)}) == 2
    await two.drop(SUB)
    assert (await (await connection.execute("SELECT count(*) FROM acks")).fetchone()) == (0,)


async def test_tables_of_the_version_before_go_on(connection: "postgresql.Connection") -> None:
    url, password = connection.info.dsn, connection.info.password
    await connection.execute(_TABLES_OF_1)
    await connection.execute("INSERT INTO cursors VALUES (%s, %s::uuid, 7, 2, '{}', 1, 5)", (SUB, TOPIC.hex()))

    stores = await asyncio.gather(*(PostgresCursors.open(url, password=password) for _ in range(3)))

    assert await stores[0].position(SUB, TOPIC) == (7, 2, 1)
    assert await stores[0].lost_in_all({}) == 5
    taken = await stores[1].take_over(SUB, TOPIC)
    assert (taken.floor, taken.epoch, taken.run) == (7, 2, 1)
    assert await settle(stores[1], taken, done((9, 10)))
    assert list((await stores[2].progress(SUB)).done) == [9]
    for each in stores:
        await each.close()


async def test_a_statement_that_was_held_up_stores_nothing_after_its_time(
    nodes: list[PostgresCursors], connection: "postgresql.Connection"
) -> None:
    taken = await nodes[0].take_over(SUB, TOPIC)
    time = DatabaseTime(SystemClock())
    before = (await ack_rows.read(connection, time, [SUB]))[SUB]
    progress = acks.settled(taken, done((3, 4)))
    after = Row(before.value._replace(progress=progress), before.version + 1)

    assert await ack_rows.write(connection, time, {SUB: (before, after)}, -0.5) == {}
    assert not (await nodes[0].progress(SUB)).done
    assert (await ack_rows.write(connection, time, {SUB: (before, after)}, 0.5)).keys() == {SUB}
    assert await ack_rows.write(connection, time, {SUB: (before, after)}, 0.5) == {}  # another version by now
    assert await nodes[0].progress(SUB) == progress


async def test_rows_are_locked_in_the_order_they_are_named(
    nodes: list[PostgresCursors], connection: "postgresql.Connection"
) -> None:
    """As those of cursors are (`test_postgresql`)."""
    await connection.execute(
        "INSERT INTO cursors SELECT 's' || n, %s::uuid, 0, 0, '{}', 0, 0, 0 FROM generate_series(1, 5000) AS n",
        (TOPIC.hex(),),
    )
    await connection.execute("ANALYZE cursors")
    await connection.execute(rows.ORDERLY)
    names = "subscriptions read offsets generations lost runs versions clears numbers entries"
    words = {**dict.fromkeys(names.split(), "{}"), "expires": 0}
    plan = await (await connection.execute(f"EXPLAIN {ack_rows._WRITE}", words)).fetchall()
    text = "\n".join(line for (line,) in plan)
    moved = text[text.index("CTE moved") : text.index("CTE cleared")]

    assert "Nested Loop" in moved
    assert moved.index("Function Scan on m") < moved.index("Index Scan using cursors_pkey")


async def test_a_change_that_was_perhaps_stored_is_unknown_when_the_run_is_over(postgres_url: str) -> None:
    progress = acks.unsettled(Offset(0), 0, 3)
    row = Row(Standing(TOPIC, 0, progress, Kept(progress)), 70)
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    call: Call[Standing] = Call(lambda standing: (standing, False), 0.0, future, refused=False)

    assert fold(row, [call]).outcomes == [False]
    call.unsure = True
    made = fold(row, [call])

    assert (type(made.outcomes[0]), str(made.outcomes[0]), made.moves) == (CursorsUnavailable, OUTCOME_UNKNOWN, False)
