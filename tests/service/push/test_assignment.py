"""Push targets come from the registry, and the delivering process gets everything it needs."""

from collections.abc import Mapping, Sequence

import jwt
import pytest

from ams.cluster.lease_table import OtherHolders, StoredLeases
from ams.cluster.leases import LEASE_SECONDS, Heartbeat, MemoryLeases
from ams.core.names import SubscriptionId, topic_id_text
from ams.core.push_config import HTTP_ENDPOINT, GoogleForm, PushConfig
from ams.service.push.assignment import Assignment
from ams.service.push.identity import LIVES_SECONDS, RENEWED_SECONDS, Claim, PushIdentity
from ams.storage.registry.records import Project, Subscription, Topic
from ams.storage.registry.registry import Registry
from ams.storage.registry.signing_keys import PUSH, SigningKey
from ams.wire.push import WorkerState
from tests.storage.registry.makers import create_topic, new_subscription
from tests.support.administration import make_project
from tests.support.clock import ManualClock

VERIFIED_CONFIG = PushConfig(HTTP_ENDPOINT, "https://receiver.example/in", header_value="secret", verified=True)
UNVERIFIED_CONFIG = PushConfig(HTTP_ENDPOINT, "https://receiver.example/in", verification_hash="hash")


@pytest.fixture
async def project(registry: Registry) -> Project:
    return await make_project(registry)


async def subscribe(
    registry: Registry, project: Project, name: str = "one", config: PushConfig | None = VERIFIED_CONFIG
) -> Subscription:
    return await new_subscription(registry, project, name, ack_deadline_seconds=15, push=config)


async def make_topic(registry: Registry, project: Project) -> Topic:
    return await create_topic(registry, project.id)


@pytest.fixture
def assignment(registry: Registry) -> Assignment:
    return Assignment(registry, StoredLeases(registry))


async def test_a_target_has_all_that_is_needed_to_deliver(registry: Registry, project: Project) -> None:
    topic = await make_topic(registry, project)
    one = await subscribe(registry, project)
    await subscribe(registry, project, "waits", UNVERIFIED_CONFIG)
    await subscribe(registry, project, "pulls", None)

    async def secrets() -> Mapping[SubscriptionId, Sequence[str]]:
        return {one.id: ["whsec_new", "whsec_old"]}

    [target] = await Assignment(registry, StoredLeases(registry), secrets=secrets).targets()

    assert (target.path, target.topic) == ("/projects/P/subscriptions/one", "/projects/P/topics/T")
    assert (target.id, target.topic_id) == (one.id, topic_id_text(topic.id))
    assert (target.config, target.ack_deadline_seconds) == (VERIFIED_CONFIG, 15)
    assert target.secrets == ("whsec_new", "whsec_old")


async def test_a_topic_made_anew_is_a_new_target(registry: Registry, project: Project, assignment: Assignment) -> None:
    await make_topic(registry, await make_project(registry, "other"))
    await subscribe(registry, project)
    [without] = await assignment.targets()
    topic = await make_topic(registry, project)
    [first] = await assignment.targets()
    await registry.topics.delete(topic)
    await make_topic(registry, project)
    [second] = await assignment.targets()

    assert (without.topic_id, len({each.topic_id for each in (without, first, second)})) == ("", 3)


async def test_the_worker_here_is_believed_before_what_was_told(registry: Registry, project: Project) -> None:
    clock = ManualClock()
    here: dict[SubscriptionId, WorkerState] = {}
    assignment = Assignment(registry, MemoryLeases(clock, "own", OtherHolders(registry)), here.get)
    one = await subscribe(registry, project)
    assert await assignment.state(one.id) is None
    await assignment.heartbeat(Heartbeat("a", frozenset()))
    await assignment.heartbeat(Heartbeat("a", frozenset({one.id}), {one.id: WorkerState(delivered=1)}))

    assert await assignment.state(one.id) == WorkerState(delivered=1)
    here[one.id] = WorkerState(delivered=2)
    assert await assignment.state(one.id) == WorkerState(delivered=2)
    here.clear()
    clock.advance(round(LEASE_SECONDS * 1000))
    assert await assignment.state(one.id) is None


