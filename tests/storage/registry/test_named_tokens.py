import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import AlreadyExists, Damaged, NotFound
from ams.core.names import TokenId, TokenName, UserId, new_uuid
from ams.core.rights import Right
from ams.storage.database.database import sqlite_url
from ams.storage.export_format import encoded
from ams.storage.registry.records import Login, NamedToken, Principal, User
from ams.storage.registry.registry import Registry
from ams.storage.registry.tables import named_tokens
from tests.support.administration import make_project, make_user, open_registry_at
from tests.support.plans import searched_through

LAPTOP, CI = TokenName("laptop"), TokenName("ci")
PUBLISH_HERE = (Right("topics:publish", "projects/P/topics/T"), Right("*", "projects/Q"))


async def make(registry: Registry, user: User, name: TokenName = LAPTOP) -> str:
    _, text = await registry.named_tokens.create(user.id, name, expires_on=None, rights=None, created_by=None)
    return text


async def test_a_named_token_is_found_as_it_was_made(registry: Registry, clock: ManualClock) -> None:
    root, anna = await make_user(registry, "root"), await make_user(registry, "anna")
    expires_on = Milliseconds(clock.wall() + 1000)

    made, text = await registry.named_tokens.create(
        anna.id, CI, expires_on=expires_on, rights=PUBLISH_HERE, created_by=root.id
    )

    assert made == NamedToken(made.id, anna.name, CI, clock.wall(), root.name, expires_on, None, PUBLISH_HERE)
    assert len(text) == 64
    assert await registry.named_tokens.find(anna.id, CI) == made
    assert await registry.named_tokens.find(root.id, CI) is None
    assert await registry.named_tokens.find(anna.id, LAPTOP) is None
    assert await registry.named_tokens.of(anna.id) == [made]


async def test_it_stands_for_its_user_and_says_how_one_logged_in(registry: Registry, clock: ManualClock) -> None:
    project = await make_project(registry)
    anna = await make_user(registry, "anna", {project.id: ("publisher",)}, "admin_viewer")
    expires_on = Milliseconds(clock.wall() + 1000)
    made, text = await registry.named_tokens.create(
        anna.id, CI, expires_on=expires_on, rights=PUBLISH_HERE, created_by=None
    )

    clock.advance(2000)  # an expired one is found too: the text of a refusal says that it has expired

    roles = frozenset({"admin_viewer"}), {project.id: frozenset({"publisher"})}
    login = Login("ci", made.id, expires_on, PUBLISH_HERE)
    assert await registry.users.principal(text) == Principal(anna.id, anna.name, *roles, login)
    assert await registry.users.principal(str(anna.token)) == Principal(anna.id, anna.name, *roles)


async def test_one_of_all_rights_says_so(registry: Registry) -> None:
    text = await make(registry, await make_user(registry, "anna"))

    principal = await registry.users.principal(text)

    assert principal is not None
    assert principal.login is not None
    assert (principal.login.expires_on, principal.login.rights) == (None, None)


async def test_one_of_no_rights_is_not_one_of_all_rights(registry: Registry) -> None:
    anna = await make_user(registry, "anna")
    made, text = await registry.named_tokens.create(anna.id, CI, expires_on=None, rights=(), created_by=None)

    principal = await registry.users.principal(text)

    assert made.rights == ()
    assert principal is not None
    assert principal.login is not None
    assert principal.login.rights == ()


async def test_it_is_no_own_token(registry: Registry) -> None:
    anna = await make_user(registry, "anna")
    text = await make(registry, anna)

    assert await registry.users.by_token(text) is None
    assert await registry.users.by_token(str(anna.token)) == anna


async def test_users_have_several_in_the_order_of_their_making(registry: Registry) -> None:
    anna, bert = await make_user(registry, "anna"), await make_user(registry, "bert")
    texts = {await make(registry, anna, TokenName(name)) for name in ("b", "a", "c")}
    await make(registry, bert, TokenName("a"))

    assert [each.name for each in await registry.named_tokens.of(anna.id)] == ["b", "a", "c"]
    assert len(texts) == 3
    with pytest.raises(AlreadyExists, match="Token already exists"):
        await make(registry, anna, TokenName("a"))


async def test_nobody_gone_gets_one(registry: Registry) -> None:
    with pytest.raises(NotFound):
        await registry.named_tokens.create(UserId(new_uuid()), LAPTOP, expires_on=None, rights=None, created_by=None)


async def test_a_revoked_one_is_dead_at_once_and_the_others_live(registry: Registry) -> None:
    anna = await make_user(registry, "anna")
    one, other = await make(registry, anna), await make(registry, anna, CI)
    for each in (one, other):
        assert await registry.users.principal(each) is not None

    assert await registry.named_tokens.revoke(anna.id, LAPTOP)

    assert await registry.users.principal(one) is None
    assert await registry.users.principal(other) is not None
    assert await registry.users.principal(str(anna.token)) is not None
    assert not await registry.named_tokens.revoke(anna.id, LAPTOP)


