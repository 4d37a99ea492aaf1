import pytest

from ams.clock import ManualClock, Milliseconds
from ams.names import SubscriptionId, SubscriptionName, TopicName, new_topic_id
from ams.registry.figures import Made, ProjectFigures
from ams.registry.records import Project
from ams.registry.registry import Registry
from tests.support.administration import make_project, make_user

ALWAYS = (Milliseconds(0), Milliseconds(2**62))
T, S = TopicName("T"), SubscriptionName("S")


@pytest.fixture
async def project(registry: Registry) -> Project:
    return await make_project(registry)


async def make_both(registry: Registry, project: Project) -> None:
    await registry.topics.create(new_topic_id(), project.id, T)
    await registry.subscriptions.create(SubscriptionId(f"s-{project.name}"), project.id, S, T, 10)


async def test_an_empty_project_has_nothing(registry: Registry, project: Project) -> None:
    assert await registry.figures.of_project(project.id) == ProjectFigures(0, 0, [], [])
    assert await registry.figures.made(*ALWAYS) == {}
    assert await registry.figures.subscriptions_of(project.id, T) == 0


async def test_a_projects_figures_are_its_own(registry: Registry, project: Project) -> None:
    other = await make_project(registry, "Q")
    for each in (project, other):
        await make_user(registry, f"u-{each.name}", {each.id: ("publisher",)})
        await make_both(registry, each)
        await registry.topics.set_access_list(each.id, T, [f"u-{each.name}"])
        await registry.subscriptions.set_access_list(each.id, S, [f"u-{each.name}"])

    assert await registry.figures.of_project(project.id) == ProjectFigures(1, 1, [("u-P", 1)], [("u-P", 1)])
    assert await registry.figures.subscriptions_of(project.id, T) == 1
    assert await registry.figures.subscriptions_of(project.id, TopicName("other")) == 0
    assert await registry.figures.made(*ALWAYS) == {project.id: Made(1, 1, 1), other.id: Made(1, 1, 1)}


async def test_members_on_lists_come_oldest_first_and_only_while_they_are_members(
    registry: Registry, project: Project
) -> None:
    await make_both(registry, project)
    users = [await make_user(registry, name, {project.id: ()}) for name in ("c", "a", "b")]
    await registry.topics.set_access_list(project.id, T, ["a", "b", "c"])
    await registry.users.remove_member(users[1].id, project.id)

    assert (await registry.figures.of_project(project.id)).on_topics == [("c", 1), ("b", 1)]


async def test_the_end_of_a_span_is_not_in_it(registry: Registry, project: Project, clock: ManualClock) -> None:
    await make_both(registry, project)
    await make_user(registry, "u", {project.id: ()})
    now = clock.wall()

    assert await registry.figures.made(now, Milliseconds(now + 1)) == {project.id: Made(1, 1, 1)}
    assert await registry.figures.made(Milliseconds(0), now) == {}
    assert await registry.figures.made(Milliseconds(now + 1), Milliseconds(now + 2)) == {}
