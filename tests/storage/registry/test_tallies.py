"""Counts of topics and projects, and quotas: checked with each insert, also with many at once."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import date

import pytest

from ams.core.errors import AlreadyExists, QuotaExceeded
from ams.core.names import new_topic_id
from ams.core.quotas import MEMBERS, REVISION_BYTES, SCHEMA_BYTES, SCHEMAS, SUBSCRIPTIONS, TOPICS
from ams.storage.export_format import Day
from ams.storage.registry.counts import Activity, Rate, Tally, TallyStep
from ams.storage.registry.records import Project, SchemaContent, Topic, UserDetails
from ams.storage.registry.registry import Registry
from tests.storage.registry.makers import ANY_SCHEMA, new_schema, new_subscription, new_topic
from tests.support.administration import make_project, make_user

RATE = Rate(2, 50, 40)
DAY = "2024-03-05"
T, S = "T", "S"


def advance(topic: Topic, base: int, messages: int, day: str = DAY) -> TallyStep:
    return TallyStep(topic.id, base, Tally(messages, 10 * messages, RATE), [Day(day, messages - base, 10)])


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


async def test_pulls_of_a_subscription_that_is_gone_are_left_out(registry: Registry) -> None:
    await registry.tallies.store([], {"gone": Tally(1, 1, RATE)})
    assert await registry.tallies.delivery_tally("gone") == Tally()


async def test_a_restarted_topic_counts_from_nothing(registry: Registry, project: Project, topic: Topic) -> None:
    await registry.tallies.store([advance(topic, 0, 2)], {})

    await registry.tallies.restart([topic.id])

    found, days = await registry.tallies.topic(topic.id, 30)
    assert (found.tally, days) == (Tally(), {})
    assert await registry.tallies.project_days(project.id, 30) == {DAY: 2}


Make = Callable[[Registry, Project, str], Awaitable[object]]
KINDS: list[tuple[str, int, Make]] = [
    (TOPICS, 3, new_topic), (SUBSCRIPTIONS, 3, new_subscription), (SCHEMAS, 3, new_schema),
    (MEMBERS, 3, lambda registry, project, name: make_user(registry, name, {project.id: ()})),
    (SCHEMA_BYTES, 3 * (2 + REVISION_BYTES), new_schema),
]  # fmt: skip


@pytest.mark.parametrize(("quota", "limit", "make"), KINDS)
async def test_a_race_keeps_the_quota(registry: Registry, project: Project, quota: str, limit: int, make: Make) -> None:
    await registry.projects.change_quotas(project.id, {quota: limit})
    made = await asyncio.gather(*(make(registry, project, f"n{n}") for n in range(8)), return_exceptions=True)

    assert sum(isinstance(each, QuotaExceeded) for each in made) == 5
    assert (await registry.quotas.quota_usage(project.id))[quota] == limit
    assert await registry.quotas.all_used() == {project.id: await registry.quotas.quota_usage(project.id)}
    first = next(f"n{n}" for n in range(8) if not isinstance(made[n], Exception))
    with pytest.raises(AlreadyExists):  # said first: whoever asks for what is there learns that it is
        await make(registry, project, first)


async def test_revisions_count_until_they_are_deleted(registry: Registry, project: Project) -> None:
    schema = await registry.schemas.create(project.id, "x", SchemaContent("json", '"é"', '{"a":1}'))
    assert (await registry.quotas.quota_usage(project.id))[SCHEMA_BYTES] == 4 + 7 + REVISION_BYTES
    await registry.projects.change_quotas(project.id, {SCHEMA_BYTES: 13 + 2 * REVISION_BYTES})
    changed = await registry.schemas.update(schema, content=ANY_SCHEMA)
    with pytest.raises(QuotaExceeded, match=r"^Quota schemaBytes of the project is exceeded: its limit is 525$"):
        await registry.schemas.update(changed, content=ANY_SCHEMA)
    await registry.schemas.delete_revision(schema.id, 1)
    assert await registry.schemas.update(changed, content=ANY_SCHEMA) is not None


async def test_users_made_in_a_project_count_until_they_are_elsewhere(registry: Registry, project: Project) -> None:
    """Otherwise a project_admin could fill the registry with users, as nobody but a service_admin deletes them."""
    other = await make_project(registry, "other")
    await registry.projects.change_quotas(project.id, {MEMBERS: 2})

    async def make(name: str) -> str:
        places = {project.id: ["consumer"]}
        creation = registry.users.creation(name, UserDetails(), places, None, made_in=project.id)
        return (await registry.users.create(creation)).id

    one, two = await make("one"), await make("two")
    assert await registry.users.remove_member(one, project.id)
    assert await registry.users.remove_member(two, project.id)
    assert (await registry.quotas.quota_usage(project.id))[MEMBERS] == 2
    assert (await registry.quotas.all_used())[project.id][MEMBERS] == 2
    with pytest.raises(QuotaExceeded):
        await make("three")

    await registry.users.add_member(one, other.id, ["consumer"])
    await registry.users.delete(two)
    assert (await registry.quotas.quota_usage(project.id))[MEMBERS] == 0
    await make("three")
