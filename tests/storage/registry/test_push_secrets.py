import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import Conflict, Damaged, SubscriptionGone
from ams.core.names import SubscriptionId, SubscriptionName, TopicName, UserId, new_uuid
from ams.core.push_config import AskedPush, PushConfig, created
from ams.push.delivery import new_secret
from ams.storage.database.database import sqlite_url
from ams.storage.registry.push import PushSecretRecords
from ams.storage.registry.records import Project
from ams.storage.registry.registry import Registry
from ams.storage.secrets import Secrets
from tests.support.administration import make_project, open_registry_at

HOUR = Milliseconds(3_600_000)
ENDPOINT = created(AskedPush(endpoint="https://receiver.example/in"), lambda: "x")
HOOK = created(AskedPush(mattermost_url="https://chat.example/hooks/x"), lambda: "x")


def anything(_config: PushConfig | None) -> None:
    """Let every subscription have a secret."""


@pytest.fixture
async def project(registry: Registry) -> Project:
    return await make_project(registry)


async def make(registry: Registry, project: Project, name: str = "S") -> SubscriptionId:
    identity = SubscriptionId(new_uuid())
    await registry.subscriptions.create(
        identity, project.id, SubscriptionName(name), TopicName("T"), 10, config=ENDPOINT
    )
    return identity


async def valid_now(secrets: PushSecretRecords, subscription: SubscriptionId) -> Sequence[str]:
    return (await secrets.all_valid()).get(subscription, ())


async def test_a_subscription_has_no_secret_until_it_is_given_one(registry: Registry, project: Project) -> None:
    subscription, secrets = await make(registry, project), registry.push_secrets

    assert await valid_now(secrets, subscription) == ()
    assert await secrets.all_valid() == {}
    assert await secrets.rotate(subscription, "whsec_first", HOUR, anything) is None
    assert await valid_now(secrets, subscription) == ["whsec_first"]


async def test_the_one_before_is_valid_for_as_long_as_was_asked(
    registry: Registry, project: Project, clock: ManualClock
) -> None:
    subscription, secrets = await make(registry, project), registry.push_secrets
    await secrets.rotate(subscription, "whsec_first", HOUR, anything)

    until = await secrets.rotate(subscription, "whsec_second", HOUR, anything)

    assert until == clock.wall() + HOUR
    clock.advance(HOUR - 1)
    assert await valid_now(secrets, subscription) == ["whsec_second", "whsec_first"]
    clock.advance(1)
    assert await valid_now(secrets, subscription) == ["whsec_second"]


async def test_without_time_to_follow_only_the_new_one_is_valid(registry: Registry, project: Project) -> None:
    subscription, secrets = await make(registry, project), registry.push_secrets
    await secrets.rotate(subscription, "whsec_first", HOUR, anything)

    assert await secrets.rotate(subscription, "whsec_second", Milliseconds(0), anything) is None

    assert await valid_now(secrets, subscription) == ["whsec_second"]


async def test_at_most_two_are_valid_and_the_newest_signs_first(registry: Registry, project: Project) -> None:
    subscription, secrets = await make(registry, project), registry.push_secrets

    for number in range(4):
        await secrets.rotate(subscription, f"whsec_{number}", HOUR, anything)

    assert await valid_now(secrets, subscription) == ["whsec_3", "whsec_2"]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8))
