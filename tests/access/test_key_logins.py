"""Logins by keys of named tokens, on both databases: docs/reference/tokens.md."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.access.admission import Admission, Bearer, Caller
from ams.access.key_logins import KeyLogins
from ams.access.logins import Logins
from ams.core.clock import ManualClock, Milliseconds, SystemClock
from ams.core.errors import AlreadyExists, NotAllowed, TokenRefused, UnknownToken
from ams.core.names import ProjectName, TokenId, TokenName
from ams.core.rights import Right, Rights
from ams.identity.verifier import CachedToken, Verifier
from ams.storage.database.invalidation import Cache
from ams.storage.registry.records import NamedToken, Project, User
from ams.storage.registry.registry import Registry
from tests.identity import signing
from tests.support import program_keys
from tests.support.administration import ENGINES, make_project, make_user, open_registry_at, url_of
from tests.support.program_keys import library_token, public_key, signed
from tests.support.waiting import wait_until_async

CI = TokenName("ci")
P = ProjectName("P")
GARDEN = {"project": "P", "topic": "garden"}
PUBLISH = (Right("topics:publish", "projects/P/topics/garden"),)


@pytest.fixture
def clock() -> ManualClock:
    """A clock at the time that Google's library believes it is."""
    return ManualClock(SystemClock().wall())


@pytest.fixture(params=ENGINES)
async def registry(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Registry]:
    async with open_registry_at(url_of(request.param, tmp_path), clock) as opened:
        yield opened


