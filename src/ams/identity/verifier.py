"""The verifier: maps an issuer's token to its person, cached, and entitlements to roles.

A verified token is cached by its hash until it expires or its issuer's keys change: each later use costs a hash and two
lookups in memory. An issuer's answer about a token (RFC 7662) is cached for at most `ACTIVE_TTL_SECONDS`. A revoked
token is refused after that.

Rules of the issuer map entitlements to roles in projects. A rule matches an entitlement of the same group. If the rule
names a role or an authority, the entitlement must have the same one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ams.core.cache import ExpiringCache
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import TokenRefused
from ams.core.issuer import MAX_TEXT_LENGTH, Entitlement, Issuer, RoleRule, Verified, read_entitlement
from ams.identity import tokens
from ams.identity.issuer_keys import IssuerKeyCache
from ams.identity.issuers import Introspection
from ams.storage.database.invalidation import Cache

ACTIVE_TTL_SECONDS = 60  # how long an issuer's answer that a token is active is cached
INACTIVE_TTL_SECONDS = 30  # how long its answer that a token is inactive is cached
MOST_REFUSED = 10_000  # cached tokens that an issuer refused
MAX_ENTITLEMENTS = 500

_NOT_ACTIVE = "The token is not active: it has expired, or was withdrawn"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, 2.1


class IssuerSource(Protocol):
    """Issuers whose tokens are accepted."""

    async def by_url(self, url: str) -> Issuer | None:
        """Return the issuer with this `iss`."""

    async def for_opaque_tokens(self) -> Issuer | None:
        """Return the issuer that is asked about opaque tokens (not a JWT)."""


@dataclass(frozen=True, slots=True)
class CachedToken:
    """A verified token. `generation`: None without a key; `ask_again_on` (monotonic): None without introspection."""

    verified: Verified
    issuer: Issuer
    generation: int | None
    ask_again_on: Milliseconds | None


@dataclass(eq=False)
class Verifier:
    """Verifies tokens of issuers."""

    issuers: IssuerSource
    keys: IssuerKeyCache
    introspection: Introspection
    clock: Clock
    leeway_seconds: float
    cache: Cache[bytes, CachedToken]

    def __post_init__(self) -> None:
        kept = INACTIVE_TTL_SECONDS * 1000
        self._refused: ExpiringCache[bytes, bool] = ExpiringCache(MOST_REFUSED, kept, self.clock.monotonic)

    def cached_result(self, token: str) -> Verified | None:
        """Return the cached result of `verify` if it is still valid, or None if it is not cached."""
        remembered = self.cache.find_cached(tokens.digest(token))
        return None if remembered is None or not self._is_good(remembered) else remembered.verified

    async def verify(self, token: str) -> Verified:
        """Return the claims of a valid token; a cached one without suspending. Raises `TokenRefused`."""
        tokens.require_length(token)
        digest = tokens.digest(token)
        remembered = await self.cache.find(digest, lambda: self._verify_uncached(token, digest))
        if remembered is None or not self._is_good(remembered):
            self.cache.discard(digest)
            remembered = await self.cache.find(digest, lambda: self._verify_uncached(token, digest))
            assert remembered is not None  # `_verify_uncached` returns it or raises
        return remembered.verified

    def forget(self) -> None:
        """Clear the cache: issuers have changed."""
        self.cache.forget_where(lambda _digest, _remembered: True)
        self._refused.clear()

    def _is_good(self, remembered: CachedToken) -> bool:
        if self.clock.wall() >= remembered.verified.expires_on:
            return False
        if remembered.ask_again_on is not None and self.clock.monotonic() >= remembered.ask_again_on:
            return False
        return remembered.generation is None or remembered.generation == self.keys.generation(remembered.issuer)

    async def _verify_uncached(self, token: str, digest: bytes) -> CachedToken:
        """Verify a JWT by its issuer's keys, any other token by introspection. Raises `TokenRefused`."""
        tokens.refuse_if(not _TOKEN.fullmatch(token), "The token has characters that are in no token")
        if token.count(".") != 2:
            if (issuer := await self.issuers.for_opaque_tokens()) is None:
                raise TokenRefused("The token is not known here")
            return await self._introspect(issuer, token, digest, {}, None)
        header = tokens.header(token)
        if (issuer := await self.issuers.by_url(header.issuer_url)) is None:
            shown = tokens.quote_claim(header.issuer_url)
            raise TokenRefused(f"The token is of an issuer that is not known here: {shown}")
        key = await self.keys.key(issuer, header.kid, header.algorithm)
        generation = self.keys.generation(issuer)
        said = tokens.claims(token, issuer, key, now=self.clock.wall(), leeway=self.leeway_seconds)
        if issuer.introspect == "always":
            return await self._introspect(issuer, token, digest, said, generation)
        expires_on = tokens.expiry(said, self.leeway_seconds)
        assert expires_on is not None  # otherwise it was refused above
        return CachedToken(_verified_login(issuer, said, expires_on), issuer, generation, None)

    async def _introspect(
        self, issuer: Issuer, token: str, digest: bytes, said: Mapping[str, Any], generation: int | None
    ) -> CachedToken:
        """Ask the issuer about a token. `said` are its own claims; empty if it is not a JWT."""
        tokens.refuse_if(self._refused.get(digest), _NOT_ACTIVE)
        if (answer := await self.introspection.ask(issuer, token)) is None:
            self._refused.put(digest, True)
            raise TokenRefused(_NOT_ACTIVE)
        differs = any(answer.get(name, said[name]) != said[name] for name in ("iss", "sub") if name in said)
        tokens.refuse_if(differs, "The token's issuer says that it is another's")
        both = {"iss": issuer.url, **said, **answer}  # RFC 7662, 2.2: an answer may omit any claim
        now, leeway = self.clock.wall(), self.leeway_seconds
        tokens.check(both, issuer, now=now, leeway=leeway)
        ends = [tokens.expiry(said, leeway), tokens.expiry(answer, leeway), now + ACTIVE_TTL_SECONDS * 1000]
        expires_on = Milliseconds(min(end for end in ends if end is not None))
        ask_again_on = Milliseconds(self.clock.monotonic() + ACTIVE_TTL_SECONDS * 1000)
        return CachedToken(_verified_login(issuer, both, expires_on), issuer, generation, ask_again_on)


