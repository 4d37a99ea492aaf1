"""Users and members: what no single request shows. Their routes: contract 5 and 7.1; what 17.3 says of U3."""

import asyncio

import pytest
from structlog.testing import capture_logs

from ams.access.admission import Admission, Caller
from ams.access.permissions import SELF
from ams.core.clock import ManualClock
from ams.core.errors import InvalidInput, NotAllowed
from ams.core.names import ProjectName, TokenName, UserName
from ams.service.members import Members
from ams.service.tokens import LATEST
from ams.service.users import Users, first_admin
from ams.storage.registry.records import Grant, Membership, UserDetails
from ams.storage.registry.registry import Registry
from tests.support.administration import administrator, admitted, make_project, make_user

ANNA, NOTHING = UserName("anna"), UserDetails()


@pytest.fixture
def users(registry: Registry) -> Users:
    return Users(registry)


@pytest.fixture
async def root(registry: Registry) -> Caller:
    return await administrator(registry)


async def test_who_may_refresh_its_own_token_may_not_by_a_weaker_login(users: Users, registry: Registry) -> None:
    """A roles file may let users do it; the token that it shows outlives a named one that expires."""
    anna = await make_user(registry, ANNA)
    _, text = await registry.named_tokens.create(
        anna.id, TokenName("ci"), expires_on=LATEST, rights=None, created_by=anna.id
    )
    admission = Admission(registry, permissions={"users:refreshToken": frozenset({SELF})})

    with pytest.raises(NotAllowed):
        await users.refresh_token(await admission.admit("users:refreshToken", text, None, {"user": ANNA}), ANNA)
    by_own = await admission.admit("users:refreshToken", anna.token, None, {"user": ANNA})
    assert (await users.refresh_token(by_own, ANNA)).token not in (None, anna.token)


async def test_an_update_of_a_member_replaces_its_roles_here_and_nowhere_else(
    registry: Registry, clock: ManualClock
) -> None:
    here, elsewhere = await make_project(registry), await make_project(registry, "other")
    boss = await make_user(registry, "boss", {here.id: ("project_admin",)})
    await make_user(registry, ANNA, {elsewhere.id: ("consumer",), here.id: ("consumer",)})
    clock.advance(4_000)

    grants = [Grant("other", ("publisher",)), Grant("P", ("publisher",))]
    updated = await Members(registry).update(await admitted(registry, "projects:addUser", boss, "P"), ANNA, grants)

    assert updated.memberships == (Membership(ProjectName("P"), ("publisher",)),)
    assert updated.modified_on == updated.created_on + 4_000
    known = await registry.users.by_name(ANNA)
    assert known is not None
    assert {entry.project: entry.roles for entry in known.memberships} == {"other": ("consumer",), "P": ("publisher",)}


async def test_of_services_that_start_together_one_makes_the_first_admin_and_only_it_keeps_a_token(
    registry: Registry,
) -> None:
    kept: list[list[str]] = [[], [], []]

    made = await asyncio.gather(*(first_admin(registry, each.append, each.clear) for each in kept))

    assert sorted(made) == [False, False, True]
    assert [len(each) for each in kept] == [int(each) for each in made]
    admin = await Users(registry).profile(await Admission(registry).oneself(kept[made.index(True)][0]))
    assert (admin.name, admin.service_roles) == ("admin", ("service_admin",))
    assert (await admitted(registry, "users:create", admin)).full_view
    assert not await first_admin(registry, kept[0].append, kept[0].clear)


async def test_no_admin_is_made_whose_token_could_not_be_kept(registry: Registry) -> None:
    def fail(_token: str) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await first_admin(registry, fail, lambda: None)

    assert not await registry.users.exist()


async def test_the_last_administrator_may_go_but_that_is_said(users: Users, registry: Registry, root: Caller) -> None:
    other = await make_user(registry, "other", None, "service_admin")
    demoted = UserDetails(service_roles=("metrics_viewer",))

    with capture_logs() as said:
        await users.delete(root, UserName("root"))
        await users.update(root, other.name, UserDetails(email="o@site.example"))
        assert said == []
        await users.update(root, other.name, demoted)
        assert [(line["event"], line["log_level"], line["last"]) for line in said] == [
            ("users.no_service_admin", "warning", "other")
        ]
        await users.update(root, other.name, UserDetails(service_roles=("service_admin",)))
        await users.delete(root, other.name)

    assert len(said) == 2


@pytest.fixture
async def helpdesk(registry: Registry) -> Caller:
    """Somebody whom a roles file lets manage users, without being a service_admin."""
    user = await make_user(registry, "desk", None, "helpdesk")
    assert user.token is not None
    permissions = dict.fromkeys(["users:list"], frozenset({"helpdesk"}))
    return await Admission(registry, permissions=permissions).admit("users:list", user.token)


async def test_17_3_u3_only_a_service_admin_gives_service_roles(users: Users, helpdesk: Caller, root: Caller) -> None:
    await users.create(root, ANNA, NOTHING)

    for role in ("service_admin", "helpdesk"):
        with pytest.raises(InvalidInput, match=f"^invalid role: {role}$"):
            await users.create(helpdesk, UserName("evil"), UserDetails(service_roles=(role,)))
        with pytest.raises(InvalidInput, match=f"^invalid role: {role}$"):
            await users.update(helpdesk, ANNA, UserDetails(service_roles=(role,)))

    assert (await users.create(helpdesk, UserName("bert"), NOTHING)).token is not None
    assert (await users.refresh_token(helpdesk, ANNA)).token is not None


async def test_17_3_u3_nobody_takes_over_a_user_with_service_roles(
    users: Users, helpdesk: Caller, root: Caller
) -> None:
    for name in (UserName("root"), UserName("desk")):
        before = await users.show(root, name)
        for attempt in (
            users.update(helpdesk, name, UserDetails(email="x@site.example")),
            users.refresh_token(helpdesk, name),
            users.delete(helpdesk, name),
        ):
            with pytest.raises(NotAllowed):
                await attempt
        assert await users.show(root, name) == before
        assert (await users.show(helpdesk, name)).token is None
