"""Snapshots in the registry: names, pages, and that they end."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyroaring import BitMap64
from sqlalchemy import Connection, delete, insert, update

from ams.core.clock import ManualClock
from ams.core.errors import AlreadyExists, Conflict, Damaged, NotFound
from ams.core.names import topic_id_text
from ams.core.offsets import packed
from ams.storage.registry.parallel import MOST_SNAPSHOTS
from ams.storage.registry.records import PageRequest, Project, Snapshot, Topic
from ams.storage.registry.registry import Registry
from ams.storage.registry.resources import PARALLEL
from ams.storage.registry.tables import snapshots
from tests.storage.registry.makers import new_topic
from tests.support.administration import open_registry

N = "N"
LATER = 1000
"""Milliseconds that a snapshot stays."""


def snapshot(clock: ManualClock, topic: Topic, name: str = "N") -> Snapshot:
    until = clock.wall() + LATER
    return Snapshot(topic.project_id, name, topic.id, topic.name, 3, clock.wall(), until, BitMap64([4, 6]))


async def make(registry: Registry, clock: ManualClock, topic: Topic, name: str = "N") -> bool:
    return await registry.snapshots.create(snapshot(clock, topic, name))


async def test_a_snapshot_is_found_as_it_was_made(registry: Registry, clock: ManualClock, topic: Topic) -> None:
    assert await make(registry, clock, topic)

    assert await registry.snapshots.find(topic.project_id, N) == snapshot(clock, topic)
    assert await registry.snapshots.find(topic.project_id, "n") is None


async def test_of_a_topic_come_newest_first(
    registry: Registry, project: Project, clock: ManualClock, topic: Topic
) -> None:
    other = await new_topic(registry, project, "other")
    await make(registry, clock, topic, "gone")
    clock.advance(LATER)
    for name in ("A", "B", "C"):
        await make(registry, clock, topic, name)
    await make(registry, clock, other, "D")

    first = await registry.snapshots.of_topic(topic.id, PageRequest(2))
    second = await registry.snapshots.of_topic(topic.id, PageRequest(2, first.next_token))

    assert (first.items, second.items) == (("C", "B"), ("A",))
    assert (first.total, second.next_token) == (3, "")


async def test_it_may_be_set_when_it_expires(registry: Registry, clock: ManualClock, topic: Topic) -> None:
    await make(registry, clock, topic)
    later = clock.wall() + 2 * LATER

    assert await registry.snapshots.set_expiry(topic.project_id, N, later)

    clock.advance(LATER)
    assert (found := await registry.snapshots.find(topic.project_id, N)) is not None
    assert found.expires_on == later
    clock.advance(LATER)
    assert not await registry.snapshots.set_expiry(topic.project_id, N, later + LATER)
    assert await registry.snapshots.find(topic.project_id, N) is None


async def test_a_name_is_taken_until_it_is_deleted(registry: Registry, clock: ManualClock, topic: Topic) -> None:
    await make(registry, clock, topic)
    with pytest.raises(AlreadyExists, match=r"^Snapshot already exists$"):
        await make(registry, clock, topic)

    assert await registry.snapshots.delete(topic.project_id, N)
    assert not await registry.snapshots.delete(topic.project_id, N)
    assert await make(registry, clock, topic)


async def test_one_that_has_expired_is_not_there(registry: Registry, clock: ManualClock, topic: Topic) -> None:
    for name in ("N", "M"):
        await make(registry, clock, topic, name)
    clock.advance(LATER)

    assert await registry.snapshots.find(topic.project_id, N) is None
    assert (await registry.snapshots.page(topic.project_id, PageRequest())).total == 0
    assert not await registry.snapshots.delete(topic.project_id, N)
    assert await make(registry, clock, topic), "its name is free again"
    clock.step(-1)
    assert (await registry.snapshots.page(topic.project_id, PageRequest())).total == 1, "the other one was removed"
    assert await registry.snapshots.find(topic.project_id, N) is not None


async def test_a_project_has_so_many_and_no_more(registry: Registry, clock: ManualClock, topic: Topic) -> None:
    assert await make(registry, clock, topic, "first")
    values = {
        "project_id": topic.project_id, "topic_id": topic_id_text(topic.id), "floor": 0, "done": packed(BitMap64()),
        "created_on": clock.wall(), "expires_on": clock.wall() + 2 * LATER,
    }  # fmt: skip
    rows = [{**values, "name": f"n{number}"} for number in range(MOST_SNAPSHOTS - 2)]
    await registry._database.write(lambda connection: connection.execute(insert(snapshots), rows))
    assert await make(registry, clock, topic, "last")
    with pytest.raises(Conflict, match=r"^A project has at most 5000 snapshots$"):
        await make(registry, clock, topic)
    assert (await registry.snapshots.page(topic.project_id, PageRequest(1))).total == MOST_SNAPSHOTS

    await registry.snapshots.delete(topic.project_id, "last")
    assert await make(registry, clock, topic)
    with pytest.raises(Conflict):
        await make(registry, clock, topic, "M")
    clock.advance(LATER)
    assert await make(registry, clock, topic, "M"), "the first one has expired"


async def test_what_expires_is_found_by_index(tmp_path: Path) -> None:
    statements = delete(snapshots).where(snapshots.c.expires_on <= 1), PARALLEL

    def plans(connection: Connection) -> list[list[str]]:
        texts = [str(each.compile(connection, compile_kwargs={"literal_binds": True})) for each in statements]
        return [[row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")] for text in texts]

    async with open_registry(tmp_path) as registry:
        of_snapshots, of_subscriptions = await registry._database.read(plans)
    assert of_snapshots == ["SEARCH snapshots USING COVERING INDEX snapshots_by_expiry (expires_on<?)"]
    assert of_subscriptions[0] == "SCAN subscriptions USING INDEX subscriptions_parallel", "which has no others"
    assert len(of_subscriptions) == 3, "nothing is sorted"


async def test_it_needs_its_topic_and_project(registry: Registry, clock: ManualClock, topic: Topic) -> None:
    await make(registry, clock, topic)
    with pytest.raises(NotFound, match=r"^project doesn't exist$"):
        await registry.snapshots.create(replace(snapshot(clock, topic), project_id="gone"))

    await registry.topics.delete(topic)

    assert await registry.snapshots.find(topic.project_id, N) is None
    assert not await make(registry, clock, topic)


async def test_damaged_bytes_are_told_and_never_believed(registry: Registry, clock: ManualClock, topic: Topic) -> None:
    await make(registry, clock, topic)
    await registry._database.write(lambda connection: connection.execute(update(snapshots).values(done=b"else")))

    with pytest.raises(Damaged, match="snapshot N of project"):
        await registry.snapshots.find(topic.project_id, N)
    assert (await registry.snapshots.page(topic.project_id, PageRequest())).total == 1
