"""Administration of users (HTTP contract 5)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from ams.access.admission import Caller
from ams.access.permissions import (
    ARGO_API_AUTHN,
    PUSH_WORKER,
    ROLES,
    SERVICE_ADMIN,
    check_project_roles,
    check_service_roles,
)
from ams.core.errors import AlreadyExists, InvalidInput, NotAllowed, NotFound, UnknownToken
from ams.core.names import ProjectId, RegistrationId, UserId, UserName, checked_name
from ams.service.lookup import NO_USER, find_managed_user, find_user, found_user
from ams.service.push.pushing import FIRST_WORKER
from ams.storage.registry.records import Applicant, Grant, Page, PageRequest, Project, Registration, User, UserDetails
from ams.storage.registry.registry import Registry
from ams.storage.registry.users import FILTERS
from ams.storage.secrets import new_token

FIRST_ADMIN = UserName("admin")

logger = structlog.get_logger("ams.users")


class Users:
    """What can be done with users."""

    def __init__(self, registry: Registry, roles: frozenset[str] = ROLES) -> None:
        """`roles` are the names that may be given as service roles."""
        self._registry = registry
        self._roles = roles

    async def project_filter(self, name: str) -> Project | None:
        """Read the `project` filter of a list, empty = none; raise `NotFound` when there is no such project.

        Apart from `list`, because it is checked before the page parameters (contract 5.2).
        """
        if not name:
            return None
        project = await self._registry.projects.find(name)
        if project is None:
            raise NotFound("ProjectUUID doesn't exist")
        return project

    async def list(
        self, caller: Caller, page: PageRequest, *, project: Project | None = None, details: bool = False
    ) -> Page[User]:
        """Return a page of users, newest first: all, or the members of `project`; memberships only with `details`.

        Raises `InvalidInput` "Invalid page token".
        """
        users = await self._registry.users.page(page, project=project.id if project else None, details=details)
        return users.map(caller.view)

    async def show(self, caller: Caller, name: UserName) -> User:
        """Return what the caller may see of a user; raise `NotFound` when there is none."""
        return caller.view(await find_user(self._registry, name))

    async def by_token(self, caller: Caller, token: str) -> User:
        """Return the owner of a token, full view; raise `NotFound` when there is none. A user's own tokens only."""
        return caller.view_whole(found_user(await self._registry.users.by_token(token)), again=False)

    async def by_uuid(self, caller: Caller, user: UserId) -> User:
        """Return a user by identity, full view; raise `NotFound` when there is none.

        The certificate service always gets the token: that is what it asks for (authn contract 8).
        """
        found = found_user(await self._registry.users.by_id(user))
        return caller.view_whole(found, again=ARGO_API_AUTHN in caller.roles)

    async def profile(self, caller: Caller) -> User:
        """Return the caller's own user; raise `UnknownToken` when it is gone meanwhile.

        Other services decide by this answer what a user may do. So a login with reduced rights is shown without roles.
        """
        assert caller.user is not None
        user = await self._registry.users.by_id(caller.user)
        if user is None:
            raise UnknownToken
        if caller.is_reduced:
            places = tuple(replace(each, roles=()) for each in user.memberships)
            return replace(user, token=None, service_roles=(), memberships=places)
        return caller.view_whole(user, again=False)

    async def create(self, caller: Caller, name: UserName, details: UserDetails) -> User:
        """Make a user with a new token.

        Raises `AlreadyExists`, or `InvalidInput` for a project or role that cannot be given (contract 5.4).
        """
        if await self._registry.users.by_name(name) is not None:
            raise AlreadyExists("User already exists")
        roles = await self._project_roles(details.grants)
        self._check_service_roles(caller, details.service_roles or ())
        return caller.view_made(await self._registry.users.create(name, details, roles or {}, caller.user))

    async def update(self, caller: Caller, name: UserName, details: UserDetails) -> User:
        """Change what `details` says and nothing else (U6).

        Raises `NotFound`, `NotAllowed` for a user who is above the caller, or `InvalidInput` for a project, role or new
        name that cannot be given (contract 5.4).
        """
        user = await find_managed_user(self._registry, caller, name)
        roles = await self._project_roles(details.grants)
        self._check_service_roles(caller, details.service_roles or ())
        if details.name:
            checked_name("user", details.name)
        try:
            changed = found_user(
                await self._registry.users.update(user.id, details, roles, caller.expected.seen_by(caller.view))
            )
        except AlreadyExists:
            raise InvalidInput("invalid user name change, name already exists") from None
        await self._warn_if_last(user, changed.service_roles)
        return caller.view(changed)

    async def delete(self, caller: Caller, name: UserName) -> None:
        """Remove a user from everywhere; raise `NotFound` or `NotAllowed`. Its token is dead at once."""
        user = await find_managed_user(self._registry, caller, name)
        if not await self._registry.users.delete(user.id, caller.expected.seen_by(caller.view)):
            raise NotFound(NO_USER)
        await self._warn_if_last(user)

    async def refresh_token(self, caller: Caller, name: UserName) -> User:
        """Give a user a new token, and show it; raise `NotFound` or `NotAllowed`. The old one is dead at once."""
        user = await find_managed_user(self._registry, caller, name)
        if caller.is_weaker_than_own(user):
            raise NotAllowed
        return found_user(await self._registry.users.refresh_token(user.id))

    def _check_service_roles(self, caller: Caller, roles: Sequence[str]) -> None:
        """Raise `InvalidInput` "invalid role: X" at the first that cannot be given, or not by this caller (U3)."""
        check_service_roles(roles, self._roles if caller.full_view else frozenset())

    async def _warn_if_last(self, before: User, roles_now: Sequence[str] = ()) -> None:
        """Tell the operator when the last service_admin went: from then on only the service token can make one."""
        was_admin, is_admin = SERVICE_ADMIN in before.service_roles, SERVICE_ADMIN in roles_now
        if was_admin and not is_admin and not await self._registry.users.hold(SERVICE_ADMIN):
            logger.warning("users.no_service_admin", last=before.name)

    async def _project_roles(self, grants: Sequence[Grant] | None) -> dict[ProjectId, tuple[str, ...]] | None:
        """Check memberships asked for, in the order of contract 5.4: doubles, unknown projects, unknown roles."""
        if grants is None:
            return None
        named = [grant for grant in grants if grant.project]
        _refuse_doubles([grant.project for grant in named])
        roles = {await self._project_id(grant.project): grant.roles for grant in named}
        for grant in named:
            check_project_roles(grant.roles)
        return roles

    async def _project_id(self, name: str) -> ProjectId:
        project = await self._registry.projects.find(name)
        if project is None:
            raise InvalidInput(f"invalid project: {name}")
        return project.id


