import asyncio
from dataclasses import replace

import pytest

from ams.core.clock import ManualClock
from ams.core.errors import AlreadyExists, InvalidInput, NotFound
from ams.core.names import ProjectId, SchemaId, SchemaName, TopicName, new_topic_id
from ams.storage.registry.records import AttachedSchema, PageRequest, Project, Schema, SchemaContent, Topic
from ams.storage.registry.registry import Registry
from tests.support.administration import make_project

X, Y = SchemaName("X"), SchemaName("Y")
T = TopicName("T")
ANY = SchemaContent("json", "{}", None)
OBJECTS = SchemaContent("json", '{"type":"object"}', '{"closed":true}')


@pytest.fixture
async def project(registry: Registry) -> Project:
    return await make_project(registry)


@pytest.fixture
async def schema(registry: Registry, project: Project) -> Schema:
    return await registry.schemas.create(project.id, X, ANY)


async def attached(registry: Registry, project: Project) -> AttachedSchema | None:
    topic = await registry.topics.find(project.id, T)
    assert topic is not None
    return topic.schema


async def test_a_schema_is_found_as_it_was_made(registry: Registry, project: Project, schema: Schema) -> None:
    assert (schema.name, schema.revision, schema.content) == (X, 1, ANY)
    assert await registry.schemas.find(project.id, X) == schema
    assert await registry.schemas.find(project.id, Y) is None
    assert await registry.schemas.find((await make_project(registry, "other")).id, X) is None


async def test_one_of_many_parallel_makers_wins(registry: Registry, project: Project) -> None:
    outcomes = await asyncio.gather(
        *(registry.schemas.create(project.id, X, ANY) for _ in range(20)), return_exceptions=True
    )

    winners = [outcome for outcome in outcomes if isinstance(outcome, Schema)]
    assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 19
    assert await registry.schemas.all(project.id) == winners


async def test_a_schema_of_a_project_that_is_gone_is_not_made(registry: Registry) -> None:
    with pytest.raises(NotFound, match=r"^project doesn't exist$"):
        await registry.schemas.create(ProjectId("gone"), X, ANY)


async def test_all_come_oldest_first(registry: Registry, project: Project) -> None:
    for name in ("b", "a", "c"):
        await registry.schemas.create(project.id, SchemaName(name), ANY)

    assert [each.name for each in await registry.schemas.all(project.id)] == ["b", "a", "c"]


async def test_every_change_is_a_revision_and_all_are_kept(
    registry: Registry, project: Project, schema: Schema, clock: ManualClock
) -> None:
    clock.advance(1000)
    changed = await registry.schemas.update(schema, content=OBJECTS)

    assert changed == Schema(schema.id, project.id, X, 2, OBJECTS, clock.wall())
    assert await registry.schemas.find(project.id, X) == changed
    assert await registry.schemas.all(project.id) == [changed]
    assert await registry.schemas.revision(schema.id, 1) == schema
    assert await registry.schemas.revision(schema.id, 2) == changed
    assert await registry.schemas.revision(schema.id, 3) is None


async def test_a_new_name_is_no_revision(registry: Registry, project: Project, schema: Schema) -> None:
    renamed = await registry.schemas.update(schema, name=Y)

    assert renamed == replace(schema, name=Y)
    assert await registry.schemas.find(project.id, X) is None
    assert await registry.schemas.find(project.id, Y) == renamed


async def test_a_taken_name_changes_nothing(registry: Registry, project: Project, schema: Schema) -> None:
    await registry.schemas.create(project.id, Y, ANY)

    with pytest.raises(AlreadyExists, match=r"^Schema already exists$"):
        await registry.schemas.update(schema, name=Y, content=OBJECTS)

    assert await registry.schemas.find(project.id, X) == schema


async def test_of_two_changes_of_one_revision_one_is_made(registry: Registry, schema: Schema) -> None:
    outcomes = await asyncio.gather(*(registry.schemas.update(schema, content=OBJECTS) for _ in range(5)))

    assert len([outcome for outcome in outcomes if outcome is not None]) == 1
    assert await registry.schemas.update(schema, name=Y) is None


