"""Acknowledgements one by one in PostgreSQL: several nodes on one database, tables of before, and damage."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings

from ams.core.clock import SystemClock
from ams.core.errors import OUTCOME_UNKNOWN, CursorsUnavailable, Damaged
from ams.core.offsets import ranges_of
from ams.storage import postgresql
from ams.storage.cursors import acks
from ams.storage.cursors import postgresql_acks as ack_rows
from ams.storage.cursors.acks import Progress
from ams.storage.cursors.entries import Kept
from ams.storage.cursors.postgresql import PostgresCursors
from ams.storage.cursors.postgresql_acks import Standing
from ams.storage.cursors.postgresql_connection import Call, fold
from ams.storage.cursors.postgresql_rows import DatabaseTime, Row
from tests.storage.cursors.naive import Deed, follow, plans
from tests.storage.cursors.stores import SUB, TOPIC, Nodes, SteadyNodes, done, settle

OTHER_SUB = "sub-2"


async def test_a_node_whose_subscription_another_took_over_stores_nothing(nodes: Nodes) -> None:
    one, two = nodes
    before = await one.take_over(SUB, TOPIC)
    assert await settle(one, before, done((3, 5)))
    now = await two.take_over(SUB, TOPIC)
    assert ranges_of(now.done) == [(3, 5)]

    answers = await asyncio.gather(settle(one, before, done((0, 9))), settle(two, now, done((6, 7))))

    assert answers == [False, True]
    assert ranges_of((await one.progress(SUB)).done) == [(3, 5), (6, 7)]


async def test_retention_on_another_node_goes_with_what_is_settled_meanwhile(nodes: Nodes) -> None:
    one, two = nodes
    taken = await one.take_over(SUB, TOPIC)

    async def settling() -> None:
        for at in range(1, 100, 2):
            assert await settle(one, taken, done((at, at + 1)))

    async def retaining() -> None:
        for oldest in range(10, 60, 10):
            await two.retain(SUB, taken.epoch, oldest)
            await asyncio.sleep(0.01)

    await asyncio.gather(settling(), retaining())

    progress = await two.progress(SUB)
    assert (progress.floor, list(progress.done)) == (50, list(range(51, 100, 2)))
    lost = await two.lost_in_all({})
    assert 25 <= lost <= 50
    assert await one.lost_in_all({TOPIC: 60}) == lost + 5


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_two_nodes_do_what_sets_of_numbers_say(steady_nodes: SteadyNodes, plan: list[tuple[Deed, bool]]) -> None:
    runner, _, nodes = steady_nodes

    async def stores(is_second: bool) -> tuple[PostgresCursors, PostgresCursors]:
        return nodes[is_second], nodes[not is_second]

    runner.run(follow(plan, stores))


async def test_damaged_entries_harm_no_other(nodes: Nodes, connection: "postgresql.Connection") -> None:
    one, two = nodes
    await one.create(OTHER_SUB, TOPIC, 0)
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
    assert await two.lost_in_all({TOPIC: 1}) == 2
    await two.drop(SUB)
    assert (await (await connection.execute("SELECT count(*) FROM acks")).fetchone()) == (0,)


async def test_a_late_statement_does_nothing(nodes: Nodes, connection: "postgresql.Connection") -> None:
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


async def test_a_change_that_was_perhaps_stored_is_unknown_when_the_run_is_over(postgres_url: str) -> None:
    progress = acks.unsettled(0, 0, 3)
    row = Row(Standing(TOPIC, 0, progress, Kept(progress)), 70)
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    call: Call[Standing] = Call(lambda standing: (standing, False), 0.0, future, refused=False)

    assert fold(row, [call]).outcomes == [False]
    call.unsure = True
    made = fold(row, [call])

    assert (type(made.outcomes[0]), str(made.outcomes[0]), made.moves) == (CursorsUnavailable, OUTCOME_UNKNOWN, False)
