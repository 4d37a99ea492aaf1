"""Steps 3 to 6 of the order of checks (HTTP contract 1.5), the role table (3.4), access lists (3.5), views (3.6)."""

import sqlite3
from pathlib import Path

import pytest

from ams.access.admission import Admission, Bearer, Caller, bearer_of
from ams.core.errors import NotAllowed, NotAuthenticated, NotFound
from ams.core.names import ProjectName, UserId, UserName
from ams.storage.registry.records import Membership, Project, User
from ams.storage.registry.registry import Registry
from tests.access.table import LINES, Line
from tests.support.administration import SERVICE_TOKEN, make_project, make_user

OWN, FOREIGN, UNKNOWN = ProjectName("own"), ProjectName("foreign"), ProjectName("unknown")


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


async def test_the_checks_come_in_their_order(registry: Registry) -> None:
    """Who may do what is walked through in `tests/contract/test_roles.py`."""
    admission = Admission(registry, service_token=SERVICE_TOKEN)
    await make_project(registry, OWN)

    for line in LINES:
        no_place = ["404", "404"] if line.in_project else ["401", "200"]
        for token, project, status in (
            (None, UNKNOWN, "401"),
            ("", UNKNOWN, "401"),
            ("unknown token", UNKNOWN, no_place[0]),
            (SERVICE_TOKEN, UNKNOWN, no_place[1]),
            ("unknown token", OWN, "401"),
            (SERVICE_TOKEN, OWN, "200"),
        ):
            assert await outcome(admission, line, token, project) == status, (line.action, token, project)


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


@pytest.mark.parametrize(("role", "other"), [("publisher", "consumer"), ("consumer", "publisher")])
def test_an_access_list_binds_those_whose_role_it_is_for(role: str, other: str) -> None:
    """Which actions have one is walked through in `tests/contract/test_roles.py`."""
    assert may(caller(role), frozenset({ANNA}), role)
    assert not may(caller(role), frozenset({UserId("other")}), role)
    assert may(caller(role, access_lists=False), frozenset(), role)
    assert may(caller(other), frozenset(), role)
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


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_scheme_is_a_scheme_in_any_letters(scheme: str) -> None:
    assert bearer_of(f"{scheme} abc".encode()) == "abc"


@pytest.mark.parametrize("header", [b"", b"Bearer", b"Bearer ", b"Bearer a b", b"Basic YTpi", b"abc", b"Bearera b"])
def test_what_cannot_be_read_is_none(header: bytes) -> None:
    assert bearer_of(header) is None


def test_a_bearer_token_is_the_text_it_holds() -> None:
    token = bearer_of(b"Bearer abc")

    assert token == "abc"
    assert {"abc": 1}[token or ""] == 1
    assert isinstance(token, Bearer)


def test_forms_are_told_apart() -> None:
    assert Bearer("e30.e30.c2ln").is_jwt
    assert not Bearer("abc").is_jwt
    assert Bearer("0f" * 32).looks_own
    assert not Bearer("0F" * 32).looks_own
    assert not Bearer("0f" * 31).looks_own
