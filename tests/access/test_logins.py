"""Logins: users and roles of issuer tokens, and keys of named tokens (reference/tokens.md)."""

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ams.access.admission import Admission, Bearer, Caller
from ams.access.logins import KeyLogins, Logins
from ams.core.clock import Milliseconds, SystemClock
from ams.core.errors import AlreadyExists, NotAllowed, TokenRefused, UnknownToken
from ams.core.issuer import RoleRule
from ams.core.names import BindingName, ProjectId, ProjectName, TokenId, TokenName, UserName
from ams.core.rights import Right, Rights
from ams.identity.verifier import CachedToken, Verifier
from ams.storage.database.invalidation import FOREVER, ISSUERS, Cache, Invalidation
from ams.storage.registry.records import NamedToken, Principal, Project, User, UserDetails
from ams.storage.registry.registry import Registry
from tests.identity import signing
from tests.identity.signing import ISSUER, NOW, SAID, Issuers, sign_claims
from tests.support import program_keys
from tests.support.administration import ENGINES, KeptTrail, make_project, make_user, open_registry_at, url_of
from tests.support.clock import ManualClock
from tests.support.program_keys import library_token, public_key
from tests.support.waiting import wait_until_async

GROUP = "urn:mace:egi.eu:group:monitoring.egi.eu"
RULES = (RoleRule(f"{GROUP}:role=publisher", "P", ("publisher",)), RoleRule(f"{GROUP}:role=reader", "P", ("consumer",)),
         RoleRule(f"{GROUP}:role=reader", "Q", ("consumer",)),
         RoleRule(f"{GROUP}:role=manager", "NOT-THERE", ("project_admin",)))  # fmt: skip
CREATING = replace(ISSUER, create_users=True, roles=RULES)


@dataclass
class LoginSetup(KeptTrail, Issuers):
    """Logins over a registry, an issuer with a real key, and a trail that can be read."""

    registry: Registry = field(kw_only=True)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        remembered: Cache[bytes, CachedToken] = self.registry.invalidations.new_cache(100)
        verifier = Verifier(self, self, self, self.clock, 30, remembered)
        self.registry.invalidations.on(ISSUERS, verifier.forget)
        keys = KeyLogins(self.registry, self.clock, 30)
        self.logins = Logins(self.registry, self, verifier, keys, self, self.clock, lambda: "192.0.2.1")

    async def login(self, *roles: str, **claims: object) -> Principal:
        return await self.logins.principal(token(*roles, **claims))

    async def bind(self, user: User, subject: str = "alice") -> None:
        name = BindingName("work")
        await self.registry.bindings.create(user.id, name, ISSUER.url, subject, created_by=None)


def token(*roles: str, **claims: object) -> str:
    return sign_claims({**SAID, "entitlements": [f"{GROUP}:role={role}" for role in roles], **claims})


@pytest.fixture
async def setup(registry: Registry) -> AsyncIterator[LoginSetup]:
    setup = LoginSetup(registry=registry)
    yield setup
    await setup.logins.close()


@pytest.fixture
async def creating_setup(setup: LoginSetup) -> LoginSetup:
    setup.known = [CREATING]
    for name in ("P", "Q"):
        await make_project(setup.registry, name)
    return setup


async def memberships(setup: LoginSetup, principal: Principal) -> dict[str, tuple[str, ...]]:
    user = await setup.registry.users.by_id(principal.id)
    return {str(each.project): each.roles for each in user.memberships}


async def project_id(setup: LoginSetup, name: str) -> ProjectId:
    found = await setup.registry.projects.find(ProjectName(name))
    return found.id


async def test_a_bound_identity_logs_in_as_its_user(setup: LoginSetup) -> None:
    alice = await make_user(setup.registry, "alice", None, "metrics_viewer")
    await setup.bind(alice)

    principal = await setup.login()

    assert (principal.id, principal.service_roles) == (alice.id, {"metrics_viewer"})
    assert (principal.login.name, principal.login.token, principal.login.rights) == (ISSUER.name, None, None)
    assert principal.login.expires_on is not None
    assert principal.login.expires_on >= (NOW + 3600) * 1000
    assert setup.events == []