async def test_a_rename_does_not_undo_a_change(registry: Registry, project: Project, schema: Schema) -> None:
    await registry.schemas.update(schema, name=Y)
    changed = await registry.schemas.update(schema, content=OBJECTS)

    assert changed is not None
    assert (changed.name, changed.revision) == (Y, 2)


async def test_a_deleted_schema_goes_with_its_revisions(registry: Registry, project: Project, schema: Schema) -> None:
    assert await registry.schemas.delete(schema.id)

    assert not await registry.schemas.delete(schema.id)
    assert await registry.schemas.find(project.id, X) is None
    assert await registry.schemas.revision(schema.id, 1) is None
    assert await registry.schemas.update(schema, name=Y) is None


async def test_a_topic_knows_its_schema_at_its_newest_revision(
    registry: Registry, project: Project, schema: Schema
) -> None:
    made = await registry.topics.create(new_topic_id(), project.id, T, X)

    assert made.schema == AttachedSchema(schema.id, X, 1)
    assert await registry.topics.find(project.id, T) == made
    await registry.schemas.update(schema, content=OBJECTS)
    assert await attached(registry, project) == AttachedSchema(schema.id, X, 2)
    await registry.schemas.update(replace(schema, revision=2), name=Y)
    assert await attached(registry, project) == AttachedSchema(schema.id, Y, 2)
    await registry.schemas.delete(schema.id)
    assert await attached(registry, project) is None


async def test_another_schema_takes_the_place_of_the_first(
    registry: Registry, project: Project, schema: Schema
) -> None:
    other = await registry.schemas.create(project.id, Y, ANY)
    await registry.topics.create(new_topic_id(), project.id, T, X)
    await registry.topics.find(project.id, T)

    await registry.topics.set_schema(project.id, T, Y)
    assert await attached(registry, project) == AttachedSchema(other.id, Y, 1)

    await registry.topics.set_schema(project.id, T, None)
    assert await attached(registry, project) is None


async def test_what_is_not_there_cannot_be_attached(registry: Registry, project: Project) -> None:
    with pytest.raises(NotFound, match=r"^Topic doesn't exist$"):
        await registry.topics.set_schema(project.id, T, X)
    with pytest.raises(NotFound, match=r"^Schema doesn't exist$"):
        await registry.topics.create(new_topic_id(), project.id, T, X)
    assert await registry.topics.find(project.id, T) is None

    made = await registry.topics.create(new_topic_id(), project.id, T)
    with pytest.raises(NotFound, match=r"^Schema doesn't exist$"):
        await registry.topics.set_schema(project.id, T, X)
    assert await registry.topics.find(project.id, T) == made


async def test_a_schema_of_another_project_cannot_be_attached(registry: Registry, schema: Schema) -> None:
    other = await make_project(registry, "other")

    with pytest.raises(NotFound, match=r"^Schema doesn't exist$"):
        await registry.topics.create(new_topic_id(), other.id, T, X)


async def test_a_deleted_topic_or_project_leaves_nothing(registry: Registry, project: Project, schema: Schema) -> None:
    made = await registry.topics.create(new_topic_id(), project.id, T, X)
    assert isinstance(made, Topic)

    assert await registry.topics.delete(made)
    assert await registry.schemas.find(project.id, X) == schema
    await registry.projects.delete(project.id)
    assert await registry.schemas.revision(SchemaId(schema.id), 1) is None


async def changed(registry: Registry, schema: Schema, content: SchemaContent) -> Schema:
    made = await registry.schemas.update(schema, content=content)
    assert made is not None
    return made


async def test_revisions_come_newest_first_with_the_times_they_were_made(
    registry: Registry, project: Project, schema: Schema, clock: ManualClock
) -> None:
    clock.advance(1000)
    second = await changed(registry, schema, OBJECTS)
    clock.advance(1000)
    renamed = await registry.schemas.update(second, name=Y)
    await registry.schemas.create(project.id, X, OBJECTS)

    assert renamed == replace(second, name=Y)
    assert await registry.schemas.revisions(schema.id) == [renamed, replace(schema, name=Y)]
    assert (second.created_on - schema.created_on, second.content) == (1000, OBJECTS)
    assert await registry.schemas.revisions(SchemaId("gone")) == []


