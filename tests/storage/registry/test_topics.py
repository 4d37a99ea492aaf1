import asyncio
from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from ams.core.clock import ManualClock
from ams.core.errors import AlreadyExists, NotFound
from ams.core.names import ProjectId, TopicName, new_topic_id
from ams.storage.registry.records import PageRequest, Project, Topic
from ams.storage.registry.registry import Registry
from ams.storage.registry.tables import topics
from tests.support.administration import make_project, make_user, open_registry

T = TopicName("T")
EVERYTHING = PageRequest()


@pytest.fixture
async def project(registry: Registry) -> Project:
    return await make_project(registry)


async def test_a_topic_is_found_as_it_was_made(registry: Registry, project: Project, clock: ManualClock) -> None:
    identity = new_topic_id()

    made = await registry.topics.create(identity, project.id, T)

    assert made == Topic(identity, project.id, T, None, None, clock.wall())
    assert await registry.topics.find(project.id, T) == made
    assert await registry.topics.find(project.id, TopicName("t")) is None


async def test_one_of_many_parallel_makers_wins(registry: Registry, project: Project) -> None:
    makers = [registry.topics.create(new_topic_id(), project.id, T) for _ in range(20)]

    outcomes = await asyncio.gather(*makers, return_exceptions=True)

    winners = [outcome for outcome in outcomes if isinstance(outcome, Topic)]
    assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 19
    assert [await registry.topics.find(project.id, T)] == winners


async def test_a_topic_of_a_project_that_is_gone_is_not_made(registry: Registry) -> None:
    with pytest.raises(NotFound, match=r"^project doesn't exist$"):
        await registry.topics.create(new_topic_id(), ProjectId("gone"), T)


async def test_a_topic_made_again_is_another_one(registry: Registry, project: Project) -> None:
    old = await registry.topics.create(new_topic_id(), project.id, T)
    await registry.topics.find(project.id, T)

    assert await registry.topics.delete(old)
    assert await registry.topics.find(project.id, T) is None
    assert not await registry.topics.delete(old)

    new = await registry.topics.create(new_topic_id(), project.id, T)
    assert not await registry.topics.delete(old)
    assert await registry.topics.find(project.id, T) == new


async def test_an_access_list_keeps_its_order_and_counts_at_once(registry: Registry, project: Project) -> None:
    users = {name: await make_user(registry, name, {project.id: ()}) for name in ("a", "b", "c")}
    await registry.topics.create(new_topic_id(), project.id, T)
    await registry.topics.find(project.id, T)

    await registry.topics.set_access_list(project.id, T, ["c", "a", "c"])

    found = await registry.topics.find(project.id, T)
    assert found is not None
    assert found.authorized == {users["c"].id, users["a"].id}
    assert await registry.topics.access_list(project.id, T) == ["c", "a"]

    await registry.topics.set_access_list(project.id, T, [])
    found = await registry.topics.find(project.id, T)
    assert found is not None
    assert found.authorized == set()


async def test_only_members_can_be_listed_and_all_others_are_named(registry: Registry, project: Project) -> None:
    await make_user(registry, "member", {project.id: ()})
    await make_user(registry, "stranger")
    await registry.topics.create(new_topic_id(), project.id, T)

    with pytest.raises(NotFound, match=r"^User\(s\): nobody, stranger do not exist$"):
        await registry.topics.set_access_list(project.id, T, ["nobody", "member", "stranger"])

    assert await registry.topics.access_list(project.id, T) == []


async def test_unknown_users_are_told_before_an_unknown_topic(registry: Registry, project: Project) -> None:
    with pytest.raises(NotFound, match=r"^User\(s\): nobody do not exist$"):
        await registry.topics.set_access_list(project.id, T, ["nobody"])
    with pytest.raises(NotFound, match=r"^Topic doesn't exist$"):
        await registry.topics.set_access_list(project.id, T, [])


async def test_pages_come_newest_first(registry: Registry, project: Project) -> None:
    for name in ("b", "a", "c"):
        await registry.topics.create(new_topic_id(), project.id, TopicName(name))
    await registry.topics.create(new_topic_id(), (await make_project(registry, "other")).id, T)

    first = await registry.topics.page(project.id, PageRequest(2))
    second = await registry.topics.page(project.id, PageRequest(2, first.next_token))

    assert [topic.name for topic in (*first.items, *second.items)] == ["c", "a", "b"]
    assert (first.total, second.next_token) == (3, "")


async def test_a_page_may_be_cut_to_those_that_list_a_user(registry: Registry, project: Project) -> None:
    user = await make_user(registry, "anna", {project.id: ()})
    for name in ("a", "b"):
        await registry.topics.create(new_topic_id(), project.id, TopicName(name))
    await registry.topics.set_access_list(project.id, TopicName("a"), ["anna"])

    page = await registry.topics.page(project.id, EVERYTHING, listed=user.id)

    assert [topic.name for topic in page.items] == ["a"]
    assert page.total == 1


async def test_identities_of_all_projects_are_known(registry: Registry, project: Project) -> None:
    identity = new_topic_id()
    await registry.topics.create(identity, project.id, T)

    assert await registry.topics.ids() == {identity}


async def test_a_page_is_read_by_index_without_sorting_all_topics(tmp_path: Path) -> None:
    def plan(connection: Connection) -> str:
        query = select(topics).where(topics.c.project_id == "p").order_by(topics.c.number.desc())
        text = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
        return "; ".join(row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}"))

    async with open_registry(tmp_path) as registry:
        assert await registry._database.read(plan) == "SEARCH topics USING INDEX topics_by_project (project_id=?)"