class Setup:
    """Admission by keys, on a service whose issuers count how often they are asked."""

    def __init__(self, registry: Registry, clock: ManualClock) -> None:
        self.registry, self.clock = registry, clock
        self.urls: list[str] = []
        self.used: list[tuple[TokenId, Milliseconds]] = []
        remembered: Cache[bytes, CachedToken] = registry.invalidations.new_cache(100)
        verifier = Verifier(self, None, None, clock, 30, remembered)  # type: ignore[arg-type]  # no issuer is known
        keys = KeyLogins(registry, clock, 30)
        self.logins = Logins(registry, self, verifier, keys, None, clock, str)  # type: ignore[arg-type]
        self.admission = Admission(
            registry, logins=self.logins, note_use=lambda token, now: self.used.append((token, now)), clock=clock
        )

    async def by_url(self, url: str) -> None:
        self.urls.append(url)

    async def of_opaque(self) -> None:
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

    def signed(self, **said: object) -> str:
        return signed(self.clock.now // 1000, **said)  # type: ignore[arg-type]  # claims are of any type


@pytest.fixture
async def setup(registry: Registry, clock: ManualClock) -> AsyncIterator[Setup]:
    setup = Setup(registry, clock)
    yield setup
    await setup.logins.close()


@pytest.fixture
async def project(setup: Setup) -> Project:
    return await make_project(setup.registry)


@pytest.fixture
async def anna(setup: Setup, project: Project) -> User:
    return await make_user(setup.registry, "anna", {project.id: ("project_admin",)})


@pytest.mark.parametrize("audience", [program_keys.AUDIENCE, None], ids=["audience", "scopes"])
async def test_what_googles_library_signs_logs_in_as_the_user(setup: Setup, anna: User, audience: str | None) -> None:
    pytest.importorskip("google.oauth2.service_account")
    made = await setup.key(anna)

    caller = await setup.admit(library_token(audience=audience))

    assert (caller.name, caller.is_reduced) == ("anna", False)
    assert (caller.login.name, caller.login.token) == ("ci", made.id)
    assert setup.used == [(made.id, setup.clock.wall())]
    assert setup.urls == []


async def test_a_token_that_was_seen_costs_no_look_into_the_registry(setup: Setup, anna: User) -> None:
    await setup.key(anna)
    token = setup.signed()
    assert setup.logins.known(token) is None
    callers: list[Caller] = []

    async def is_known() -> bool:  # a node also hears of its own changes, a moment later, and forgets
        callers.append(await setup.admit(token))
        return setup.logins.known(token) is not None

    await wait_until_async(is_known)
    first, used, known = callers[-1], len(setup.used), setup.logins.known(token)

    assert known.login is first.login
    assert setup.admission.is_still(Bearer(token), first.login)
    assert (await setup.admit(token)).login is first.login
    assert len(setup.used) == used + 2


async def test_it_has_the_rights_and_the_end_of_the_named_token(setup: Setup, anna: User) -> None:
    end = setup.clock.now + 120_000
    await setup.key(anna, expires_on=end, rights=PUBLISH)
    token = setup.signed()

    caller = await setup.admit(token)

    assert caller.is_reduced
    assert caller.login.expires_on == end
    with pytest.raises(NotAllowed, match="The token is not good for this"):
        await setup.admit(token, "topics:delete")
    setup.clock.advance(120_000)
    for each in (token, setup.signed()):
        assert await setup.refusal(each) == "The token has expired"


async def test_it_ends_with_what_was_signed_and_another_one_is_good_again(setup: Setup, anna: User) -> None:
    await setup.key(anna)
    token = setup.signed(exp=setup.clock.now // 1000 + 60)
    caller = await setup.admit(token)
    assert caller.login is not None

    setup.clock.advance(91_000)

    assert await setup.refusal(token) == "The token has expired"
    with pytest.raises(TokenRefused):
        setup.admission.is_still(Bearer(token), caller.login)
    assert (await setup.admit(setup.signed())).name == "anna"


async def test_a_revoked_key_opens_nothing_at_once(setup: Setup, anna: User) -> None:
    await setup.key(anna)
    token = setup.signed()
    caller = await setup.admit(token)
    assert caller.login is not None

    await setup.registry.named_tokens.revoke(anna.id, CI)

    reason = "The token's key is not known: it was revoked, or is of another service"
    assert not setup.admission.is_still(Bearer(token), caller.login)
    assert await setup.refusal(token) == reason
    assert await setup.refusal(setup.signed()) == reason
    assert setup.urls == []


async def test_a_look_up_under_way_does_not_revive_a_revoked_key(setup: Setup, anna: User) -> None:
    await setup.key(anna)
    token = setup.signed()

    await asyncio.gather(
        *(setup.logins.principal(token) for _ in range(10)),
        setup.registry.named_tokens.revoke(anna.id, CI),
        *(setup.logins.principal(token) for _ in range(10)),
        return_exceptions=True,
    )

    assert setup.logins.known(token) is None
    assert await setup.refusal(token)


async def test_roles_that_change_count_for_the_next_request(setup: Setup, anna: User, project: Project) -> None:
    await setup.key(anna)
    token = setup.signed()
    await setup.admit(token)

    await setup.registry.users.set_roles(anna.id, project.id, ("consumer",))

    with pytest.raises(NotAllowed):
        await setup.admit(token)
    await setup.registry.users.delete(anna.id)
    assert (await setup.refusal(token)).startswith("The token's key is not known")


async def test_a_bad_one_is_refused_without_an_issuer(setup: Setup, anna: User) -> None:
    """Each reason is told in tests/identity/test_self_signed.py."""
    await setup.key(anna)
    token = setup.signed(by=program_keys.private_key("two"))

    assert [await setup.refusal(token) for _ in range(2)] == ["The token's signature is wrong"] * 2
    assert setup.logins.known(token) is None
    assert setup.urls == []


async def test_what_names_no_key_of_ours_is_an_issuers(setup: Setup, anna: User) -> None:
    await setup.key(anna)

    for token in (signing.signed(), signing.signed(kid="0f" * 20), signing.signed(kid="a")):
        assert (await setup.refusal(token)).startswith("The token is of an issuer that is not known here")
    assert setup.urls == [signing.ISSUER.url] * 3


async def test_no_text_opens_what_a_key_opens(setup: Setup, anna: User) -> None:
    made = await setup.key(anna)

    for text in ("", "0f" * 32, public_key().id, public_key().pem, made.id, "ci"):
        with pytest.raises(UnknownToken):
            await setup.admission.admit("topics:publish", Bearer(text or "0"), P, GARDEN)
        assert await setup.registry.users.principal(text) is None


async def test_a_key_is_of_one_token_until_that_is_revoked(setup: Setup, anna: User) -> None:
    bert = await make_user(setup.registry, "bert")
    made = await setup.key(anna)

    with pytest.raises(AlreadyExists, match=r"^The key is another token's already$"):
        await setup.key(bert)

    assert made.key_id == public_key().id
    assert await setup.registry.named_tokens.find(anna.id, CI) == made
    await setup.registry.named_tokens.revoke(anna.id, CI)
    assert (await setup.key(bert)).user == "bert"


async def test_tokens_without_keys_are_any_number(setup: Setup, anna: User) -> None:
    for name in ("a", "b"):
        made, _ = await setup.registry.named_tokens.create(
            anna.id, TokenName(name), expires_on=None, rights=None, created_by=None
        )
        assert made.key_id is None
