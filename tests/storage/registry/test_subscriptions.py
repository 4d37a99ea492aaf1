import asyncio
from dataclasses import replace

import pytest

from ams.core.clock import ManualClock
from ams.core.errors import AlreadyExists, Conflict, NotFound, SubscriptionGone
from ams.core.names import ProjectId, ProjectName, SubscriptionId, SubscriptionName, TopicName, new_uuid
from ams.core.parallel_options import DeadLetterPolicy, ParallelOptions, RetryPolicy
from ams.storage.registry.records import PageRequest, Project, Subscription
from ams.storage.registry.registry import Registry
from tests.support.administration import make_project, make_user

S = SubscriptionName("S")
T = TopicName("T")


@pytest.fixture
async def project(registry: Registry) -> Project:
    return await make_project(registry)


async def make(
    registry: Registry, project: ProjectId, name: str = "S", topic: str = "T", options: ParallelOptions | None = None
) -> Subscription:
    identity = SubscriptionId(new_uuid())
    return await registry.subscriptions.create(
        identity, project, SubscriptionName(name), TopicName(topic), 10, options=options
    )


async def test_a_subscription_is_found_as_it_was_made(registry: Registry, project: Project, clock: ManualClock) -> None:
    made = await make(registry, project.id)

    assert made == Subscription(made.id, project.id, S, T, 10, None, clock.wall())
    assert await registry.subscriptions.find(project.id, S) == made
    assert await registry.subscriptions.find(project.id, SubscriptionName("s")) is None
    assert await registry.subscriptions.ids() == {made.id}


async def test_titles_name_those_that_exist_and_their_projects_as_they_are_now(
    registry: Registry, project: Project
) -> None:
    first, second = await make(registry, project.id, "A"), await make(registry, project.id, "B")
    await make(registry, project.id, "C")
    await registry.projects.update(project.id, ProjectName("Q"), "")

    titles = await registry.subscriptions.titles([first.id, second.id, SubscriptionId(new_uuid())])

    assert titles == {first.id: ("Q", "A"), second.id: ("Q", "B")}
    assert await registry.subscriptions.titles([]) == {}


async def test_one_of_many_parallel_makers_wins(registry: Registry, project: Project) -> None:
    outcomes = await asyncio.gather(*(make(registry, project.id) for _ in range(20)), return_exceptions=True)

    winners = [outcome for outcome in outcomes if isinstance(outcome, Subscription)]
    assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 19
    assert [await registry.subscriptions.find(project.id, S)] == winners


async def test_it_cannot_be_made_in_a_project_that_is_gone(registry: Registry) -> None:
    with pytest.raises(NotFound, match=r"^project doesn't exist$"):
        await make(registry, ProjectId("gone"))


async def test_a_changed_deadline_counts_at_once(registry: Registry, project: Project) -> None:
    await make(registry, project.id)
    await registry.subscriptions.find(project.id, S)

    assert await registry.subscriptions.set_ack_deadline(project.id, S, 0)

    found = await registry.subscriptions.find(project.id, S)
    assert found is not None
    assert found.ack_deadline_seconds == 0
    assert not await registry.subscriptions.set_ack_deadline(project.id, SubscriptionName("other"), 0)


async def test_options_are_found_as_they_were_made_and_changed(registry: Registry, project: Project) -> None:
    options = ParallelOptions(RetryPolicy(), DeadLetterPolicy(T, 7), "attributes:a", enable_message_ordering=True)
    identity = SubscriptionId(new_uuid())
    made = await registry.subscriptions.create(identity, project.id, S, T, 10, options=options)
    assert made.parallel == options
    assert await registry.subscriptions.find(project.id, S) == made

    await registry.subscriptions.change_options(project.id, S, lambda before: replace(before, retry_policy=None))

    found = await registry.subscriptions.find(project.id, S)
    assert found is not None
    assert found.parallel == replace(options, retry_policy=None)
    assert (await registry.subscriptions.all())[0].parallel == found.parallel


async def test_a_change_of_options_that_is_refused_changes_nothing(registry: Registry, project: Project) -> None:
    made = await make(registry, project.id)

    def refuse(before: ParallelOptions | None) -> ParallelOptions:
        assert before is None
        raise Conflict("no")

    with pytest.raises(Conflict):
        await registry.subscriptions.change_options(project.id, S, refuse)
    with pytest.raises(SubscriptionGone):
        await registry.subscriptions.change_options(project.id, SubscriptionName("other"), refuse)
    assert await registry.subscriptions.find(project.id, S) == made


async def test_what_is_deleted_is_gone_at_once(registry: Registry, project: Project) -> None:
    made = await make(registry, project.id)
    await registry.subscriptions.find(project.id, S)

    assert await registry.subscriptions.delete(project.id, S) == made
    assert await registry.subscriptions.find(project.id, S) is None
    assert await registry.subscriptions.delete(project.id, S) is None


async def test_an_access_list_counts_at_once(registry: Registry, project: Project) -> None:
    user = await make_user(registry, "anna", {project.id: ()})
    await make(registry, project.id)
    await registry.subscriptions.find(project.id, S)

    await registry.subscriptions.set_access_list(project.id, S, ["anna"])

    found = await registry.subscriptions.find(project.id, S)
    assert found is not None
    assert found.authorized == {user.id}
    assert await registry.subscriptions.access_list(project.id, S) == ["anna"]


async def test_an_access_list_tells_unknown_users_first(registry: Registry, project: Project) -> None:
    with pytest.raises(NotFound, match=r"^User\(s\): nobody do not exist$"):
        await registry.subscriptions.set_access_list(project.id, S, ["nobody"])
    with pytest.raises(NotFound, match=r"^Subscription doesn't exist$"):
        await registry.subscriptions.set_access_list(project.id, S, [])


async def test_those_of_a_topic_come_oldest_first(registry: Registry, project: Project) -> None:
    for name in ("b", "a"):
        await make(registry, project.id, name)
    await make(registry, project.id, "c", topic="other")
    await make(registry, (await make_project(registry, "other")).id, "d")

    assert await registry.subscriptions.of_topic(project.id, T) == ["b", "a"]


async def test_a_page_of_a_topic_leaves_detached_ones_out(registry: Registry, project: Project) -> None:
    for name in ("a", "b", "c", "d", "e"):
        options = ParallelOptions(filter='attributes.x = "\\"detached\\":true"', detached=name == "b")
        await make(registry, project.id, name, options=None if name == "c" else options)
    await make(registry, project.id, "f", topic="other")
    await make(registry, (await make_project(registry, "other")).id, "g")

    first = await registry.subscriptions.page_of_topic(project.id, T, PageRequest(2))
    second = await registry.subscriptions.page_of_topic(project.id, T, PageRequest(2, first.next_token))

    assert (first.items, second.items) == (("e", "d"), ("c", "a"))
    assert (first.total, second.next_token) == (4, "")


async def test_pages_come_newest_first_and_may_be_cut_to_a_user(registry: Registry, project: Project) -> None:
    user = await make_user(registry, "anna", {project.id: ()})
    for name in ("a", "b", "c"):
        await make(registry, project.id, name)
    await registry.subscriptions.set_access_list(project.id, SubscriptionName("b"), ["anna"])

    everything = await registry.subscriptions.page(project.id, PageRequest())
    hers = await registry.subscriptions.page(project.id, PageRequest(), listed=user.id)

    assert [each.name for each in everything.items] == ["c", "b", "a"]
    assert [each.name for each in hers.items] == ["b"]
    assert hers.total == 1
