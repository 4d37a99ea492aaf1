"""Registrations: asking to become a user, and deciding who becomes one (HTTP contract 6)."""

from collections.abc import Mapping, Sequence

from ams.access.admission import Caller
from ams.core.errors import InvalidInput, NotFound
from ams.core.names import RegistrationId, checked_name
from ams.storage.registry.records import Applicant, Registration, User
from ams.storage.registry.registrations import FILTERS
from ams.storage.registry.registry import Registry


class Registrations:
    """What can be done with registrations."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def register(self, applicant: Applicant) -> Registration:
        """Keep somebody's wish to become a user.

        Raises `InvalidInput` for no name or a bad one (17.3, U4 and U5), `AlreadyExists` when the name is a user's or
        another registration of it is pending.
        """
        if not applicant.name:
            raise InvalidInput("Invalid User Arguments")
        checked_name("user", applicant.name)
        return await self._registry.registrations.create(applicant)

    async def list(self, filters: Mapping[str, str]) -> Sequence[Registration]:
        """Return registrations, oldest first; `filters` are exact values that all must match, an empty one is none."""
        return await self._registry.registrations.all({name: filters[name] for name in FILTERS if filters.get(name)})

    async def show(self, registration: RegistrationId) -> Registration:
        """Return a registration, decided or not; raise `NotFound` when there is none."""
        return _found(await self._registry.registrations.find(registration))

    async def require_pending(self, registration: RegistrationId) -> None:
        """Raise `NotFound` unless there is such a registration and nobody has decided it.

        For `:decline`, which looks for the registration before it reads the body (contract 6).
        """
        if (await self.show(registration)).status != "pending":
            raise _unknown()

    async def accept(self, caller: Caller, registration: RegistrationId) -> User:
        """Make the user a registration asks for, with a token of its own and no role.

        Raises `NotFound` when no such registration is pending, `AlreadyExists` when the name was taken meanwhile.
        """
        user = await self._registry.registrations.accept(registration, caller.user)
        if user is None:
            raise _unknown()
        return caller.view_made(user)

    async def decline(self, caller: Caller, registration: RegistrationId, comment: str = "") -> None:
        """Refuse a registration; raise `NotFound` when no such registration is pending."""
        if not await self._registry.registrations.decline(registration, caller.user, comment):
            raise _unknown()

    async def delete(self, registration: RegistrationId) -> None:
        """Forget a registration, decided or not; raise `NotFound` when there is none."""
        if not await self._registry.registrations.delete(registration):
            raise _unknown()


def _found(registration: Registration | None) -> Registration:
    if registration is None:
        raise _unknown()
    return registration


def _unknown() -> NotFound:
    return NotFound("User registration doesn't exist")