async def test_a_deleted_revision_leaves_the_others(registry: Registry, project: Project, schema: Schema) -> None:
    second = await changed(registry, schema, OBJECTS)
    third = await changed(registry, second, ANY)

    assert await registry.schemas.delete_revision(schema.id, 2) == third

    assert await registry.schemas.revisions(schema.id) == [third, schema]
    assert await registry.schemas.find(project.id, X) == third
    assert (await changed(registry, third, OBJECTS)).revision == 4
    with pytest.raises(NotFound, match=r"^Schema revision doesn't exist$"):
        await registry.schemas.delete_revision(schema.id, 2)
    with pytest.raises(NotFound, match=r"^Schema doesn't exist$"):
        await registry.schemas.delete_revision(SchemaId("gone"), 1)


async def test_when_the_newest_revision_is_deleted_topics_have_the_one_before(
    registry: Registry, project: Project, schema: Schema
) -> None:
    await registry.topics.create(new_topic_id(), project.id, T, X)
    third = await changed(registry, await changed(registry, schema, OBJECTS), ANY)
    assert await attached(registry, project) == AttachedSchema(schema.id, X, 3)
    await registry.schemas.delete_revision(schema.id, 2)

    assert await registry.schemas.delete_revision(schema.id, 3) == schema

    assert await registry.schemas.find(project.id, X) == schema
    assert await attached(registry, project) == AttachedSchema(schema.id, X, 1)
    assert await registry.schemas.update(third, name=Y) is None, "it is not the newest any more"


async def test_the_number_of_a_deleted_revision_is_never_given_again(registry: Registry, schema: Schema) -> None:
    await changed(registry, await changed(registry, schema, OBJECTS), OBJECTS)
    await registry.schemas.delete_revision(schema.id, 3)
    await registry.schemas.delete_revision(schema.id, 2)

    fourth = await changed(registry, schema, OBJECTS)

    assert (fourth.revision, (await changed(registry, fourth, ANY)).revision) == (4, 5)


async def test_the_last_revision_left_stays_also_when_all_are_deleted_at_once(
    registry: Registry, schema: Schema
) -> None:
    newest = schema
    for _ in range(4):
        newest = await changed(registry, newest, OBJECTS)

    outcomes = await asyncio.gather(
        *(registry.schemas.delete_revision(schema.id, number) for number in range(1, 6)), return_exceptions=True
    )

    assert [type(each) for each in outcomes].count(InvalidInput) == 1
    (left,) = await registry.schemas.revisions(schema.id)
    with pytest.raises(InvalidInput, match=r"^The last revision of a schema cannot be deleted$"):
        await registry.schemas.delete_revision(schema.id, left.revision)


async def test_a_topic_says_how_it_uses_its_schema(registry: Registry, project: Project, schema: Schema) -> None:
    made = await registry.topics.create(
        new_topic_id(), project.id, T, X, encoding="BINARY", first_revision=1, last_revision=2
    )
    assert made.schema == AttachedSchema(schema.id, X, 1, "BINARY", 1, 2)
    assert await registry.topics.find(project.id, T) == made
    assert (await registry.topics.page(project.id, PageRequest())).items == (made,)

    await registry.topics.set_schema(project.id, T, X, encoding="JSON", first_revision=1)
    assert await attached(registry, project) == AttachedSchema(schema.id, X, 1, "JSON", 1)

    await registry.topics.set_schema(project.id, T, X)
    assert await attached(registry, project) == AttachedSchema(schema.id, X, 1)


async def test_a_topic_remembers_that_its_schema_was_deleted(
    registry: Registry, project: Project, schema: Schema
) -> None:
    """One of which it was not said how messages are written has none any more, and that is all."""
    other = TopicName("other")
    await registry.topics.create(new_topic_id(), project.id, T, X, encoding="BINARY")
    await registry.topics.create(new_topic_id(), project.id, other, X)
    assert await registry.schemas.delete(schema.id)

    left = [await registry.topics.find(project.id, each) for each in (T, other)]
    assert [(each.schema, each.deleted_schema) for each in left] == [(None, "BINARY"), (None, "")]

    await registry.topics.set_schema(project.id, T, None)
    assert (await registry.topics.find(project.id, T)).deleted_schema == ""
