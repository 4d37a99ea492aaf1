"""Logins by signed tokens and by others of issuers: from a token to the user it is bound to, who may be made at the
first login. Those that are signed with keys of named tokens are `ams.access.key_logins`'.

On the way of every request that shows such a token: for one that was seen before, nothing here waits for anything.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from ams.access.key_logins import KeyLogins
from ams.core.clock import Clock
from ams.core.errors import AlreadyExists, NotFound, TokenRefused
from ams.core.issuer import Issuer, Verified
from ams.core.names import IssuerName, ProjectId, UserId, UserName, new_uuid
from ams.core.observing import REQUEST
from ams.identity.verifier import IssuerSource, Verifier, roles_of
from ams.outgoing.sharing import Shared
from ams.storage.audit.event import DONE, AuditEvent
from ams.storage.audit.trail import Trail
from ams.storage.registry.records import Login, Principal, UserDetails
from ams.storage.registry.registry import Registry

SERVICE = "ams"
MADE, ROLES = "logins:create", "logins:roles"
"""Actions in the audit log: a user was made at the first login; a login changed its user's roles."""
REMEMBERED = 50_000
"""Tokens that are known to have been looked at, as many as are remembered as verified. One that is not is looked at
again: that reads the registry, and undoes what an administrator changed of its user's roles meanwhile.
"""

Roles = dict[ProjectId, tuple[str, ...]]

logger = structlog.get_logger("ams.logins")


class _CachedLogin(NamedTuple):
    """What came of a token, as long as both halves are what they were."""

    verified: Verified
    bound: Principal
    login: Principal


