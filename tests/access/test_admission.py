"""Steps 3 to 6 of the order of checks (HTTP contract 1.5), the role table (3.4), access lists (3.5), views (3.6)."""

import sqlite3
from pathlib import Path

import pytest

from ams.access.admission import Admission, Caller
from ams.core.errors import NotAllowed, NotAuthenticated, NotFound
from ams.core.names import ProjectName, UserId, UserName
from ams.storage.registry.records import Membership, Project, User
from ams.storage.registry.registry import Registry
from tests.access.table import ACCESS_LISTS, LINES, SHORT, Line
from tests.support.administration import SERVICE_TOKEN, make_project, make_user

OWN, FOREIGN, UNKNOWN = ProjectName("own"), ProjectName("foreign"), ProjectName("unknown")
ROLES = sorted(SHORT.values())
PROJECT_ROLES = {"project_admin", "publisher", "consumer"}


async def outcome(admission: Admission, line: Line, token: str | None, project: ProjectName) -> str:
    """Return the status a request gets: 200, 401, 403 or 404."""
    try:
        await admission.admit(line.action, token, project if line.in_project else None)
    except NotAuthenticated:
        return "401"
    except NotAllowed:
        return "403"
    except NotFound:
        return "404"
    return "200"


def wanted(line: Line, role: str, *, has_role_here: bool) -> str:
    if not has_role_here:
        return "401"
    return "200" if role in line.roles else "403"


async def test_all_actions_with_all_service_roles(registry: Registry) -> None:
    await make_project(registry, OWN)
    admission = Admission(registry)
    for role in ROLES:
        user = await make_user(registry, f"service-{role}", None, role)
        for line in LINES:
            assert await outcome(admission, line, user.token, OWN) == wanted(line, role, has_role_here=True), (
                line.action,
                role,
            )


@pytest.mark.parametrize("place", [OWN, FOREIGN])
async def test_all_actions_with_all_project_roles_in_the_own_and_a_foreign_project(
    registry: Registry, place: ProjectName
) -> None:
    own = await make_project(registry, OWN)
    await make_project(registry, FOREIGN)
    admission = Admission(registry)
    for role in ROLES:
        user = await make_user(registry, f"project-{role}", {own.id: (role,)})
        for line in LINES:
            counts = role in PROJECT_ROLES and line.in_project and place == OWN
            assert await outcome(admission, line, user.token, place) == wanted(line, role, has_role_here=counts), (
                line.action,
                role,
            )


async def test_all_actions_for_the_service_token(registry: Registry) -> None:
    await make_project(registry, OWN)
    admission = Admission(registry, service_token=SERVICE_TOKEN)
    for line in LINES:
        assert await outcome(admission, line, SERVICE_TOKEN, OWN) == "200", line.action


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.action)
async def test_the_checks_come_in_their_order(registry: Registry, line: Line) -> None:
    admission = Admission(registry, service_token=SERVICE_TOKEN)
    await make_project(registry, OWN)

    assert await outcome(admission, line, None, UNKNOWN) == "401"
    assert await outcome(admission, line, "", UNKNOWN) == "401"
    unplaced = "404" if line.in_project else "401"
    assert await outcome(admission, line, "unknown token", UNKNOWN) == unplaced
    assert await outcome(admission, line, SERVICE_TOKEN, UNKNOWN) == ("404" if line.in_project else "200")
    assert await outcome(admission, line, "unknown token", OWN) == "401"


async def test_the_texts_are_the_contracts(registry: Registry) -> None:
    project = await make_project(registry, OWN)
    user = await make_user(registry, "anna", {project.id: ("consumer",)})
    admission = Admission(registry)

    with pytest.raises(NotAuthenticated, match=r"^Unauthorized$"):
        await admission.admit("topics:publish", None, OWN)
    with pytest.raises(NotFound, match=r"^project doesn't exist$"):
        await admission.admit("topics:publish", user.token, UNKNOWN)
    with pytest.raises(NotAllowed, match=r"^Access to this resource is forbidden$"):
        await admission.admit("topics:publish", user.token, OWN)


async def test_a_project_to_be_made_need_not_exist(registry: Registry) -> None:
    user = await make_user(registry, "root", None, "service_admin")

    caller = await Admission(registry).admit("projects:create", user.token, UNKNOWN)

    assert caller.project is None


async def test_a_user_without_any_role_is_nobody(registry: Registry) -> None:
    project = await make_project(registry, OWN)
    member = await make_user(registry, "member", {project.id: ()})

    with pytest.raises(NotAuthenticated):
        await Admission(registry).admit("topics:list", member.token, OWN)


async def test_several_roles_need_one_match(registry: Registry) -> None:
    project = await make_project(registry, OWN)
    user = await make_user(registry, "anna", {project.id: ("publisher", "consumer")}, "metrics_viewer")

    caller = await Admission(registry).admit("topics:publish", user.token, OWN)

    assert caller.roles == {"publisher", "consumer", "metrics_viewer"}
    assert caller == Caller(user.id, user.name, caller.roles, False, project, True)


