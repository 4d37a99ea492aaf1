from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from ams.core.clock import ManualClock
from ams.core.errors import Conflict, Damaged, SubscriptionGone
from ams.core.names import SubscriptionId, new_uuid
from ams.core.push_config import AskedPush, PushConfig, created
from ams.storage.database.database import sqlite_url
from ams.storage.registry.push import PushSecretRecords
from ams.storage.registry.records import Project
from ams.storage.registry.registry import Registry
from ams.storage.registry.tables import push_secrets
from ams.storage.secrets import Secrets
from tests.storage.registry.makers import new_subscription
from tests.support.administration import make_project, open_registry_at

HOUR = 3_600_000
ENDPOINT = created(AskedPush(endpoint="https://receiver.example/in"), lambda: "x")
HOOK = created(AskedPush(mattermost_url="https://chat.example/hooks/x"), lambda: "x")


def anything(_config: PushConfig | None) -> None:
    """Let every subscription have a secret."""


async def make(registry: Registry, project: Project, name: str = "S") -> SubscriptionId:
    return (await new_subscription(registry, project, name, config=ENDPOINT)).id


async def valid_now(secrets: PushSecretRecords, subscription: SubscriptionId) -> Sequence[str]:
    return (await secrets.all_valid()).get(subscription, ())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8))
async def test_secrets_are_valid_as_promised(
    steps: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each step rotates, keeping so many hours, and lets so many pass."""
    clock, ends = ManualClock(), {}
    async with open_registry_at(sqlite_url(str(tmp_path_factory.mktemp("r") / "registry.db")), clock) as registry:
        subscription = await make(registry, await make_project(registry))
        for number, (keep, passing) in enumerate(steps):
            before = [name for name, end in ends.items() if end is None or end > clock.wall()]
            until = await registry.push_secrets.rotate(subscription, f"whsec_{number}", keep * HOUR, anything)
            assert until == (clock.wall() + keep * HOUR if before and keep else None)
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
        await secrets.rotate(new_uuid(), "whsec_second", HOUR, anything)

    assert await secrets.all_valid() == {subscription: ["whsec_first"]}


@pytest.mark.parametrize("config", [None, HOOK], ids=["pull", "mattermost"])
async def test_what_has_no_endpoint_loses_secrets(
    registry: Registry, project: Project, config: PushConfig | None
) -> None:
    subscription = await make(registry, project)
    await registry.push_secrets.rotate(subscription, "whsec_first", HOUR, anything)

    await registry.subscriptions.change_push(project.id, "S", lambda _: ENDPOINT, None)
    assert await valid_now(registry.push_secrets, subscription) == ["whsec_first"]
    await registry.subscriptions.change_push(project.id, "S", lambda _: config, None)

    assert await registry.push_secrets.all_valid() == {}


async def test_a_deleted_subscription_takes_its_secrets_with_it(registry: Registry, project: Project) -> None:
    subscription = await make(registry, project)
    await registry.push_secrets.rotate(subscription, "whsec_first", HOUR, anything)

    await registry.subscriptions.delete(project.id, "S")

    assert await registry.push_secrets.all_valid() == {}


async def test_a_damaged_one_stops_no_other(registry: Registry, project: Project) -> None:
    one, other = await make(registry, project, "A"), await make(registry, project, "B")
    for each, secret in ((one, "whsec_a"), (other, "whsec_b")):
        await registry.push_secrets.rotate(each, secret, HOUR, anything)
    damage = update(push_secrets).where(push_secrets.c.subscription_id == one).values(sealed=b"x")
    await registry._database.write(lambda connection: connection.execute(damage).rowcount)

    assert await registry.push_secrets.all_valid() == {one: [], other: ["whsec_b"]}


def test_a_sealed_secret_is_of_no_use_for_another_subscription_nor_as_a_token() -> None:
    secrets, owner = Secrets(b"1" * 32), "one"
    sealed = secrets.seal_push("whsec_x", owner)

    assert secrets.open_push(sealed, owner) == "whsec_x"
    with pytest.raises(Damaged):
        secrets.open_push(sealed, "other")
    with pytest.raises(Damaged):
        secrets.decrypt(sealed, "one")
    with pytest.raises(Damaged):
        secrets.open_push(secrets.encrypt("token", "one"), owner)
