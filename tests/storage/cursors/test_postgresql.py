"""Cursors in PostgreSQL: several nodes on one database, calls combined into one row, damage."""

import asyncio
import random
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings

from ams.core.clock import SystemClock
from ams.core.errors import OUTCOME_UNKNOWN, CursorsUnavailable, Damaged, InvalidInput, TopicGone, Unusable
from ams.core.names import TopicId
from ams.storage import postgresql
from ams.storage.cursors import acks, base
from ams.storage.cursors import postgresql_rows as rows
from ams.storage.cursors.acks import AckProgress
from ams.storage.cursors.base import Cursor, CursorHandOut
from ams.storage.cursors.entries import StoredProgress
from ams.storage.cursors.postgresql import CursorCall, PostgresCursors, Step, apply_calls
from ams.storage.cursors.postgresql_rows import SERIES_VERSIONS, CursorStanding, DatabaseTime, TableRow
from local_cluster.ports import free_port
from simulation.histories.attempts import Outcome
from tests.storage.cursors.law import Trial
from tests.storage.cursors.naive import Deed, follow_plan, plans
from tests.storage.cursors.stores import DEADLINE, OTHER_TOPIC, SUB, TOPIC, Nodes, SteadyNodes, make_change, settle
from tests.support.loop_time import pass_loop_time

on_postgresql = pytest.mark.parametrize("shared_url", ["postgresql"], indirect=True)
"""Not on the model: the tests use SQL of PostgreSQL itself."""


async def consume_batches(node: PostgresCursors, times: int) -> None:
    for _ in range(times):
        position = node.cached_position(SUB, TOPIC) or await node.position(SUB, TOPIC)
        assert await node.hand_out(SUB, position.generation, position.offset + 10, position.offset)
        await node.acknowledge(SUB, position.offset + 9, DEADLINE)


@pytest.mark.parametrize("is_sought", [False, True])
async def test_a_cursor_moved_by_another_node_is_not_handed_out(nodes: Nodes, is_sought: bool) -> None:
    one, two = nodes
    await consume_batches(one, 3)
    if is_sought:
        await two.seek(SUB, TOPIC, 30)
    else:
        await consume_batches(two, 1)
    late = one.cached_position(SUB, TOPIC)
    moved = await two.position(SUB, TOPIC)

    assert not await one.hand_out(SUB, late.generation, 90, late.offset)

    assert one.cached_position(SUB, TOPIC) is None
    assert await one.position(SUB, TOPIC) == moved
    with pytest.raises(InvalidInput):
        await one.acknowledge(SUB, 89, DEADLINE)


async def test_a_node_that_has_not_heard_of_a_new_topic_does_not_throw_a_cursor_back(postgres_url: str) -> None:
    there = {OTHER_TOPIC}  # made again under the name of TOPIC, which was deleted

    async def exists(topic: TopicId) -> bool:
        return topic in there

    one, two = [await PostgresCursors.open(postgres_url, exists=exists) for _ in range(2)]
    await one.create(SUB, TOPIC, 5)
    assert await one.hand_out(SUB, (await one.position(SUB, OTHER_TOPIC)).generation, 10)
    await one.acknowledge(SUB, 9, DEADLINE)

    with pytest.raises(TopicGone):
        await two.position(SUB, TOPIC)

    assert (await one.position(SUB, OTHER_TOPIC)).offset == 10
    for each in (one, two):
        await each.close()


async def test_an_acknowledgement_is_timed_by_the_clock_of_a_primary_not_heard_of_before(postgres_url: str) -> None:
    of_old_primary = DatabaseTime(SystemClock())
    one, two = [await PostgresCursors.open(postgres_url), await PostgresCursors.open(postgres_url, time=of_old_primary)]
    await one.create(SUB, TOPIC, 0)
    await two.position(SUB, TOPIC)
    of_old_primary.note(of_old_primary.now() + 600_000, of_old_primary.moment())  # whose clock was ten minutes ahead
    await one.hand_out(SUB, 0, 10)

    await two.acknowledge(SUB, 9, DEADLINE)

    assert (await one.position(SUB, TOPIC)).offset == 10
    for each in (one, two):
        await each.close()


async def test_an_error_is_never_answered_from_what_a_node_saw_before(nodes: Nodes) -> None:
    one, two = nodes
    await one.hand_out(SUB, 0, 5)
    await two.acknowledge(SUB, 4, DEADLINE)
    await one.hand_out(SUB, 0, 20)

    await two.acknowledge(SUB, 19, DEADLINE)  # as two saw it, nothing was handed out

    await one.seek(SUB, TOPIC, 0)
    with pytest.raises(InvalidInput, match="no ack pending"):
        await two.acknowledge(SUB, 19, DEADLINE)  # as two saw it, it was acknowledged before


