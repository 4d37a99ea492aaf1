from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from ams.core.clock import ManualClock
from ams.core.errors import AlreadyExists, Damaged, NotFound
from ams.core.names import new_uuid
from ams.core.rights import Right, Rights
from ams.storage.registry.records import Login, NamedToken, Principal, Project, User
from ams.storage.registry.registry import Registry
from ams.storage.registry.tables import named_tokens
from tests.storage.registry.makers import new_token
from tests.support.administration import make_user

CI = "ci"
PUBLISH_HERE = (Right("topics:publish", "projects/P/topics/T"), Right("*", "projects/Q"))


async def test_a_named_token_is_found_as_it_was_made(registry: Registry, anna: User, clock: ManualClock) -> None:
    root, expires_on = await make_user(registry, "root"), clock.wall() + 1000

    made, text = await registry.named_tokens.create(
        anna.id, CI, expires_on=expires_on, rights=PUBLISH_HERE, created_by=root.id
    )

    assert made == NamedToken(made.id, anna.name, CI, clock.wall(), root.name, expires_on, None, PUBLISH_HERE)
    assert len(text) == 64
    assert await registry.named_tokens.find(anna.id, CI) == made
    assert await registry.named_tokens.find(root.id, CI) is None
    assert await registry.named_tokens.find(anna.id, "laptop") is None
    assert await registry.named_tokens.of(anna.id) == [made]


async def test_it_stands_for_its_user(registry: Registry, project: Project, clock: ManualClock) -> None:
    anna = await make_user(registry, "anna", {project.id: ("publisher",)}, "admin_viewer")
    expires_on = clock.wall() + 1000
    made, text = await registry.named_tokens.create(
        anna.id, CI, expires_on=expires_on, rights=PUBLISH_HERE, created_by=None
    )

    clock.advance(2000)  # an expired one is found too: the text of a refusal says that it has expired

    roles = frozenset({"admin_viewer"}), {project.id: frozenset({"publisher"})}
    login = Login("ci", made.id, expires_on, PUBLISH_HERE)
    assert await registry.users.principal(text) == Principal(anna.id, anna.name, *roles, login)
    assert await registry.users.principal(str(anna.token)) == Principal(anna.id, anna.name, *roles)


@pytest.mark.parametrize("rights", [None, ()], ids=["all rights", "no rights"])
async def test_all_rights_and_no_rights_are_told_apart(registry: Registry, anna: User, rights: Rights | None) -> None:
    login = (await registry.users.principal(await new_token(registry, anna, rights=rights))).login

    [made] = await registry.named_tokens.of(anna.id)
    assert (made.rights, login.rights, login.expires_on) == (rights, rights, None)


async def test_it_is_no_own_token(registry: Registry, anna: User) -> None:
    text = await new_token(registry, anna)

    assert await registry.users.by_token(text) is None
    assert await registry.users.by_token(str(anna.token)) == anna


async def test_users_have_several_in_the_order_of_their_making(registry: Registry, anna: User) -> None:
    texts = {await new_token(registry, anna, name) for name in ("b", "a", "c")}
    await new_token(registry, await make_user(registry, "bert"), "a")

    assert [each.name for each in await registry.named_tokens.of(anna.id)] == ["b", "a", "c"]
    assert len(texts) == 3
    with pytest.raises(AlreadyExists, match="Token already exists"):
        await new_token(registry, anna, "a")
    with pytest.raises(NotFound):
        await new_token(registry, replace(anna, id="gone"))


async def test_a_revoked_one_is_dead_at_once_and_the_others_live(registry: Registry, anna: User) -> None:
    one, other = await new_token(registry, anna), await new_token(registry, anna, "laptop")
    for each in (one, other):
        assert await registry.users.principal(each) is not None

    assert await registry.named_tokens.revoke(anna.id, CI)

    assert await registry.users.principal(one) is None
    assert await registry.users.principal(other) is not None
    assert await registry.users.principal(str(anna.token)) is not None
    assert not await registry.named_tokens.revoke(anna.id, CI)


async def test_it_goes_with_its_user_and_stays_when_its_maker_goes(registry: Registry, anna: User) -> None:
    root = await make_user(registry, "root")
    text = await new_token(registry, anna, created_by=root.id)
    await registry.users.principal(text)

    await registry.users.delete(root.id)

    assert [each.created_by for each in await registry.named_tokens.of(anna.id)] == [None]
    await registry.users.delete(anna.id)
    assert await registry.users.principal(text) is None
    assert await registry.named_tokens.of(anna.id) == []


async def test_a_new_own_token_and_changed_roles_leave_it_as_it_is(registry: Registry, project: Project) -> None:
    anna = await make_user(registry, "anna", {project.id: ("consumer",)})
    text = await new_token(registry, anna)
    assert await registry.users.principal(text) is not None

    await registry.users.refresh_token(anna.id)
    await registry.users.set_roles(anna.id, project.id, ("publisher",))

    principal = await registry.users.principal(text)
    assert principal.project_roles == {project.id: {"publisher"}}


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noted=st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2**43), max_size=3), max_size=4))
async def test_the_last_use_is_the_latest_noted(registry: Registry, noted: Sequence[Mapping[str, int]]) -> None:
    anna = await make_user(registry, new_uuid())
    for name in "abc":
        await new_token(registry, anna, name)
    ids = {each.name: each.id for each in await registry.named_tokens.of(anna.id)}

    for uses in noted:
        moments = {ids[name]: moment for name, moment in uses.items()}
        await registry.named_tokens.note_uses(moments | {new_uuid(): 5})  # of a revoked one

    for each in await registry.named_tokens.of(anna.id):
        assert each.last_used == max((uses[each.name] for uses in noted if each.name in uses), default=None)


async def test_a_damaged_one_opens_and_is_named_where_its_hash_is_needed(registry: Registry, anna: User) -> None:
    text = await new_token(registry, anna)
    damage = update(named_tokens).values(sealed=b"x")
    await registry._database.write(lambda connection: connection.execute(damage).rowcount)

    assert await registry.users.principal(text) is not None
    for ask in (registry.read_out(list, {}, with_secrets=True), registry.change_key(b"n" * 32)):
        with pytest.raises(Damaged, match="the stored token ci of user anna is damaged; revoke it"):
            await ask
