"""Users, members, named tokens, bindings and issuers, where one request is not enough; and what 17.3 says of U3.

Their routes: contract 5 and 7.1, docs/reference/tokens.md.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from ams.access.admission import Admission, Caller
from ams.access.permissions import SELF, SERVICE_ADMIN
from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotAllowed, NotFound, RegistryUnavailable
from ams.core.issuer import Issuer
from ams.identity.issuer_keys import IssuerKeyCache
from ams.outgoing.address_guard import Guard
from ams.outgoing.client import HttpClient
from ams.service import users as users_module
from ams.service.issuers import IdentityBindings, Issuers
from ams.service.users import MAX_EXPIRY, Tokens, TokenUses, Users, create_first_admin
from ams.storage.registry.records import User, UserDetails
from ams.storage.registry.registry import Registry
from tests.service.interference import fail_calls
from tests.support.administration import administrator, admit_user, make_user, service
from tests.support.clock import ManualClock

ANNA, NOTHING = "anna", UserDetails()


@pytest.fixture
def users(registry: Registry) -> Users:
    return Users(registry)


@pytest.fixture
async def root(registry: Registry) -> Caller:
    return await administrator(registry)


async def test_who_may_refresh_its_own_token_may_not_by_a_weaker_login(users: Users, registry: Registry) -> None:
    """A roles file may let users do it; the token in the answer outlives an expiring named one."""
    anna = await make_user(registry, ANNA)
    _, text = await registry.named_tokens.create(anna.id, "ci", expires_on=MAX_EXPIRY, rights=None, created_by=anna.id)
    admission = Admission(registry, permissions={"users:refreshToken": frozenset({SELF})})

    with pytest.raises(NotAllowed):
        await users.refresh_token(await admission.admit("users:refreshToken", text, None, {"user": ANNA}), ANNA)
    by_own = await admission.admit("users:refreshToken", anna.token, None, {"user": ANNA})
    assert (await users.refresh_token(by_own, ANNA)).token not in (None, anna.token)


async def test_the_last_admin_goes_when_the_registry_is_unsure(users: Users, registry: Registry, root: Caller) -> None:
    await make_user(registry, ANNA, None, SERVICE_ADMIN)
    with fail_calls(registry.users, "hold", RegistryUnavailable):
        await users.delete(root, ANNA)
    assert await registry.users.by_name(ANNA) is None


async def test_of_services_that_start_together_one_makes_the_first_admin_and_only_it_keeps_a_token(registry: Registry):
    kept: list[list[str]] = [[], [], []]

    made = await asyncio.gather(*(create_first_admin(registry, each.append, each.clear) for each in kept))

    assert sorted(made) == [False, False, True]
    assert [len(each) for each in kept] == [int(each) for each in made]
    admin = await Users(registry).profile(await Admission(registry).admit_oneself(kept[made.index(True)][0]))
    assert (admin.name, admin.service_roles) == ("admin", ("service_admin",))
    assert (await admit_user(registry, "users:create", admin)).full_view
    assert not await create_first_admin(registry, kept[0].append, kept[0].clear)


async def test_no_admin_is_made_whose_token_could_not_be_kept(registry: Registry) -> None:
    def fail(_token: str) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await create_first_admin(registry, fail, lambda: None)

    assert not await registry.users.exist()


async def test_the_last_administrator_may_go_but_that_is_said(users: Users, registry: Registry, root: Caller) -> None:
    other = await make_user(registry, "other", None, "service_admin")
    demoted = UserDetails(service_roles=("metrics_viewer",))

    with capture_logs() as said:
        await users.delete(root, "root")
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
    """A user whom a roles file lets manage users, without the role service_admin."""
    user = await make_user(registry, "desk", None, "helpdesk")
    assert user.token is not None
    permissions = dict.fromkeys(["users:list"], frozenset({"helpdesk"}))
    return await Admission(registry, permissions=permissions).admit("users:list", user.token)


async def test_17_3_u3_only_a_service_admin_gives_service_roles(users: Users, helpdesk: Caller, root: Caller) -> None:
    await users.create(root, ANNA, NOTHING)

    for role in ("service_admin", "helpdesk"):
        with pytest.raises(InvalidInput, match=f"^invalid role: {role}$"):
            await users.create(helpdesk, "evil", UserDetails(service_roles=(role,)))
        with pytest.raises(InvalidInput, match=f"^invalid role: {role}$"):
            await users.update(helpdesk, ANNA, UserDetails(service_roles=(role,)))

    assert (await users.create(helpdesk, "bert", NOTHING)).token is not None
    assert (await users.refresh_token(helpdesk, ANNA)).token is not None


async def test_17_3_u3_nobody_takes_over_a_user_with_service_roles(users: Users, helpdesk: Caller, root: Caller):
    for name in ("root", "desk"):
        before = await users.show(root, name)
        for attempt in (
            users.update(helpdesk, name, UserDetails(email="x@site.example")), users.refresh_token(helpdesk, name),
            users.delete(helpdesk, name),
        ):  # fmt: skip
            with pytest.raises(NotAllowed):
                await attempt
        assert await users.show(root, name) == before
        assert (await users.show(helpdesk, name)).token is None


CI = "ci"


@pytest.fixture
def tokens(registry: Registry, clock: ManualClock) -> Tokens:
    return Tokens(registry, clock)


@pytest.fixture
async def anna(registry: Registry) -> User:
    return await make_user(registry, "anna")


@pytest.mark.usefixtures("anna")
async def test_who_is_no_administrator_manages_no_token_of_one(tokens: Tokens, registry: Registry) -> None:
    """A roles file may let others manage tokens (17.3, U3)."""
    await make_user(registry, "root", None, "service_admin")
    helper = await make_user(registry, "helper", None, "admin_viewer")
    table = {"tokens:create": frozenset({"admin_viewer"})}
    caller = await Admission(registry, permissions=table).admit("tokens:create", helper.token, None, {"user": "root"})

    assert (await tokens.create(caller, ANNA, CI))[0].user == ANNA
    with pytest.raises(NotAllowed):
        await tokens.create(caller, "root", CI)
    assert (await tokens.create(caller, "helper", CI))[0].user == "helper"


@pytest.mark.parametrize(("wanted", "told"), [
    ({"expires_on": MAX_EXPIRY + 1}, "The token would expire after the year 9999.*"),
    *(
        ({"wanted": [(action, "*")]}, f"invalid action: {action}")
        for action in ("tokens:create", "users:refreshToken")
    ),
])  # fmt: skip
@pytest.mark.usefixtures("anna")
async def test_what_cannot_be_is_refused(tokens: Tokens, registry: Registry, wanted: Any, told: str) -> None:

    with pytest.raises(InvalidInput, match=f"^{told}$"):
        await tokens.create(await service(registry), ANNA, CI, **wanted)
    assert (await tokens.create(await service(registry), ANNA, CI, expires_on=MAX_EXPIRY))[0].expires_on == MAX_EXPIRY


async def test_tokens_run_out(tokens: Tokens, registry: Registry, anna: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_module, "MAX_TOKENS", 2)
    caller = await service(registry)
    for name in ("a", "b"):
        await tokens.create(caller, ANNA, name)

    with pytest.raises(Conflict, match=r"^A user has at most 2 named tokens"):
        await tokens.create(caller, ANNA, "c")


async def test_a_use_that_cannot_be_written_is_written_later_and_a_newer_one_is_not_lost() -> None:
    written, is_away = [], True

    async def note_uses(noted: Mapping[str, int]) -> None:
        if is_away:
            uses.note("t", 5)
            raise RegistryUnavailable
        written.append(dict(noted))

    uses = TokenUses(SimpleNamespace(note_uses=note_uses))
    uses.note("t", 1)
    uses.note("other", 1)
    with pytest.raises(RegistryUnavailable):
        await uses.flush()
    is_away = False

    await uses.flush()

    assert written == [{"t": 5, "other": 1}]


WORK, URL = "work", "https://issuer.example/realm"


@pytest.fixture
async def bindings(registry: Registry, anna: User) -> IdentityBindings:
    return IdentityBindings(registry)


async def test_a_reused_name_gives_no_right(
    bindings: IdentityBindings, tokens: Tokens, registry: Registry, anna: User
) -> None:
    """The name may have gone to another user since this user was admitted by it."""
    admission, path = Admission(registry), {"user": ANNA}
    lister = await admission.admit("bindings:list", anna.token, None, path)
    maker = await admission.admit("tokens:create", anna.token, None, path)
    assert list(await bindings.list(lister, ANNA)) == []
    await registry.users.update(anna.id, UserDetails(name="hanna"), None)
    await make_user(registry, ANNA)

    for call in (bindings.list(lister, ANNA), tokens.create(maker, ANNA, CI)):
        with pytest.raises(NotFound, match=r"^User doesn't exist$"):
            await call


@pytest.mark.parametrize(("name", "issuer", "subject"), [
    ("a b", URL, "4711"),
    *(("work", url, "4711") for url in ("", "issuer.example", "ftp://issuer.example", URL + "/a b")),
    *(("work", URL, subject) for subject in ("", "4" * 256, "47\n11", "\ud800")),
])  # fmt: skip
async def test_no_bad_identity_is_bound(
    bindings: IdentityBindings, root: Caller, name: str, issuer: str, subject: str
) -> None:
    with pytest.raises(InvalidInput):
        await bindings.create(root, ANNA, name, issuer, subject)
    assert (await bindings.create(root, ANNA, WORK, URL, "4" * 255)).subject == "4" * 255


async def test_no_binding_makes_a_service_admin(bindings: IdentityBindings, root: Caller, registry: Registry) -> None:
    boss = await make_user(registry, "boss", None, SERVICE_ADMIN)
    lesser = replace(root, full_view=False)

    with pytest.raises(NotAllowed):
        await bindings.create(lesser, boss.name, WORK, URL, "4711")
    await bindings.create(root, boss.name, WORK, URL, "4711")
    with pytest.raises(NotAllowed):
        await bindings.delete(lesser, boss.name, WORK)


async def test_users_and_bindings_that_are_not_there_are_not_found(bindings: IdentityBindings, root: Caller) -> None:
    nobody = "nobody"
    for call in (
        bindings.list(root, nobody), bindings.create(root, nobody, WORK, URL, "4711"),
        bindings.delete(root, nobody, WORK),
    ):  # fmt: skip
        with pytest.raises(NotFound, match=r"^User doesn't exist$"):
            await call
    with pytest.raises(NotFound, match=r"^Binding doesn't exist$"):
        await bindings.delete(root, ANNA, WORK)


EGI = Issuer("egi", "https://aai.egi.eu/auth/realms/egi", audiences=("ams",))
SITE = Issuer("site", "https://site.example", clients=("app",))
OPAQUE = replace(SITE, introspect="opaque", client_id="ams", client_secret="a secret")


@pytest.fixture
async def keys(tmp_path: Path) -> AsyncIterator[IssuerKeyCache]:
    keys = IssuerKeyCache(HttpClient(Guard()), str(tmp_path / "issuers"), ManualClock())
    yield keys
    await keys.close()


@pytest.fixture
def issuers(registry: Registry, keys: IssuerKeyCache) -> Issuers:
    return Issuers(registry, [EGI], keys)


async def test_those_of_the_settings_come_first_and_are_told_apart(issuers: Issuers, root: Caller) -> None:
    await issuers.create(root, SITE)

    assert [(each.issuer, each.source) for each in await issuers.list()] == [(EGI, "settings"), (SITE, "registry")]
    assert ((await issuers.show(SITE.name)).keys, await issuers.by_url(SITE.url)) == ((None, (), ""), SITE)
    assert await issuers.by_url(EGI.url) == EGI
    assert await issuers.by_url(SITE.url + "/") is None


async def test_those_of_the_settings_are_changed_nowhere_else(issuers: Issuers, root: Caller) -> None:
    with pytest.raises(Conflict, match=r"^Issuer egi is one of the service's settings"):
        await issuers.update(root, replace(EGI, audiences=("other",)))
    with pytest.raises(Conflict):
        await issuers.delete(root, EGI.name)
    with pytest.raises(AlreadyExists):
        await issuers.create(root, replace(SITE, name=EGI.name))
    with pytest.raises(AlreadyExists):
        await issuers.create(root, replace(SITE, url=EGI.url))


async def test_a_change_replaces_all_but_a_secret_that_is_kept(issuers: Issuers, root: Caller) -> None:
    await issuers.create(root, OPAQUE)

    await issuers.update(root, replace(OPAQUE, client_secret="***", client_id="ams2"))
    assert await issuers.by_url(SITE.url) == replace(OPAQUE, client_id="ams2")

    await issuers.update(root, SITE)
    assert await issuers.by_url(SITE.url) == SITE

    await issuers.delete(root, SITE.name)
    assert await issuers.by_url(SITE.url) is None
    for call in (issuers.update(root, SITE), issuers.delete(root, SITE.name), issuers.show(SITE.name)):
        with pytest.raises(NotFound, match=r"^Issuer doesn't exist$"):
            await call


async def test_keys_of_one_that_was_changed_or_removed_are_kept_no_more(issuers: Issuers, root: Caller, tmp_path: Path):
    kept = tmp_path / "issuers" / "site.json"
    kept.parent.mkdir()
    await issuers.create(root, SITE)

    for change in (issuers.update(root, SITE), issuers.delete(root, SITE.name)):
        kept.touch()
        await change
        assert not kept.exists()


async def test_one_issuer_takes_tokens_that_say_nothing(issuers: Issuers, root: Caller) -> None:
    assert await issuers.for_opaque_tokens() is None
    await issuers.create(root, OPAQUE)
    another = replace(OPAQUE, name="another", url="https://another.example")

    with pytest.raises(Conflict, match=r"^Issuer site is asked about tokens already"):
        await issuers.create(root, another)
    await issuers.create(root, replace(another, introspect="never"))
    with pytest.raises(Conflict):
        await issuers.update(root, another)

    assert await issuers.for_opaque_tokens() == OPAQUE


async def test_whom_to_believe_is_for_service_admins_alone(issuers: Issuers, root: Caller) -> None:
    lesser = replace(root, full_view=False)
    await issuers.create(root, SITE)

    for call in (issuers.create(lesser, OPAQUE), issuers.update(lesser, SITE), issuers.delete(lesser, SITE.name)):
        with pytest.raises(NotAllowed):
            await call


async def test_one_named_by_settings_is_ignored(
    issuers: Issuers, root: Caller, registry: Registry, keys: IssuerKeyCache
) -> None:
    await issuers.create(root, SITE)
    later = Issuers(registry, [EGI, replace(SITE, name="elsewhere")], keys)

    assert [each.issuer.name for each in await later.list()] == ["egi", "elsewhere"]
    with pytest.raises(NotFound):
        await later.show(SITE.name)
    with capture_logs() as lines:
        await later.warn_of_shadowed()
    assert [(each["event"], each["issuer"], each["by"]) for each in lines] == [
        ("issuer.shadowed", SITE.name, "issuers_file")
    ]
    await later.delete(root, SITE.name)
    assert list(await registry.issuers.all()) == []