async def test_without_a_service_token_no_text_is_one(registry: Registry) -> None:
    admission = Admission(registry)

    for token in ("", " ", "\x00"):
        with pytest.raises(NotAuthenticated):
            await admission.admit("users:list", token)


@pytest.mark.parametrize("token", ["é", "\udcff", "service-toke", "service-token "])
async def test_odd_tokens_are_only_wrong(registry: Registry, token: str) -> None:
    with pytest.raises(NotAuthenticated):
        await Admission(registry, service_token=SERVICE_TOKEN).admit("users:list", token)


async def test_a_role_smuggled_into_a_project_counts_for_nothing(registry: Registry, tmp_path: Path) -> None:
    """HTTP contract 17.3, U3: also when old data was imported with it."""
    project = await make_project(registry, OWN)
    user = await make_user(registry, "thief", {project.id: ("consumer",)})
    with sqlite3.connect(tmp_path / "registry.db") as database:
        database.execute("""UPDATE memberships SET roles = '["consumer", "service_admin"]'""")
    database.close()

    caller = await Admission(registry).admit("subscriptions:list", user.token, OWN)

    assert caller.roles == {"consumer"}
    assert not caller.full_view
    with pytest.raises(NotAllowed):
        await Admission(registry).admit("projects:delete", user.token, OWN)


async def test_the_open_routes_learn_whose_token_it_is(registry: Registry) -> None:
    user = await make_user(registry, "anna", None, "admin_viewer")
    admission = Admission(registry, service_token=SERVICE_TOKEN)

    known = await admission.user_of(user.token)

    assert known is not None
    assert (known.name, known.service_roles) == ("anna", {"admin_viewer"})
    for nobody in (None, "", "unknown", SERVICE_TOKEN):
        assert await admission.user_of(nobody) is None


ANNA = UserId("anna")


def caller(*roles: str, access_lists: bool = True, full_view: bool = False, project: Project | None = None) -> Caller:
    return Caller(ANNA, UserName("anna"), frozenset(roles), full_view, project, access_lists)


def may(one: Caller, authorized: frozenset[UserId], role: str) -> bool:
    try:
        one.require_listed(authorized, role)
    except NotAllowed:
        return False
    return True


@pytest.mark.parametrize("action", ACCESS_LISTS)
def test_an_access_list_binds_those_whose_role_it_is_for(action: str) -> None:
    role = ACCESS_LISTS[action]
    line = next(line for line in LINES if line.action == action)
    for holder in line.roles:
        assert may(caller(holder), frozenset({ANNA}), role)
        assert may(caller(holder), frozenset({UserId("other")}), role) == (holder != role), holder
        assert may(caller(holder, access_lists=False), frozenset(), role)


@pytest.mark.parametrize(("role", "other"), [("publisher", "consumer"), ("consumer", "publisher")])
def test_another_role_beside_it_passes_no_access_list(role: str, other: str) -> None:
    assert not may(caller(role, other), frozenset(), role)
    assert not may(caller(role, "admin_viewer"), frozenset(), role)
    assert may(caller(role, other), frozenset({ANNA}), role)


@pytest.mark.parametrize("stronger", ["service_admin", "project_admin", "push_worker"])
@pytest.mark.parametrize("role", ["publisher", "consumer"])
def test_the_stronger_roles_pass_every_access_list(stronger: str, role: str) -> None:
    assert may(caller(role, stronger), frozenset(), role)


def test_the_service_token_is_on_no_list_and_needs_none() -> None:
    service = Caller(None, None, frozenset({"service_admin"}), True, None)

    assert may(service, frozenset(), "publisher")
    assert service.filters_by("publisher") is None


def test_a_list_is_cut_for_those_who_have_nothing_stronger() -> None:
    assert caller("publisher").filters_by("publisher") == ANNA
    assert caller("publisher", "consumer").filters_by("publisher") == ANNA
    assert caller("publisher", access_lists=False).filters_by("publisher") == ANNA
    assert caller("publisher", "project_admin").filters_by("publisher") is None
    assert caller("publisher", "service_admin").filters_by("publisher") is None
    assert caller("consumer").filters_by("publisher") is None


def test_the_reduced_view_leaves_out_what_is_not_the_projects_business() -> None:
    here, elsewhere = Membership(OWN, ("consumer",)), Membership(FOREIGN, ("publisher",))
    user = User(
        UserId("u"), UserName("u"), "u@site.example", "U", "V", "", "", ("metrics_viewer",), (elsewhere, here),
        0, 0, UserName("root"), "token",
    )  # fmt: skip
    project = Project("id", OWN, "", 0, 0, None)

    reduced = caller("project_admin", project=project).view(user)

    assert (reduced.token, reduced.created_by, reduced.service_roles) == (None, None, ())
    assert reduced.memberships == (here,)
    assert (reduced.email, reduced.first_name) == (user.email, user.first_name)
    assert caller("service_admin", project=project, full_view=True).view(user) == user
