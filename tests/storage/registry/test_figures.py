from datetime import date, timedelta

import pytest

from ams.core.clock import DAY, ManualClock
from ams.core.names import SubscriptionId, SubscriptionName, TopicName, new_topic_id
from ams.storage.registry.counts import Activity, ProjectFigures
from ams.storage.registry.records import Project
from ams.storage.registry.registry import Registry
from tests.support.administration import make_project, make_user

T, S = TopicName("T"), SubscriptionName("S")


@pytest.fixture
async def project(registry: Registry) -> Project:
    return await make_project(registry)


async def make_both(registry: Registry, project: Project) -> None:
    await registry.topics.create(new_topic_id(), project.id, T)
    await registry.subscriptions.create(SubscriptionId(f"s-{project.name}"), project.id, S, T, 10)


async def test_an_empty_project_has_nothing(registry: Registry, project: Project) -> None:
    assert await registry.figures.of_project(project.id) == ProjectFigures(0, 0, [], [])
    assert await registry.figures.activity(date.min, date.max) == {}
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
    both = dict.fromkeys((project.id, other.id), Activity(0, 1, 1, 1))
    assert await registry.figures.activity(date.min, date.max) == both


async def test_members_on_lists_come_oldest_first_and_only_while_they_are_members(
    registry: Registry, project: Project
) -> None:
    await make_both(registry, project)
    users = [await make_user(registry, name, {project.id: ()}) for name in ("c", "a", "b")]
    await registry.topics.set_access_list(project.id, T, ["a", "b", "c"])
    await registry.users.remove_member(users[1].id, project.id)

    assert (await registry.figures.of_project(project.id)).on_topics == [("c", 1), ("b", 1)]


async def test_both_days_of_a_window_are_in_it(registry: Registry, project: Project, clock: ManualClock) -> None:
    for moment in (0, DAY - 1):
        clock.now = 20_000 * DAY + moment
        await make_user(registry, f"u{moment}", {project.id: ()})
    day, one = date(2024, 10, 4), timedelta(days=1)

    assert await registry.figures.activity(day, day) == {project.id: Activity(users=2)}
    assert await registry.figures.activity(day - one, day - one) == {}
    assert await registry.figures.activity(day + one, day + one) == {}
    assert await registry.figures.activity(day - one, day + one) == {project.id: Activity(users=2)}
