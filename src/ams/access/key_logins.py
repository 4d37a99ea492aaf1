"""Logins by keys of named tokens: from a token that a program signed itself to the user whose key it is.

On the way of every request that shows such a token: one that was seen before costs a hash and a look into memory.
"""

from dataclasses import replace

from ams.core.clock import Clock
from ams.core.errors import TokenRefused
from ams.core.names import TokenName
from ams.core.public_keys import client_email
from ams.identity import self_signed
from ams.identity.tokens import digest
from ams.storage.database.invalidation import PRINCIPAL, Cache
from ams.storage.registry.records import Principal
from ams.storage.registry.registry import Registry

REMEMBERED = 50_000
"""Tokens that are remembered as verified."""


class KeyLogins:
    """Finds out whom self-signed tokens stand for."""

    def __init__(self, registry: Registry, clock: Clock, leeway_seconds: float) -> None:
        self._registry = registry
        self._clock = clock
        self._leeway = leeway_seconds
        self._principals: Cache[bytes, Principal] = registry.invalidations.new_cache(REMEMBERED)
        registry.invalidations.on(PRINCIPAL, self._forget)

    def known(self, token: str) -> Principal | None:
        """Return what `principal` would return, if it is in memory; None says nothing. It may have expired."""
        return self._principals.known(digest(token))

    async def principal(self, token: str) -> Principal | None:
        """Return whose key a token is signed with; its `login` says until when it is good. None for what names no key
        of a named token.

        Raises `TokenRefused` for a token that names one and is not valid.
        """
        key = self_signed.named_key(token)
        if key is None:
            return None
        return await self._principals.find(digest(token), lambda: self._verified(token, key))

    async def _verified(self, token: str, key: self_signed.NamedKey) -> Principal | None:
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

    def _forget(self, user: str) -> None:
        self._principals.forget_where(lambda _, principal: principal.id == user)
