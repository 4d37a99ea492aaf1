import asyncio

import pytest

from ams.core.clock import ManualClock
from ams.core.errors import AlreadyExists
from ams.core.names import ProjectName, SubscriptionId, SubscriptionName, TopicName, new_topic_id, new_uuid
from ams.storage.registry.records import Project
from ams.storage.registry.registry import Registry
from tests.support.administration import make_project, make_user

NO_NAME = ProjectName("")


async def test_a_project_is_found_as_it_was_made(registry: Registry, clock: ManualClock) -> None:
    maker = await make_user(registry, "anna")

    made = await registry.projects.create(ProjectName("P"), "what for", maker.id)

    now = clock.wall()
    assert made == Project(made.id, ProjectName("P"), "what for", now, now, maker.name)
    assert await registry.projects.find("P") == made
    assert await registry.projects.find("p") is None


async def test_they_come_oldest_first(registry: Registry) -> None:
    for name in ("B", "A", "C"):
        await make_project(registry, name)

    assert [project.name for project in await registry.projects.all()] == ["B", "A", "C"]


async def test_one_of_many_parallel_makers_wins(registry: Registry) -> None:
    makers = [registry.projects.create(ProjectName("P"), str(n), None) for n in range(20)]

    outcomes = await asyncio.gather(*makers, return_exceptions=True)

    assert sum(isinstance(outcome, Project) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 19
    assert len(await registry.projects.all()) == 1


async def test_a_renamed_project_is_found_under_its_new_name_only(registry: Registry, clock: ManualClock) -> None:
    project = await make_project(registry, "old")
    assert await registry.projects.find("old") == project
    clock.advance(5_000)

    renamed = await registry.projects.update(project.id, ProjectName("new"), "")

    assert renamed is not None
    assert (renamed.id, renamed.name) == (project.id, "new")
    assert renamed.modified_on == renamed.created_on + 5_000
    assert await registry.projects.find("old") is None
    assert await registry.projects.find("new") == renamed


async def test_a_description_changes_alone(registry: Registry) -> None:
    project = await make_project(registry)
    await registry.projects.find("P")

    await registry.projects.update(project.id, NO_NAME, "said now")

    found = await registry.projects.find("P")
    assert found is not None
    assert found.description == "said now"


async def test_a_taken_name_cannot_be_taken_again(registry: Registry) -> None:
    await make_project(registry, "A")
    other = await make_project(registry, "B")

    with pytest.raises(AlreadyExists):
        await registry.projects.update(other.id, ProjectName("A"), "")


async def test_deleting_takes_everything_the_project_owns(registry: Registry) -> None:
    """HTTP contract 17.3, U12."""
    project, other = await make_project(registry), await make_project(registry, "other")
    anna = await make_user(registry, "anna", {project.id: ("consumer",), other.id: ()})
    topic, subscription = new_topic_id(), SubscriptionId(new_uuid())
    await registry.topics.create(topic, project.id, TopicName("T"))
    await registry.topics.set_access_list(project.id, TopicName("T"), ["anna"])
    await registry.subscriptions.create(subscription, project.id, SubscriptionName("S"), TopicName("T"), 10)
    kept = new_topic_id()
    await registry.topics.create(kept, other.id, TopicName("T"))

    owned = await registry.projects.delete(project.id)

    assert owned == ([topic], [subscription])
    assert await registry.projects.find("P") is None
    assert await registry.topics.ids() == {kept}
    assert await registry.subscriptions.ids() == set()
    left = await registry.users.by_id(anna.id)
    assert left is not None
    assert [entry.project for entry in left.memberships] == ["other"]


async def test_of_many_who_delete_a_project_one_did(registry: Registry) -> None:
    project = await make_project(registry)

    outcomes = await asyncio.gather(*(registry.projects.delete(project.id) for _ in range(50)))

    assert len([owned for owned in outcomes if owned is not None]) == 1


async def test_a_project_made_again_has_nothing_of_the_old_one(registry: Registry) -> None:
    old = await make_project(registry)
    await registry.topics.create(new_topic_id(), old.id, TopicName("T"))
    await registry.topics.find(old.id, TopicName("T"))
    await registry.projects.delete(old.id)

    new = await make_project(registry)

    assert new.id != old.id
    assert await registry.topics.find(new.id, TopicName("T")) is None


async def test_what_is_gone_can_neither_be_changed_nor_deleted_again(registry: Registry) -> None:
    project = await make_project(registry)
    await registry.projects.delete(project.id)

    assert await registry.projects.update(project.id, ProjectName("new"), "") is None
    assert await registry.projects.delete(project.id) is None
