"""Admission: who asks, in which project, and whether a role of theirs allows the action.

Steps 3 to 6 of the order of checks every client can observe (HTTP contract 1.5). On the way of every publish, pull
and acknowledge: with a warm cache it neither suspends nor touches the registry.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ams.access.permissions import PERMISSIONS
from ams.access.roles import PROJECT_ADMIN, PROJECT_ROLES, PUSH_WORKER, SERVICE_ADMIN
from ams.errors import NotAllowed, NotAuthenticated, NotFound, UnknownToken
from ams.names import ProjectName, UserId, UserName
from ams.registry.records import Principal, Project, Subscription, User
from ams.registry.registry import Registry

_SEES_ALL = frozenset({SERVICE_ADMIN, PROJECT_ADMIN})
_NOT_LISTED = _SEES_ALL | {PUSH_WORKER}
_NO_ROLES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who was admitted, and with which roles."""

    user: UserId | None
    """None for the service token."""
    name: UserName | None
    roles: frozenset[str]
    """The project's roles and the service roles together."""
    full_view: bool
    """Whether tokens and memberships elsewhere may be seen: service_admin as a service role (3.6, U3)."""
    project: Project | None
    """The project of the path, on routes that have one."""
    access_lists: bool = True
    """Whether access lists matter (setting `per_resource_auth`)."""

    @property
    def here(self) -> Project:
        """The project of the path; only for routes that have one."""
        assert self.project is not None
        return self.project

    def require_listed(self, authorized: frozenset[UserId], role: str) -> None:
        """Raise `NotAllowed` unless the caller is on the access list, or needs not be (contract 3.5)."""
        if self.access_lists and role in self.roles and self.user not in authorized and not self.roles & _NOT_LISTED:
            raise NotAllowed

    def filters_by(self, role: str) -> UserId | None:
        """Return the user whose access lists cut a list, None when the caller sees all of it (contract 3.5)."""
        return self.user if role in self.roles and not self.roles & _SEES_ALL else None

    def view(self, user: User) -> User:
        """Return what of `user` the caller may see (contract 3.6)."""
        if self.full_view:
            return user
        here = self.project.name if self.project else None
        entries = tuple(entry for entry in user.memberships if entry.project == here)
        return replace(user, token=None, created_by=None, service_roles=(), memberships=entries)

    @property
    def sees_push_secrets(self) -> bool:
        """Whether push secrets, and what endpoints say, may be seen: consumers may not (17.2, A14)."""
        return bool(self.roles & _NOT_LISTED)

    def view_push(self, subscription: Subscription) -> Subscription:
        """Return what of `subscription` the caller may see: consumers no push secrets (17.2, A14)."""
        if subscription.push is None or self.sees_push_secrets:
            return subscription
        return replace(subscription, push=subscription.push.without_secrets())


class Admission:
    """Turns a token and a project's name into a `Caller`, or refuses."""

    def __init__(
        self,
        registry: Registry,
        *,
        service_token: str = "",
        per_resource_auth: bool = True,
        permissions: Mapping[str, frozenset[str]] = PERMISSIONS,
    ) -> None:
        self._registry = registry
        self._service_token = _bytes(service_token)
        self._access_lists = per_resource_auth
        self._permissions = permissions

    async def admit(self, action: str, token: str | None, project: ProjectName | None = None) -> Caller:
        """Admit a request for `action`.

        `project` is the name in the path; it need not exist for projects:create. Raises, in this order:
        `NotAuthenticated` without a token; `NotFound` "project doesn't exist"; `NotAuthenticated` when the token is
        unknown or its user has no role here; `NotAllowed` when no role allows the action.
        """
        if not token:
            raise NotAuthenticated
        place = await self._place(project) if project is not None and action != "projects:create" else None
        if self._is_service_token(token):
            return Caller(None, None, frozenset({SERVICE_ADMIN}), True, place, self._access_lists)
        principal = await self._registry.users.principal(token)
        if principal is None:
            raise UnknownToken
        roles = _roles(principal, place)
        if not roles:
            raise NotAuthenticated
        if not roles & self._permissions[action]:
            raise NotAllowed
        full_view = SERVICE_ADMIN in principal.service_roles
        return Caller(principal.id, principal.name, roles, full_view, place, self._access_lists)

    async def user_of(self, token: str | None) -> Principal | None:
        """Return whose token it is, for the open routes; None for no, an unknown, or the service token."""
        if not token or self._is_service_token(token):
            return None
        return await self._registry.users.principal(token)

    async def knows(self, token: str) -> bool:
        """Whether a token is somebody's, or the service token."""
        return self._is_service_token(token) or await self._registry.users.principal(token) is not None

    async def name_of(self, token: str | None) -> str | None:
        """Return the name of the user whose token it is; None for no, an unknown, or the service token."""
        principal = await self.user_of(token)
        return principal.name if principal else None

    async def _place(self, name: ProjectName) -> Project:
        project = await self._registry.projects.find(name)
        if project is None:
            raise NotFound("project doesn't exist")
        return project

    def _is_service_token(self, token: str) -> bool:
        return bool(self._service_token) and hmac.compare_digest(_bytes(token), self._service_token)


def _roles(principal: Principal, place: Project | None) -> frozenset[str]:
    if place is None:
        return principal.service_roles
    return principal.project_roles.get(place.id, _NO_ROLES) & PROJECT_ROLES | principal.service_roles


def _bytes(token: str) -> bytes:
    # A token is whatever text a client sent: also text that is no clean Unicode must only be unequal.
    return token.encode("utf-8", "surrogatepass")
