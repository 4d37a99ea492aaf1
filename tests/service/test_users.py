"""Administration of users: HTTP contract 5, line by line, and 17.3 U1 to U9."""

import asyncio

import pytest
from structlog.testing import capture_logs

from ams.access.admission import Admission, Caller
from ams.access.permissions import SELF
from ams.core.clock import ManualClock
from ams.core.errors import AlreadyExists, InvalidInput, NotAllowed, NotAuthenticated, NotFound
from ams.core.names import ProjectName, RegistrationId, TokenName, UserId, UserName
from ams.service.tokens import LATEST
from ams.service.users import Registrations, Users, first_admin
from ams.storage.registry.records import Applicant, Grant, Membership, PageRequest, User, UserDetails
from ams.storage.registry.registry import Registry
from tests.support.administration import (
    SERVICE_TOKEN,
    administrator,
    admitted,
    make_project,
    make_user,
    service,
)

ANNA, NOBODY = UserName("anna"), UserName("nobody")
NOTHING = UserDetails()
EVERYTHING = PageRequest()


@pytest.fixture
def users(registry: Registry) -> Users:
    return Users(registry)


@pytest.fixture
async def root(registry: Registry) -> Caller:
    return await administrator(registry)


async def profile(registry: Registry, token: str | None) -> User:
    return await Users(registry).profile(await Admission(registry).oneself(token))


async def test_a_user_is_made_as_asked(users: Users, registry: Registry, root: Caller) -> None:
    await make_project(registry)
    details = UserDetails(
        "ignored", "a@site.example", "Anna", "Ada", "Site", "tests", (Grant("P", ("consumer",)),), ("admin_viewer",)
    )

    made = await users.create(root, ANNA, details)

    assert made.name == "anna"
    assert made.memberships == (Membership(ProjectName("P"), ("consumer",)),)
    assert made.service_roles == ("admin_viewer",)
    assert made.created_by == "root"
    assert made.token is not None
    assert len(made.token) == 64
    assert await users.show(root, ANNA) == made


async def test_lists_are_lists_also_when_never_given(users: Users, root: Caller) -> None:
    """U7."""
    made = await users.create(root, ANNA, NOTHING)

    assert made.service_roles == ()
    assert made.memberships == ()


async def test_what_the_service_token_makes_has_no_maker(users: Users, registry: Registry) -> None:
    made = await users.create(await service(registry), ANNA, NOTHING)

    assert made.created_by is None


async def test_an_entry_without_a_project_is_skipped(users: Users, root: Caller) -> None:
    made = await users.create(root, ANNA, UserDetails(grants=(Grant("", ("nonsense",)), Grant(""))))

    assert made.memberships == ()


DOUBLE = (Grant("P"), Grant("P"))
UNKNOWN_PROJECT = (Grant("X", ("nonsense",)),)
UNKNOWN_ROLE = (Grant("P", ("nonsense",)),)
REFUSALS = [
    (UserDetails(grants=(*DOUBLE, *UNKNOWN_PROJECT)), "duplicate reference of project P"),
    (UserDetails(grants=UNKNOWN_PROJECT, service_roles=("odd",)), "invalid project: X"),
    (UserDetails(grants=UNKNOWN_ROLE, service_roles=("odd",)), "invalid role: nonsense"),
    (UserDetails(grants=(Grant("P", ("service_admin",)),)), "invalid role: service_admin"),
    (UserDetails(service_roles=("_admin_",)), "invalid role: _admin_"),
]
"""Contract 5.4 in its order: each refused body holds later faults too; and U3, U9."""


