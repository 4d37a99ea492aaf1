"""Admission: authenticates the user of a request, and checks that a role and the token's rights allow the action.

Steps 3 to 6 of the order of checks (HTTP contract 1.5). Hot path of every publish, pull and acknowledgement: with a
warm cache it neither suspends nor reads the registry.
"""

import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ams.access.logins import Logins
from ams.access.permissions import (
    PERMISSIONS,
    PROJECT_ADMIN,
    PROJECT_ROLES,
    PUSH_WORKER,
    SELF,
    SERVICE_ADMIN,
    needs_all_rights,
)
from ams.core import rights
from ams.core.clock import Clock, Milliseconds, SystemClock
from ams.core.errors import NotAllowed, NotAuthenticated, NotFound, TokenRefused, UnknownToken
from ams.core.names import ProjectName, TokenId, UserId, UserName
from ams.core.versions import ANY_VERSION, Precondition
from ams.storage.registry.records import Login, Principal, Project, Subscription, User
from ams.storage.registry.registry import Registry

_OWN_TOKEN = re.compile(r"[0-9a-f]{64}")  # issuers are not asked about those


class Bearer(str):
    """A token that may be an issuer's or signed with a named token's key. Plain strings are AMS tokens only."""

    __slots__ = ()


def bearer_of(authorization: bytes) -> Bearer | None:
    """Return the token of an `Authorization` header (RFC 9110, 11.1); None for another scheme, or a bad header."""
    parts = authorization.split()
    if len(parts) != 2 or parts[0].lower() != b"bearer":
        return None
    return Bearer(parts[1].decode("latin-1"))


UNKNOWN_TEXT = "The token is not known"
MAX_OPAQUE_TOKENS = 10_000  # opaque issuer tokens remembered, which are not looked up in the registry again

_FULL_VIEW_ROLES = frozenset({SERVICE_ADMIN, PROJECT_ADMIN})
_EXEMPT_ROLES = _FULL_VIEW_ROLES | {PUSH_WORKER}
_NO_ROLES: frozenset[str] = frozenset()
_NO_NAMES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Caller:
    """An admitted user, or the service token, and its roles."""

    user: UserId | None  # None for the service token
    name: UserName | None
    roles: frozenset[str]  # the project's roles and the service roles together
    full_view: bool  # it sees memberships and tokens in other projects: a service_admin with all rights (3.6)
    project: Project | None
    access_lists: bool = True  # True if access lists are enforced (setting `per_resource_auth`)
    login: Login | None = None  # None: with the user's own token, or the service token
    shows_tokens: bool = True  # True if tokens are visible after their creation too (setting `show_tokens`)
    expected: Precondition = ANY_VERSION

    @property
    def here(self) -> Project:
        """The project of the path; only for routes that have one."""
        assert self.project is not None
        return self.project

    def require_listed(self, authorized: frozenset[UserId], role: str) -> None:
        """Raise `NotAllowed` unless the caller is on the access list or exempt from it (contract 3.5)."""
        if self.access_lists and role in self.roles and self.user not in authorized and not self.roles & _EXEMPT_ROLES:
            raise NotAllowed

    def filters_by(self, role: str) -> UserId | None:
        """Return the user whose access lists filter a listing; None: the caller sees everything (contract 3.5)."""
        return self.user if role in self.roles and not self.roles & _FULL_VIEW_ROLES else None

    @property
    def is_reduced(self) -> bool:
        """True if the login has fewer rights than its user."""
        return self.login is not None and self.login.rights is not None

    def view(self, user: User) -> User:
        """Return the part of `user` that the caller may see (contract 3.6)."""
        if self.full_view:
            return user if self.shows_tokens else replace(user, token=None)
        here = self.project.name if self.project else None
        entries = tuple(entry for entry in user.memberships if entry.project == here)
        return replace(user, token=None, created_by=None, service_roles=(), memberships=entries)

    def view_made(self, user: User) -> User:
        """Return a user that the caller has just created, with its token if the login has all rights."""
        return replace(user, token=None) if self.is_reduced else user

    def view_whole(self, user: User, *, again: bool) -> User:
        """Return a user in full, for routes that show it to every caller; `again`: with its token although not new.

        A login must not reveal a stronger token. A login with reduced rights sees no token and no role in other
        projects. A login without the user's own token sees that token only if it may see all tokens.
        """
        if self.is_reduced:
            return self.view(user)
        is_hidden = self.is_weaker_than_own(user) or not (again or self.shows_tokens)
        return replace(user, token=None) if is_hidden else user

    def is_weaker_than_own(self, user: User) -> bool:
        """Return whether the caller looks at itself, but has neither its own token nor the full view."""
        return self.login is not None and user.id == self.user and not self.full_view

    @property
    def sees_push_secrets(self) -> bool:
        """True if push secrets and responses of endpoints are visible. Consumers may not see them (17.2, A14)."""
        return bool(self.roles & _EXEMPT_ROLES) and not self.is_reduced

    def view_push(self, subscription: Subscription) -> Subscription:
        """Return the part of `subscription` that the caller may see: no push secrets for consumers (17.2, A14)."""
        if subscription.push is None or self.sees_push_secrets:
            return subscription
        return replace(subscription, push=subscription.push.without_secrets())


