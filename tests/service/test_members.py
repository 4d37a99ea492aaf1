"""Administration of members: HTTP contract 7.1, line by line."""

import asyncio

import pytest

from ams.access.admission import Caller
from ams.core.clock import ManualClock
from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotAllowed, NotAuthenticated, NotFound
from ams.core.names import ProjectName, UserName
from ams.service.members import NOT_A_MEMBER, Members
from ams.storage.registry.records import Grant, Membership, PageRequest, Project
from ams.storage.registry.registry import Registry
from tests.support.administration import admitted, make_project, make_user, service

ANNA = UserName("anna")
NOBODY = UserName("nobody")


@pytest.fixture
async def project(registry: Registry) -> Project:
    await make_project(registry, "other")
    return await make_project(registry)


@pytest.fixture
def members(registry: Registry) -> Members:
    return Members(registry)


@pytest.fixture
async def boss(registry: Registry, project: Project) -> Caller:
    """A project_admin of the project."""
    user = await make_user(registry, "boss", {project.id: ("project_admin",)})
    return await admitted(registry, "projects:addUser", user, "P")


async def make_anna(registry: Registry, *projects: str, roles: tuple[str, ...] = ("consumer",)) -> None:
    places = {}
    for name in projects:
        project = await registry.projects.find(name)
        assert project is not None
        places[project.id] = roles
    await make_user(registry, "anna", places, "metrics_viewer")


async def test_a_project_admin_sees_of_a_member_what_concerns_the_project(
    members: Members, registry: Registry, boss: Caller
) -> None:
    await make_anna(registry, "other", "P")

    shown = await members.show(boss, ANNA)

    assert shown.memberships == (Membership(ProjectName("P"), ("consumer",)),)
    assert (shown.token, shown.created_by, shown.service_roles) == (None, None, ())


async def test_a_service_admin_sees_all_of_a_member(members: Members, registry: Registry, project: Project) -> None:
    await make_anna(registry, "other", "P")

    shown = await members.show(await service(registry, "P"), ANNA)

    assert [entry.project for entry in shown.memberships] == ["other", "P"]
    assert shown.token is not None


async def test_only_members_are_shown(members: Members, registry: Registry, boss: Caller) -> None:
    await make_anna(registry, "other")

    for name in (ANNA, NOBODY):
        with pytest.raises(NotFound, match=r"^User doesn't exist$"):
            await members.show(boss, name)


async def test_a_list_holds_the_members_in_the_callers_view(members: Members, registry: Registry, boss: Caller) -> None:
    await make_anna(registry, "other", "P")
    await make_user(registry, "stranger")

    page = await members.list(boss, PageRequest(), details=True)
    plain = await members.list(boss, PageRequest())

    assert [user.name for user in page.items] == ["anna", "boss"]
    assert [len(user.memberships) for user in page.items] == [1, 1]
    assert all(user.token is None for user in page.items)
    assert [user.memberships for user in plain.items] == [(), ()]
    with pytest.raises(InvalidInput, match=r"^Invalid page token$"):
        await members.list(boss, PageRequest(1, "nonsense!"))


async def test_a_member_is_made_with_its_token_whoever_asks(members: Members, boss: Caller) -> None:
    grants = [Grant("other", ("service_admin",)), Grant("P", ("publisher",))]

    made = await members.create(boss, ANNA, grants=grants, email="a@site.example")

    assert made.token is not None
    assert made.created_by == "boss"
    assert made.email == "a@site.example"
    assert made.service_roles == ()
    assert made.memberships == (Membership(ProjectName("P"), ("publisher",)),)


async def test_a_member_without_an_entry_joins_without_roles(members: Members, boss: Caller) -> None:
    made = await members.create(boss, ANNA, grants=[Grant("other", ("publisher",))])

    assert made.memberships == (Membership(ProjectName("P"), ()),)


