"""Registrations: HTTP contract 6, and 17.3 U4 and U5."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.core.errors import AlreadyExists, InvalidInput, NotFound
from ams.core.names import RegistrationId
from ams.service.registrations import Registrations
from ams.storage.registry.records import Applicant
from ams.storage.registry.registry import Registry
from tests.support.administration import administrator, make_user, open_registry, service

ANNA = Applicant("anna", "a@site.example")
UNKNOWN = RegistrationId("unknown")


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    async with open_registry(tmp_path) as opened:
        yield opened


@pytest.fixture
def registrations(registry: Registry) -> Registrations:
    return Registrations(registry)


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "Invalid User Arguments"), (" ", "Invalid user name"), ("a/b", "Invalid user name"),
     ("n" * 256, "Invalid user name")],
)  # fmt: skip
async def test_nobody_registers_without_a_good_name(registrations: Registrations, name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{message}$"):
        await registrations.register(Applicant(name))

    assert await registrations.list({}) == []


async def test_a_name_that_is_taken_or_asked_for_is_refused(registrations: Registrations, registry: Registry) -> None:
    await make_user(registry, "bert")
    await registrations.register(ANNA)

    with pytest.raises(AlreadyExists, match=r"^User registration already exists$"):
        await registrations.register(ANNA)
    with pytest.raises(AlreadyExists, match=r"^User already exists$"):
        await registrations.register(Applicant("bert"))


async def test_only_known_filters_with_a_value_count(registrations: Registrations) -> None:
    made = await registrations.register(ANNA)

    assert await registrations.list({"name": "", "id": "other", "email": "a@site.example"}) == [made]


async def test_a_decision_is_final(registrations: Registrations, registry: Registry) -> None:
    root = await administrator(registry)
    made = await registrations.register(ANNA)
    await registrations.require_pending(made.id)

    user = await registrations.accept(root, made.id)

    assert (user.name, user.created_by) == ("anna", "root")
    for again in (registrations.accept(root, made.id), registrations.decline(root, made.id)):
        with pytest.raises(NotFound, match=r"^User registration doesn't exist$"):
            await again
    with pytest.raises(NotFound):
        await registrations.require_pending(made.id)
    assert (await registrations.show(made.id)).status == "accepted"


async def test_the_service_token_decides_as_nobody(registrations: Registrations, registry: Registry) -> None:
    made = await registrations.register(ANNA)

    await registrations.decline(await service(registry), made.id, "no place")

    declined = await registrations.show(made.id)
    assert (declined.status, declined.decline_comment, declined.modified_by) == ("declined", "no place", None)


async def test_an_unknown_one_is_told(registrations: Registrations, registry: Registry) -> None:
    root = await administrator(registry)
    for call in (
        registrations.show(UNKNOWN),
        registrations.require_pending(UNKNOWN),
        registrations.accept(root, UNKNOWN),
        registrations.decline(root, UNKNOWN),
        registrations.delete(UNKNOWN),
    ):
        with pytest.raises(NotFound, match=r"^User registration doesn't exist$"):
            await call