class Admission:
    """Maps a token and a project name to a `Caller`, or refuses."""

    def __init__(
        self, registry: Registry, *, service_token: str = "", per_resource_auth: bool = True,
        permissions: Mapping[str, frozenset[str]] = PERMISSIONS, logins: Logins | None = None,
        note_use: Callable[[TokenId, Milliseconds], None] = lambda _token, _now: None,
        show_tokens: bool = True, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        """`logins` verifies tokens of issuers; `note_use` is called at each use of a named token."""
        self._registry, self._permissions, self._logins, self._note_use = registry, permissions, logins, note_use
        self._show_tokens = show_tokens
        self._service_token = _bytes(service_token)
        self._access_lists = per_resource_auth
        self._clock = clock or SystemClock()
        self._issued: set[Bearer] = set()  # opaque tokens that an issuer knows

    async def admit(
        self, action: str, token: str | None, project: ProjectName | None = None, names: Mapping[str, str] = _NO_NAMES
    ) -> Caller:
        """Admit a request for `action`; `project` and `names` (by variable) are from the path.

        Raises, in this order: `NotAuthenticated` without a token; `NotFound` "project doesn't exist", except for
        projects:create; `UnknownToken`, or `TokenRefused` if the answer may say why; `NotAuthenticated` if the user has
        no role here; `NotAllowed` if no role allows the action, or the token lacks the right.
        """
        if not token:
            raise NotAuthenticated
        place = None
        if project is not None and action != "projects:create":
            place = self._registry.projects.known(project) or await self._registry.projects.find(project)
            if place is None:
                raise NotFound("project doesn't exist")
        if self._is_service_token(token):
            roles = frozenset({SERVICE_ADMIN})
            return Caller(None, None, roles, True, place, self._access_lists, None, self._show_tokens)
        principal = self._cached_principal(token) or await self._principal(token)
        roles, allowed = principal.service_roles, self._permissions[action]
        if place is not None:
            roles = principal.project_roles.get(place.id, _NO_ROLES) & PROJECT_ROLES | roles
        if SELF in allowed:
            roles = roles | {SELF} if names.get("user") == principal.name else roles - {SELF}
        if not roles:
            raise NotAuthenticated
        if not roles & allowed:
            raise NotAllowed
        if principal.login is not None and not is_good_for(principal.login, action, names):
            raise NotAllowed("The token is not good for this")
        return self._caller(principal, roles, place)

    def is_still(self, token: str, login: Login) -> bool:
        """Return whether a token still has this login, and note its use. Raises `TokenRefused` if it has expired."""
        principal = self._cached_principal(token)
        return principal is not None and principal.login is login

    async def admit_oneself(self, token: str | None) -> Caller:
        """Admit a user, with any role, to routes about itself. Raises `NotAuthenticated` without one, or as `admit`."""
        principal = await self.principal(token)
        if principal is None:
            raise NotAuthenticated
        return self._caller(principal, principal.service_roles, None)

    async def principal(self, token: str | None) -> Principal | None:
        """Return the user of a token; None without one and for the service token. Raises `UnknownToken` as `admit`."""
        if not token or self._is_service_token(token):
            return None
        return await self._principal(token)

    def known_user(self, token: str) -> str | None:
        """Return the cached user id of a token; empty: service token; None: not cached. Raises `TokenRefused`."""
        if self._is_service_token(token):
            return ""
        principal = self._cached_principal(token)
        return principal.id if principal else None

    async def user_of(self, token: str | None) -> Principal | None:
        """Return the user of a token; None for a missing, unknown or refused token, and for the service token."""
        try:
            return await self.principal(token)
        except UnknownToken:
            return None

    def _caller(self, principal: Principal, roles: frozenset[str], place: Project | None) -> Caller:
        login = principal.login
        full_view = SERVICE_ADMIN in principal.service_roles and (login is None or login.rights is None)
        return Caller(
            principal.id, principal.name, roles, full_view, place, self._access_lists, login, self._show_tokens
        )

    def _cached_principal(self, token: str) -> Principal | None:
        """Return the cached result of `_principal`, or None if it is not cached. Raises as `_principal`."""
        if isinstance(token, Bearer) and self._is_of_issuer(token):
            principal = None if self._logins is None else self._logins.cached_principal(token)
        else:
            principal = self._registry.users.known_principal(token)
        return None if principal is None else self._check_expiry(principal)

    async def _principal(self, token: str) -> Principal:
        if isinstance(token, Bearer) and self._is_of_issuer(token):
            return await self._of_issuer(token)
        principal = await self._registry.users.principal(token)
        if principal is not None:
            return self._check_expiry(principal)
        if not isinstance(token, Bearer):
            raise UnknownToken
        if _OWN_TOKEN.fullmatch(token):
            raise TokenRefused(UNKNOWN_TEXT)
        principal = await self._of_issuer(token)
        if len(self._issued) >= MAX_OPAQUE_TOKENS:
            self._issued.clear()
        self._issued.add(token)
        return principal

    def _is_of_issuer(self, token: Bearer) -> bool:
        return token.count(".") == 2 or token in self._issued  # a signed token (RFC 7515, 3.1), or an opaque one

    async def _of_issuer(self, token: Bearer) -> Principal:
        if self._logins is None:
            raise TokenRefused(UNKNOWN_TEXT)
        return self._check_expiry(await self._logins.principal(token))

    def _check_expiry(self, principal: Principal) -> Principal:
        """Check the expiry of a named token (`TokenRefused`) and note its use. Returns the principal unchanged."""
        login = principal.login
        if login is None or login.token is None:
            return principal
        now = self._clock.wall()
        if login.expires_on is not None and login.expires_on <= now:
            raise TokenRefused("The token has expired")
        self._note_use(login.token, now)
        return principal

    def _is_service_token(self, token: str) -> bool:
        return bool(self._service_token) and hmac.compare_digest(_bytes(token), self._service_token)


def is_good_for(login: Login, action: str, names: Mapping[str, str] = _NO_NAMES) -> bool:
    """Return whether the rights of a login, not its roles, allow an action on the path with these variables."""
    if login.rights is None:
        return True
    return not needs_all_rights(action) and rights.allow(login.rights, action, names)


def _bytes(token: str) -> bytes:
    # Clients may send any text as a token, even invalid Unicode: compare it as unequal instead of failing.
    return token.encode("utf-8", "surrogatepass")
