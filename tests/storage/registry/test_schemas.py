import asyncio
from dataclasses import replace

import pytest

from ams.core.clock import ManualClock
from ams.core.errors import InvalidInput, NotFound
from ams.core.names import ProjectId, new_topic_id
from ams.storage.registry.records import AttachedSchema, PageRequest, Project, Schema, SchemaContent
from ams.storage.registry.registry import Registry
from tests.storage.registry.makers import ANY, new_schema, new_topic
from tests.support.administration import make_project

X, Y = "X", "Y"
T = "T"
OBJECTS = SchemaContent("json", '{"type":"object"}', '{"closed":true}')


@pytest.fixture
async def schema(registry: Registry, project: Project) -> Schema:
    return await new_schema(registry, project)


async def attached(registry: Registry, project: ProjectId) -> AttachedSchema | None:
    return (await registry.topics.find(project, T)).schema


async def test_of_two_changes_of_one_revision_one_is_made(registry: Registry, schema: Schema) -> None:
    outcomes = await asyncio.gather(*(registry.schemas.update(schema, content=OBJECTS) for _ in range(5)))

    assert len([outcome for outcome in outcomes if outcome is not None]) == 1
    assert await registry.schemas.update(schema, name=Y) is None


async def test_a_topic_knows_its_schema_at_its_newest_revision(registry: Registry, schema: Schema) -> None:
    made = await registry.topics.create(new_topic_id(), schema.project_id, T, X)

    assert made.schema == AttachedSchema(schema.id, X, 1)
    assert await registry.topics.find(schema.project_id, T) == made
    await registry.schemas.update(schema, content=OBJECTS)
    assert await attached(registry, schema.project_id) == AttachedSchema(schema.id, X, 2)
    await registry.schemas.update(replace(schema, revision=2), name=Y)
    assert await attached(registry, schema.project_id) == AttachedSchema(schema.id, Y, 2)
    await registry.schemas.delete(schema.id)
    assert await attached(registry, schema.project_id) is None


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

    again = await registry.schemas.create(schema.project_id, X, ANY)
    await registry.projects.delete(schema.project_id)
    assert await registry.schemas.revision(again.id, 1) is None


async def changed(registry: Registry, schema: Schema, content: SchemaContent) -> Schema:
    made = await registry.schemas.update(schema, content=content)
    assert made is not None
    return made


async def test_revisions_come_newest_first_and_dated(registry: Registry, schema: Schema, clock: ManualClock) -> None:
    clock.advance(1000)
    second = await changed(registry, schema, OBJECTS)
    clock.advance(1000)
    renamed = await registry.schemas.update(second, name=Y)
    await registry.schemas.create(schema.project_id, X, OBJECTS)

    assert renamed == replace(second, name=Y)
    assert await registry.schemas.revisions(schema.id) == [renamed, replace(schema, name=Y)]
    assert (second.created_on - schema.created_on, second.content) == (1000, OBJECTS)
    assert await registry.schemas.revisions("gone") == []
    assert await registry.schemas.revision(schema.id, 1) == replace(schema, name=Y)
    assert await registry.schemas.revision(schema.id, 3) is None
    assert (await changed(registry, renamed, ANY)).name == Y


async def test_a_deleted_revision_leaves_the_others(registry: Registry, schema: Schema) -> None:
    second = await changed(registry, schema, OBJECTS)
    third = await changed(registry, second, ANY)

    assert await registry.schemas.delete_revision(schema.id, 2) == third

    assert await registry.schemas.revisions(schema.id) == [third, schema]
    assert await registry.schemas.find(schema.project_id, X) == third
    assert (await changed(registry, third, OBJECTS)).revision == 4
    with pytest.raises(NotFound, match=r"^Schema revision doesn't exist$"):
        await registry.schemas.delete_revision(schema.id, 2)
    with pytest.raises(NotFound, match=r"^Schema doesn't exist$"):
        await registry.schemas.delete_revision("gone", 1)


async def test_when_the_newest_revision_goes_topics_have_the_one_before(registry: Registry, schema: Schema) -> None:
    await registry.topics.create(new_topic_id(), schema.project_id, T, X)
    third = await changed(registry, await changed(registry, schema, OBJECTS), ANY)
    assert await attached(registry, schema.project_id) == AttachedSchema(schema.id, X, 3)
    await registry.schemas.delete_revision(schema.id, 2)

    assert await registry.schemas.delete_revision(schema.id, 3) == schema

    assert await registry.schemas.find(schema.project_id, X) == schema
    assert await attached(registry, schema.project_id) == AttachedSchema(schema.id, X, 1)
    assert await registry.schemas.update(third, name=Y) is None, "it is not the newest any more"


async def test_the_number_of_a_deleted_revision_is_never_given_again(registry: Registry, schema: Schema) -> None:
    await changed(registry, await changed(registry, schema, OBJECTS), OBJECTS)
    await registry.schemas.delete_revision(schema.id, 3)
    await registry.schemas.delete_revision(schema.id, 2)

    fourth = await changed(registry, schema, OBJECTS)

    assert (fourth.revision, (await changed(registry, fourth, ANY)).revision) == (4, 5)


async def test_the_last_revision_stays_also_when_all_are_deleted_at_once(registry: Registry, schema: Schema) -> None:
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


async def test_a_topic_says_how_it_uses_its_schema(registry: Registry, schema: Schema) -> None:
    made = await registry.topics.create(
        new_topic_id(), schema.project_id, T, X, encoding="BINARY", first_revision=1, last_revision=2
    )
    assert made.schema == AttachedSchema(schema.id, X, 1, "BINARY", 1, 2)
    assert await registry.topics.find(schema.project_id, T) == made
    assert (await registry.topics.page(schema.project_id, PageRequest())).items == (made,)

    await registry.topics.set_schema(schema.project_id, T, X, encoding="JSON", first_revision=1)
    assert await attached(registry, schema.project_id) == AttachedSchema(schema.id, X, 1, "JSON", 1)

    other = await registry.schemas.create(schema.project_id, Y, ANY)
    await registry.topics.set_schema(schema.project_id, T, Y)
    assert await attached(registry, schema.project_id) == AttachedSchema(other.id, Y, 1)


async def test_a_topic_remembers_that_its_schema_was_deleted(registry: Registry, schema: Schema) -> None:
    """One of which it was not said how messages are written has none any more, and that is all."""
    other = "other"
    await registry.topics.create(new_topic_id(), schema.project_id, T, X, encoding="BINARY")
    await registry.topics.create(new_topic_id(), schema.project_id, other, X)
    assert await registry.schemas.delete(schema.id)

    left = [await registry.topics.find(schema.project_id, each) for each in (T, other)]
    assert [(each.schema, each.deleted_schema) for each in left] == [(None, "BINARY"), (None, "")]

    await registry.topics.set_schema(schema.project_id, T, None)
    assert (await registry.topics.find(schema.project_id, T)).deleted_schema == ""