async def test_making_a_member_tells_a_taken_name_before_a_bad_role(
    members: Members, registry: Registry, boss: Caller
) -> None:
    bad = [Grant("P", ("nonsense",))]
    with pytest.raises(InvalidInput, match=r"^invalid role: nonsense$"):
        await members.create(boss, ANNA, grants=bad)

    await make_anna(registry)

    with pytest.raises(AlreadyExists, match=r"^User already exists$"):
        await members.create(boss, ANNA, grants=bad)


async def test_an_update_replaces_the_roles_here_and_nowhere_else(
    members: Members, registry: Registry, boss: Caller, clock: ManualClock
) -> None:
    await make_anna(registry, "other", "P")
    clock.advance(4_000)

    updated = await members.update(boss, ANNA, [Grant("other", ("publisher",)), Grant("P", ("publisher",))])

    assert updated.memberships == (Membership(ProjectName("P"), ("publisher",)),)
    assert updated.modified_on == updated.created_on + 4_000
    known = await registry.users.by_name(ANNA)
    assert known is not None
    assert [entry.roles for entry in known.memberships] == [("consumer",), ("publisher",)]


async def test_the_checks_of_an_update_come_in_their_order(members: Members, registry: Registry, boss: Caller) -> None:
    bad = [Grant("P", ("service_admin",))]
    with pytest.raises(NotFound, match=r"^User doesn't exist$"):
        await members.update(boss, ANNA, bad)

    await make_anna(registry, "other")
    with pytest.raises(NotAllowed) as caught:
        await members.update(boss, ANNA, bad)
    assert caught.value.message == NOT_A_MEMBER

    await members.add(boss, ANNA)
    with pytest.raises(NotAllowed) as caught:
        await members.update(boss, ANNA, [Grant("other")])
    assert caught.value.message == NOT_A_MEMBER

    with pytest.raises(InvalidInput, match=r"^invalid role: service_admin$"):
        await members.update(boss, ANNA, bad)


async def test_anyone_can_be_added_by_name(members: Members, registry: Registry, boss: Caller) -> None:
    await make_anna(registry, "other")

    added = await members.add(boss, ANNA, ["consumer", "publisher"])

    assert added.memberships == (Membership(ProjectName("P"), ("consumer", "publisher")),)


async def test_the_checks_of_adding_come_in_their_order(members: Members, registry: Registry, boss: Caller) -> None:
    for call in (members.add(boss, NOBODY, ["nonsense"]), members.find(NOBODY)):
        with pytest.raises(NotFound, match=r"^User doesn't exist$"):
            await call

    await make_anna(registry)
    with pytest.raises(InvalidInput, match=r"^invalid role: nonsense$"):
        await members.add(boss, ANNA, ["nonsense"])

    await members.add(boss, ANNA)
    with pytest.raises(Conflict, match=r"^User is already a member of the project$"):
        await members.add(boss, ANNA, ["nonsense"])


async def test_losing_the_race_to_add_is_the_same_conflict(members: Members, registry: Registry, boss: Caller) -> None:
    await make_anna(registry)

    outcomes = await asyncio.gather(*(members.add(boss, ANNA) for _ in range(5)), return_exceptions=True)

    lost = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert len(lost) == 4
    for outcome in lost:
        assert type(outcome) is Conflict
        assert outcome.message == "User is already a member of the project"


async def test_who_is_removed_cannot_come_in(members: Members, registry: Registry, boss: Caller) -> None:
    made = await members.create(boss, ANNA, grants=[Grant("P", ("consumer",))])
    assert await admitted(registry, "subscriptions:list", made, "P")

    await members.remove(boss, ANNA)

    with pytest.raises(NotAuthenticated):
        await admitted(registry, "subscriptions:list", made, "P")


async def test_the_checks_of_removing_come_in_their_order(members: Members, registry: Registry, boss: Caller) -> None:
    with pytest.raises(NotFound, match=r"^User doesn't exist$"):
        await members.remove(boss, NOBODY)

    await make_anna(registry, "other")
    with pytest.raises(NotAllowed) as caught:
        await members.remove(boss, ANNA)
    assert caught.value.message == NOT_A_MEMBER