async def test_the_first_move_may_come_long_after_the_start(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await PostgresCursors.open(postgres_url)
    pass_loop_time(monkeypatch, 10 * postgresql.CALL_SECONDS)

    await store.create(SUB, TOPIC, 3)

    assert (await store.position(SUB, TOPIC)).offset == 3
    await store.close()


async def test_nodes_that_meet_a_new_topic_at_once_restart_the_cursor_once(nodes: Nodes) -> None:
    await nodes[0].seek(SUB, TOPIC, 7)
    met = await asyncio.gather(*(each.position(SUB, OTHER_TOPIC) for each in nodes * 3))
    assert {(each.offset, each.generation) for each in met} == {(0, 2)}


async def test_a_race_of_clients_on_two_nodes_keeps_the_law(nodes: Nodes) -> None:
    other = "sub-2"
    await nodes[0].create(other, TOPIC, 0)
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


@on_postgresql
async def test_needless_calls_write_nothing(nodes: Nodes, connection: "postgresql.Connection") -> None:
    async def read_version() -> object:
        return await (await connection.execute("SELECT xmin, version FROM cursors")).fetchone()

    node = nodes[0]
    await node.hand_out(SUB, 0, 5)
    await node.acknowledge(SUB, 4, DEADLINE)
    before = await read_version()

    await node.position(SUB, TOPIC)
    await node.hand_out(SUB, 0, 5)
    await node.acknowledge(SUB, 3, DEADLINE)
    await node.retain(SUB, 0, 5)
    await node.lost_in_all({TOPIC: 3})

    assert await read_version() == before


async def test_a_statement_that_was_held_up_does_nothing_after_its_time(connection: "postgresql.Connection") -> None:
    store = await PostgresCursors.open(connection.info.dsn, password=connection.info.password)
    await store.create(SUB, TOPIC, 0)
    time = DatabaseTime(SystemClock())
    before = (await rows.read_cursors(connection, time, [SUB]))[SUB]
    after = before._replace(value=before.value._replace(offset=5), version=before.version + 1)

    late = await rows.write_cursors(connection, time, {SUB: (before, after)}, -0.5)
    assert (late, await rows.write_cursors(connection, time, {SUB: (before, after)}, 0.5)) == ({}, {SUB: after})
    assert not await rows.create(connection, time, "late", before, -0.5)
    await store.close()


CURSOR_WORDS = "subscriptions read topics offsets generations handed lost versions"
ACK_WORDS = "subscriptions read offsets generations lost runs versions clears numbers entries"


@pytest.mark.parametrize(
    ("statement", "words", "end"),
    [(rows._WRITE_CURSORS, CURSOR_WORDS, ""), (rows._WRITE_STANDINGS, ACK_WORDS, "CTE cleared")],
    ids=["cursors", "acknowledgements"],
)
@on_postgresql
async def test_rows_are_locked_in_the_order_they_are_named(
    nodes: Nodes, connection: "postgresql.Connection", statement: str, words: str, end: str
) -> None:
    """Otherwise two nodes that move the same cursors would deadlock."""
    await connection.execute(
        "INSERT INTO cursors SELECT 's' || n, %s::uuid, 0, 0, '{}', 0, 0 FROM generate_series(1, 5000) AS n",
        (TOPIC.hex(),),
    )
    await connection.execute("ANALYZE cursors")
    await connection.execute(rows.FIXED_LOCK_ORDER)
    given = {**dict.fromkeys(words.split(), "{}"), "expires": 0}
    plan = await (await connection.execute(f"EXPLAIN {statement}", given)).fetchall()
    text = "\n".join(line for (line,) in plan)
    moved = text[text.index("CTE moved") : text.index(end)] if end else text

    assert "Nested Loop" in moved
    assert moved.index("Function Scan on m") < moved.index("Index Scan using cursors_pkey")


@on_postgresql
async def test_the_database_dates_a_hand_out(nodes: Nodes, connection: "postgresql.Connection") -> None:
    await nodes[0].hand_out(SUB, 0, 5)

    found = await (
        await connection.execute("SELECT handed[2] - extract(epoch FROM clock_timestamp()) * 1000 FROM cursors")
    ).fetchone()

    assert -60_000 < found[0] < 100


async def test_tables_of_a_newer_version_or_of_others_are_refused(connection: "postgresql.Connection") -> None:
    url, password = connection.info.dsn, connection.info.password
    await connection.execute("CREATE TABLE cursors (name text)")
    with pytest.raises(Unusable, match="already exists"):
        await PostgresCursors.open(url, password=password)

    await connection.execute("DROP TABLE cursors")
    await (await PostgresCursors.open(url, password=password)).close()
    await connection.execute("UPDATE cursor_store SET format = 99")
    with pytest.raises(Unusable, match="newer version"):
        await PostgresCursors.open(url, password=password)


async def test_a_database_away_at_the_start_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "CALL_SECONDS", 0.7)

    with pytest.raises(CursorsUnavailable) as told:
        await PostgresCursors.open(f"postgresql://ams@127.0.0.1:{free_port()}/ams")

    assert isinstance(told.value.__cause__, psycopg.OperationalError)
    assert "refused" in str(told.value.__cause__)