class Logins:
    """Finds out whom the tokens of issuers stand for, and those that are signed with keys of named tokens."""

    def __init__(
        self,
        registry: Registry,
        issuers: IssuerSource,
        verifier: Verifier,
        keys: KeyLogins,
        trail: Trail,
        clock: Clock,
        address: Callable[[], str],
    ) -> None:
        """`address` is where the request at hand comes from, for the audit log."""
        self._registry = registry
        self._issuers = issuers
        self._verifier = verifier
        self._keys = keys
        self._trail = trail
        self._clock = clock
        self._address = address
        self._seen: dict[int, _CachedLogin] = {}
        self._first_logins: Shared[tuple[str, str], Principal] = Shared()

    def known(self, token: str) -> Principal | None:
        """Return what `principal` would return, if all that it takes is in memory; None says nothing."""
        verified = self._verifier.known(token)
        if verified is None:
            return self._keys.known(token)
        seen = self._seen.get(id(verified))
        if seen is None or seen.verified is not verified:
            return None
        bound = self._registry.bindings.known_principal(verified.url, verified.subject)
        return seen.login if seen.bound is bound else None

    async def principal(self, token: str) -> Principal:
        """Return the user of a token; raise `TokenRefused` when the token is not valid, or is bound to no user.

        One that names the key of a named token is never looked at as an issuer's.
        """
        by_key = await self._keys.principal(token)
        if by_key is not None:
            return by_key
        verified = await self._verifier.verify(token)
        found = await self._registry.bindings.principal(verified.url, verified.subject)
        seen = self._seen_of(verified)
        if found is None:
            return self._noted(verified, await self._at_first_login(verified))
        bound, by_login = found
        if seen is not None and seen.bound is bound:
            return seen.login
        if seen is None and by_login:
            bound = await self._followed(verified, bound)
        return self._noted(verified, bound)

    async def close(self) -> None:
        """Begin nothing more."""
        await self._first_logins.close()

    def _seen_of(self, verified: Verified) -> _CachedLogin | None:
        # The verifier remembers what it made of a token, so the same object is the same token: no need to look again.
        # What was seen holds the object, so that no other has its id meanwhile.
        return self._seen.get(id(verified))

    def _noted(self, verified: Verified, bound: Principal) -> Principal:
        login = Login(verified.issuer, None, verified.expires_on)
        made = Principal(bound.id, bound.name, bound.service_roles, bound.project_roles, login)
        self._seen.pop(id(verified), None)
        if len(self._seen) >= REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._seen[id(verified)] = _CachedLogin(verified, bound, made)
        return made

    async def _at_first_login(self, verified: Verified) -> Principal:
        issuer = await self._issuers.by_url(verified.url)
        if issuer is None or not issuer.create_users:
            raise _not_bound(verified)
        identity = verified.url, verified.subject
        return await self._first_logins.result(identity, lambda: self._made(issuer, verified))

    async def _made(self, issuer: Issuer, verified: Verified) -> Principal:
        """Make the user of an identity. When several nodes try, the first makes it and all of them return it."""
        roles = {project: given for project, given in (await self._roles(issuer, verified)).items() if given}
        if not roles:
            raise TokenRefused(f"No entitlement of the identity gives it a role here (issuer {issuer.name})")
        name = _name(issuer.name, verified)
        try:
            await self._registry.bindings.first_login(name, _details(verified), roles, verified.url, verified.subject)
        except (AlreadyExists, NotFound) as error:  # another was quicker; or a project went meanwhile
            await logger.ainfo("login.not_made", user=name, issuer=issuer.name, reason=error.message)
        else:
            await self._record(MADE, name, f"first login by issuer {issuer.name}")
        found = await self._registry.bindings.principal(verified.url, verified.subject)
        if found is None:  # the user is there without its binding: that was taken away, and is not given back
            raise _not_bound(verified)
        return found[0]

    async def _followed(self, verified: Verified, bound: Principal) -> Principal:
        """Give a user who was made at the first login the roles that the entitlements of a new token say."""
        if not await self._follow(verified, bound.id):
            return bound
        await self._record(ROLES, bound.name, f"entitlements of issuer {verified.issuer}")
        found = await self._registry.bindings.principal(verified.url, verified.subject)
        if found is None:
            raise _not_bound(verified)
        return found[0]

    async def _follow(self, verified: Verified, user: UserId) -> bool:
        issuer = await self._issuers.by_url(verified.url)
        roles = await self._roles(issuer, verified) if issuer else {}
        try:
            return bool(roles) and await self._registry.bindings.follow(user, roles)
        except NotFound:  # the user, or a project, went meanwhile: no reason to keep what was withdrawn in others
            return any([await self._follow_in(project, given, user) for project, given in roles.items()])

    async def _follow_in(self, project: ProjectId, roles: tuple[str, ...], user: UserId) -> bool:
        try:
            return await self._registry.bindings.follow(user, {project: roles})
        except NotFound:
            return False

    async def _roles(self, issuer: Issuer, verified: Verified) -> Roles:
        """Return the roles that entitlements give in each project that rules name, as far as it is there."""
        said: Mapping[str, frozenset[str]] = roles_of(issuer.roles, verified.entitlements)
        found: Roles = {}
        for name, roles in said.items():
            project = await self._registry.projects.find(name)
            if project is not None:
                found[project.id] = tuple(sorted(roles))
        return found

    async def _record(self, action: str, user: UserName, reason: str) -> None:
        await self._trail.record(
            AuditEvent(
                id=new_uuid(),
                at=self._clock.wall(),
                service=SERVICE,
                action=action,
                resource=f"/users/{user}",
                actor=user,
                address=self._address(),
                code=200,
                result=DONE,
                reason=reason,
                request=REQUEST.get().decode("latin-1"),
            )
        )


def _not_bound(verified: Verified) -> TokenRefused:
    return TokenRefused(f"The identity is not bound to a user (issuer {verified.issuer})")


def _name(issuer: IssuerName, verified: Verified) -> UserName:
    """Return the name of a user made at the first login: the same on every node, and unique to the identity."""
    digest = hashlib.sha256(f"{verified.url}\0{verified.subject}".encode("utf-8", "surrogatepass")).hexdigest()
    return UserName(f"{issuer}-{digest[:16]}")


def _details(verified: Verified) -> UserDetails:
    return UserDetails(
        email=verified.email,
        first_name=verified.first_name,
        last_name=verified.last_name,
        description=f"Made at the first login by issuer {verified.issuer}",
    )
