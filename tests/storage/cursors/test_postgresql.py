"""What is particular to cursors in PostgreSQL: several nodes on one database, and what is not written."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import NoReturn

import psycopg
import pytest

from ams.core.clock import Milliseconds, SystemClock
from ams.core.errors import CursorsUnavailable, InvalidInput, TopicGone, Unusable
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.storage import postgresql
from ams.storage.cursors import postgresql_rows as rows
from ams.storage.cursors.postgresql import PostgresCursors
from ams.storage.cursors.postgresql_connection import ReconnectingConnection
from ams.storage.cursors.postgresql_rows import DatabaseTime
from tests.faults.attempts import Outcome
from tests.storage.cursors.law import Trial

SUB = SubscriptionId("sub-1")
TOPIC = TopicId(b"t" * 16)
OTHER = TopicId(b"o" * 16)
DEADLINE = Milliseconds(10_000)


@pytest.fixture
async def nodes(postgres_url: str) -> AsyncIterator[list[PostgresCursors]]:
    """Two stores on one database, with a cursor both have seen."""
    stores = list(await asyncio.gather(PostgresCursors.open(postgres_url), PostgresCursors.open(postgres_url)))
    await stores[0].create(SUB, TOPIC, Offset(0))
    for each in stores:
        await each.position(SUB, TOPIC)
    yield stores
    for each in stores:
        await each.close()


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator["postgresql.Connection"]:
    connection = await postgresql.connect(postgresql.conninfo(postgres_url))
    yield connection
    await connection.close()


async def test_what_one_node_handed_out_another_takes_the_acknowledgement_of(nodes: list[PostgresCursors]) -> None:
    one, two = nodes
    assert await one.hand_out(SUB, 0, Offset(10))

    await two.acknowledge(SUB, Offset(9), DEADLINE)

    assert (await one.position(SUB, TOPIC)).offset == 10
    assert await one.handed(SUB) is None


async def consumed(node: PostgresCursors, times: int) -> None:
    for _ in range(times):
        position = node.expected(SUB, TOPIC) or await node.position(SUB, TOPIC)
        assert await node.hand_out(SUB, position.generation, Offset(position.offset + 10), position.offset)
        await node.acknowledge(SUB, Offset(position.offset + 9), DEADLINE)


async def test_a_node_that_others_leave_alone_with_a_cursor_expects_where_it_stands(
    nodes: list[PostgresCursors],
) -> None:
    one, two = nodes
    assert one.expected(SUB, TOPIC) is None
    await consumed(one, 3)

    assert one.expected(SUB, TOPIC) == await one.position(SUB, TOPIC) == await two.position(SUB, TOPIC)
    assert one.expected(SUB, OTHER) is None
    assert two.expected(SUB, TOPIC) is None


@pytest.mark.parametrize("is_sought", [False, True])
async def test_what_a_node_expects_of_a_cursor_that_another_one_moved_is_not_handed_out(
    nodes: list[PostgresCursors], is_sought: bool
) -> None:
    one, two = nodes
    await consumed(one, 3)
    if is_sought:
        await two.seek(SUB, TOPIC, Offset(30))
    else:
        await consumed(two, 1)
    late = one.expected(SUB, TOPIC)
    assert late is not None
    moved = await two.position(SUB, TOPIC)

    assert not await one.hand_out(SUB, late.generation, Offset(90), late.offset)

    assert one.expected(SUB, TOPIC) is None
    assert await one.position(SUB, TOPIC) == moved
    with pytest.raises(InvalidInput):
        await one.acknowledge(SUB, Offset(89), DEADLINE)


async def test_nodes_that_take_turns_expect_nothing(nodes: list[PostgresCursors]) -> None:
    for _ in range(4):
        for each in nodes:
            assert each.expected(SUB, TOPIC) is None
            await consumed(each, 1)


async def test_a_node_that_has_not_heard_of_a_new_topic_does_not_throw_a_cursor_back(postgres_url: str) -> None:
    there = {OTHER}  # made again under the name of TOPIC, which was deleted

    async def exists(topic: TopicId) -> bool:
        return topic in there

    one, two = [await PostgresCursors.open(postgres_url, exists=exists) for _ in range(2)]
    await one.create(SUB, TOPIC, Offset(5))
    generation = (await one.position(SUB, OTHER)).generation
    assert await one.hand_out(SUB, generation, Offset(10))
    await one.acknowledge(SUB, Offset(9), DEADLINE)

    with pytest.raises(TopicGone):
        await two.position(SUB, TOPIC)

    assert (await one.position(SUB, OTHER)).offset == 10
    for each in (one, two):
        await each.close()


async def test_an_acknowledgement_is_timed_by_the_clock_of_a_primary_not_heard_of_before(postgres_url: str) -> None:
    of_old_primary = DatabaseTime(SystemClock())
    one, two = [await PostgresCursors.open(postgres_url), await PostgresCursors.open(postgres_url, time=of_old_primary)]
    await one.create(SUB, TOPIC, Offset(0))
    await two.position(SUB, TOPIC)
    of_old_primary.note(of_old_primary.now() + 600_000)  # whose clock was ten minutes ahead
    await one.hand_out(SUB, 0, Offset(10))

    await two.acknowledge(SUB, Offset(9), DEADLINE)

    assert (await one.position(SUB, TOPIC)).offset == 10
    for each in (one, two):
        await each.close()


async def test_an_error_is_never_answered_from_what_a_node_saw_before(nodes: list[PostgresCursors]) -> None:
    one, two = nodes
    await one.hand_out(SUB, 0, Offset(5))
    await two.acknowledge(SUB, Offset(4), DEADLINE)
    await one.hand_out(SUB, 0, Offset(20))

    await two.acknowledge(SUB, Offset(19), DEADLINE)  # as two saw it, nothing was handed out

    await one.seek(SUB, TOPIC, Offset(0))
    with pytest.raises(InvalidInput, match="no ack pending"):
        await two.acknowledge(SUB, Offset(19), DEADLINE)  # as two saw it, it was acknowledged before


async def test_the_first_move_may_come_long_after_the_start(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "CALL_SECONDS", 1.0)
    store = await PostgresCursors.open(postgres_url)
    await asyncio.sleep(1.1)

    await store.create(SUB, TOPIC, Offset(3))

    assert (await store.position(SUB, TOPIC)).offset == 3
    await store.close()


async def test_a_seek_on_one_node_ends_the_pull_that_began_on_another(nodes: list[PostgresCursors]) -> None:
    one, two = nodes
    before = await two.position(SUB, TOPIC)
    await one.seek(SUB, TOPIC, Offset(7))

    assert not await two.hand_out(SUB, before.generation, Offset(5))
    assert (await two.position(SUB, TOPIC)).offset == 7


async def test_nodes_that_meet_a_new_topic_at_once_restart_the_cursor_once(nodes: list[PostgresCursors]) -> None:
    await nodes[0].seek(SUB, TOPIC, Offset(7))

    met = await asyncio.gather(*(each.position(SUB, OTHER) for each in nodes * 3))

    assert {(each.offset, each.generation) for each in met} == {(0, 2)}


async def test_nodes_that_were_told_the_same_loss_count_it_once(nodes: list[PostgresCursors]) -> None:
    told = await asyncio.gather(*(each.lost_in_all({TOPIC: Offset(5)}) for each in nodes))
    await nodes[0].seek(SUB, TOPIC, Offset(5))

    again = await asyncio.gather(*(each.lost_in_all({}, 5) for each in nodes * 4))

    assert (told, set(again)) == ([5, 5], {5})


async def test_a_race_of_clients_on_two_nodes_keeps_the_law(nodes: list[PostgresCursors]) -> None:
    other = SubscriptionId("sub-2")
    await nodes[0].create(other, TOPIC, Offset(0))
    trials = (Trial(SUB), Trial(other))

    async def client(number: int) -> None:
        chance = random.Random(number)
        for _ in range(30):
            await trials[number // 4].act(nodes[number % 2], chance)

    await asyncio.gather(*(client(number) for number in range(8)))

    for trial in trials:
        assert await trial.violations(nodes[0]) == []
        assert len(trial.uses) > 150
        assert Outcome.UNKNOWN not in trial.outcomes()


async def test_looks_and_needless_calls_write_nothing(
    nodes: list[PostgresCursors], connection: "postgresql.Connection"
) -> None:
    async def written() -> object:
        return await (await connection.execute("SELECT xmin, version FROM cursors")).fetchone()

    node = nodes[0]
    await node.hand_out(SUB, 0, Offset(5))
    await node.acknowledge(SUB, Offset(4), DEADLINE)
    before = await written()

    await node.position(SUB, TOPIC)
    await node.hand_out(SUB, 0, Offset(5))
    await node.acknowledge(SUB, Offset(3), DEADLINE)
    await node.retain(SUB, 0, Offset(5))
    await node.lost_in_all({TOPIC: Offset(3)})

    assert await written() == before


async def test_a_statement_that_was_held_up_does_nothing_after_its_time(connection: "postgresql.Connection") -> None:
    store = await PostgresCursors.open(connection.info.dsn, password=connection.info.password)
    await store.create(SUB, TOPIC, Offset(0))
    time = DatabaseTime(SystemClock())
    before = (await rows.read(connection, time, [SUB]))[SUB]
    after = before._replace(value=before.value._replace(offset=Offset(5)), version=before.version + 1)

    late = await rows.write(connection, time, {SUB: (before, after)}, -0.5)
    in_time = await rows.write(connection, time, {SUB: (before, after)}, 0.5)

    assert (late, in_time) == ({}, {SUB: after})
    assert not await rows.create(connection, time, SubscriptionId("late"), before, -0.5)
    await store.close()


async def test_rows_are_locked_in_the_order_they_are_named(connection: "postgresql.Connection") -> None:
    """Else two nodes that move the same cursors would end each other."""
    store = await PostgresCursors.open(connection.info.dsn, password=connection.info.password)
    await connection.execute(
        "INSERT INTO cursors SELECT 's' || n, %s::uuid, 0, 0, '{}', 0, 0 FROM generate_series(1, 5000) AS n",
        (TOPIC.hex(),),
    )
    await connection.execute("ANALYZE cursors")
    await connection.execute(rows.ORDERLY)
    words = (*(["{}"] * 7), "{}", 0)
    names = ("subscriptions", "read", "topics", "offsets", "generations", "handed", "lost", "versions", "expires")
    plan = await (await connection.execute(f"EXPLAIN {rows._WRITE}", dict(zip(names, words, strict=True)))).fetchall()
    text = "\n".join(line for (line,) in plan)

    assert "Nested Loop" in text
    assert text.index("Function Scan on m") < text.index("Index Scan using cursors_pkey")
    await store.close()


async def test_a_hand_out_is_dated_by_the_databases_clock(
    nodes: list[PostgresCursors], connection: "postgresql.Connection"
) -> None:
    await nodes[0].hand_out(SUB, 0, Offset(5))

    found = await (
        await connection.execute("SELECT handed[2] - extract(epoch FROM clock_timestamp()) * 1000 FROM cursors")
    ).fetchone()

    assert found is not None
    assert -2_000 < found[0] < 100


async def test_tables_of_a_newer_version_or_of_somebody_else_are_refused_in_one_line(
    connection: "postgresql.Connection",
) -> None:
    url, password = connection.info.dsn, connection.info.password
    await connection.execute("CREATE TABLE cursors (name text)")
    with pytest.raises(Unusable, match="already exists"):
        await PostgresCursors.open(url, password=password)

    await connection.execute("DROP TABLE cursors")
    await (await PostgresCursors.open(url, password=password)).close()
    await connection.execute("UPDATE cursor_store SET format = 99")
    with pytest.raises(Unusable, match="newer version"):
        await PostgresCursors.open(url, password=password)


async def test_a_url_that_cannot_be_read_is_unusable() -> None:
    with pytest.raises(Unusable, match="not a PostgreSQL URL"):
        await PostgresCursors.open("postgresql://one.example/ams?colour=red")


async def test_a_database_that_is_away_at_the_start_is_told_with_its_reason(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "CALL_SECONDS", 0.7)

    with pytest.raises(CursorsUnavailable) as told:
        await PostgresCursors.open(f"postgresql://ams@127.0.0.1:{unused_tcp_port}/ams")

    assert isinstance(told.value.__cause__, psycopg.OperationalError)
    assert "refused" in str(told.value.__cause__)


async def test_a_defect_while_connecting_is_not_remembered(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await PostgresCursors.open(postgres_url)

    async def breaks(*_: object) -> NoReturn:
        raise KeyError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(ReconnectingConnection, "_attempt", breaks)
        with pytest.raises(KeyError):
            await store.create(SUB, TOPIC, Offset(3))

    await store.create(SUB, TOPIC, Offset(3))
    await store.close()
