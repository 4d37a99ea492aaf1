from datetime import date

import pytest

from ams.core.clock import Milliseconds
from ams.core.names import SubscriptionId, TopicId, TopicName, new_topic_id
from ams.storage.registry.counts import Activity, Advance, DayCount, Rate, Tally
from ams.storage.registry.records import Project
from ams.storage.registry.registry import Registry
from tests.support.administration import make_project

RATE = Rate(2, Milliseconds(50), Milliseconds(40))
DAY = "2024-03-05"


@pytest.fixture
async def project(registry: Registry) -> Project:
    return await make_project(registry)


@pytest.fixture
async def topic(registry: Registry, project: Project) -> TopicId:
    return (await registry.topics.create(new_topic_id(), project.id, TopicName("T"))).id


def advance(topic: TopicId, base: int, messages: int, day: str = DAY) -> Advance:
    return Advance(topic, base, Tally(messages, 10 * messages, RATE), [DayCount(day, messages - base, 10)])


async def test_a_topic_without_tally_has_an_empty_one(registry: Registry, project: Project, topic: TopicId) -> None:
    [found] = await registry.tallies.all()

    assert (found.id, found.project_id, found.project, found.name) == (topic, project.id, "P", "T")
    assert found.tally == Tally()
    assert await registry.tallies.topic(topic, 30) == (found, {})


async def test_what_is_stored_is_found_by_topic_and_project(
    registry: Registry, project: Project, topic: TopicId
) -> None:
    await registry.tallies.store([advance(topic, 0, 2)], {})
    await registry.tallies.store([advance(topic, 2, 5)], {})

    [found] = await registry.tallies.of([topic, new_topic_id()])
    assert found.tally == Tally(5, 50, RATE)
    assert await registry.tallies.topic(topic, 30) == (found, {DAY: 5})
    assert await registry.tallies.project_days(project.id, 30) == {DAY: 5}
    assert await registry.figures.activity(date(2024, 3, 5), date(2024, 3, 5)) == {project.id: Activity(5)}
    assert await registry.figures.activity(date(2024, 3, 6), date(2024, 3, 9)) == {}


async def test_what_was_worked_out_from_another_tally_is_left_out(
    registry: Registry, project: Project, topic: TopicId
) -> None:
    assert await registry.tallies.store([advance(topic, 0, 2)], {}) == {topic}

    assert not await registry.tallies.store([advance(topic, 0, 3), advance(topic, 1, 3)], {})

    assert await registry.tallies.project_days(project.id, 30) == {DAY: 2}
    assert (await registry.tallies.of([topic]))[0].tally.messages == 2


async def test_only_the_newest_days_are_told(registry: Registry, project: Project, topic: TopicId) -> None:
    for number in range(4):
        await registry.tallies.store([advance(topic, number, number + 1, f"2024-03-0{number + 1}")], {})

    assert list((await registry.tallies.topic(topic, 2))[1]) == ["2024-03-04", "2024-03-03"]
    assert list(await registry.tallies.project_days(project.id, 3)) == ["2024-03-04", "2024-03-03", "2024-03-02"]


async def test_a_deleted_topic_takes_its_days_but_not_its_projects(
    registry: Registry, project: Project, topic: TopicId
) -> None:
    await registry.tallies.store([advance(topic, 0, 2)], {})

    found = await registry.topics.find(project.id, TopicName("T"))
    assert found is not None
    assert await registry.topics.delete(found, [advance(topic, 2, 3)])
    assert not await registry.topics.delete(found, [advance(topic, 2, 3)])
    await registry.tallies.store([advance(topic, 0, 2)], {})

    assert await registry.tallies.topic(topic, 30) == (None, {})
    assert await registry.tallies.project_days(project.id, 30) == {DAY: 3}


async def test_a_deleted_project_takes_everything(registry: Registry, project: Project, topic: TopicId) -> None:
    await registry.tallies.store([advance(topic, 0, 2)], {})

    await registry.projects.delete(project.id)

    assert await registry.figures.activity(date.min, date.max) == {}


async def test_pulls_of_a_subscription_that_is_gone_are_left_out(registry: Registry) -> None:
    gone = SubscriptionId("gone")

    await registry.tallies.store([], {gone: Tally(1, 1, RATE)})

    assert await registry.tallies.pulled(gone) == Tally()


async def test_a_restarted_topic_counts_from_nothing(registry: Registry, project: Project, topic: TopicId) -> None:
    await registry.tallies.store([advance(topic, 0, 2)], {})

    await registry.tallies.restart([topic])

    found, days = await registry.tallies.topic(topic, 30)
    assert found is not None
    assert (found.tally, days) == (Tally(), {})
    assert await registry.tallies.project_days(project.id, 30) == {DAY: 2}