async def test_what_did_not_change_is_not_made_anew(registry: Registry, project: Project, assignment: Assignment):
    assert not await assignment.targets()
    await subscribe(registry, project)
    before = await assignment.targets()

    assert await assignment.targets() is before
    await registry.projects.update(project.id, "renamed", "")
    [renamed] = await assignment.targets()
    assert renamed.path == "/projects/renamed/subscriptions/one"
    await registry.subscriptions.set_ack_deadline(project.id, "one", 16)
    [slower] = await assignment.targets()
    assert slower.ack_deadline_seconds == 16
    await registry.subscriptions.delete(project.id, "one")
    assert not await assignment.targets()


# Tokens of deliveries in Google's format: one key for all nodes, cached tokens, renewed in time


ACCOUNT, ISSUER, ENDPOINT = "a@P.iam.gserviceaccount.com", "https://ams.example", "https://receiver.example/in"


def config(audience: str = "", account: str = ACCOUNT) -> PushConfig:
    form = GoogleForm(service_account=account, audience=audience)
    return PushConfig(HTTP_ENDPOINT, ENDPOINT, verified=True, google=form)


async def said_by(identity: PushIdentity, token: str, audience: str) -> dict[str, object]:
    [key] = await identity.keys()
    options = {"verify_exp": False, "verify_iat": False}
    return dict(jwt.decode(token, jwt.PyJWK(key), ["RS256"], options, audience=audience, issuer=ISSUER))


async def test_tokens_of_two_nodes_are_checked_with_one_key(registry: Registry) -> None:
    one, two = (PushIdentity(registry.signing_keys, ISSUER, ManualClock()) for _ in range(2))

    mine = await one.tokens([config(), config("me")])
    other = await two.tokens([config()])

    assert await one.keys() == await two.keys()
    assert set(mine) == {Claim(ACCOUNT, ENDPOINT), Claim(ACCOUNT, "me")}
    said = await said_by(one, other[Claim(ACCOUNT, ENDPOINT)], ENDPOINT)
    assert (said["email"], said["email_verified"], said["sub"]) == (ACCOUNT, True, ACCOUNT)


async def test_a_node_that_is_too_late_takes_the_key_that_is_there(registry: Registry) -> None:
    first, second = SigningKey("1", "one"), SigningKey("2", "two")

    assert await registry.signing_keys.find(PUSH) is None
    assert await registry.signing_keys.add(PUSH, first) == first
    assert (await registry.signing_keys.add(PUSH, second), await registry.signing_keys.find(PUSH)) == (first, first)


async def test_a_token_is_used_again_until_half_its_time_is_over(registry: Registry) -> None:
    clock = ManualClock()
    identity = PushIdentity(registry.signing_keys, ISSUER, clock)

    first = await identity.tokens([config()])
    clock.advance(1000 * (RENEWED_SECONDS - 1))
    assert await identity.tokens([config()]) == first
    clock.advance(1000)
    renewed = await identity.tokens([config()])

    assert renewed != first
    said = await said_by(identity, renewed[Claim(ACCOUNT, ENDPOINT)], ENDPOINT)
    assert said["exp"] == clock.wall() // 1000 + LIVES_SECONDS


async def test_a_target_comes_with_its_token_and_another_token_makes_no_other_target(registry: Registry) -> None:
    project = await make_project(registry)
    await make_topic(registry, project)
    await subscribe(registry, project, "one", config())
    clock = ManualClock()
    identity = PushIdentity(registry.signing_keys, ISSUER, clock)
    assignment = Assignment(registry, StoredLeases(registry), tokens=identity.tokens)

    [before] = await assignment.targets()
    clock.advance(1000 * RENEWED_SECONDS)
    [after] = await assignment.targets()

    assert before.identity_token
    assert after.identity_token not in ("", before.identity_token)
    assert before == after
    assert before.identity_token not in repr(before)
