"""Bindings: who may make and remove them, and what one may say."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from ams.access.admission import Admission, Caller
from ams.access.roles import SERVICE_ADMIN
from ams.core.errors import AlreadyExists, InvalidInput, NotAllowed, NotFound
from ams.core.names import BindingName, UserName
from ams.service.bindings import Bindings
from ams.storage.registry.records import UserDetails
from ams.storage.registry.registry import Registry
from tests.support.administration import administrator, make_user, open_registry

ALICE, WORK, URL = UserName("alice"), BindingName("work"), "https://issuer.example/realm"


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    async with open_registry(tmp_path) as opened:
        await make_user(opened, ALICE)
        yield opened


@pytest.fixture
def bindings(registry: Registry) -> Bindings:
    return Bindings(registry)


@pytest.fixture
async def caller(registry: Registry) -> Caller:
    return await administrator(registry)


async def test_what_is_made_is_listed_with_its_maker_until_it_is_removed(bindings: Bindings, caller: Caller) -> None:
    made = await bindings.create(caller, ALICE, WORK, URL, "4711")

    assert (made.user, made.name, made.issuer, made.subject) == (ALICE, WORK, URL, "4711")
    assert (made.created_by, made.by_login) == ("root", False)
    assert list(await bindings.list(caller, ALICE)) == [made]

    await bindings.delete(caller, ALICE, WORK)
    assert list(await bindings.list(caller, ALICE)) == []
    with pytest.raises(NotFound, match=r"^Binding doesn't exist$"):
        await bindings.delete(caller, ALICE, WORK)


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


async def test_an_identity_is_bound_once(bindings: Bindings, caller: Caller, registry: Registry) -> None:
    await make_user(registry, "bert")
    await bindings.create(caller, ALICE, WORK, URL, "4711")

    with pytest.raises(AlreadyExists, match=r"^Binding already exists$"):
        await bindings.create(caller, ALICE, WORK, URL, "4712")
    with pytest.raises(AlreadyExists, match=r"^Identity is already bound to a user$"):
        await bindings.create(caller, UserName("bert"), WORK, URL, "4711")


@pytest.mark.parametrize(
    ("name", "issuer", "subject"),
    [
        ("a b", URL, "4711"),
        ("work", "", "4711"),
        ("work", "issuer.example", "4711"),
        ("work", "ftp://issuer.example", "4711"),
        ("work", URL + "/a b", "4711"),
        ("work", URL, ""),
        ("work", URL, "4" * 256),
        ("work", URL, "47\n11"),
        ("work", URL, "\ud800"),
    ],
)
async def test_what_can_be_no_identity_is_refused(
    bindings: Bindings, caller: Caller, name: str, issuer: str, subject: str
) -> None:
    with pytest.raises(InvalidInput):
        await bindings.create(caller, ALICE, BindingName(name), issuer, subject)


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


async def test_a_subject_may_be_as_long_as_the_standard_lets_it(bindings: Bindings, caller: Caller) -> None:
    assert (await bindings.create(caller, ALICE, WORK, URL, "4" * 255)).subject == "4" * 255


async def test_users_that_are_not_there_have_none(bindings: Bindings, caller: Caller) -> None:
    nobody = UserName("nobody")

    with pytest.raises(NotFound, match=r"^User doesn't exist$"):
        await bindings.list(caller, nobody)
    with pytest.raises(NotFound):
        await bindings.create(caller, nobody, WORK, URL, "4711")
    with pytest.raises(NotFound):
        await bindings.delete(caller, nobody, WORK)
