"""Issuers: those of the settings and those that were set, and what may be changed of them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from ams.access.admission import Caller
from ams.core.clock import ManualClock
from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotAllowed, NotFound
from ams.core.issuer import Issuer
from ams.core.names import IssuerName
from ams.identity.keys import Keys
from ams.outgoing.client import HttpClient
from ams.outgoing.guard import Guard
from ams.service.issuers import Issuers
from ams.storage.registry.registry import Registry
from tests.support.administration import administrator, open_registry

EGI = Issuer(IssuerName("egi"), "https://aai.egi.eu/auth/realms/egi", audiences=("ams",))
SITE = Issuer(IssuerName("site"), "https://site.example", clients=("app",))
OPAQUE = replace(SITE, introspect="opaque", client_id="ams", client_secret="a secret")


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    async with open_registry(tmp_path) as opened:
        yield opened


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

    kept.touch()
    await issuers.update(caller, SITE)
    assert not kept.exists()
    kept.touch()
    await issuers.delete(caller, SITE.name)
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


async def test_nothing_is_stored_of_what_cannot_be(issuers: Issuers, caller: Caller, registry: Registry) -> None:
    for bad in (
        replace(SITE, url="site"),
        replace(SITE, clients=()),
        replace(SITE, name=IssuerName("a b")),
        replace(OPAQUE, client_secret="***"),
    ):
        with pytest.raises(InvalidInput):
            await issuers.create(caller, bad)

    assert list(await registry.issuers.all()) == []


async def test_whom_to_believe_is_for_service_admins_alone(issuers: Issuers, caller: Caller) -> None:
    lesser = replace(caller, full_view=False)
    await issuers.create(caller, SITE)

    for call in (
        issuers.create(lesser, OPAQUE),
        issuers.update(lesser, SITE),
        issuers.delete(lesser, SITE.name),
    ):
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
