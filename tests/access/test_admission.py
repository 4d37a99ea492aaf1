"""Authorization: the table of roles, the order of checks (HTTP contract 1.5), access lists, views, and tokens."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from ams.access.admission import Admission, Bearer, Caller, bearer_of
from ams.access.permissions import (
    OPEN,
    PERMISSIONS,
    PROJECT_ROLES,
    ROLES,
    SELF,
    check_roles,
    needs_all_rights,
    read_permissions,
    roles_in,
)
from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput, NotAllowed, NotAuthenticated, NotFound, TokenRefused, UnknownToken, Unusable
from ams.core.names import ProjectId, ProjectName, TokenId, TokenName, UserId, UserName
from ams.core.rights import Right, Rights
from ams.storage.registry.records import Login, Membership, Principal, Project, User
from ams.storage.registry.registry import Registry
from tests.access.table import ACTIONS, LINES, OWN_LINES, SHORT, Line, documented_path, roles_of
from tests.support.administration import SERVICE_TOKEN, make_project, make_user
from tests.support.clock import ManualClock


def test_every_line_of_the_contracts_table_is_there() -> None:
    assert [line.number for line in LINES] == list(range(1, 65))
    for line in LINES:
        assert PERMISSIONS[line.action] == (OPEN if line.is_open else line.roles), line.action


def test_the_roles_of_the_reference_are_those_of_the_table() -> None:
    shown = {action: roles_of(each.method, documented_path(each.path)) for action, each in ACTIONS.items()}
    assert shown == {action: PERMISSIONS[action] for action in shown}
    assert {line.action for line in OWN_LINES} == PERMISSIONS.keys() - {line.action for line in LINES}


def test_no_action_of_our_own_is_wider_than_those_of_the_contract_for_its_resource() -> None:
    """A user who may not consume may not read a topic either."""
    ours = {line.action: PERMISSIONS[line.action] - {SELF} for line in OWN_LINES}
    alike = {"service:doctor": PERMISSIONS["ams:metrics"] - {"metrics_viewer"},
             "subscriptions:pushStatus": PERMISSIONS["subscriptions:show"],
             "subscriptions:nack": PERMISSIONS["subscriptions:acknowledge"],
             "projects:watch": PERMISSIONS["topics:metrics"] | PERMISSIONS["subscriptions:metrics"],
             "projects:history": PERMISSIONS["projects:watch"]}  # fmt: skip

    assert {action: ours.pop(action) for action in alike} == alike
    for each in ("push:lease", "push:wait", "subscriptions:deadLetter", "subscriptions:extendLeases"):
        assert ours.pop(each) == {"push_worker"}
    assert [each for each, roles in ours.items() if each.startswith("tokens:") and roles != {"service_admin"}] == []
    assert [each for each, roles in ours.items() if roles - {"service_admin", "project_admin", "consumer"}] == []


def test_roles_are_those_of_the_contract_and_three_of_them_may_be_given_in_a_project() -> None:
    """HTTP contract 17.3, U3."""
    assert set(SHORT.values()) == ROLES
    assert {"project_admin", "publisher", "consumer"} == PROJECT_ROLES
    check_roles(sorted(ROLES), ROLES)
    check_roles(sorted(PROJECT_ROLES), PROJECT_ROLES)
    for role in ROLES - PROJECT_ROLES:
        with pytest.raises(InvalidInput, match=f"^invalid role: {role}$"):
            check_roles(["consumer", role], PROJECT_ROLES)
    for role in ("", "_admin_", "Publisher", "publisher "):
        with pytest.raises(InvalidInput, match=f"^invalid role: {role}$"):
            check_roles([role], ROLES)


GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "control-access.md"


def write_roles(folder: Path, content: object, name: str = "roles.json") -> Mapping[str, frozenset[str]]:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_permissions(str(path))


@pytest.mark.parametrize(("content", "name"), [
    ([{"resource": "topics:create", "roles": ["publisher", "gardener"], "_id": {"$oid": "5"}}], "roles.json"),
    ({"topics:create": ["publisher", "gardener"]}, "roles.json"),
    ('"topics:create" = ["publisher", "gardener"]\n', "roles.toml"),
])  # fmt: skip
def test_named_actions_are_replaced_and_all_others_stay(tmp_path: Path, content: object, name: str) -> None:
    table = write_roles(tmp_path, content, name)
    assert table == {**PERMISSIONS, "topics:create": {"publisher", "gardener"}}
    assert list(table) == list(PERMISSIONS)
    assert roles_in(table) == ROLES | {"gardener"}


@pytest.mark.parametrize(("content", "reason"), [
    ({"topics:water": ["publisher"]}, "there is no action 'topics:water'"),
    ([{"roles": ["publisher"]}], "there is no action None"),
    ([{"resource": ["x"], "roles": []}], "there is no action ['x']"),
    ({"version:list": ["publisher"]}, "action 'version:list' is open and has no roles"),
    ({"topics:create": "publisher"}, "the roles of 'topics:create' must be a list of names"),
    ({"topics:create": [1]}, "the roles of 'topics:create' must be a list of names"),
    ([{"resource": "topics:create"}], "the roles of 'topics:create' must be a list of names"),
    ({"topics:create": ["_admin_"]}, "'_admin_' cannot be a role of 'topics:create'"),
    ({"topics:create": [""]}, "'' cannot be a role of 'topics:create'"),
    ({"topics:create": ["a b"]}, "'a b' cannot be a role of 'topics:create'"),
    ([{"resource": "topics:create", "roles": []}] * 2, "action 'topics:create' is there twice"),
    ('{"topics:create": [], "topics:create": []}', "'topics:create' is there twice"),
    (["topics:create"], 'must map actions to lists of roles, or be a list of {"resource": ..., "roles": [...]}'),
    (1, 'must map actions to lists of roles, or be a list of {"resource": ..., "roles": [...]}'),
])  # fmt: skip
def test_a_file_with_a_mistake_stops_the_start_with_one_line(tmp_path: Path, content: object, reason: str) -> None:
    with pytest.raises(Unusable) as stopped:
        write_roles(tmp_path, content)
    assert stopped.value.message == f"roles file {tmp_path / 'roles.json'}: {reason}"


@pytest.mark.parametrize(
    ("content", "name"), [("{", "r.json"), ("=", "r.toml"), ("[" * 100_000, "r.json"), (None, "none.json"), (None, ".")]
)
def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path, content: str | None, name: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(Unusable, match="^roles file "):
        read_permissions(str(tmp_path / name))


async def test_the_table_decides_but_for_the_service_token(registry: Registry, tmp_path: Path) -> None:
    here = ProjectName("P")
    project = await make_project(registry, here)
    publisher = await make_user(registry, "pub", {project.id: ("publisher",)})
    admin = await make_user(registry, "adm", {project.id: ("project_admin",)})
    table = write_roles(tmp_path, {"topics:create": ["publisher"]})
    admission = Admission(registry, service_token=SERVICE_TOKEN, permissions=table)

    await admission.admit("topics:create", publisher.token, here)
    await admission.admit("topics:create", SERVICE_TOKEN, here)
    with pytest.raises(NotAllowed):
        await admission.admit("topics:create", admin.token, here)
    with pytest.raises(NotAllowed):
        await admission.admit("topics:delete", publisher.token, here)


def test_a_file_may_close_an_action_or_open_it_to_the_user_itself_which_is_no_role(tmp_path: Path) -> None:
    rows = '"projects:delete" = []', '"tokens:create" = ["service_admin"]', '"users:show" = ["(the user itself)"]'
    table = write_roles(tmp_path, "\n".join(rows), "roles.toml")

    assert table["projects:delete"] == frozenset()
    assert table["tokens:create"] == {"service_admin"}
    assert table["users:show"] == {SELF}
    assert SELF not in roles_in(table)
    assert (read_permissions(""), roles_in(PERMISSIONS)) == (PERMISSIONS, ROLES)


def test_the_guide_names_every_action_and_its_example_works(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    rows = re.findall(r"^\| `(\w+:)` \| (.+) \|$", text, re.MULTILINE)
    [example] = re.findall(r"```toml\n(.+?)```", text, re.DOTALL)

    named = {resource + verb for resource, verbs in rows for verb in verbs.split(", ")}

    assert named == {action for action, roles in PERMISSIONS.items() if roles != OPEN}
    assert roles_in(write_roles(tmp_path, example, "roles.toml")) == ROLES | {"auditor"}


OWN, FOREIGN, UNKNOWN = ProjectName("own"), ProjectName("foreign"), ProjectName("unknown")


async def outcome(admission: Admission, line: Line, token: str | None, project: ProjectName) -> str:
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
    """Every role and action is tested in `tests/contract/test_roles.py`."""
    admission = Admission(registry, service_token=SERVICE_TOKEN)
    await make_project(registry, OWN)

    for line in LINES:
        no_place = ["404", "404"] if line.in_project else ["401", "200"]
        for token, project, status in ((None, UNKNOWN, "401"), ("", UNKNOWN, "401"),
                                       ("unknown token", UNKNOWN, no_place[0]), (SERVICE_TOKEN, UNKNOWN, no_place[1]),
                                       ("unknown token", OWN, "401"), (SERVICE_TOKEN, OWN, "200")):  # fmt: skip
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


async def test_no_other_text_is_the_service_token(registry: Registry) -> None:
    for token in ("", " ", "\x00"):
        with pytest.raises(NotAuthenticated):
            await Admission(registry).admit("users:list", token)
    for token in ("é", "\udcff", "service-toke", "service-token "):
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


def is_listed(one: Caller, authorized: frozenset[UserId], role: str) -> bool:
    try:
        one.require_listed(authorized, role)
    except NotAllowed:
        return False
    return True


@pytest.mark.parametrize(("role", "other"), [("publisher", "consumer"), ("consumer", "publisher")])
def test_an_access_list_binds_those_whose_role_it_is_for(role: str, other: str) -> None:
    """The actions with an access list are tested in `tests/contract/test_roles.py`."""
    assert is_listed(caller(role), frozenset({ANNA}), role)
    assert not is_listed(caller(role), frozenset({UserId("other")}), role)
    assert is_listed(caller(role, access_lists=False), frozenset(), role)
    assert is_listed(caller(other), frozenset(), role)
    assert not is_listed(caller(role, other), frozenset(), role)
    assert not is_listed(caller(role, "admin_viewer"), frozenset(), role)
    assert is_listed(caller(role, other), frozenset({ANNA}), role)
    assert all(is_listed(caller(role, e), frozenset(), role) for e in ("service_admin", "project_admin", "push_worker"))


def test_the_service_token_is_on_no_list_and_needs_none() -> None:
    service = Caller(None, None, frozenset({"service_admin"}), True, None)
    assert is_listed(service, frozenset(), "publisher")
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


def test_a_bearer_token_is_the_text_of_its_header_in_one_of_two_forms() -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        token = bearer_of(f"{scheme} abc".encode())
        assert token == "abc"
        assert {"abc": 1}[token] == 1
        assert isinstance(token, Bearer)
    for header in (b"", b"Bearer", b"Bearer ", b"Bearer a b", b"Basic YTpi", b"abc", b"Bearera b"):
        assert bearer_of(header) is None


PUBLISH_GARDEN = (Right("topics:publish", "projects/P/topics/garden"),)
GARDEN = {"project": "P", "topic": "garden"}
P = ProjectName("P")
JWT = Bearer("e30.e30.c2ln")


@dataclass
class Issuers:
    """Stand-in for logins by issuer tokens: knows some tokens, and counts calls."""

    whose: Mapping[str, Principal] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def cached_principal(self, token: str) -> Principal | None:
        return None

    async def principal(self, token: str) -> Principal:
        self.asked.append(token)
        if token not in self.whose:
            raise TokenRefused("The signature is wrong")
        return self.whose[token]


async def create_named_token(
    registry: Registry, user: User, rights: Rights | None = None, expires_on: int | None = None
) -> str:
    until = None if expires_on is None else Milliseconds(expires_on)
    _, token = await registry.named_tokens.create(
        user.id, TokenName("ci"), expires_on=until, rights=rights, created_by=None
    )
    return token


async def test_a_named_token_is_good_for_all_that_its_user_may_do_until_it_is_revoked(registry: Registry) -> None:
    root = await make_user(registry, "root", None, "service_admin")
    token, admission = await create_named_token(registry, root), Admission(registry)

    caller = await admission.admit("users:list", token)

    assert (caller.name, caller.full_view, caller.is_reduced) == ("root", True, False)
    assert caller.login.name == "ci"
    await registry.named_tokens.revoke(root.id, TokenName("ci"))
    with pytest.raises(UnknownToken):
        await admission.admit("users:list", token)


async def test_a_reduced_token_is_good_for_its_rights_only(registry: Registry) -> None:
    project = await make_project(registry)
    admin = await make_user(registry, "adm", {project.id: ("project_admin",)}, "service_admin")
    token, admission = await create_named_token(registry, admin, PUBLISH_GARDEN), Admission(registry)

    caller = await admission.admit("topics:publish", token, P, GARDEN)

    assert caller.is_reduced
    assert not caller.full_view
    refused: list[tuple[str, ProjectName | None, dict[str, str]]] = [
        ("topics:publish", P, {"project": "P", "topic": "lawn"}), ("topics:show", P, GARDEN),
        ("topics:list", P, {"project": "P"}), ("users:list", None, {}),
    ]  # fmt: skip
    for action, place, names in refused:
        with pytest.raises(NotAllowed, match=r"^The token is not good for this$"):
            await admission.admit(action, token, place, names)


@pytest.mark.parametrize("kind", [str, Bearer])
async def test_an_expired_token_is_refused_and_says_so(registry: Registry, kind: type[str]) -> None:
    clock, uses = ManualClock(), dict[TokenId, Milliseconds]()
    root = await make_user(registry, "root", None, "service_admin")
    token = kind(await create_named_token(registry, root, expires_on=clock.now + 1000))
    admission = Admission(registry, clock=clock, note_use=uses.__setitem__)

    clock.advance(999)
    assert (await admission.admit("users:list", token)).name == "root"
    assert list(uses.values()) == [clock.now]
    clock.advance(1)

    with pytest.raises(TokenRefused, match=r"^The token has expired$"):
        await admission.admit("users:list", token)
    with pytest.raises(TokenRefused):
        await admission.admit_oneself(token)
    assert await admission.user_of(token) is None
    assert list(uses.values()) == [clock.now - 1]


async def test_the_tokens_of_ams_come_as_bearer_too(registry: Registry) -> None:
    root, issuers = await make_user(registry, "root", None, "service_admin"), Issuers()
    admission = Admission(registry, service_token=SERVICE_TOKEN, logins=issuers)

    for token in (str(root.token), await create_named_token(registry, root), SERVICE_TOKEN):
        assert (await admission.admit("users:list", Bearer(token))).full_view
    with pytest.raises(TokenRefused, match=r"^The token is not known$"):
        await admission.admit("users:list", Bearer("0f" * 32))
    assert issuers.asked == []
    for others in ("0F" * 32, "0f" * 31):
        with pytest.raises(TokenRefused, match=r"^The signature is wrong$"):
            await admission.admit("users:list", Bearer(others))
    assert issuers.asked == ["0F" * 32, "0f" * 31]


async def test_a_signed_token_is_an_issuers_and_only_as_bearer(registry: Registry) -> None:
    anna = Principal(UserId("a"), UserName("anna"), frozenset({"service_admin"}), {}, Login("checkin"))
    issuers = Issuers({JWT: anna})
    admission = Admission(registry, logins=issuers)

    assert (await admission.admit("users:list", JWT)).name == "anna"
    with pytest.raises(UnknownToken):
        await admission.admit("users:list", str(JWT))
    with pytest.raises(TokenRefused, match=r"^The signature is wrong$"):
        await admission.admit("users:list", Bearer("e30.e30.bad"))
    with pytest.raises(TokenRefused, match=r"^The token is not known$"):
        await Admission(registry).admit("users:list", JWT)
    assert issuers.asked == [JWT, "e30.e30.bad"]


async def test_a_user_manages_itself_with_whatever_roles(registry: Registry) -> None:
    anna, admission = await make_user(registry, "anna"), Admission(registry)

    caller = await admission.admit("tokens:list", anna.token, None, {"user": "anna"})

    assert caller.name == "anna"
    with pytest.raises(NotAuthenticated):
        await admission.admit("tokens:list", anna.token, None, {"user": "bert"})
    with pytest.raises(NotAuthenticated):
        await admission.admit("users:show", anna.token, None, {"user": "anna"})


async def test_who_somebody_is_can_be_no_role(registry: Registry) -> None:
    thief = await make_user(registry, "thief", None, SELF)
    assert SELF not in roles_in(PERMISSIONS)
    with pytest.raises(NotAuthenticated):
        await Admission(registry).admit("tokens:create", thief.token, None, {"user": "anna"})


@pytest.mark.parametrize("action", ["tokens:create", "users:refreshToken"])
async def test_nobody_makes_a_stronger_token_with_a_weaker_one(registry: Registry, action: str) -> None:
    root = await make_user(registry, "root", None, "service_admin")
    token = await create_named_token(registry, root, (Right("*", "*"),))
    with pytest.raises(NotAllowed, match=r"^The token is not good for this$"):
        await Admission(registry).admit(action, token, None, {"user": "root"})


def test_what_needs_all_rights_is_what_makes_logins() -> None:
    assert {action for action in PERMISSIONS if needs_all_rights(action)} >= {"users:refreshToken", "tokens:revoke"}
    for action in ("bindings:create", "bindings:delete", "issuers:create", "issuers:update", "issuers:delete"):
        assert needs_all_rights(action)
    assert not needs_all_rights("topics:publish")


HERE = Project(ProjectId("p"), P, "", Milliseconds(0), Milliseconds(0), None)
ANNA_WHOLE = User(
    UserId("a"), UserName("anna"), "", "", "", "", "", ("push_worker",), (Membership(P, ("project_admin",)),),
    Milliseconds(0), Milliseconds(0), None, "the token",
)  # fmt: skip
NAMED, REDUCED = Login("ci", TokenId("t")), Login("ci", TokenId("t"), rights=PUBLISH_GARDEN)
EXPIRING, BY_ISSUER = Login("ci", TokenId("t"), Milliseconds(9)), Login("checkin", None, Milliseconds(9))


def caller_by(login: Login | None, *, user: str = "a", full_view: bool = False, shows_tokens: bool = True) -> Caller:
    roles = frozenset({"project_admin"})
    return Caller(UserId(user), UserName("x"), roles, full_view, HERE, True, login, shows_tokens)


@pytest.mark.parametrize("login", [NAMED, EXPIRING, BY_ISSUER])
def test_the_own_token_is_shown_to_who_came_with_it_or_sees_all(login: Login) -> None:
    assert caller_by(None).view_whole(ANNA_WHOLE, again=False).token == "the token"
    assert caller_by(login).view_whole(ANNA_WHOLE, again=False).token is None
    assert caller_by(login).view_whole(ANNA_WHOLE, again=True).token is None
    assert caller_by(login, full_view=True).view_whole(ANNA_WHOLE, again=False).token == "the token"
    assert caller_by(login, user="b").view_whole(ANNA_WHOLE, again=False).token == "the token"


def test_a_reduced_login_is_shown_no_token_and_no_push_secret() -> None:
    reduced = caller_by(REDUCED, user="b")

    assert reduced.view_whole(ANNA_WHOLE, again=True).token is None
    assert reduced.view_whole(ANNA_WHOLE, again=True).service_roles == ()
    assert reduced.view_made(ANNA_WHOLE).token is None
    assert caller_by(None).view_made(ANNA_WHOLE).token == caller_by(NAMED).view_made(ANNA_WHOLE).token == "the token"
    assert not reduced.sees_push_secrets
    assert caller_by(NAMED).sees_push_secrets


def test_where_tokens_are_shown_once_they_are_not_shown_again() -> None:
    once = caller_by(None, full_view=True, shows_tokens=False)

    assert once.view(ANNA_WHOLE).token is None
    assert once.view_whole(ANNA_WHOLE, again=False).token is None
    assert once.view_whole(ANNA_WHOLE, again=True).token == "the token"
    assert once.view_made(ANNA_WHOLE).token == "the token"


NAMES = st.sampled_from(["P", "garden", "lawn", "anna"])
RESOURCES = st.one_of(
    st.sampled_from(["*", "projects/P", "projects/lawn"]),
    st.builds("projects/{}/{}/{}".format, NAMES, st.sampled_from(["topics", "subscriptions", "members"]), NAMES),
)
RIGHTS = st.lists(st.builds(Right, st.sampled_from(["*", *PERMISSIONS]), RESOURCES), min_size=1, max_size=4)
VARIABLES = st.dictionaries(st.sampled_from(["topic", "subscription", "user", "schema"]), NAMES, max_size=1)
SOME_ROLES = st.frozensets(st.sampled_from(sorted(ROLES)), max_size=3)


@examples(max_examples=60)
@given(st.sampled_from(sorted(PERMISSIONS)), RIGHTS, VARIABLES, SOME_ROLES, SOME_ROLES, st.booleans())
def test_rights_only_take_away(action: str, rights: list[Right], variables: dict[str, str], here: frozenset[str],
                               everywhere: frozenset[str], in_project: bool) -> None:  # fmt: skip
    whole = Principal(UserId("a"), UserName("anna"), everywhere, {HERE.id: here})
    reduced = Principal(whole.id, whole.name, everywhere, whole.project_roles, Login("ci", rights=tuple(rights)))
    names = variables | ({"project": "P"} if in_project else {})

    async def admitted_caller(principal: Principal) -> Caller | None:
        users = SimpleNamespace(known_principal=lambda _: principal)
        registry: Any = SimpleNamespace(users=users, projects=SimpleNamespace(known=lambda _: HERE))
        try:
            return await Admission(registry).admit(action, "token", P if in_project else None, names)
        except (NotAllowed, NotAuthenticated):
            return None

    less, more = asyncio.run(admitted_caller(reduced)), asyncio.run(admitted_caller(whole))

    if less is not None:
        assert more is not None
        assert less.roles == more.roles
        assert not less.full_view