OTHER_SUB = "sub-2"


async def test_retention_on_another_node_goes_with_what_is_settled_meanwhile(nodes: Nodes) -> None:
    one, two = nodes
    taken = await one.take_over(SUB, TOPIC)

    async def settling() -> None:
        for at in range(1, 100, 2):
            assert await settle(one, taken, make_change((at, at + 1)))

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

    runner.run(follow_plan(plan, stores))


@on_postgresql
async def test_damaged_entries_harm_no_other(nodes: Nodes, connection: "postgresql.Connection") -> None:
    one, two = nodes
    await one.create(OTHER_SUB, TOPIC, 0)
    taken = await one.take_over(SUB, TOPIC)
    await one.take_over(OTHER_SUB, TOPIC)
    await settle(one, taken, make_change((3, 5)))
    await connection.execute("UPDATE acks SET entry = '\\x03aabbccdd90'::bytea")

    damaged, sound = await asyncio.gather(
        two.take_over(SUB, TOPIC), two.take_over(OTHER_SUB, TOPIC), return_exceptions=True
    )

    assert isinstance(damaged, Damaged)
    assert f"subscription {SUB} an entry that does not match its checksum" in str(damaged)
    assert isinstance(sound, AckProgress)
    with pytest.raises(Damaged):
        await two.progress(SUB)
    assert await two.lost_in_all({TOPIC: 1}) == 2
    await two.drop(SUB)
    assert (await (await connection.execute("SELECT count(*) FROM acks")).fetchone()) == (0,)


@on_postgresql
async def test_a_late_statement_does_nothing(nodes: Nodes, connection: "postgresql.Connection") -> None:
    taken = await nodes[0].take_over(SUB, TOPIC)
    time = DatabaseTime(SystemClock())
    before = (await rows.read_standings(connection, time, [SUB]))[SUB]
    progress = acks.apply_update(taken, make_change((3, 4)))
    after = TableRow(before.value._replace(progress=progress), before.version + 1)

    assert await rows.write_standings(connection, time, {SUB: (before, after)}, -0.5) == {}
    assert not (await nodes[0].progress(SUB)).done
    assert (await rows.write_standings(connection, time, {SUB: (before, after)}, 0.5)).keys() == {SUB}
    assert await rows.write_standings(connection, time, {SUB: (before, after)}, 0.5) == {}  # another version by now
    assert await nodes[0].progress(SUB) == progress


async def test_a_change_that_was_perhaps_stored_is_unknown_when_the_run_is_over(postgres_url: str) -> None:
    progress = acks.empty_progress(0, 0, 3)
    row = TableRow(CursorStanding(TOPIC, 0, progress, StoredProgress(progress)), 70)
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    call: CursorCall[CursorStanding] = CursorCall(lambda standing: (standing, False), 0.0, future, refused=False)

    assert apply_calls(row, [call]).outcomes == [False]
    call.unsure = True
    made = apply_calls(row, [call])

    assert (type(made.outcomes[0]), str(made.outcomes[0]), made.moves) == (CursorsUnavailable, OUTCOME_UNKNOWN, False)


NOW = 1_000
ROW = TableRow(Cursor(TOPIC, 5, handed=(CursorHandOut(10, NOW),)), 70)


def call(step: Step, **words: Any) -> CursorCall:
    return CursorCall(step, 0.0, asyncio.get_running_loop().create_future(), **words)


def acknowledge(last: int) -> Step:
    return lambda cursor: (base.acknowledge(cursor, last, NOW, NOW), None)


def seek(offset: int) -> Step:
    return lambda cursor: (base.seek(cursor, offset), True)


async def test_calls_for_one_cursor_follow_one_another_on_one_row() -> None:
    made = apply_calls(ROW, [call(acknowledge(6)), call(acknowledge(30)), call(acknowledge(9)), call(acknowledge(9))])
    assert (made.after.value.offset, made.after.version) == (10, 72)
    assert [type(outcome) for outcome in made.outcomes] == [type(None), InvalidInput, type(None), type(None)]


async def test_a_seek_begins_a_series_of_versions_and_is_known_by_it_also_after_others_have_moved_the_cursor() -> None:
    seeking = call(seek(2), series=9_000)
    sought = apply_calls(ROW, [seeking]).after
    assert sought.version == 9_000
    later = TableRow(sought.value._replace(offset=40), sought.version + 3)

    seeking.unsure = True
    again = apply_calls(later, [seeking])

    assert (again.outcomes, again.after) == ([True], TableRow(later.value, later.version + 1))
    assert apply_calls(TableRow(later.value, 9_000 + SERIES_VERSIONS), [seeking]).after == TableRow(
        seek(2)(later.value)[0], 9_000
    )


async def test_what_was_perhaps_written_before_is_written_again_even_if_it_is_there() -> None:
    made = apply_calls(ROW, [call(acknowledge(3), unsure=True)])
    assert made.moves
    assert (made.after.value, made.after.version) == (ROW.value, ROW.version + 1)
