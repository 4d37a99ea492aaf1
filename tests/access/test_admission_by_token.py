"""Who is admitted by a token that is not the user's own: named ones, with all rights or fewer, and those of issuers."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from ams.access.admission import Admission, Bearer, Caller
from ams.access.permissions import PERMISSIONS, ROLES, SELF, RoleTable, needs_all_rights
from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import NotAllowed, NotAuthenticated, TokenRefused, UnknownToken
from ams.core.names import ProjectId, ProjectName, TokenId, TokenName, UserId, UserName
from ams.core.rights import Right, Rights
from ams.storage.registry.records import Login, Membership, Principal, Project, User
from ams.storage.registry.registry import Registry
from tests.support.administration import SERVICE_TOKEN, make_project, make_user

PUBLISH_GARDEN = (Right("topics:publish", "projects/P/topics/garden"),)
GARDEN = {"project": "P", "topic": "garden"}
P = ProjectName("P")
JWT = Bearer("e30.e30.c2ln")


@dataclass
class Issuers:
    """Stands for the logins by tokens of issuers: knows some texts, and counts how often it is asked."""

    whose: Mapping[str, Principal] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def known(self, token: str) -> Principal | None:
        return None

    async def principal(self, token: str) -> Principal:
        self.asked.append(token)
        if token not in self.whose:
            raise TokenRefused("The signature is wrong")
        return self.whose[token]


async def named(registry: Registry, user: User, rights: Rights | None = None, expires_on: int | None = None) -> str:
    until = None if expires_on is None else Milliseconds(expires_on)
    _, token = await registry.named_tokens.create(
        user.id, TokenName("ci"), expires_on=until, rights=rights, created_by=None
    )
    return token


async def test_a_named_token_is_good_for_all_that_its_user_may_do(registry: Registry) -> None:
    root = await make_user(registry, "root", None, "service_admin")

    caller = await Admission(registry).admit("users:list", await named(registry, root))

    assert (caller.name, caller.full_view, caller.is_reduced) == ("root", True, False)
    assert caller.login.name == "ci"


async def test_a_reduced_token_is_good_for_its_rights_only(registry: Registry) -> None:
    project = await make_project(registry)
    admin = await make_user(registry, "adm", {project.id: ("project_admin",)}, "service_admin")
    token, admission = await named(registry, admin, PUBLISH_GARDEN), Admission(registry)

    caller = await admission.admit("topics:publish", token, P, GARDEN)

    assert caller.is_reduced
    assert not caller.full_view
    refused: list[tuple[str, ProjectName | None, dict[str, str]]] = [
        ("topics:publish", P, {"project": "P", "topic": "lawn"}),
        ("topics:show", P, GARDEN),
        ("topics:list", P, {"project": "P"}),
        ("users:list", None, {}),
    ]
    for action, place, names in refused:
        with pytest.raises(NotAllowed, match=r"^The token is not good for this$"):
            await admission.admit(action, token, place, names)


@pytest.mark.parametrize("kind", [str, Bearer])
async def test_an_expired_token_is_refused_and_says_so(registry: Registry, kind: type[str]) -> None:
    clock, uses = ManualClock(), dict[TokenId, Milliseconds]()
    root = await make_user(registry, "root", None, "service_admin")
    token = kind(await named(registry, root, expires_on=clock.now + 1000))
    admission = Admission(registry, clock=clock, note_use=uses.__setitem__)

    clock.advance(999)
    assert (await admission.admit("users:list", token)).name == "root"
    assert list(uses.values()) == [clock.now]
    clock.advance(1)

    with pytest.raises(TokenRefused, match=r"^The token has expired$"):
        await admission.admit("users:list", token)
    with pytest.raises(TokenRefused):
        await admission.oneself(token)
    assert await admission.user_of(token) is None
    assert list(uses.values()) == [clock.now - 1]


async def test_a_revoked_token_is_nobodys(registry: Registry) -> None:
    root = await make_user(registry, "root", None, "service_admin")
    token, admission = await named(registry, root), Admission(registry)
    await admission.admit("users:list", token)

    await registry.named_tokens.revoke(root.id, TokenName("ci"))

    with pytest.raises(UnknownToken):
        await admission.admit("users:list", token)


async def test_the_tokens_of_ams_come_as_bearer_too(registry: Registry) -> None:
    root, issuers = await make_user(registry, "root", None, "service_admin"), Issuers()
    admission = Admission(registry, service_token=SERVICE_TOKEN, logins=issuers)

    for token in (str(root.token), await named(registry, root), SERVICE_TOKEN):
        assert (await admission.admit("users:list", Bearer(token))).full_view
    with pytest.raises(TokenRefused, match=r"^The token is not known$"):
        await admission.admit("users:list", Bearer("0f" * 32))
    assert issuers.asked == []


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


async def test_the_registry_is_asked_once_about_an_opaque_token_of_an_issuers(monkeypatch: pytest.MonkeyPatch) -> None:
    anna = Principal(UserId("a"), UserName("anna"), frozenset({"service_admin"}), {}, Login("checkin"))
    looked_for: list[str] = []

    async def nobody(token: str) -> None:
        looked_for.append(token)

    registry: Any = SimpleNamespace(users=SimpleNamespace(known_principal=lambda _: None, principal=nobody))
    monkeypatch.setattr("ams.access.admission.REMEMBERED", 2)
    tokens = [Bearer(f"opaque-{number}") for number in range(3)]
    admission = Admission(registry, logins=Issuers(dict.fromkeys(tokens, anna)))

    for token in (*tokens, *tokens[2:]):
        assert (await admission.admit("users:list", token)).name == "anna"
    for _ in range(2):
        with pytest.raises(TokenRefused):
            await admission.admit("users:list", Bearer("unknown"))

    assert looked_for == [*tokens, "unknown", "unknown"]


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

    assert SELF not in RoleTable().roles
    with pytest.raises(NotAuthenticated):
        await Admission(registry).admit("tokens:create", thief.token, None, {"user": "anna"})


@pytest.mark.parametrize("action", ["tokens:create", "users:refreshToken"])
async def test_nobody_makes_a_stronger_token_with_a_weaker_one(registry: Registry, action: str) -> None:
    root = await make_user(registry, "root", None, "service_admin")
    token = await named(registry, root, (Right("*", "*"),))

    with pytest.raises(NotAllowed, match=r"^The token is not good for this$"):
        await Admission(registry).admit(action, token, None, {"user": "root"})


def test_what_needs_all_rights_is_what_makes_logins() -> None:
    assert {action for action in PERMISSIONS if needs_all_rights(action)} >= {"users:refreshToken", "tokens:revoke"}
    for action in ("bindings:create", "bindings:delete", "issuers:create", "issuers:update", "issuers:delete"):
        assert needs_all_rights(action)
    assert not needs_all_rights("topics:publish")


HERE = Project(ProjectId("p"), P, "", Milliseconds(0), Milliseconds(0), None)
ANNA = User(
    UserId("a"), UserName("anna"), "", "", "", "", "", ("push_worker",), (Membership(P, ("project_admin",)),),
    Milliseconds(0), Milliseconds(0), None, "the token",
)  # fmt: skip
NAMED, REDUCED = Login("ci", TokenId("t")), Login("ci", TokenId("t"), rights=PUBLISH_GARDEN)
EXPIRING, BY_ISSUER = Login("ci", TokenId("t"), Milliseconds(9)), Login("checkin", None, Milliseconds(9))


def caller(login: Login | None, *, user: str = "a", full_view: bool = False, shows_tokens: bool = True) -> Caller:
    roles = frozenset({"project_admin"})
    return Caller(UserId(user), UserName("x"), roles, full_view, HERE, True, login, shows_tokens)


@pytest.mark.parametrize("login", [NAMED, EXPIRING, BY_ISSUER])
def test_the_own_token_is_shown_to_who_came_with_it_or_sees_all(login: Login) -> None:
    assert caller(None).view_whole(ANNA, again=False).token == "the token"
    assert caller(login).view_whole(ANNA, again=False).token is None
    assert caller(login).view_whole(ANNA, again=True).token is None
    assert caller(login, full_view=True).view_whole(ANNA, again=False).token == "the token"
    assert caller(login, user="b").view_whole(ANNA, again=False).token == "the token"


def test_a_reduced_login_is_shown_no_token_and_no_push_secret() -> None:
    reduced = caller(REDUCED, user="b")

    assert reduced.view_whole(ANNA, again=True).token is None
    assert reduced.view_whole(ANNA, again=True).service_roles == ()
    assert reduced.view_made(ANNA).token is None
    assert caller(None).view_made(ANNA).token == caller(NAMED).view_made(ANNA).token == "the token"
    assert not reduced.sees_push_secrets
    assert caller(NAMED).sees_push_secrets


def test_where_tokens_are_shown_once_they_are_not_shown_again() -> None:
    once = caller(None, full_view=True, shows_tokens=False)

    assert once.view(ANNA).token is None
    assert once.view_whole(ANNA, again=False).token is None
    assert once.view_whole(ANNA, again=True).token == "the token"
    assert once.view_made(ANNA).token == "the token"


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
def test_rights_only_take_away(
    action: str,
    rights: list[Right],
    variables: dict[str, str],
    here: frozenset[str],
    everywhere: frozenset[str],
    in_project: bool,
) -> None:
    whole = Principal(UserId("a"), UserName("anna"), everywhere, {HERE.id: here})
    reduced = Principal(whole.id, whole.name, everywhere, whole.project_roles, Login("ci", rights=tuple(rights)))
    names = variables | ({"project": "P"} if in_project else {})

    async def admitted(principal: Principal) -> Caller | None:
        users = SimpleNamespace(known_principal=lambda _: principal)
        registry: Any = SimpleNamespace(users=users, projects=SimpleNamespace(known=lambda _: HERE))
        try:
            return await Admission(registry).admit(action, "token", P if in_project else None, names)
        except (NotAllowed, NotAuthenticated):
            return None

    less, more = asyncio.run(admitted(reduced)), asyncio.run(admitted(whole))

    if less is not None:
        assert more is not None
        assert less.roles == more.roles
        assert not less.full_view
