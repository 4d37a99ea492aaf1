from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update
from structlog.testing import capture_logs

from ams.core.errors import AlreadyExists, Damaged, NotFound
from ams.core.names import new_uuid
from ams.core.rights import Right, Rights
from ams.storage import export_format
from ams.storage.registry.records import Login, NamedToken, PageRequest, Principal, Project, User, UserDetails
from ams.storage.registry.registry import Registry
from ams.storage.registry.statements import page_token
from ams.storage.registry.tables import named_tokens, users
from tests.storage.registry.makers import new_token
from tests.support.administration import make_user
from tests.support.clock import ManualClock

WHOLE_PAGE = PageRequest()


async def test_a_role_given_twice_is_kept_once_in_order(registry: Registry, project: Project) -> None:
    user = await make_user(registry, "anna", {project.id: ("publisher", "consumer", "publisher")}, "push_worker")
    twice = UserDetails(service_roles=("admin_viewer", "push_worker", "admin_viewer"))
    await registry.users.update(user.id, twice, None)

    changed = await registry.users.by_id(user.id)

    assert changed.service_roles == ("admin_viewer", "push_worker")
    assert changed.memberships[0].roles == ("publisher", "consumer")
    assert await registry.users.set_roles(user.id, project.id, ["consumer"] * 3)
    changed = await registry.users.by_id(user.id)
    assert changed.memberships[0].roles == ("consumer",)


@pytest.mark.parametrize("token", ["", "unknown", "é", "\ud800", "x" * 100_000])
@pytest.mark.usefixtures("anna")
async def test_any_other_text_stands_for_nobody(registry: Registry, token: str) -> None:
    assert await registry.users.principal(token) is None
    assert await registry.users.by_token(token) is None


async def test_what_changes_of_a_user_counts_at_once(registry: Registry, project: Project, anna: User) -> None:
    """Although each lookup is cached."""

    async def roles(token: str) -> object:
        principal = await registry.users.principal(token)
        return principal and principal.project_roles.get(project.id)

    token = str(anna.token)
    assert await roles(token) is None
    await registry.users.add_member(anna.id, project.id, [])
    assert await roles(token) == set()
    await registry.users.set_roles(anna.id, project.id, ["publisher"])
    assert await roles(token) == {"publisher"}
    await registry.users.remove_member(anna.id, project.id)
    assert await roles(token) is None
    await registry.users.update(anna.id, UserDetails(), {project.id: ("project_admin",)})
    assert await roles(token) == {"project_admin"}
    await registry.users.refresh_token(anna.id)
    assert await registry.users.principal(token) is None
    fresh = str((await registry.users.by_id(anna.id)).token)
    assert await roles(fresh) == {"project_admin"}
    await registry.users.delete(anna.id)
    assert await registry.users.principal(fresh) is None


async def test_what_is_gone_cannot_be_changed(registry: Registry, project: Project, anna: User) -> None:
    await registry.users.delete(anna.id)

    assert await registry.users.update(anna.id, UserDetails(email="x"), None) is None
    assert await registry.users.refresh_token(anna.id) is None
    assert not await registry.users.set_roles(anna.id, project.id, [])
    assert not await registry.users.remove_member(anna.id, project.id)
    with pytest.raises(NotFound):
        await registry.users.add_member(anna.id, project.id, [])


