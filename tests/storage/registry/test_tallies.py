"""What is counted of topics and projects: tallies, days and figures."""

from datetime import date

from ams.core.names import new_topic_id
from ams.storage.registry.counts import Activity, Advance, DayCount, ProjectFigures, Rate, Tally
from ams.storage.registry.records import Project, Topic
from ams.storage.registry.registry import Registry
from tests.storage.registry.makers import new_subscription, new_topic
from tests.support.administration import make_project, make_user

RATE = Rate(2, 50, 40)
DAY = "2024-03-05"
T, S = "T", "S"


def advance(topic: Topic, base: int, messages: int, day: str = DAY) -> Advance:
    return Advance(topic.id, base, Tally(messages, 10 * messages, RATE), [DayCount(day, messages - base, 10)])


async def test_a_topic_without_tally_has_an_empty_one(registry: Registry, project: Project, topic: Topic) -> None:
    [found] = await registry.tallies.all()

    assert (found.id, found.project_id, found.project, found.name) == (topic.id, project.id, "P", "T")
    assert found.tally == Tally()
    assert await registry.tallies.topic(topic.id, 30) == (found, {})


async def test_what_is_stored_is_found_by_topic_and_project(registry: Registry, project: Project, topic: Topic) -> None:
    await registry.tallies.store([advance(topic, 0, 2)], {})
    await registry.tallies.store([advance(topic, 2, 5)], {})

    [found] = await registry.tallies.of([topic.id, new_topic_id()])
    assert found.tally == Tally(5, 50, RATE)
    assert await registry.tallies.topic(topic.id, 30) == (found, {DAY: 5})
    assert await registry.tallies.project_days(project.id, 30) == {DAY: 5}
    assert await registry.figures.activity(date(2024, 3, 5), date(2024, 3, 5)) == {project.id: Activity(5)}
    assert await registry.figures.activity(date(2024, 3, 6), date(2024, 3, 9)) == {}


async def test_what_was_made_of_another_tally_is_left_out(registry: Registry, project: Project, topic: Topic) -> None:
    assert await registry.tallies.store([advance(topic, 0, 2)], {}) == {topic.id}

    assert not await registry.tallies.store([advance(topic, 0, 3), advance(topic, 1, 3)], {})

    assert await registry.tallies.project_days(project.id, 30) == {DAY: 2}
    assert (await registry.tallies.of([topic.id]))[0].tally.messages == 2


async def test_only_the_newest_days_are_told(registry: Registry, project: Project, topic: Topic) -> None:
    for number in range(4):
        await registry.tallies.store([advance(topic, number, number + 1, f"2024-03-0{number + 1}")], {})

    assert list((await registry.tallies.topic(topic.id, 2))[1]) == ["2024-03-04", "2024-03-03"]
    assert list(await registry.tallies.project_days(project.id, 3)) == ["2024-03-04", "2024-03-03", "2024-03-02"]


async def test_a_deleted_topic_leaves_days_of_its_project(registry: Registry, project: Project, topic: Topic) -> None:
    await registry.tallies.store([advance(topic, 0, 2)], {})

    assert await registry.topics.delete(topic, [advance(topic, 2, 3)])
    assert not await registry.topics.delete(topic, [advance(topic, 2, 3)])
    await registry.tallies.store([advance(topic, 0, 2)], {})

    assert await registry.tallies.topic(topic.id, 30) == (None, {})
    assert await registry.tallies.project_days(project.id, 30) == {DAY: 3}


async def test_a_deleted_project_takes_everything(registry: Registry, project: Project, topic: Topic) -> None:
    await registry.tallies.store([advance(topic, 0, 2)], {})

    await registry.projects.delete(project.id)

    assert await registry.figures.activity(date.min, date.max) == {}


async def test_pulls_of_a_subscription_that_is_gone_are_left_out(registry: Registry) -> None:
    await registry.tallies.store([], {"gone": Tally(1, 1, RATE)})

    assert await registry.tallies.pulled("gone") == Tally()


async def test_a_restarted_topic_counts_from_nothing(registry: Registry, project: Project, topic: Topic) -> None:
    await registry.tallies.store([advance(topic, 0, 2)], {})

    await registry.tallies.restart([topic.id])

    found, days = await registry.tallies.topic(topic.id, 30)
    assert (found.tally, days) == (Tally(), {})
    assert await registry.tallies.project_days(project.id, 30) == {DAY: 2}


async def make_both(registry: Registry, project: Project) -> None:
    await new_topic(registry, project)
    await new_subscription(registry, project)


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
    assert await registry.figures.subscriptions_of(project.id, "other") == 0
    both = dict.fromkeys((project.id, other.id), Activity(0, 1, 1, 1))
    assert await registry.figures.activity(date.min, date.max) == both


async def test_members_on_lists_come_oldest_first_while_they_are_members(registry: Registry, project: Project) -> None:
    await make_both(registry, project)
    users = [await make_user(registry, name, {project.id: ()}) for name in ("c", "a", "b")]
    await registry.topics.set_access_list(project.id, T, ["a", "b", "c"])
    await registry.users.remove_member(users[1].id, project.id)

    assert (await registry.figures.of_project(project.id)).on_topics == [("c", 1), ("b", 1)]