async def first_admin(registry: Registry, keep: Callable[[str], None], forget: Callable[[], None]) -> bool:
    """Make the user `admin` with role service_admin when there is no user at all; return whether it was made.

    `keep` stores the token durably, before the user exists: a crash in between must not leave an administrator whose
    token that no program has seen. `forget` removes it when another service at the same registry was quicker.
    """
    if await registry.users.exist():
        return False
    token = new_token()
    await asyncio.to_thread(keep, token)
    try:
        await registry.users.create(
            FIRST_ADMIN, UserDetails(service_roles=(SERVICE_ADMIN,)), {}, None, token=token, grows=False
        )
    except AlreadyExists:
        await asyncio.to_thread(forget)
        return False
    return True


async def push_worker(registry: Registry, token: str = "") -> bool:
    """Make the user `push_worker_0` with role push_worker if `token` belongs to no user; without one, with a new token.

    Where it is there with another token it is given this one: that is what the setting says now. Returns whether there
    is a worker now; there is none when that name is taken by a user without that role.
    """
    if token and await registry.users.principal(token) is not None:
        return True
    try:
        await registry.users.create(
            FIRST_WORKER, UserDetails(service_roles=(PUSH_WORKER,)), {}, None, token=token, grows=False
        )
    except AlreadyExists:
        return await _given(registry, token)
    return True


async def _given(registry: Registry, token: str) -> bool:
    """Give the worker that is there a token, if there is one to give; False when who bears the name is no worker."""
    user = await registry.users.by_name(FIRST_WORKER)
    if user is None or PUSH_WORKER not in user.service_roles:
        return False
    if token:
        await registry.users.refresh_token(user.id, token)
        logger.warning("push.worker_token_changed", user=user.name)
    return True


def _refuse_doubles(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInput(f"duplicate reference of project {name}")
        seen.add(name)


class Registrations:
    """What can be done with registrations."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def register(self, applicant: Applicant) -> Registration:
        """Store the registration of an applicant who wants to become a user.

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
        found = await self._registry.registrations.find(registration)
        if found is None:
            raise _no_registration()
        return found

    async def require_pending(self, registration: RegistrationId) -> None:
        """Raise `NotFound` unless there is such a registration and it is still pending.

        For `:decline`, which looks for the registration before it reads the body (contract 6).
        """
        if (await self.show(registration)).status != "pending":
            raise _no_registration()

    async def accept(self, caller: Caller, registration: RegistrationId) -> User:
        """Make the user a registration asks for, with a token of its own and no role.

        Raises `NotFound` when no such registration is pending, `AlreadyExists` when the name was taken meanwhile.
        """
        user = await self._registry.registrations.accept(registration, caller.user)
        if user is None:
            raise _no_registration()
        return caller.view_made(user)

    async def decline(self, caller: Caller, registration: RegistrationId, comment: str = "") -> None:
        """Refuse a registration; raise `NotFound` when no such registration is pending."""
        if not await self._registry.registrations.decline(registration, caller.user, comment):
            raise _no_registration()

    async def delete(self, registration: RegistrationId) -> None:
        """Forget a registration, decided or not; raise `NotFound` when there is none."""
        if not await self._registry.registrations.delete(registration):
            raise _no_registration()


def _no_registration() -> NotFound:
    return NotFound("User registration doesn't exist")