@pytest.mark.parametrize("many", [0, 1000])
async def test_pages_agree(registry: Registry, project: Project, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr("ams.storage.registry.users._MANY", many)
    for number in range(6):
        await make_user(registry, f"u{number}", {project.id: ()} if number % 2 else {})

    first = await registry.users.page(PageRequest(2), project=project.id)
    second = await registry.users.page(PageRequest(2, first.next_token), project=project.id)

    assert [user.name for page in (first, second) for user in page.items] == ["u5", "u3", "u1"]
    assert (first.total, second.total, second.next_token) == (3, 3, "")


async def test_more_users_than_one_statement_may_name_are_read_whole(registry: Registry) -> None:
    lines = [export_format.Project(name="P")]
    for number in range(510):
        lines.append(export_format.User(name=f"u{number}", token=f"t{number}"))
        lines.append(export_format.Membership(user=f"u{number}", project="P", roles=("consumer",)))
    await registry.fill(lines, {}, lambda _: None)

    page = await registry.users.page(WHOLE_PAGE, details=True)

    assert page.total == 510
    assert all(len(user.memberships) == 1 for user in page.items)


@pytest.mark.parametrize("sealed", [b"", b"short", bytes(200)])
async def test_a_user_with_a_damaged_token_is_shown_without_it(registry: Registry, anna: User, sealed: bytes) -> None:
    bert = await make_user(registry, "bert")
    damage = update(users).where(users.c.id == anna.id).values(token_sealed=sealed)
    await registry._database.write(lambda connection: connection.execute(damage))

    with capture_logs() as said:
        page = await registry.users.page(WHOLE_PAGE)

    assert {user.name: user.token for user in page.items} == {"anna": None, "bert": bert.token}
    assert [line["user"] for line in said if line["event"] == "user.token_damaged"] == ["anna"]
    assert await registry.users.principal(str(anna.token)) is not None
    fresh = await registry.users.refresh_token(anna.id)
    assert await registry.users.by_token(str(fresh.token)) == fresh


async def test_whether_anybody_holds_a_service_role(registry: Registry, project: Project) -> None:
    await make_user(registry, "anna", {project.id: ("service_admin",)}, "metrics_viewer", "push_worker")
    assert await registry.users.hold("push_worker")
    assert not await registry.users.hold("service_admin")
    assert not await registry.users.hold("push")


async def test_roles_of_a_stranger_stay(registry: Registry, project: Project, anna: User, clock: ManualClock) -> None:
    clock.advance(5_000)
    assert not await registry.users.set_roles(anna.id, project.id, ["consumer"])
    assert await registry.users.by_id(anna.id) == anna


async def test_a_page_may_begin_beyond_all_numbers_there_are(registry: Registry) -> None:
    await make_user(registry, "anna")
    page = await registry.users.page(PageRequest(token=page_token(10**17)))
    assert [user.name for user in page.items] == ["anna"]
    assert not (await registry.users.page(PageRequest(2**70, page_token(0)))).items


CI = "ci"
PUBLISH_RIGHTS = (Right("topics:publish", "projects/P/topics/T"), Right("*", "projects/Q"))


async def test_a_named_token_is_found_as_it_was_made(registry: Registry, anna: User, clock: ManualClock) -> None:
    root, expires_on = await make_user(registry, "root"), clock.wall() + 1000

    made, text = await registry.named_tokens.create(
        anna.id, CI, expires_on=expires_on, rights=PUBLISH_RIGHTS, created_by=root.id
    )

    assert made == NamedToken(made.id, anna.name, CI, clock.wall(), root.name, expires_on, None, PUBLISH_RIGHTS)
    assert len(text) == 64
    assert await registry.named_tokens.find(anna.id, CI) == made
    assert await registry.named_tokens.find(root.id, CI) is None
    assert await registry.named_tokens.find(anna.id, "laptop") is None
    assert await registry.named_tokens.of(anna.id) == [made]


async def test_it_stands_for_its_user(registry: Registry, project: Project, clock: ManualClock) -> None:
    anna = await make_user(registry, "anna", {project.id: ("publisher",)}, "admin_viewer")
    expires_on = clock.wall() + 1000
    made, text = await registry.named_tokens.create(
        anna.id, CI, expires_on=expires_on, rights=PUBLISH_RIGHTS, created_by=None
    )

    clock.advance(2000)  # an expired one is found too: the text of a refusal says that it has expired

    roles = frozenset({"admin_viewer"}), {project.id: frozenset({"publisher"})}
    login = Login("ci", made.id, expires_on, PUBLISH_RIGHTS)
    assert await registry.users.principal(text) == Principal(anna.id, anna.name, *roles, login)
    assert await registry.users.principal(str(anna.token)) == Principal(anna.id, anna.name, *roles)
    assert (await registry.users.by_token(text), await registry.users.by_token(str(anna.token))) == (None, anna)


@pytest.mark.parametrize("rights", [None, ()], ids=["all rights", "no rights"])
async def test_all_rights_and_no_rights_are_told_apart(registry: Registry, anna: User, rights: Rights | None) -> None:
    login = (await registry.users.principal(await new_token(registry, anna, rights=rights))).login
    [made] = await registry.named_tokens.of(anna.id)
    assert (made.rights, login.rights, login.expires_on) == (rights, rights, None)


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

    assert (await registry.users.principal(text)).project_roles == {project.id: {"publisher"}}


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
    for ask in (registry.export_lines(list, {}, with_secrets=True), registry.change_key(b"n" * 32)):
        with pytest.raises(Damaged, match="the stored token ci of user anna is damaged; revoke it"):
            await ask