def _verified_login(issuer: Issuer, said: Mapping[str, Any], expires_on: Milliseconds) -> Verified:
    found: list[Any] = []
    for name in issuer.entitlement_claims:
        value = said.get(name, [])
        found += value if isinstance(value, list) else [value]
    tokens.refuse_if(len(found) > MAX_ENTITLEMENTS, f"The token has more than {MAX_ENTITLEMENTS} entitlements")
    tokens.refuse_if(not all(isinstance(each, str) for each in found), "The token has entitlements that are no text")
    person = [_printable_claim(said, name) for name in ("email", "given_name", "family_name")]
    wanted = {read_entitlement(rule.entitlement) for rule in issuer.roles}
    # Those that match a rule, each once: only these must be remembered.
    entitlements = tuple(text for text in dict.fromkeys(found) if not wanted.isdisjoint(_entitlements(text)))
    return Verified(issuer.name, issuer.url, said["sub"], expires_on, entitlements, *person)


def _printable_claim(said: Mapping[str, Any], name: str) -> str:
    """Return the text of a claim, shortened and without unprintable characters; empty if it is absent or no text."""
    value = said.get(name)
    if not isinstance(value, str):
        return ""
    return "".join(character for character in value[: 4 * MAX_TEXT_LENGTH] if character.isprintable())[:MAX_TEXT_LENGTH]


def roles_of(rules: Iterable[RoleRule], entitlements: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return the roles in each project that the rules name, perhaps none. More entitlements never mean fewer roles."""
    implied_entitlements = frozenset(each for text in entitlements for each in _entitlements(text))
    roles: dict[str, set[str]] = {}
    for rule in rules:
        given = roles.setdefault(rule.project, set())
        if read_entitlement(rule.entitlement) in implied_entitlements:
            given.update(rule.roles)
    return {project: frozenset(given) for project, given in roles.items()}


def _entitlements(text: str) -> Iterator[Entitlement]:
    entitlement = read_entitlement(text)
    return iter(()) if entitlement is None else entitlement.implied_entitlements()