@pytest.mark.parametrize(("details", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
async def test_a_bad_body_is_refused_and_changes_nothing(
    users: Users, registry: Registry, root: Caller, details: UserDetails, message: str
) -> None:
    await make_project(registry)
    bert = await make_user(registry, "bert")

    with pytest.raises(InvalidInput) as creating:
        await users.create(root, ANNA, details)
    with pytest.raises(InvalidInput) as updating:
        await users.update(root, bert.name, details)

    assert creating.value.message == updating.value.message == message
    assert await registry.users.by_name(ANNA) is None
    assert await registry.users.by_name(bert.name) == bert


async def test_a_taken_name_is_told_before_a_bad_body(users: Users, root: Caller) -> None:
    await users.create(root, ANNA, NOTHING)

    with pytest.raises(AlreadyExists, match=r"^User already exists$"):
        await users.create(root, ANNA, UserDetails(service_roles=("odd",)))


async def test_an_unknown_user_is_told_before_a_bad_body(users: Users, root: Caller) -> None:
    with pytest.raises(NotFound, match=r"^User doesn't exist$"):
        await users.update(root, NOBODY, UserDetails(service_roles=("odd",)))


async def test_nobody_is_never_the_first_user_of_the_store(users: Users, registry: Registry, root: Caller) -> None:
    """U1."""
    first = await make_user(registry, "first")

    for call in (users.show, users.refresh_token, users.delete):
        with pytest.raises(NotFound, match=r"^User doesn't exist$"):
            await call(root, NOBODY)
    with pytest.raises(NotFound, match=r"^User doesn't exist$"):
        await users.update(root, NOBODY, NOTHING)

    assert await users.show(root, first.name) == first


async def test_a_user_is_renamed(users: Users, registry: Registry, root: Caller) -> None:
    made = await users.create(root, ANNA, UserDetails(email="a@site.example"))

    renamed = await users.update(root, ANNA, UserDetails(name="anne"))

    assert (renamed.id, renamed.name, renamed.email) == (made.id, "anne", "a@site.example")
    assert await registry.users.by_name(ANNA) is None
    assert (await users.update(root, UserName("anne"), UserDetails(name="anne"))).name == "anne"


@pytest.mark.parametrize("name", ["a/b", " ", "ä", "x" * 256])
async def test_a_new_name_keeps_the_rule_of_names(users: Users, root: Caller, name: str) -> None:
    """U4."""
    await users.create(root, ANNA, NOTHING)

    with pytest.raises(InvalidInput, match=r"^Invalid user name$"):
        await users.update(root, ANNA, UserDetails(name=name))


async def test_a_new_name_must_be_free(users: Users, registry: Registry, root: Caller) -> None:
    await users.create(root, ANNA, NOTHING)
    await make_user(registry, "bert")

    with pytest.raises(InvalidInput, match=r"^invalid user name change, name already exists$"):
        await users.update(root, ANNA, UserDetails(name="bert", email="lost"))

    assert (await users.show(root, ANNA)).email == ""


async def test_what_is_not_said_stays(users: Users, registry: Registry, root: Caller, clock: ManualClock) -> None:
    await make_project(registry)
    before = await users.create(
        root, ANNA, UserDetails(email="a", grants=(Grant("P", ("consumer",)),), service_roles=("admin_viewer",))
    )
    clock.advance(3_000)

    after = await users.update(root, ANNA, UserDetails(description="new"))

    assert after.description == "new"
    assert after.modified_on == before.modified_on + 3_000
    assert (after.email, after.memberships, after.service_roles, after.token) == (
        "a", before.memberships, before.service_roles, before.token,
    )  # fmt: skip


async def test_lists_that_are_said_replace(users: Users, registry: Registry, root: Caller) -> None:
    await make_project(registry)
    await make_project(registry, "Q")
    await users.create(root, ANNA, UserDetails(grants=(Grant("P", ("consumer",)),), service_roles=("admin_viewer",)))

    moved = await users.update(root, ANNA, UserDetails(grants=(Grant("Q", ("publisher",)),), service_roles=()))

    assert moved.memberships == (Membership(ProjectName("Q"), ("publisher",)),)
    assert moved.service_roles == ()
    assert (await users.update(root, ANNA, UserDetails(grants=()))).memberships == ()


async def test_a_refreshed_token_replaces_the_old_one(users: Users, registry: Registry, root: Caller) -> None:
    old = await users.create(root, ANNA, NOTHING)

    fresh = await users.refresh_token(root, ANNA)

    assert fresh.token != old.token
    assert fresh.modified_on == old.modified_on
    assert await users.by_token(root, str(fresh.token)) == fresh
    with pytest.raises(NotFound, match=r"^User doesn't exist$"):
        await users.by_token(root, str(old.token))
    with pytest.raises(NotAuthenticated):
        await profile(registry, old.token)


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


async def test_a_user_is_found_by_token_by_identity_and_as_itself(
    users: Users, registry: Registry, root: Caller
) -> None:
    made = await users.create(root, ANNA, NOTHING)

    assert await users.by_token(root, str(made.token)) == made
    assert await users.by_uuid(root, made.id) == made
    assert await profile(registry, made.token) == made
    with pytest.raises(NotFound, match=r"^User doesn't exist$"):
        await users.by_uuid(root, UserId("unknown"))


@pytest.mark.parametrize("token", [None, "", "unknown", SERVICE_TOKEN])
async def test_there_is_no_profile_without_a_users_token(registry: Registry, token: str | None) -> None:
    with pytest.raises(NotAuthenticated, match=r"^Unauthorized$"):
        await profile(registry, token)


async def test_a_deleted_user_cannot_come_in(users: Users, registry: Registry, root: Caller) -> None:
    made = await users.create(root, ANNA, NOTHING)

    await users.delete(root, ANNA)

    with pytest.raises(NotFound):
        await users.show(root, ANNA)
    with pytest.raises(NotAuthenticated):
        await profile(registry, made.token)


async def test_what_a_deleted_user_made_has_no_maker(users: Users, registry: Registry, root: Caller) -> None:
    await users.create(root, ANNA, NOTHING)

    await users.delete(root, UserName("root"))

    assert (await users.show(root, ANNA)).created_by is None


async def test_lists_come_newest_first_in_pages(users: Users, root: Caller) -> None:
    for name in ("a", "b", "c"):
        await users.create(root, UserName(name), NOTHING)

    first = await users.list(root, PageRequest(3))
    second = await users.list(root, PageRequest(3, first.next_token))

    assert [user.name for user in (*first.items, *second.items)] == ["c", "b", "a", "root"]
    assert first.total == 4
    with pytest.raises(InvalidInput, match=r"^Invalid page token$"):
        await users.list(root, PageRequest(1, "nonsense!"))


async def test_a_list_shows_memberships_with_details_only(users: Users, registry: Registry, root: Caller) -> None:
    project = await make_project(registry)
    await make_user(registry, "anna", {project.id: ("consumer",)})
    here = await users.project_filter("P")

    plain = await users.list(root, EVERYTHING, project=here)
    detailed = await users.list(root, EVERYTHING, project=here, details=True)

    assert [(user.name, user.memberships) for user in plain.items] == [("anna", ())]
    assert [len(user.memberships) for user in detailed.items] == [1]
    assert all(user.token for user in detailed.items)


async def test_a_filter_names_a_project_or_nothing(users: Users) -> None:
    assert await users.project_filter("") is None
    with pytest.raises(NotFound, match=r"^ProjectUUID doesn't exist$"):
        await users.project_filter("nowhere")


async def test_the_first_admin_is_made_once(registry: Registry) -> None:
    kept: list[str] = []

    assert await first_admin(registry, kept.append, kept.clear)

    admin = await profile(registry, kept[0])
    assert (admin.name, admin.service_roles) == ("admin", ("service_admin",))
    assert (await admitted(registry, "users:create", admin)).full_view
    assert not await first_admin(registry, kept.append, kept.clear)
    assert len(kept) == 1


async def test_of_services_that_start_together_one_makes_the_first_admin_and_only_it_keeps_a_token(
    registry: Registry,
) -> None:
    kept: list[list[str]] = [[], [], []]

    made = await asyncio.gather(*(first_admin(registry, each.append, each.clear) for each in kept))

    assert sorted(made) == [False, False, True]
    assert [len(each) for each in kept] == [int(each) for each in made]
    assert (await profile(registry, kept[made.index(True)][0])).name == "admin"


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


APPLICANT = Applicant("anna", "a@site.example")
UNKNOWN = RegistrationId("unknown")


@pytest.fixture
def registrations(registry: Registry) -> Registrations:
    return Registrations(registry)


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "Invalid User Arguments"), (" ", "Invalid user name"), ("a/b", "Invalid user name"),
     ("n" * 256, "Invalid user name")],
)  # fmt: skip
async def test_nobody_registers_without_a_good_name(registrations: Registrations, name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{message}$"):
        await registrations.register(Applicant(name))

    assert await registrations.list({}) == []


async def test_a_name_that_is_taken_or_asked_for_is_refused(registrations: Registrations, registry: Registry) -> None:
    await make_user(registry, "bert")
    await registrations.register(APPLICANT)

    with pytest.raises(AlreadyExists, match=r"^User registration already exists$"):
        await registrations.register(APPLICANT)
    with pytest.raises(AlreadyExists, match=r"^User already exists$"):
        await registrations.register(Applicant("bert"))


async def test_only_known_filters_with_a_value_count(registrations: Registrations) -> None:
    made = await registrations.register(APPLICANT)

    assert await registrations.list({"name": "", "id": "other", "email": "a@site.example"}) == [made]


async def test_a_decision_is_final(registrations: Registrations, registry: Registry) -> None:
    root = await administrator(registry)
    made = await registrations.register(APPLICANT)
    await registrations.require_pending(made.id)

    user = await registrations.accept(root, made.id)

    assert (user.name, user.created_by) == ("anna", "root")
    for again in (registrations.accept(root, made.id), registrations.decline(root, made.id)):
        with pytest.raises(NotFound, match=r"^User registration doesn't exist$"):
            await again
    with pytest.raises(NotFound):
        await registrations.require_pending(made.id)
    assert (await registrations.show(made.id)).status == "accepted"


async def test_the_service_token_decides_as_nobody(registrations: Registrations, registry: Registry) -> None:
    made = await registrations.register(APPLICANT)

    await registrations.decline(await service(registry), made.id, "no place")

    declined = await registrations.show(made.id)
    assert (declined.status, declined.decline_comment, declined.modified_by) == ("declined", "no place", None)


async def test_an_unknown_one_is_told(registrations: Registrations, registry: Registry) -> None:
    root = await administrator(registry)
    for call in (
        registrations.show(UNKNOWN),
        registrations.require_pending(UNKNOWN),
        registrations.accept(root, UNKNOWN),
        registrations.decline(root, UNKNOWN),
        registrations.delete(UNKNOWN),
    ):
        with pytest.raises(NotFound, match=r"^User registration doesn't exist$"):
            await call