async def test_a_look_up_under_way_does_not_revive_a_revoked_one(registry: Registry) -> None:
    anna = await make_user(registry, "anna")
    text = await make(registry, anna)

    await asyncio.gather(
        *(registry.users.principal(text) for _ in range(10)),
        registry.named_tokens.revoke(anna.id, LAPTOP),
        *(registry.users.principal(text) for _ in range(10)),
    )

    assert await registry.users.principal(text) is None


async def test_it_goes_with_its_user_and_stays_when_its_maker_goes(registry: Registry) -> None:
    root, anna = await make_user(registry, "root"), await make_user(registry, "anna")
    _, text = await registry.named_tokens.create(anna.id, CI, expires_on=None, rights=None, created_by=root.id)
    await registry.users.principal(text)

    await registry.users.delete(root.id)

    assert [each.created_by for each in await registry.named_tokens.of(anna.id)] == [None]
    await registry.users.delete(anna.id)
    assert await registry.users.principal(text) is None
    assert await registry.named_tokens.of(anna.id) == []


async def test_a_new_own_token_and_changed_roles_leave_it_as_it_is(registry: Registry) -> None:
    project = await make_project(registry)
    anna = await make_user(registry, "anna", {project.id: ("consumer",)})
    text = await make(registry, anna)
    assert await registry.users.principal(text) is not None

    await registry.users.refresh_token(anna.id)
    await registry.users.set_roles(anna.id, project.id, ("publisher",))

    principal = await registry.users.principal(text)
    assert principal is not None
    assert principal.project_roles == {project.id: {"publisher"}}


async def test_noted_uses_only_grow_and_those_of_revoked_tokens_are_passed_over(registry: Registry) -> None:
    anna = await make_user(registry, "anna")
    await make(registry, anna)
    await make(registry, anna, CI)
    one, other = await registry.named_tokens.of(anna.id)
    gone = TokenId(new_uuid())

    await registry.named_tokens.note_uses({})
    await registry.named_tokens.note_uses({one.id: Milliseconds(20), gone: Milliseconds(5)})
    await registry.named_tokens.note_uses({one.id: Milliseconds(10), other.id: Milliseconds(7)})

    assert [each.last_used for each in await registry.named_tokens.of(anna.id)] == [20, 7]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noted=st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2**43), max_size=3), max_size=4))
async def test_the_last_use_is_the_latest_that_was_noted_in_whatever_order(
    registry: Registry, noted: Sequence[Mapping[str, int]]
) -> None:
    anna = await make_user(registry, new_uuid())
    for name in "abc":
        await make(registry, anna, TokenName(name))
    ids = {each.name: each.id for each in await registry.named_tokens.of(anna.id)}

    for uses in noted:
        moments = {ids[TokenName(name)]: Milliseconds(moment) for name, moment in uses.items()}
        await registry.named_tokens.note_uses(moments)

    for each in await registry.named_tokens.of(anna.id):
        assert each.last_used == max((uses[each.name] for uses in noted if each.name in uses), default=None)


async def test_one_that_is_damaged_still_opens_and_is_named_where_its_hash_is_needed(registry: Registry) -> None:
    anna = await make_user(registry, "anna")
    text = await make(registry, anna)
    damage = update(named_tokens).values(sealed=b"x")
    await registry._database.write(lambda connection: connection.execute(damage).rowcount)

    assert await registry.users.principal(text) is not None
    with pytest.raises(Damaged, match="the stored token laptop of user anna is damaged; revoke it"):
        await registry.read_out(list, {}, with_secrets=True)
    with pytest.raises(Damaged, match="the stored token laptop of user anna is damaged; revoke it"):
        await registry.change_key(b"n" * 32)


async def test_neither_the_database_nor_an_export_of_it_tells_the_text(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    async with open_registry_at(sqlite_url(str(path))) as registry:
        text = await make(registry, await make_user(registry, "anna"))
        lines = await registry.read_out(list, {}, with_secrets=True)

    with closing(sqlite3.connect(path)) as opened:
        held = "\n".join(opened.iterdump())
    assert text not in held
    assert text.encode() not in b"".join(map(encoded, lines))


async def test_it_stays_what_it_is_under_another_key(tmp_path: Path, clock: ManualClock) -> None:
    url = sqlite_url(str(tmp_path / "registry.db"))
    async with open_registry_at(url, clock) as registry:
        anna = await make_user(registry, "anna")
        text = await make(registry, anna)
        assert await registry.change_key(b"n" * 32) == 2

    reopened = await Registry.open(url, b"n" * 32, clock=clock)
    try:
        for each in (text, str(anna.token)):
            principal = await reopened.users.principal(each)
            assert principal is not None
            assert principal.id == anna.id
    finally:
        await reopened.close()


async def test_whose_it_is_needs_an_index_only_however_many_there_are(registry: Registry) -> None:
    anna = await make_user(registry, "anna")
    text = await make(registry, anna)

    assert await searched_through(registry, lambda: registry.users.principal(text)) == []
    assert await searched_through(registry, lambda: registry.users.principal("nobody's")) == []
    assert await searched_through(registry, lambda: registry.named_tokens.find(anna.id, LAPTOP)) == []
