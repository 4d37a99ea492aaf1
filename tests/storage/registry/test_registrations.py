import asyncio

import pytest

from ams.core.clock import ManualClock
from ams.core.errors import AlreadyExists
from ams.core.names import RegistrationId, UserName
from ams.storage.registry.records import Applicant, Registration, User
from ams.storage.registry.registry import Registry
from tests.support.administration import make_user

ANNA = Applicant("anna", "a@site.example", "Anna", "Ada", "Site", "tester")
UNKNOWN = RegistrationId("unknown")


async def test_a_registration_is_found_as_it_was_made(registry: Registry, clock: ManualClock) -> None:
    made = await registry.registrations.create(ANNA)

    assert made == Registration(
        id=made.id,
        applicant=ANNA,
        status="pending",
        activation_token=made.activation_token,
        decline_comment="",
        registered_at=clock.wall(),
        modified_at=None,
        modified_by=None,
    )
    assert len(made.activation_token) == 64
    assert await registry.registrations.find(made.id) == made
    assert await registry.registrations.find(UNKNOWN) is None


async def test_they_come_oldest_first_and_by_exact_values(registry: Registry) -> None:
    for name, organization in (("b", "X"), ("a", "X"), ("c", "x")):
        await registry.registrations.create(Applicant(name, organization=organization))

    async def names(**filters: str) -> list[str]:
        return [each.applicant.name for each in await registry.registrations.all(filters)]

    assert await names() == ["b", "a", "c"]
    assert await names(organization="X") == ["b", "a"]
    assert await names(organization="X", name="a", status="pending") == ["a"]
    assert await names(organization="X", status="declined") == []


async def test_accepting_makes_the_user_and_decides_at_once(registry: Registry, clock: ManualClock) -> None:
    root = await make_user(registry, "root")
    asked = await registry.registrations.create(ANNA)
    clock.advance(5_000)

    user = await registry.registrations.accept(asked.id, root.id)

    assert user is not None
    assert (user.name, user.email, user.first_name, user.last_name) == ("anna", "a@site.example", "Anna", "Ada")
    assert (user.organization, user.description, user.created_by) == ("Site", "tester", "root")
    assert (user.service_roles, user.memberships) == ((), ())
    assert await registry.users.principal(str(user.token)) is not None
    decided = await registry.registrations.find(asked.id)
    assert decided is not None
    assert (decided.status, decided.activation_token, decided.decline_comment) == ("accepted", "", "")
    assert (decided.modified_at, decided.modified_by) == (asked.registered_at + 5_000, "root")


async def test_of_many_parallel_decisions_one_counts(registry: Registry) -> None:
    asked = await registry.registrations.create(ANNA)

    accepts = [registry.registrations.accept(asked.id, None) for _ in range(20)]
    declines = [registry.registrations.decline(asked.id, None, "no") for _ in range(20)]
    outcomes = await asyncio.gather(*accepts, *declines)

    assert sum(bool(outcome) for outcome in outcomes) == 1


async def test_of_many_parallel_applicants_of_one_name_one_is_kept(registry: Registry) -> None:
    outcomes = await asyncio.gather(*(registry.registrations.create(ANNA) for _ in range(20)), return_exceptions=True)

    assert sum(isinstance(outcome, Registration) for outcome in outcomes) == 1
    assert {str(outcome) for outcome in outcomes if isinstance(outcome, AlreadyExists)} == {
        "User registration already exists"
    }


async def test_a_user_and_its_registration_are_not_made_both(registry: Registry) -> None:
    outcomes = await asyncio.gather(
        make_user(registry, "anna"), registry.registrations.create(ANNA), return_exceptions=True
    )

    assert isinstance(outcomes[0], User)
    if isinstance(outcomes[1], Registration):  # it came first: then it cannot be accepted
        with pytest.raises(AlreadyExists, match=r"^User already exists$"):
            await registry.registrations.accept(outcomes[1].id, None)
        assert await registry.registrations.find(outcomes[1].id) == outcomes[1]


async def test_a_name_taken_meanwhile_leaves_the_registration_pending(registry: Registry) -> None:
    asked = await registry.registrations.create(ANNA)
    user = await make_user(registry, "anna")

    with pytest.raises(AlreadyExists, match=r"^User already exists$"):
        await registry.registrations.accept(asked.id, None)

    assert await registry.registrations.find(asked.id) == asked
    assert await registry.users.by_name(UserName("anna")) == user


async def test_a_decider_who_is_gone_is_nobody(registry: Registry) -> None:
    root = await make_user(registry, "root")
    asked = await registry.registrations.create(ANNA)
    assert await registry.registrations.decline(asked.id, root.id, "no place")
    await registry.users.delete(root.id)

    decided = await registry.registrations.find(asked.id)

    assert decided is not None
    assert (decided.status, decided.decline_comment, decided.modified_by) == ("declined", "no place", None)


async def test_what_is_not_there_cannot_be_decided_or_deleted(registry: Registry) -> None:
    assert await registry.registrations.accept(UNKNOWN, None) is None
    assert not await registry.registrations.decline(UNKNOWN, None, "")
    assert not await registry.registrations.delete(UNKNOWN)


async def test_a_registration_does_not_show_its_token_by_accident(registry: Registry) -> None:
    asked = await registry.registrations.create(ANNA)

    assert asked.activation_token not in repr(asked)
