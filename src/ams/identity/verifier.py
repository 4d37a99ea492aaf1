"""The verifier: from an issuer's token to the person it was issued for, cached; roles by entitlements.

A token is cached by its hash until it expires, as long as the keys stand that verified it: a token that is shown again
costs a hash and two looks into memory. Where an issuer is asked about tokens (RFC 7662), its answer is cached for
`ACTIVE_SECONDS` at most, so that a withdrawn one is refused after that.

Entitlements mean roles in projects by the rules of the issuer. A rule is met by an entitlement of the same group. One
that names a role is met by that role only, one that names an authority by that authority only; the rest may be
anything.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ams.core.cache import ExpiringCache
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import TokenRefused
from ams.core.issuer import LONGEST_TEXT, Entitlement, Issuer, RoleRule, Verified, read_entitlement
from ams.identity import tokens
from ams.identity.issuers import Introspection
from ams.identity.keys import Keys
from ams.storage.database.invalidation import Cache

ACTIVE_SECONDS = 60  # how long an issuer's word that a token is active is good
INACTIVE_SECONDS = 30  # how long it is not asked again about a token that is not
MOST_REFUSED = 10_000  # tokens that an issuer refused and that are remembered
MOST_ENTITLEMENTS = 500

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, 2.1


class IssuerSource(Protocol):
    """The issuers whose tokens are accepted."""

    async def by_url(self, url: str) -> Issuer | None:
        """Return the issuer that says this in `iss`."""

    async def of_opaque(self) -> Issuer | None:
        """Return the issuer that is asked about tokens that are no JWT."""


@dataclass(frozen=True, slots=True)
class CachedToken:
    """A verified token; no generation without a key, no `ask_again_on` (monotonic) where the issuer is not asked."""

    verified: Verified
    issuer: Issuer
    generation: int | None
    ask_again_on: Milliseconds | None


@dataclass(eq=False)
class Verifier:
    """Verifies tokens of issuers."""

    issuers: IssuerSource
    keys: Keys
    introspection: Introspection
    clock: Clock
    leeway_seconds: float
    cache: Cache[bytes, CachedToken]

    def __post_init__(self) -> None:
        kept = INACTIVE_SECONDS * 1000
        self._refused: ExpiringCache[bytes, bool] = ExpiringCache(MOST_REFUSED, kept, self.clock.monotonic)

    def known(self, token: str) -> Verified | None:
        """Return what `verify` would return, if that is remembered and still good; None says nothing."""
        remembered = self.cache.known(tokens.digest(token))
        return None if remembered is None or not self._is_good(remembered) else remembered.verified

    async def verify(self, token: str) -> Verified:
        """Return the claims of a valid token, cached ones without suspending; raise `TokenRefused`."""
        if len(token) > tokens.LONGEST:
            raise TokenRefused(f"The token is longer than {tokens.LONGEST} characters")
        digest = tokens.digest(token)
        remembered = await self.cache.find(digest, lambda: self._look_at(token, digest))
        if remembered is None or not self._is_good(remembered):
            self.cache.discard(digest)
            remembered = await self.cache.find(digest, lambda: self._look_at(token, digest))
            assert remembered is not None  # what is looked at is found, or refused
        return remembered.verified

    def forget(self) -> None:
        """Forget all tokens: issuers have changed."""
        self.cache.forget_where(lambda _digest, _remembered: True)
        self._refused.clear()

    def _is_good(self, remembered: CachedToken) -> bool:
        if self.clock.wall() >= remembered.verified.expires_on:
            return False
        if remembered.ask_again_on is not None and self.clock.monotonic() >= remembered.ask_again_on:
            return False
        return remembered.generation is None or remembered.generation == self.keys.generation(remembered.issuer)

    async def _look_at(self, token: str, digest: bytes) -> CachedToken:
        if not _TOKEN.fullmatch(token):
            raise TokenRefused("The token has characters that are in no token")
        if token.count(".") == 2:
            return await self._look_at_jwt(token, digest)
        issuer = await self.issuers.of_opaque()
        if issuer is None:
            raise TokenRefused("The token is not known here")
        return await self._asked(issuer, token, digest, {}, None)

    async def _look_at_jwt(self, token: str, digest: bytes) -> CachedToken:
        header = tokens.header(token)
        issuer = await self.issuers.by_url(header.issuer_url)
        if issuer is None:
            raise TokenRefused(f"The token is of an issuer that is not known here: {tokens.shown(header.issuer_url)}")
        key = await self.keys.key(issuer, header.kid, header.algorithm)
        generation = self.keys.generation(issuer)
        said = tokens.claims(token, issuer, key, now=self.clock.wall(), leeway=self.leeway_seconds)
        if issuer.introspect == "always":
            return await self._asked(issuer, token, digest, said, generation)
        expires_on = tokens.expiry(said, self.leeway_seconds)
        assert expires_on is not None  # or it would have been refused
        return CachedToken(_verified(issuer, said, expires_on), issuer, generation, None)

    async def _asked(
        self, issuer: Issuer, token: str, digest: bytes, said: Mapping[str, Any], generation: int | None
    ) -> CachedToken:
        """Ask the issuer about a token, which has `said` this by itself: nothing if it is no JWT."""
        if self._refused.get(digest):
            raise _not_active()
        answer = await self.introspection.ask(issuer, token)
        if answer is None:
            self._refused.put(digest, True)
            raise _not_active()
        if any(answer.get(name, said[name]) != said[name] for name in ("iss", "sub") if name in said):
            raise TokenRefused("The token's issuer says that it is another's")
        both = {"iss": issuer.url, **said, **answer}  # RFC 7662, 2.2: an answer may leave out any of it
        now = self.clock.wall()
        tokens.check(both, issuer, now=now, leeway=self.leeway_seconds)
        ends = [
            tokens.expiry(said, self.leeway_seconds),
            tokens.expiry(answer, self.leeway_seconds),
            now + ACTIVE_SECONDS * 1000,
        ]
        expires_on = Milliseconds(min(end for end in ends if end is not None))
        ask_again_on = Milliseconds(self.clock.monotonic() + ACTIVE_SECONDS * 1000)
        return CachedToken(_verified(issuer, both, expires_on), issuer, generation, ask_again_on)


def _not_active() -> TokenRefused:
    return TokenRefused("The token is not active: it has expired, or was withdrawn")


def _verified(issuer: Issuer, said: Mapping[str, Any], expires_on: Milliseconds) -> Verified:
    found: list[Any] = []
    for name in issuer.entitlement_claims:
        value = said.get(name, [])
        found += value if isinstance(value, list) else [value]
    if len(found) > MOST_ENTITLEMENTS:
        raise TokenRefused(f"The token has more than {MOST_ENTITLEMENTS} entitlements")
    if not all(isinstance(each, str) for each in found):
        raise TokenRefused("The token has entitlements that are no text")
    return Verified(
        issuer.name,
        issuer.url,
        said["sub"],
        expires_on,
        telling(issuer.roles, found),
        _text(said, "email"),
        _text(said, "given_name"),
        _text(said, "family_name"),
    )


def _text(said: Mapping[str, Any], name: str) -> str:
    """Return a claim about a person, for people to read; empty without one."""
    value = said.get(name)
    if not isinstance(value, str):
        return ""
    return "".join(character for character in value[: 4 * LONGEST_TEXT] if character.isprintable())[:LONGEST_TEXT]


def roles_of(rules: Iterable[RoleRule], entitlements: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return the roles in each project that a rule names, perhaps none; more entitlements never mean fewer."""
    met = frozenset(each for text in entitlements for each in _met(text))
    roles: dict[str, set[str]] = {}
    for rule in rules:
        given = roles.setdefault(rule.project, set())
        if read_entitlement(rule.entitlement) in met:
            given.update(rule.roles)
    return {project: frozenset(given) for project, given in roles.items()}


def telling(rules: Iterable[RoleRule], entitlements: Iterable[str]) -> tuple[str, ...]:
    """Return the entitlements that meet a rule, each once: as much of them as needs to be remembered."""
    wanted = {read_entitlement(rule.entitlement) for rule in rules}
    return tuple(text for text in dict.fromkeys(entitlements) if any(each in wanted for each in _met(text)))


def _met(text: str) -> Iterator[Entitlement]:
    entitlement = read_entitlement(text)
    return iter(()) if entitlement is None else entitlement.met()