async def test_what_is_valid_is_what_was_promised_whatever_happens_when(
    steps: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each step rotates, keeping so many hours, and lets so many pass."""
    clock, ends = ManualClock(), {}
    async with open_registry_at(sqlite_url(str(tmp_path_factory.mktemp("r") / "registry.db")), clock) as registry:
        subscription = await make(registry, await make_project(registry))
        for number, (keep, passing) in enumerate(steps):
            before = [name for name, end in ends.items() if end is None or end > clock.wall()]
            until = await registry.push_secrets.rotate(
                subscription, f"whsec_{number}", Milliseconds(keep * HOUR), anything
            )
            ends = {before[-1]: until} if before and until is not None else {}
            ends[f"whsec_{number}"] = None
            clock.advance(passing * HOUR)
            valid = [name for name, end in ends.items() if end is None or end > clock.wall()]
            assert await valid_now(registry.push_secrets, subscription) == valid[::-1]
            assert len(valid) <= 2


async def test_all_are_found_at_once_each_under_its_subscription(registry: Registry, project: Project) -> None:
    one, other = await make(registry, project, "A"), await make(registry, project, "B")
    await make(registry, project, "C")
    await registry.push_secrets.rotate(one, "whsec_a", HOUR, anything)
    await registry.push_secrets.rotate(other, "whsec_b", HOUR, anything)
    await registry.push_secrets.rotate(other, "whsec_c", HOUR, anything)

    assert await registry.push_secrets.all_valid() == {one: ["whsec_a"], other: ["whsec_c", "whsec_b"]}


async def test_what_is_refused_changes_nothing(registry: Registry, project: Project) -> None:
    subscription, secrets = await make(registry, project), registry.push_secrets
    await secrets.rotate(subscription, "whsec_first", HOUR, anything)

    def refuse(config: PushConfig | None) -> None:
        assert config == ENDPOINT
        raise Conflict("no")

    with pytest.raises(Conflict):
        await secrets.rotate(subscription, "whsec_second", HOUR, refuse)
    with pytest.raises(SubscriptionGone):
        await secrets.rotate(SubscriptionId(new_uuid()), "whsec_second", HOUR, anything)

    assert await secrets.all_valid() == {subscription: ["whsec_first"]}


@pytest.mark.parametrize("config", [None, HOOK], ids=["pull", "mattermost"])
async def test_what_goes_to_no_endpoint_any_more_loses_its_secrets(
    registry: Registry, project: Project, config: PushConfig | None
) -> None:
    subscription = await make(registry, project)
    await registry.push_secrets.rotate(subscription, "whsec_first", HOUR, anything)

    await registry.subscriptions.change_push(project.id, SubscriptionName("S"), lambda _: ENDPOINT, None)
    assert await valid_now(registry.push_secrets, subscription) == ["whsec_first"]
    await registry.subscriptions.change_push(project.id, SubscriptionName("S"), lambda _: config, None)

    assert await registry.push_secrets.all_valid() == {}


async def test_a_deleted_subscription_takes_its_secrets_with_it(registry: Registry, project: Project) -> None:
    subscription = await make(registry, project)
    await registry.push_secrets.rotate(subscription, "whsec_first", HOUR, anything)

    await registry.subscriptions.delete(project.id, SubscriptionName("S"))

    assert await registry.push_secrets.all_valid() == {}


async def test_the_database_does_not_show_them_and_a_damaged_one_stops_no_other(
    tmp_path: Path, clock: ManualClock
) -> None:
    path = tmp_path / "registry.db"
    async with open_registry_at(sqlite_url(str(path)), clock) as registry:
        project = await make_project(registry)
        one, other = await make(registry, project, "A"), await make(registry, project, "B")
        secret = new_secret()
        await registry.push_secrets.rotate(one, "whsec_a", HOUR, anything)
        await registry.push_secrets.rotate(other, secret, HOUR, anything)
        with closing(sqlite3.connect(path)) as opened:
            opened.execute("UPDATE push_secrets SET sealed = x'00' WHERE subscription_id = ?", (one,))
            opened.commit()
            held = "\n".join(opened.iterdump())

        assert await registry.push_secrets.all_valid() == {one: [], other: [secret]}
        assert secret not in held
        assert secret.encode().hex().upper() not in held.upper()


def test_a_sealed_secret_is_of_no_use_for_another_subscription_nor_as_a_token() -> None:
    secrets, owner = Secrets(b"1" * 32), SubscriptionId("one")
    sealed = secrets.seal_push("whsec_x", owner)

    assert secrets.open_push(sealed, owner) == "whsec_x"
    with pytest.raises(Damaged):
        secrets.open_push(sealed, SubscriptionId("other"))
    with pytest.raises(Damaged):
        secrets.decrypt(sealed, UserId("one"))
    with pytest.raises(Damaged):
        secrets.open_push(secrets.encrypt("token", UserId("one")), owner)


async def test_they_stay_what_they_are_under_another_key(tmp_path: Path, clock: ManualClock) -> None:
    url = sqlite_url(str(tmp_path / "registry.db"))
    async with open_registry_at(url, clock) as registry:
        subscription = await make(registry, await make_project(registry))
        for each in ("whsec_first", "whsec_second"):
            await registry.push_secrets.rotate(subscription, each, HOUR, anything)
        assert await registry.change_key(b"n" * 32) == 0  # there are no users, and only tokens are counted

    reopened = await Registry.open(url, b"n" * 32, clock=clock)
    try:
        assert await valid_now(reopened.push_secrets, subscription) == ["whsec_second", "whsec_first"]
    finally:
        await reopened.close()
