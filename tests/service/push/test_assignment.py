"""What is wanted is what the registry holds, and whoever delivers is told of it with all it needs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ams.core.clock import ManualClock
from ams.core.names import (
    ProjectName,
    SubscriptionId,
    SubscriptionName,
    TopicName,
    new_topic_id,
    new_uuid,
    topic_id_text,
)
from ams.core.push_config import HTTP_ENDPOINT, PushConfig
from ams.push.leases import LEASE_SECONDS, Heartbeat, MemoryLeases
from ams.service.push.assignment import Assignment
from ams.storage.registry.records import Project, Subscription, Topic
from ams.storage.registry.registry import Registry
from ams.wire.push import WorkerState
from tests.support.administration import ENGINES, make_project, url_of

TO_DELIVER = PushConfig(HTTP_ENDPOINT, "https://receiver.example/in", header_value="secret", verified=True)
NOT_YET = PushConfig(HTTP_ENDPOINT, "https://receiver.example/in", verification_hash="hash")


@pytest.fixture(params=ENGINES)
def registry_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty registry, on each database."""
    return url_of(request.param, tmp_path)


@pytest.fixture
async def project(registry: Registry) -> Project:
    return await make_project(registry)


async def subscribe(registry: Registry, project: Project, name: str, config: PushConfig | None) -> Subscription:
    identity = SubscriptionId(new_uuid())
    return await registry.subscriptions.create(identity, project.id, SubscriptionName(name), TopicName("T"), 15, config)


async def make_topic(registry: Registry, project: Project) -> Topic:
    return await registry.topics.create(new_topic_id(), project.id, TopicName("T"))


async def test_a_target_has_all_that_is_needed_to_deliver(registry: Registry, project: Project) -> None:
    topic = await make_topic(registry, project)
    one = await subscribe(registry, project, "one", TO_DELIVER)
    await subscribe(registry, project, "waits", NOT_YET)
    await subscribe(registry, project, "pulls", None)

    async def secrets() -> Mapping[SubscriptionId, Sequence[str]]:
        return {one.id: ["whsec_new", "whsec_old"]}

    [target] = await Assignment(registry, registry.push_leases, secrets=secrets).targets()

    assert (target.path, target.topic) == ("/projects/P/subscriptions/one", "/projects/P/topics/T")
    assert (target.id, target.topic_id) == (one.id, topic_id_text(topic.id))
    assert (target.config, target.ack_deadline_seconds) == (TO_DELIVER, 15)
    assert target.secrets == ("whsec_new", "whsec_old")


async def test_a_topic_made_anew_makes_another_target(registry: Registry, project: Project) -> None:
    assignment = Assignment(registry, registry.push_leases)
    await subscribe(registry, project, "one", TO_DELIVER)
    [without] = await assignment.targets()
    topic = await make_topic(registry, project)
    [first] = await assignment.targets()
    await registry.topics.delete(topic)
    await make_topic(registry, project)
    [second] = await assignment.targets()

    assert without.topic_id == ""
    assert len({each.topic_id for each in (without, first, second)}) == 3


async def test_a_topic_of_the_same_name_elsewhere_is_another(registry: Registry, project: Project) -> None:
    other = await registry.projects.create(ProjectName("other"), "", None)
    await make_topic(registry, other)
    await subscribe(registry, project, "one", TO_DELIVER)

    [target] = await Assignment(registry, registry.push_leases).targets()

    assert target.topic_id == ""


async def test_a_heartbeat_is_answered_by_its_share(registry: Registry, project: Project) -> None:
    assignment = Assignment(registry, registry.push_leases)
    made = [await subscribe(registry, project, name, TO_DELIVER) for name in ("one", "two")]

    told = await assignment.heartbeat(Heartbeat("a", frozenset()))

    assert [each.path.rpartition("/")[2] for each in told] == ["one", "two"]
    assert await assignment.is_held()
    assert await assignment.heartbeat(Heartbeat("b", frozenset())) == []
    assert await assignment.heartbeat(Heartbeat("a", frozenset(), leaving=True)) == []
    assert [each.id for each in await assignment.heartbeat(Heartbeat("b", frozenset()))] == [each.id for each in made]


async def test_the_worker_here_is_believed_before_what_was_told(registry: Registry, project: Project) -> None:
    clock = ManualClock()
    here: dict[SubscriptionId, WorkerState] = {}
    assignment = Assignment(registry, MemoryLeases(clock, settled=True), here.get)
    one = await subscribe(registry, project, "one", TO_DELIVER)
    assert await assignment.state(one.id) is None
    await assignment.heartbeat(Heartbeat("a", frozenset()))
    await assignment.heartbeat(Heartbeat("a", frozenset({one.id}), {one.id: WorkerState(delivered=1)}))

    assert await assignment.state(one.id) == WorkerState(delivered=1)
    here[one.id] = WorkerState(delivered=2)
    assert await assignment.state(one.id) == WorkerState(delivered=2)
    here.clear()
    clock.advance(round(LEASE_SECONDS * 1000))
    assert await assignment.state(one.id) is None


async def test_what_did_not_change_is_not_made_anew(registry: Registry, project: Project) -> None:
    assignment = Assignment(registry, registry.push_leases)
    assert not await assignment.targets()
    await subscribe(registry, project, "one", TO_DELIVER)
    before = await assignment.targets()

    assert await assignment.targets() is before
    await registry.projects.update(project.id, ProjectName("renamed"), "")
    [renamed] = await assignment.targets()
    assert renamed.path == "/projects/renamed/subscriptions/one"
    await registry.subscriptions.set_ack_deadline(project.id, SubscriptionName("one"), 16)
    [slower] = await assignment.targets()
    assert slower.ack_deadline_seconds == 16
    await registry.subscriptions.delete(project.id, SubscriptionName("one"))
    assert not await assignment.targets()
