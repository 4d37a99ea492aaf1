"""Schemas with their revisions, and snapshots: names, pages, and their end."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from pyroaring import BitMap64
from sqlalchemy import Connection, delete, insert, update

from ams.core.errors import Conflict, Damaged, InvalidInput, NotFound
from ams.core.names import ProjectId, topic_id_text
from ams.core.offsets import encode_bitmap
from ams.storage.registry.records import (
    AttachedSchema,
    PageRequest,
    Project,
    Schema,
    SchemaContent,
    SchemaUse,
    Snapshot,
    Topic,
)
from ams.storage.registry.registry import Registry
from ams.storage.registry.resources import PARALLEL
from ams.storage.registry.snapshots import MAX_SNAPSHOTS
from ams.storage.registry.tables import snapshots
from tests.storage.registry.makers import ANY_SCHEMA, create_topic, new_schema, new_topic
from tests.support.administration import make_project, open_registry
from tests.support.clock import ManualClock

X, Y = "X", "Y"
T = "T"
OBJECTS = SchemaContent("json", '{"type":"object"}', '{"closed":true}')


@pytest.fixture
async def schema(registry: Registry, project: Project) -> Schema:
    return await new_schema(registry, project)


async def get_attached(registry: Registry, project: ProjectId) -> AttachedSchema | None:
    return (await registry.topics.find(project, T)).schema


async def test_of_two_changes_of_one_revision_one_is_made(registry: Registry, schema: Schema) -> None:
    outcomes = await asyncio.gather(*(registry.schemas.update(schema, content=OBJECTS) for _ in range(5)))
    assert len([outcome for outcome in outcomes if outcome is not None]) == 1
    assert await registry.schemas.update(schema, name=Y) is None


async def test_a_topic_knows_its_schema_at_its_newest_revision(registry: Registry, schema: Schema) -> None:
    made = await create_topic(registry, schema.project_id, T, X)

    assert made.schema == AttachedSchema(schema.id, X, 1)
    assert await registry.topics.find(schema.project_id, T) == made
    await registry.schemas.update(schema, content=OBJECTS)
    assert await get_attached(registry, schema.project_id) == AttachedSchema(schema.id, X, 2)
    await registry.schemas.update(replace(schema, revision=2), name=Y)
    assert await get_attached(registry, schema.project_id) == AttachedSchema(schema.id, Y, 2)
    await registry.schemas.delete(schema.id)
    assert await get_attached(registry, schema.project_id) is None


async def test_what_is_not_there_cannot_be_attached(registry: Registry, project: Project) -> None:
    await new_schema(registry, await make_project(registry, "other"))
    with pytest.raises(NotFound, match=r"^Topic doesn't exist$"):
        await registry.topics.set_schema(project.id, T, X)
    with pytest.raises(NotFound, match=r"^Schema doesn't exist$"):
        await new_topic(registry, project, T, X)
    assert await registry.topics.find(project.id, T) is None

    made = await new_topic(registry, project)
    with pytest.raises(NotFound, match=r"^Schema doesn't exist$"):
        await registry.topics.set_schema(project.id, T, X)
    assert await registry.topics.find(project.id, T) == made


async def test_revisions_go_with_their_schema_and_with_its_project(registry: Registry, schema: Schema) -> None:
    assert await registry.schemas.delete(schema.id)
    assert await registry.schemas.revision(schema.id, 1) is None
    assert await registry.schemas.update(schema, name=Y) is None

    again = await registry.schemas.create(schema.project_id, X, ANY_SCHEMA)
    await registry.projects.delete(schema.project_id)
    assert await registry.schemas.revision(again.id, 1) is None


async def change_content(registry: Registry, schema: Schema, content: SchemaContent) -> Schema:
    return await registry.schemas.update(schema, content=content)


async def test_revisions_come_newest_first_and_dated(registry: Registry, schema: Schema, clock: ManualClock) -> None:
    clock.advance(1000)
    second = await change_content(registry, schema, OBJECTS)
    clock.advance(1000)
    renamed = await registry.schemas.update(second, name=Y)
    await registry.schemas.create(schema.project_id, X, OBJECTS)

    assert renamed == replace(second, name=Y)
    assert await registry.schemas.revisions(schema.id) == [renamed, replace(schema, name=Y)]
    assert (second.created_on - schema.created_on, second.content) == (1000, OBJECTS)
    assert await registry.schemas.revisions("gone") == []
    assert await registry.schemas.revision(schema.id, 1) == replace(schema, name=Y)
    assert await registry.schemas.revision(schema.id, 3) is None
    assert (await change_content(registry, renamed, ANY_SCHEMA)).name == Y


async def test_a_deleted_revision_leaves_the_others(registry: Registry, schema: Schema) -> None:
    third = await change_content(registry, await change_content(registry, schema, OBJECTS), ANY_SCHEMA)

    assert await registry.schemas.delete_revision(schema.id, 2) == third

    assert await registry.schemas.revisions(schema.id) == [third, schema]
    assert await registry.schemas.find(schema.project_id, X) == third
    assert (await change_content(registry, third, OBJECTS)).revision == 4
    with pytest.raises(NotFound, match=r"^Schema revision doesn't exist$"):
        await registry.schemas.delete_revision(schema.id, 2)
    with pytest.raises(NotFound, match=r"^Schema doesn't exist$"):
        await registry.schemas.delete_revision("gone", 1)


async def test_when_the_newest_revision_goes_topics_have_the_one_before(registry: Registry, schema: Schema) -> None:
    await create_topic(registry, schema.project_id, T, X)
    third = await change_content(registry, await change_content(registry, schema, OBJECTS), ANY_SCHEMA)
    assert await get_attached(registry, schema.project_id) == AttachedSchema(schema.id, X, 3)
    await registry.schemas.delete_revision(schema.id, 2)

    assert await registry.schemas.delete_revision(schema.id, 3) == schema

    assert await registry.schemas.find(schema.project_id, X) == schema
    assert await get_attached(registry, schema.project_id) == AttachedSchema(schema.id, X, 1)
    assert await registry.schemas.update(third, name=Y) is None, "it is not the newest any more"


async def test_the_number_of_a_deleted_revision_is_never_given_again(registry: Registry, schema: Schema) -> None:
    await change_content(registry, await change_content(registry, schema, OBJECTS), OBJECTS)
    await registry.schemas.delete_revision(schema.id, 3)
    await registry.schemas.delete_revision(schema.id, 2)

    fourth = await change_content(registry, schema, OBJECTS)

    assert (fourth.revision, (await change_content(registry, fourth, ANY_SCHEMA)).revision) == (4, 5)


async def test_the_last_revision_stays_also_when_all_are_deleted_at_once(registry: Registry, schema: Schema) -> None:
    newest = schema
    for _ in range(4):
        newest = await change_content(registry, newest, OBJECTS)

    outcomes = await asyncio.gather(
        *(registry.schemas.delete_revision(schema.id, number) for number in range(1, 6)), return_exceptions=True
    )

    assert [type(each) for each in outcomes].count(InvalidInput) == 1
    (left,) = await registry.schemas.revisions(schema.id)
    with pytest.raises(InvalidInput, match=r"^The last revision of a schema cannot be deleted$"):
        await registry.schemas.delete_revision(schema.id, left.revision)


async def test_a_topic_says_how_it_uses_its_schema(registry: Registry, schema: Schema) -> None:
    made = await create_topic(registry, schema.project_id, T, X, use=SchemaUse("BINARY", 1, 2))
    assert made.schema == AttachedSchema(schema.id, X, 1, "BINARY", 1, 2)
    assert await registry.topics.find(schema.project_id, T) == made
    assert (await registry.topics.page(schema.project_id, PageRequest())).items == (made,)

    await registry.topics.set_schema(schema.project_id, T, X, SchemaUse("JSON", 1))
    assert await get_attached(registry, schema.project_id) == AttachedSchema(schema.id, X, 1, "JSON", 1)

    other = await registry.schemas.create(schema.project_id, Y, ANY_SCHEMA)
    await registry.topics.set_schema(schema.project_id, T, Y)
    assert await get_attached(registry, schema.project_id) == AttachedSchema(other.id, Y, 1)


async def test_a_topic_remembers_that_its_schema_was_deleted(registry: Registry, schema: Schema) -> None:
    other = "other"
    await create_topic(registry, schema.project_id, T, X, use=SchemaUse("BINARY"))
    await create_topic(registry, schema.project_id, other, X)
    assert await registry.schemas.delete(schema.id)

    left = [await registry.topics.find(schema.project_id, each) for each in (T, other)]
    assert [(each.schema, each.deleted_schema) for each in left] == [(None, "BINARY"), (None, "")]

    await registry.topics.set_schema(schema.project_id, T, None)
    assert (await registry.topics.find(schema.project_id, T)).deleted_schema == ""


N = "N"
SNAPSHOT_MS = 1000  # milliseconds that a snapshot stays


def snapshot(clock: ManualClock, topic: Topic, name: str = "N") -> Snapshot:
    until = clock.wall() + SNAPSHOT_MS
    return Snapshot(topic.project_id, name, topic.id, topic.name, 3, clock.wall(), until, BitMap64([4, 6]))


async def make_snapshot(registry: Registry, clock: ManualClock, topic: Topic, name: str = "N") -> bool:
    return await registry.snapshots.create(snapshot(clock, topic, name))


async def test_of_a_topic_come_newest_first(registry: Registry, project: Project, clock: ManualClock, topic: Topic):
    other = await new_topic(registry, project, "other")
    await make_snapshot(registry, clock, topic, "gone")
    clock.advance(SNAPSHOT_MS)
    for name in ("A", "B", "C"):
        await make_snapshot(registry, clock, topic, name)
    await make_snapshot(registry, clock, other, "D")

    first = await registry.snapshots.of_topic(topic.id, PageRequest(2))
    second = await registry.snapshots.of_topic(topic.id, PageRequest(2, first.next_token))

    assert (first.items, second.items, first.total, second.next_token) == (("C", "B"), ("A",), 3, "")


async def test_one_that_has_expired_is_not_there(registry: Registry, clock: ManualClock, topic: Topic) -> None:
    for name in ("N", "M"):
        await make_snapshot(registry, clock, topic, name)
    clock.advance(SNAPSHOT_MS)

    assert await registry.snapshots.find(topic.project_id, N) is None
    assert (await registry.snapshots.page(topic.project_id, PageRequest())).total == 0
    assert not await registry.snapshots.delete(topic.project_id, N)
    assert await make_snapshot(registry, clock, topic), "its name is free again"
    clock.step(-1)
    assert (await registry.snapshots.page(topic.project_id, PageRequest())).total == 2, "only a round removes others"
    assert await registry.snapshots.find(topic.project_id, N) is not None


async def test_a_project_has_so_many_and_no_more(registry: Registry, clock: ManualClock, topic: Topic) -> None:
    assert await make_snapshot(registry, clock, topic, "first")
    values = {
        "project_id": topic.project_id, "topic_id": topic_id_text(topic.id), "floor": 0,
        "done": encode_bitmap(BitMap64()), "created_on": clock.wall(), "expires_on": clock.wall() + 2 * SNAPSHOT_MS,
    }  # fmt: skip
    rows = [{**values, "name": f"n{number}"} for number in range(MAX_SNAPSHOTS - 2)]
    await registry._database.write(lambda connection: connection.execute(insert(snapshots), rows))
    assert await make_snapshot(registry, clock, topic, "last")
    with pytest.raises(Conflict, match=r"^A project has at most 5000 snapshots$"):
        await make_snapshot(registry, clock, topic)
    assert (await registry.snapshots.page(topic.project_id, PageRequest(1))).total == MAX_SNAPSHOTS

    await registry.snapshots.delete(topic.project_id, "last")
    assert await make_snapshot(registry, clock, topic)
    with pytest.raises(Conflict):
        await make_snapshot(registry, clock, topic, "M")
    clock.advance(SNAPSHOT_MS)
    assert await make_snapshot(registry, clock, topic, "M"), "the first one has expired"


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
    await make_snapshot(registry, clock, topic)
    with pytest.raises(NotFound, match=r"^project doesn't exist$"):
        await registry.snapshots.create(replace(snapshot(clock, topic), project_id="gone"))

    await registry.topics.delete(topic)

    assert await registry.snapshots.find(topic.project_id, N) is None
    assert not await make_snapshot(registry, clock, topic)


async def test_damaged_bytes_are_told_and_never_believed(registry: Registry, clock: ManualClock, topic: Topic) -> None:
    await make_snapshot(registry, clock, topic)
    await registry._database.write(lambda connection: connection.execute(update(snapshots).values(done=b"else")))

    with pytest.raises(Damaged, match="snapshot N of project"):
        await registry.snapshots.find(topic.project_id, N)
    assert (await registry.snapshots.page(topic.project_id, PageRequest())).total == 1
