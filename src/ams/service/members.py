"""Administration of a project's members (HTTP contract 7.1)."""

from collections.abc import Sequence

from ams.access.admission import Caller
from ams.access.permissions import check_project_roles
from ams.core.errors import AlreadyExists, Conflict, NotAllowed, NotFound
from ams.core.names import UserName
from ams.service.lookup import NO_USER, find_user, found_user
from ams.storage.registry.records import Grant, Page, PageRequest, User, UserDetails
from ams.storage.registry.registry import Registry

ALREADY_A_MEMBER = "User is already a member of the project"
NOT_A_MEMBER = "Access to this resource is forbidden. User is not a member of the project"
MORE_THAN_A_MEMBER = "The user has roles elsewhere: a service_admin can give it a new token"


class Members:
    """What can be done with the users of the caller's project."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def list(self, caller: Caller, page: PageRequest, *, details: bool = False) -> Page[User]:
        """Return a page of the members, newest users first; raise `InvalidInput` "Invalid page token"."""
        users = await self._registry.users.page(page, project=caller.here.id, details=details)
        return users.map(caller.view)

    async def show(self, caller: Caller, name: UserName) -> User:
        """Return a member; raise `NotFound` when there is no such user or it is no member."""
        user = await find_user(self._registry, name)
        if not _is_member(user, caller):
            raise NotFound(NO_USER)
        return caller.view(user)

    async def create(self, caller: Caller, name: UserName, *, grants: Sequence[Grant] = (), email: str = "") -> User:
        """Make a user who is a member here and nowhere else; return it with its token, to callers with all
        rights.

        Of `grants` only this project's entry counts. Raises `AlreadyExists`, `InvalidInput` "invalid role: X".
        """
        if await self._registry.users.by_name(name) is not None:
            raise AlreadyExists("User already exists")
        roles = _roles_here(caller, grants) or ()
        check_project_roles(roles)
        details, places = UserDetails(email=email), {caller.here.id: roles}
        made = await self._registry.users.create(name, details, places, caller.user, made_in=caller.here.id)
        return caller.view_made(made)

    async def update(self, caller: Caller, name: UserName, grants: Sequence[Grant]) -> User:
        """Replace a member's roles by those of this project's entry in `grants`.

        Raises `NotFound`; `NotAllowed` when the user is no member or no entry is for this project; `InvalidInput`
        "invalid role: X".
        """
        user = await find_user(self._registry, name)
        roles = _roles_here(caller, grants)
        if roles is None or not _is_member(user, caller):
            raise NotAllowed(NOT_A_MEMBER)
        check_project_roles(roles)
        if not await self._registry.users.set_roles(
            user.id, caller.here.id, roles, caller.expected.seen_by(caller.view)
        ):
            raise NotAllowed(NOT_A_MEMBER)
        return caller.view(await find_user(self._registry, name))

    async def add(self, caller: Caller, name: UserName, roles: Sequence[str] = ()) -> User:
        """Make an existing user a member; raise `NotFound`, `Conflict`, or `InvalidInput` "invalid role: X"."""
        user = await find_user(self._registry, name)
        if _is_member(user, caller):
            raise Conflict(ALREADY_A_MEMBER)
        check_project_roles(roles)
        try:
            await self._registry.users.add_member(user.id, caller.here.id, roles)
        except AlreadyExists:
            raise Conflict(ALREADY_A_MEMBER) from None
        return caller.view(await find_user(self._registry, name))

    async def remove(self, caller: Caller, name: UserName) -> None:
        """End a membership; raise `NotFound`, or `NotAllowed` when there is none. Access lists stay as they are."""
        user = await find_user(self._registry, name)
        if not await self._registry.users.remove_member(user.id, caller.here.id, caller.expected.seen_by(caller.view)):
            raise NotAllowed(NOT_A_MEMBER)

    async def refresh_token(self, caller: Caller, name: UserName) -> User:
        """Give a member a new token, and show it; the old one is dead at once.

        A token is good for all that its user may do: so a caller without the view of everything may renew that of a
        member who is nowhere else. Raises `NotFound`, `NotAllowed`.
        """
        user = await find_user(self._registry, name)
        if not _is_member(user, caller):
            raise NotFound(NO_USER)
        if caller.is_weaker_than_own(user):
            raise NotAllowed

        def check(now: User) -> None:
            is_elsewhere = any(entry.project != caller.here.name for entry in now.memberships)
            if not caller.full_view and (now.service_roles or is_elsewhere or not _is_member(now, caller)):
                raise NotAllowed(MORE_THAN_A_MEMBER)

        return found_user(await self._registry.users.refresh_token(user.id, check=check))

    async def find(self, name: UserName) -> User:
        """Return a user, member or not; raise `NotFound` "User doesn't exist".

        For `:add`, which looks for the user before it reads the body (contract 7.1).
        """
        return await find_user(self._registry, name)


def _is_member(user: User, caller: Caller) -> bool:
    return any(entry.project == caller.here.name for entry in user.memberships)


def _roles_here(caller: Caller, grants: Sequence[Grant]) -> tuple[str, ...] | None:
    for grant in grants:
        if grant.project == caller.here.name:
            return grant.roles
    return None
