"""Labels of topics, subscriptions and snapshots: kept, changed, and seen by everybody at once."""

from collections.abc import Mapping

import pytest

from ams.core.clock import ManualClock, Milliseconds
from ams.core.names import Offset, SnapshotName, SubscriptionId, SubscriptionName, TopicName, new_topic_id, new_uuid
from ams.storage.registry.records import PageRequest, Project, Snapshot, Subscription, Topic
from ams.storage.registry.registry import Registry
from tests.support.administration import make_project

N, S, T = SnapshotName("N"), SubscriptionName("S"), TopicName("T")
LABELS = {"team": "weather", "stufe": "größer", "empty": "", "quoted": '"\\\0'}
EVERYTHING = PageRequest()


@pytest.fixture
async def project(registry: Registry) -> Project:
    return await make_project(registry)


async def make_topic(registry: Registry, project: Project, labels: Mapping[str, str]) -> Topic:
    return await registry.topics.create(new_topic_id(), project.id, T, labels=labels)


async def subscribe(registry: Registry, project: Project, labels: Mapping[str, str]) -> Subscription:
    return await registry.subscriptions.create(SubscriptionId(new_uuid()), project.id, S, T, 10, labels=labels)


@pytest.mark.parametrize("labels", [LABELS, {}])
async def test_a_topic_has_the_labels_it_was_made_with(
    registry: Registry, project: Project, labels: Mapping[str, str]
) -> None:
    made = await make_topic(registry, project, labels)

    assert made.labels == labels
    assert await registry.topics.find(project.id, T) == made
    assert (await registry.topics.page(project.id, EVERYTHING)).items == (made,)


async def test_changed_labels_of_a_topic_count_at_once(registry: Registry, project: Project) -> None:
    await make_topic(registry, project, {"a": "1"})
    await registry.topics.find(project.id, T)

    changed = await registry.topics.set_labels(project.id, T, LABELS)
    assert changed is not None
    assert changed.labels == LABELS
    assert await registry.topics.find(project.id, T) == changed

    bare = await registry.topics.set_labels(project.id, T, {})
    assert bare is not None
    assert bare.labels == {}
    assert await registry.topics.find(project.id, T) == bare
    assert await registry.topics.set_labels(project.id, TopicName("other"), {}) is None


@pytest.mark.parametrize("labels", [LABELS, {}])
async def test_a_subscription_has_the_labels_it_was_made_with(
    registry: Registry, project: Project, labels: Mapping[str, str]
) -> None:
    made = await subscribe(registry, project, labels)

    assert made.labels == labels
    assert await registry.subscriptions.find(project.id, S) == made
    assert (await registry.subscriptions.page(project.id, EVERYTHING)).items == (made,)
    assert await registry.subscriptions.all() == [made]
    assert await registry.subscriptions.delete(project.id, S) == made


async def test_changed_labels_of_a_subscription_count_at_once(registry: Registry, project: Project) -> None:
    made = await subscribe(registry, project, {"a": "1"})
    await registry.subscriptions.find(project.id, S)

    changed = await registry.subscriptions.set_labels(project.id, S, LABELS)

    assert changed is not None
    assert (changed.id, changed.labels) == (made.id, LABELS)
    assert await registry.subscriptions.find(project.id, S) == changed
    assert await registry.subscriptions.set_labels(project.id, SubscriptionName("other"), {}) is None


async def test_a_snapshot_has_labels_that_may_change(registry: Registry, project: Project, clock: ManualClock) -> None:
    topic, later = await make_topic(registry, project, {}), Milliseconds(clock.wall() + 1000)
    made = Snapshot(project.id, N, topic.id, T, Offset(0), clock.wall(), later, labels={"a": "1"})
    await registry.snapshots.create(made)
    assert await registry.snapshots.find(project.id, N) == made

    assert await registry.snapshots.set_labels(project.id, N, LABELS)

    found = await registry.snapshots.find(project.id, N)
    assert found is not None
    assert found.labels == LABELS
    assert [each.labels for each in (await registry.snapshots.page(project.id, EVERYTHING)).items] == [LABELS]
    assert not await registry.snapshots.set_labels(project.id, SnapshotName("other"), {})
    clock.advance(1000)
    assert not await registry.snapshots.set_labels(project.id, N, {}), "it has expired"
