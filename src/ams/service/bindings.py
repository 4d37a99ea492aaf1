"""Administration of bindings: by which identity at an issuer a user logs in."""

import re
from collections.abc import Sequence

from ams.access.admission import Caller
from ams.core.errors import InvalidInput, NotAllowed, NotFound
from ams.core.names import BindingName, UserName, checked_name
from ams.storage.registry.records import Binding, User
from ams.storage.registry.registry import Registry

LONGEST_SUBJECT = 255
"""Characters (OpenID Connect Core 1.0, 2)."""
_ISSUER = re.compile(r"https?://[!-~]{1,2000}")


class Bindings:
    """What can be done with bindings."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def list(self, caller: Caller, user: UserName) -> Sequence[Binding]:
        """Return the bindings of a user, oldest first; raise `NotFound` when there is no such user."""
        bound = await self._user(user)
        if caller.was_renamed_from(bound):
            raise _no_user()
        return await self._registry.bindings.of(bound.id)

    async def create(self, caller: Caller, user: UserName, name: BindingName, issuer: str, subject: str) -> Binding:
        """Let an identity log in as a user. The issuer is named by its URL, and need not be known yet.

        Raises `NotFound` for the user, `NotAllowed` for one who is above the caller, `InvalidInput`, or
        `AlreadyExists` for a name of this user, or an identity of any, that is taken.
        """
        bound = await self._managed(caller, user)
        checked_name("binding", name)
        if not _ISSUER.fullmatch(issuer):
            raise InvalidInput("issuer must be the URL of an issuer, as its tokens say it")
        if not subject or len(subject) > LONGEST_SUBJECT or not subject.isprintable():
            raise InvalidInput(f"subject must have 1 to {LONGEST_SUBJECT} printable characters")
        return await self._registry.bindings.create(bound.id, name, issuer, subject, created_by=caller.user)

    async def delete(self, caller: Caller, user: UserName, name: BindingName) -> None:
        """Let an identity log in no more, at once; raise `NotFound` or `NotAllowed`."""
        bound = await self._managed(caller, user)
        if not await self._registry.bindings.delete(bound.id, name):
            raise NotFound("Binding doesn't exist")

    async def _managed(self, caller: Caller, name: UserName) -> User:
        """Return a user to be bound; one with service roles is bound by a service_admin only.

        Who is bound to a user becomes that user: nobody may so become what they are not (17.3, U3).
        """
        user = await self._user(name)
        if user.service_roles and not caller.full_view:
            raise NotAllowed
        return user

    async def _user(self, name: UserName) -> User:
        user = await self._registry.users.by_name(name)
        if user is None:
            raise _no_user()
        return user


def _no_user() -> NotFound:
    return NotFound("User doesn't exist")
