from dataclasses import replace

import pytest
from sqlalchemy import update
from structlog.testing import capture_logs

from ams.core.errors import AlreadyExists
from ams.core.issuer import Issuer, RoleRule
from ams.storage.registry.registry import Registry
from ams.storage.registry.tables import issuers
from tests.support.administration import make_user

PLAIN = Issuer("plain", "https://plain.example", audiences=("ams",))
FULL = Issuer(
    "full",
    "https://full.example/realm",
    audiences=("ams", "other"),
    clients=("app",),
    jwks_url="https://full.example/keys",
    introspect="opaque",
    introspection_url="https://full.example/introspect",
    client_id="ams",
    client_secret="hunter2 of the tests",
    create_users=True,
    entitlement_claims=("groups",),
    roles=(RoleRule("urn:example:group:vo:role=member#aai.example", "P", ("publisher", "consumer")),),
)


async def test_issuers_are_found_as_they_were_made_oldest_first(registry: Registry) -> None:
    root = await make_user(registry, "root")
    assert await registry.issuers.all() == ()

    await registry.issuers.create(FULL, root.id)
    await registry.issuers.create(PLAIN, None)

    assert await registry.issuers.all() == (FULL, PLAIN)
    await registry.users.delete(root.id)
    assert await registry.issuers.all() == (FULL, PLAIN)


async def test_a_change_counts_at_once(registry: Registry) -> None:
    await registry.issuers.create(PLAIN, None)
    await registry.issuers.create(FULL, None)
    assert len(await registry.issuers.all()) == 2
    changed = replace(FULL, name="renamed", client_secret="", roles=())

    assert await registry.issuers.update(FULL.name, changed)

    assert await registry.issuers.all() == (PLAIN, changed)
    assert not await registry.issuers.update(FULL.name, changed)
    assert await registry.issuers.delete(PLAIN.name)
    assert not await registry.issuers.delete(PLAIN.name)
    assert await registry.issuers.all() == (changed,)


async def test_a_name_and_a_url_are_one_issuers(registry: Registry) -> None:
    await registry.issuers.create(PLAIN, None)
    await registry.issuers.create(FULL, None)

    for twin in (replace(PLAIN, name="new"), replace(PLAIN, url="https://new.example")):
        with pytest.raises(AlreadyExists, match="Issuer already exists"):
            await registry.issuers.create(twin, None)
        with pytest.raises(AlreadyExists, match="Issuer already exists"):
            await registry.issuers.update(FULL.name, twin)

    assert await registry.issuers.all() == (PLAIN, FULL)


async def test_bindings_outlive_their_issuer(registry: Registry) -> None:
    anna = await make_user(registry, "anna")
    await registry.issuers.create(PLAIN, None)
    made = await registry.bindings.create(anna.id, "b", PLAIN.url, "s", created_by=None)

    await registry.issuers.delete(PLAIN.name)

    assert await registry.bindings.of(anna.id) == [made]


async def test_one_whose_secret_is_damaged_is_there_without_it_and_said(registry: Registry) -> None:
    await registry.issuers.create(FULL, None)
    await registry.issuers.create(PLAIN, None)
    damage = update(issuers).where(issuers.c.name == FULL.name).values(secret=b"x")
    await registry._database.write(lambda connection: connection.execute(damage).rowcount)

    with capture_logs() as logged:
        assert await registry.issuers.all() == (replace(FULL, client_secret=""), PLAIN)

    said = [each["issuer"] for each in logged if each["event"] == "issuer.secret_damaged"]
    assert said == ["full"]
