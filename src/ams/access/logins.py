"""Logins: maps a token of an issuer, or one signed with the key of a named token, to its user.

The first login may create the user. Hot path of every request with such a token: a cached token never suspends.
"""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import structlog

from ams.core.clock import Clock
from ams.core.coalescing import SingleFlight
from ams.core.errors import AlreadyExists, NotFound, TokenRefused
from ams.core.issuer import Issuer, Verified
from ams.core.names import ProjectId, TokenName, UserId, UserName
from ams.core.public_keys import client_email
from ams.core.telemetry import REQUEST
from ams.identity import self_signed
from ams.identity.tokens import digest as token_digest
from ams.identity.verifier import IssuerSource, Verifier, roles_of
from ams.storage.audit.event import new_event
from ams.storage.audit.trail import Trail
from ams.storage.database.invalidation import PRINCIPAL, Cache
from ams.storage.registry.records import Login, Principal, UserDetails
from ams.storage.registry.registry import Registry

REMEMBERED = 50_000
"""Cached verified tokens. An evicted token is verified again: that reads the registry, and overwrites role changes that
an administrator has made to its user since."""

Roles = dict[ProjectId, tuple[str, ...]]
logger = structlog.get_logger("ams.logins")


class _CachedLogin(NamedTuple):
    """Cached login of a token, valid while `verified` and `bound` are the same objects."""

    verified: Verified
    bound: Principal
    login: Principal


class KeyLogins:
    """Finds the users of tokens that programs sign with the keys of named tokens."""

    def __init__(self, registry: Registry, clock: Clock, leeway_seconds: float) -> None:
        self._registry, self._clock = registry, clock
        self._leeway = leeway_seconds
        self._principals: Cache[bytes, Principal] = registry.invalidations.new_cache(REMEMBERED)

        forget_where = self._principals.forget_where
        registry.invalidations.on(PRINCIPAL, lambda user: forget_where(lambda _, principal: principal.id == user))

    def cached_principal(self, token: str) -> Principal | None:
        """Return the cached result of `principal`, or None if it is not cached. It may have expired."""
        return self._principals.find_cached(token_digest(token))

    async def principal(self, token: str) -> Principal | None:
        """Return the owner of the key that signed a token; None: not a key of ours. Raises `TokenRefused`."""
        key = self_signed.named_key(token)
        if key is None:
            return None
        return await self._principals.find(token_digest(token), lambda: self._login_by_key(token, key))

    async def _login_by_key(self, token: str, key: self_signed.NamedKey) -> Principal | None:
        holder = await self._registry.named_tokens.holder(key.id)
        if holder is None and key.is_ours:
            raise TokenRefused("The token's key is not known: it was revoked, or is of another service")
        if holder is None:
            return None
        login = holder.principal.login
        assert login is not None  # the named token
        expires_on = self_signed.expiry(
            token, holder.key, client_email(TokenName(login.name), key.id), now=self._clock.wall(), leeway=self._leeway
        )
        if login.expires_on is not None:
            expires_on = min(expires_on, login.expires_on)
        return replace(holder.principal, login=replace(login, expires_on=expires_on))


