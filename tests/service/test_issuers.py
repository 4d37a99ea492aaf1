"""Issuers: those of the settings and those that were set, and what may be changed of them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from ams.access.admission import Admission, Caller
from ams.access.permissions import SERVICE_ADMIN
from ams.core.clock import ManualClock
from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotAllowed, NotFound
from ams.core.issuer import Issuer
from ams.core.names import BindingName, IssuerName, UserName
from ams.identity.keys import Keys
from ams.outgoing.client import HttpClient
from ams.outgoing.guard import Guard
from ams.service.issuers import Bindings, Issuers
from ams.storage.registry.records import UserDetails
from ams.storage.registry.registry import Registry
from tests.support.administration import administrator, make_user

EGI = Issuer(IssuerName("egi"), "https://aai.egi.eu/auth/realms/egi", audiences=("ams",))
SITE = Issuer(IssuerName("site"), "https://site.example", clients=("app",))
OPAQUE = replace(SITE, introspect="opaque", client_id="ams", client_secret="a secret")


@pytest.fixture
async def keys(tmp_path: Path) -> AsyncIterator[Keys]:
    keys = Keys(HttpClient(Guard()), str(tmp_path / "issuers"), ManualClock())
    yield keys
    await keys.close()


@pytest.fixture
def issuers(registry: Registry, keys: Keys) -> Issuers:
    return Issuers(registry, [EGI], keys)


@pytest.fixture
async def caller(registry: Registry) -> Caller:
    return await administrator(registry)


async def test_those_of_the_settings_come_first_and_are_told_apart(issuers: Issuers, caller: Caller) -> None:
    await issuers.create(caller, SITE)

    assert [(each.issuer, each.source) for each in await issuers.list()] == [(EGI, "settings"), (SITE, "registry")]
    assert (await issuers.show(SITE.name)).keys == (None, (), "")
    assert await issuers.by_url(SITE.url) == SITE
    assert await issuers.by_url(EGI.url) == EGI
    assert await issuers.by_url(SITE.url + "/") is None


async def test_those_of_the_settings_are_changed_nowhere_else(issuers: Issuers, caller: Caller) -> None:
    with pytest.raises(Conflict, match=r"^Issuer egi is one of the service's settings"):
        await issuers.update(caller, replace(EGI, audiences=("other",)))
    with pytest.raises(Conflict):
        await issuers.delete(caller, EGI.name)
    with pytest.raises(AlreadyExists):
        await issuers.create(caller, replace(SITE, name=EGI.name))
    with pytest.raises(AlreadyExists):
        await issuers.create(caller, replace(SITE, url=EGI.url))


async def test_a_change_replaces_all_but_a_secret_that_is_kept(issuers: Issuers, caller: Caller) -> None:
    await issuers.create(caller, OPAQUE)

    await issuers.update(caller, replace(OPAQUE, client_secret="***", client_id="ams2"))
    assert await issuers.by_url(SITE.url) == replace(OPAQUE, client_id="ams2")

    await issuers.update(caller, SITE)
    assert await issuers.by_url(SITE.url) == SITE

    await issuers.delete(caller, SITE.name)
    assert await issuers.by_url(SITE.url) is None
    for call in (issuers.update(caller, SITE), issuers.delete(caller, SITE.name), issuers.show(SITE.name)):
        with pytest.raises(NotFound, match=r"^Issuer doesn't exist$"):
            await call


async def test_keys_of_one_that_was_changed_or_removed_are_kept_no_more(
    issuers: Issuers, caller: Caller, tmp_path: Path
) -> None:
    kept = tmp_path / "issuers" / "site.json"
    kept.parent.mkdir()
    await issuers.create(caller, SITE)

    for change in (issuers.update(caller, SITE), issuers.delete(caller, SITE.name)):
        kept.touch()
        await change
        assert not kept.exists()


async def test_one_issuer_takes_tokens_that_say_nothing(issuers: Issuers, caller: Caller) -> None:
    assert await issuers.of_opaque() is None
    await issuers.create(caller, OPAQUE)
    another = replace(OPAQUE, name=IssuerName("another"), url="https://another.example")

    with pytest.raises(Conflict, match=r"^Issuer site is asked about tokens already"):
        await issuers.create(caller, another)
    await issuers.create(caller, replace(another, introspect="never"))
    with pytest.raises(Conflict):
        await issuers.update(caller, another)

    assert await issuers.of_opaque() == OPAQUE


async def test_whom_to_believe_is_for_service_admins_alone(issuers: Issuers, caller: Caller) -> None:
    lesser = replace(caller, full_view=False)
    await issuers.create(caller, SITE)

    for call in (issuers.create(lesser, OPAQUE), issuers.update(lesser, SITE), issuers.delete(lesser, SITE.name)):
        with pytest.raises(NotAllowed):
            await call


async def test_one_that_the_settings_come_to_name_counts_no_more(
    issuers: Issuers, caller: Caller, registry: Registry, keys: Keys
) -> None:
    await issuers.create(caller, SITE)
    later = Issuers(registry, [EGI, replace(SITE, name=IssuerName("elsewhere"))], keys)

    assert [each.issuer.name for each in await later.list()] == ["egi", "elsewhere"]
    with pytest.raises(NotFound):
        await later.show(SITE.name)
    await later.delete(caller, SITE.name)
    assert list(await registry.issuers.all()) == []


ALICE, WORK, URL = UserName("alice"), BindingName("work"), "https://issuer.example/realm"


@pytest.fixture
async def bindings(registry: Registry) -> Bindings:
    await make_user(registry, ALICE)
    return Bindings(registry)


async def test_who_was_renamed_sees_no_binding_of_whoever_has_the_name_now(
    bindings: Bindings, registry: Registry
) -> None:
    alice = await registry.users.by_name(ALICE)
    assert alice is not None
    caller = await Admission(registry).admit("bindings:list", alice.token, None, {"user": ALICE})
    assert list(await bindings.list(caller, ALICE)) == []
    await registry.users.update(alice.id, UserDetails(name="alicia"), None)
    await make_user(registry, ALICE)

    with pytest.raises(NotFound, match=r"^User doesn't exist$"):
        await bindings.list(caller, ALICE)


@pytest.mark.parametrize(
    ("name", "issuer", "subject"),
    [
        ("a b", URL, "4711"),
        *(("work", url, "4711") for url in ("", "issuer.example", "ftp://issuer.example", URL + "/a b")),
        *(("work", URL, subject) for subject in ("", "4" * 256, "47\n11", "\ud800")),
    ],
)
async def test_what_can_be_no_identity_is_refused(
    bindings: Bindings, caller: Caller, name: str, issuer: str, subject: str
) -> None:
    with pytest.raises(InvalidInput):
        await bindings.create(caller, ALICE, BindingName(name), issuer, subject)
    assert (await bindings.create(caller, ALICE, WORK, URL, "4" * 255)).subject == "4" * 255


async def test_nobody_becomes_a_service_admin_by_a_binding_who_is_none(
    bindings: Bindings, caller: Caller, registry: Registry
) -> None:
    boss = await make_user(registry, "boss", None, SERVICE_ADMIN)
    lesser = replace(caller, full_view=False)

    with pytest.raises(NotAllowed):
        await bindings.create(lesser, boss.name, WORK, URL, "4711")
    await bindings.create(caller, boss.name, WORK, URL, "4711")
    with pytest.raises(NotAllowed):
        await bindings.delete(lesser, boss.name, WORK)


async def test_users_and_bindings_that_are_not_there_are_not_found(bindings: Bindings, caller: Caller) -> None:
    nobody = UserName("nobody")
    for call in (
        bindings.list(caller, nobody),
        bindings.create(caller, nobody, WORK, URL, "4711"),
        bindings.delete(caller, nobody, WORK),
    ):
        with pytest.raises(NotFound, match=r"^User doesn't exist$"):
            await call
    with pytest.raises(NotFound, match=r"^Binding doesn't exist$"):
        await bindings.delete(caller, ALICE, WORK)