async def test_only_so_many_tokens_are_remembered_as_seen(setup: LoginSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.access.logins.REMEMBERED", 2)
    await setup.bind(await make_user(setup.registry, "alice"))
    shown = [token(jti=jti) for jti in "abc"]
    for each in shown:
        await setup.logins.principal(each)

    assert [setup.logins.cached_principal(each) is None for each in shown] == [True, False, False]


async def test_a_token_is_known_without_waiting_as_long_as_all_that_it_stands_on_is_so(setup: LoginSetup) -> None:
    alice = await make_user(setup.registry, "alice")
    await setup.bind(alice)
    shown, logins = token(), setup.logins

    async def is_known_again() -> bool:
        """Return whether an admission put a token into the cache that was not there before."""
        assert logins.cached_principal(shown) is None
        return await logins.principal(shown) is logins.cached_principal(shown)

    assert await is_known_again()
    setup.generations += 1
    assert await is_known_again()
    await setup.registry.users.update(alice.id, UserDetails(service_roles=("metrics_viewer",)), None)
    assert await is_known_again()
    setup.registry.invalidations.apply([Invalidation(ISSUERS, ())])
    assert await is_known_again()

    setup.registry.invalidations.validity.until = -math.inf
    assert logins.cached_principal(shown) is None
    await logins.principal(shown)
    assert logins.cached_principal(shown) is None
    setup.registry.invalidations.forget_all()  # as whoever begins to hear of changes does
    setup.registry.invalidations.validity.until = FOREVER
    assert await is_known_again()

    assert await setup.registry.bindings.delete(alice.id, BindingName("work"))
    assert logins.cached_principal(shown) is None


async def test_a_token_that_is_known_is_not_from_the_moment_it_expires(setup: LoginSetup) -> None:
    await setup.bind(await make_user(setup.registry, "alice"))
    shown = token(exp=NOW + 60)
    principal = await setup.logins.principal(shown)

    setup.clock.advance(89_999)  # with the leeway
    assert setup.logins.cached_principal(shown) is principal
    setup.clock.advance(1)
    assert setup.logins.cached_principal(shown) is None


async def test_an_identity_that_is_bound_to_nobody_is_refused_with_the_issuers_name(setup: LoginSetup) -> None:
    await setup.bind(await make_user(setup.registry, "alice"), subject="bert")
    with pytest.raises(TokenRefused, match=r"^The identity is not bound to a user \(issuer egi\)$"):
        await setup.login()


async def test_the_first_login_makes_a_user_with_the_roles_that_entitlements_give(creating_setup: LoginSetup) -> None:
    said = {"email": "a@site.example", "given_name": "Alice", "family_name": "Liddell"}

    principal = await creating_setup.login("publisher", "reader", **said)

    assert principal.name.startswith("egi-")
    assert len(principal.name) == len("egi-") + 16
    assert await memberships(creating_setup, principal) == {"P": ("consumer", "publisher"), "Q": ("consumer",)}
    user = await creating_setup.registry.users.by_id(principal.id)
    assert (user.email, user.first_name, user.last_name, user.service_roles) == (*said.values(), ())
    (binding,) = await creating_setup.registry.bindings.of(principal.id)
    assert (binding.issuer, binding.subject, binding.by_login) == (ISSUER.url, "alice", True)
    (event,) = creating_setup.events
    assert (event.action, event.actor, event.resource) == ("logins:create", principal.name, f"/users/{principal.name}")
    assert (event.address, event.reason, event.code) == ("192.0.2.1", "first login by issuer egi", 200)


async def test_nobody_is_made_without_a_role(creating_setup: LoginSetup) -> None:
    for entitlements in ((), ("stranger",), ("manager",)):  # the last in a project that is not there
        with pytest.raises(TokenRefused, match="No entitlement of the identity gives it a role here"):
            await creating_setup.login(*entitlements)

    assert (await creating_setup.registry.users.by_name(UserName("alice"))) is None
    assert creating_setup.events == []


async def test_many_first_logins_at_once_on_two_nodes_make_one_user(creating_setup: LoginSetup) -> None:
    other = LoginSetup([CREATING], registry=creating_setup.registry)
    logins = (each.login("reader", jti=str(number)) for number in range(50) for each in (creating_setup, other))
    assert len({principal.id for principal in await asyncio.gather(*logins)}) == 1
    assert [event.action for event in creating_setup.events + other.events] == ["logins:create"]


async def test_a_user_without_its_binding_is_not_given_it_back(creating_setup: LoginSetup) -> None:
    principal = await creating_setup.login("reader")
    (binding,) = await creating_setup.registry.bindings.of(principal.id)
    await creating_setup.registry.bindings.delete(principal.id, binding.name)

    with pytest.raises(TokenRefused, match="is not bound to a user"):
        await creating_setup.login("reader")


async def test_each_new_token_sets_the_roles_in_the_projects_that_rules_name(creating_setup: LoginSetup) -> None:
    await make_project(creating_setup.registry, "OTHER")
    principal = await creating_setup.login("publisher", "reader")
    await creating_setup.registry.users.add_member(
        principal.id, await project_id(creating_setup, "OTHER"), ("consumer",)
    )

    after = await creating_setup.login("reader", jti="2")

    assert after.id == principal.id
    assert after.project_roles == {
        await project_id(creating_setup, name): frozenset({"consumer"}) for name in ("P", "Q", "OTHER")
    }
    assert [event.action for event in creating_setup.events] == ["logins:create", "logins:roles"]
    assert creating_setup.events[-1].reason == "entitlements of issuer egi"
    assert (await creating_setup.login(jti="3")).project_roles == {
        await project_id(creating_setup, "OTHER"): {"consumer"}
    }


async def test_a_token_is_followed_once(creating_setup: LoginSetup) -> None:
    shown = token("reader")
    principal = await creating_setup.logins.principal(shown)
    place = await project_id(creating_setup, "P")

    assert await creating_setup.registry.users.set_roles(principal.id, place, ("project_admin",))

    assert (await creating_setup.logins.principal(shown)).project_roles[place] == {"project_admin"}
    assert (await creating_setup.login("reader", jti="2")).project_roles[place] == {"consumer"}


async def test_users_bound_by_hand_keep_their_roles_whatever_entitlements_say(creating_setup: LoginSetup) -> None:
    place = await project_id(creating_setup, "P")
    await creating_setup.bind(await make_user(creating_setup.registry, "alice", {place: ("project_admin",)}))
    assert (await creating_setup.login("reader")).project_roles == {place: {"project_admin"}}


async def test_a_deleted_project_keeps_no_role(creating_setup: LoginSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node may still cache the project; a token is accepted only once."""
    alice = await creating_setup.login("publisher", "reader")
    gone = await creating_setup.registry.projects.find(ProjectName("Q"))
    find = creating_setup.registry.projects.find

    async def find_project(name: ProjectName) -> Project | None:
        return gone if name == "Q" else await find(name)

    await creating_setup.registry.projects.delete(gone.id)
    monkeypatch.setattr(creating_setup.registry.projects, "find", find_project)
    creating_setup.known = [replace(CREATING, roles=(*RULES, RoleRule(f"{GROUP}:role=other", "Q", ("consumer",))))]
    after = await creating_setup.login("other")

    assert (after.id, await memberships(creating_setup, after)) == (alice.id, {})


CI = TokenName("ci")
P = ProjectName("P")
GARDEN = {"project": "P", "topic": "garden"}


@pytest.fixture
def real_clock() -> ManualClock:
    """A clock at the time that Google's library believes it is."""
    return ManualClock(SystemClock().wall())


@pytest.fixture(params=ENGINES)
async def either_registry(
    request: pytest.FixtureRequest, tmp_path: Path, real_clock: ManualClock
) -> AsyncIterator[Registry]:
    async with open_registry_at(url_of(request.param, tmp_path), real_clock) as opened:
        yield opened


class KeySetup:
    """Admission by keys, on a service whose issuers count how often they are asked."""

    def __init__(self, registry: Registry, clock: ManualClock) -> None:
        self.registry, self.clock = registry, clock
        self.urls: list[str] = []
        self.used: list[tuple[TokenId, Milliseconds]] = []
        remembered: Cache[bytes, CachedToken] = registry.invalidations.new_cache(100)
        verifier = Verifier(self, None, None, clock, 30, remembered)  # type: ignore[arg-type]  # no issuer is known
        self.logins = Logins(registry, self, verifier, KeyLogins(registry, clock, 30), None, clock, str)  # type: ignore[arg-type]
        self.admission = Admission(
            registry, logins=self.logins, note_use=lambda token, now: self.used.append((token, now)), clock=clock
        )

    async def by_url(self, url: str) -> None:
        self.urls.append(url)

    async def for_opaque_tokens(self) -> None:
        return None

    async def key(self, user: User, *, expires_on: int | None = None, rights: Rights | None = None) -> NamedToken:
        until = None if expires_on is None else Milliseconds(expires_on)
        made, text = await self.registry.named_tokens.create(
            user.id, CI, expires_on=until, rights=rights, created_by=None, key=public_key()
        )
        assert text == ""
        return made

    async def admit(self, token: str, action: str = "topics:publish") -> Caller:
        return await self.admission.admit(action, Bearer(token), P, GARDEN)

    async def refusal(self, token: str) -> str:
        with pytest.raises(TokenRefused) as refused:
            await self.admit(token)
        return refused.value.message

    def sign_token(self, **said: object) -> str:
        return program_keys.sign_token(self.clock.now // 1000, **said)  # type: ignore[arg-type]  # claims are of any type


@pytest.fixture
async def keys(either_registry: Registry, real_clock: ManualClock) -> AsyncIterator[KeySetup]:
    keys = KeySetup(either_registry, real_clock)
    yield keys
    await keys.logins.close()


@pytest.fixture
async def key_project(keys: KeySetup) -> Project:
    return await make_project(keys.registry)


@pytest.fixture
async def anna(keys: KeySetup, key_project: Project) -> User:
    return await make_user(keys.registry, "anna", {key_project.id: ("project_admin",)})


@pytest.mark.parametrize("audience", [program_keys.AUDIENCE, None], ids=["audience", "scopes"])
async def test_what_googles_library_signs_logs_in_as_the_user(keys: KeySetup, anna: User, audience: str | None) -> None:
    pytest.importorskip("google.oauth2.service_account")
    made = await keys.key(anna)

    caller = await keys.admit(library_token(audience=audience))

    assert (caller.name, caller.is_reduced) == ("anna", False)
    assert (caller.login.name, caller.login.token) == ("ci", made.id)
    assert keys.used == [(made.id, keys.clock.wall())]
    assert keys.urls == []


async def test_a_token_that_was_seen_costs_no_look_into_the_registry(keys: KeySetup, anna: User) -> None:
    await keys.key(anna)
    token = keys.sign_token()
    assert keys.logins.cached_principal(token) is None
    callers: list[Caller] = []

    async def is_known() -> bool:  # a node also hears of its own changes, a moment later, and forgets
        callers.append(await keys.admit(token))
        return keys.logins.cached_principal(token) is not None

    await wait_until_async(is_known)
    first, used, known = callers[-1], len(keys.used), keys.logins.cached_principal(token)

    assert known.login is first.login
    assert keys.admission.is_still(Bearer(token), first.login)
    assert (await keys.admit(token)).login is first.login
    assert len(keys.used) == used + 2


async def test_it_has_the_rights_and_the_end_of_the_named_token(keys: KeySetup, anna: User) -> None:
    end = keys.clock.now + 120_000
    await keys.key(anna, expires_on=end, rights=(Right("topics:publish", "projects/P/topics/garden"),))
    token = keys.sign_token()

    caller = await keys.admit(token)

    assert caller.is_reduced
    assert caller.login.expires_on == end
    with pytest.raises(NotAllowed, match="The token is not good for this"):
        await keys.admit(token, "topics:delete")
    keys.clock.advance(120_000)
    for each in (token, keys.sign_token()):
        assert await keys.refusal(each) == "The token has expired"


async def test_it_ends_with_what_was_signed_and_another_one_is_good_again(keys: KeySetup, anna: User) -> None:
    await keys.key(anna)
    token = keys.sign_token(exp=keys.clock.now // 1000 + 60)
    caller = await keys.admit(token)
    assert caller.login is not None

    keys.clock.advance(91_000)

    assert await keys.refusal(token) == "The token has expired"
    with pytest.raises(TokenRefused):
        keys.admission.is_still(Bearer(token), caller.login)
    assert (await keys.admit(keys.sign_token())).name == "anna"


async def test_a_revoked_key_opens_nothing_at_once(keys: KeySetup, anna: User) -> None:
    await keys.key(anna)
    token = keys.sign_token()
    caller = await keys.admit(token)
    assert caller.login is not None

    await keys.registry.named_tokens.revoke(anna.id, CI)

    reason = "The token's key is not known: it was revoked, or is of another service"
    assert not keys.admission.is_still(Bearer(token), caller.login)
    assert await keys.refusal(token) == reason
    assert await keys.refusal(keys.sign_token()) == reason
    assert keys.urls == []


async def test_a_look_up_under_way_does_not_revive_a_revoked_key(keys: KeySetup, anna: User) -> None:
    await keys.key(anna)
    token = keys.sign_token()

    await asyncio.gather(
        *(keys.logins.principal(token) for _ in range(10)), keys.registry.named_tokens.revoke(anna.id, CI),
        *(keys.logins.principal(token) for _ in range(10)), return_exceptions=True,
    )  # fmt: skip

    assert keys.logins.cached_principal(token) is None
    assert await keys.refusal(token)


async def test_a_bad_one_is_refused_without_an_issuer(keys: KeySetup, anna: User) -> None:
    """The reasons are tested in tests/identity/test_tokens.py."""
    await keys.key(anna)
    token = keys.sign_token(by=program_keys.private_key("two"))

    assert [await keys.refusal(token) for _ in range(2)] == ["The token's signature is wrong"] * 2
    assert keys.logins.cached_principal(token) is None
    assert keys.urls == []


async def test_what_names_no_key_of_ours_is_an_issuers(keys: KeySetup, anna: User) -> None:
    await keys.key(anna)
    for token in (signing.sign_claims(), signing.sign_claims(kid="0f" * 20), signing.sign_claims(kid="a")):
        assert (await keys.refusal(token)).startswith("The token is of an issuer that is not known here")
    assert keys.urls == [signing.ISSUER.url] * 3


async def test_no_text_opens_what_a_key_opens(keys: KeySetup, anna: User) -> None:
    made = await keys.key(anna)

    for text in ("", "0f" * 32, public_key().id, public_key().pem, made.id, "ci"):
        with pytest.raises(UnknownToken):
            await keys.admission.admit("topics:publish", Bearer(text or "0"), P, GARDEN)
        assert await keys.registry.users.principal(text) is None


async def test_a_key_is_of_one_token_until_that_is_revoked(keys: KeySetup, anna: User) -> None:
    bert = await make_user(keys.registry, "bert")
    made = await keys.key(anna)

    with pytest.raises(AlreadyExists, match=r"^The key is another token's already$"):
        await keys.key(bert)

    assert made.key_id == public_key().id
    assert await keys.registry.named_tokens.find(anna.id, CI) == made
    await keys.registry.named_tokens.revoke(anna.id, CI)
    assert (await keys.key(bert)).user == "bert"