@dataclass(slots=True)
class Logins:
    """Finds the users of tokens of issuers, and of tokens signed with keys of named tokens."""

    registry: Registry
    issuers: IssuerSource
    verifier: Verifier
    keys: KeyLogins
    trail: Trail
    clock: Clock
    address: Callable[[], str]  # returns the client address of the current request, for the audit log
    _seen: dict[int, _CachedLogin] = field(default_factory=dict)
    _first_logins: SingleFlight[tuple[str, str], Principal] = field(default_factory=SingleFlight)

    def cached_principal(self, token: str) -> Principal | None:
        """Return the cached result of `principal`, or None if some part of it is not cached."""
        verified = self.verifier.cached_result(token)
        if verified is None:
            return self.keys.cached_principal(token)
        seen = self._seen.get(id(verified))
        if seen is None or seen.verified is not verified:
            return None
        bound = self.registry.bindings.known_principal(verified.url, verified.subject)
        return seen.login if seen.bound is bound else None

    async def principal(self, token: str) -> Principal:
        """Return the user of a token. Raises `TokenRefused` if it is invalid or bound to no user."""
        by_key = await self.keys.principal(token)
        if by_key is not None:
            return by_key
        verified = await self.verifier.verify(token)
        found = await self.registry.bindings.principal(verified.url, verified.subject)
        # The verifier caches its results, so the same object means the same token. `_seen` holds the object, so its id
        # cannot be reused.
        seen = self._seen.get(id(verified))
        if found is None:
            issuer = await self.issuers.by_url(verified.url)
            if issuer is None or not issuer.create_users:
                raise _not_bound(verified)
            identity = verified.url, verified.subject
            made = await self._first_logins.result(identity, lambda: self._create_user(issuer, verified))
            return self._cache_login(verified, made)
        bound, by_login = found
        if seen is not None and seen.bound is bound:
            return seen.login
        if seen is None and by_login and await self._follow(verified, bound.id):
            await self._record("logins:roles", bound.name, f"entitlements of issuer {verified.issuer}")
            bound = await self._find_bound_user(verified)
        return self._cache_login(verified, bound)

    async def close(self) -> None:
        """Start no new work."""
        await self._first_logins.close()

    def _cache_login(self, verified: Verified, bound: Principal) -> Principal:
        login = Login(verified.issuer, None, verified.expires_on)
        made = Principal(bound.id, bound.name, bound.service_roles, bound.project_roles, login)
        self._seen.pop(id(verified), None)
        if len(self._seen) >= REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._seen[id(verified)] = _CachedLogin(verified, bound, made)
        return made

    async def _create_user(self, issuer: Issuer, verified: Verified) -> Principal:
        """Create the user of an identity. When several nodes try, the first one creates it and all return it."""
        roles = {project: given for project, given in (await self._roles(issuer, verified)).items() if given}
        if not roles:
            raise TokenRefused(f"No entitlement of the identity gives it a role here (issuer {issuer.name})")
        # same name on every node, unique to the identity
        digest = hashlib.sha256(f"{verified.url}\0{verified.subject}".encode("utf-8", "surrogatepass")).hexdigest()
        name = UserName(f"{issuer.name}-{digest[:16]}")
        text = f"Made at the first login by issuer {verified.issuer}"
        details = UserDetails(
            email=verified.email, first_name=verified.first_name, last_name=verified.last_name, description=text
        )
        try:
            await self.registry.bindings.first_login(name, details, roles, verified.url, verified.subject)
        except (AlreadyExists, NotFound) as error:  # another node was first, or a project was deleted meanwhile
            await logger.ainfo("login.not_made", user=name, issuer=issuer.name, reason=error.message)
        else:
            await self._record("logins:create", name, f"first login by issuer {issuer.name}")
        return await self._find_bound_user(verified)

    async def _find_bound_user(self, verified: Verified) -> Principal:
        found = await self.registry.bindings.principal(verified.url, verified.subject)
        if found is None:  # the user exists without its binding: an administrator removed that
            raise _not_bound(verified)
        return found[0]

    async def _follow(self, verified: Verified, user: UserId) -> bool:
        """Apply a new token's entitlements to a user created at first login. Returns whether a role changed."""
        issuer = await self.issuers.by_url(verified.url)
        roles = await self._roles(issuer, verified) if issuer else {}
        try:
            return bool(roles) and await self.registry.bindings.follow(user, roles)
        except NotFound:  # the user or a project was deleted meanwhile: still withdraw the roles in the other projects
            has_changed = False
            for project, given in roles.items():
                with contextlib.suppress(NotFound):
                    has_changed |= await self.registry.bindings.follow(user, {project: given})
            return has_changed

    async def _roles(self, issuer: Issuer, verified: Verified) -> Roles:
        found: Roles = {}
        for name, roles in roles_of(issuer.roles, verified.entitlements).items():
            project = await self.registry.projects.find(name)
            if project is not None:
                found[project.id] = tuple(sorted(roles))
        return found

    async def _record(self, action: str, user: UserName, reason: str) -> None:
        event = new_event(
            self.clock.wall(), "ams", action, f"/users/{user}", actor=user, address=self.address(), reason=reason,
            request=REQUEST.get().decode("latin-1"),
        )  # fmt: skip
        await self.trail.record(event)


def _not_bound(verified: Verified) -> TokenRefused:
    return TokenRefused(f"The identity is not bound to a user (issuer {verified.issuer})")
