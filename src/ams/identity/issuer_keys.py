"""Issuer keys: fetched on demand, shared by all who wait, stored on disk for when the issuer is down.

A verified token is only as good as its key. So a key set has a generation number, which changes as soon as a key
disappears. A cache of verified tokens compares it at each use. Every hour the comparison also starts a background
refresh. The stored file is used only when the issuer cannot be reached, so a start does not need the issuer.

PyJWT silently drops unusable keys of a JSON Web Key Set (RFC 7517), and accepts symmetric and private keys. Here those
are refused and reported: an issuer that publishes one lets everybody sign in its name.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jwt
import msgspec
import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import TokenRefused
from ams.core.issuer import Issuer
from ams.core.names import IssuerName
from ams.identity.issuers import ACCEPT, Discovery, IssuerFailed, read_object
from ams.outgoing.client import HttpClient, RequestFailed
from ams.storage.document_cache import DocumentCache, Edition

logger = structlog.get_logger("ams.identity")

MAX_KEYS = 100
MIN_BITS, MAX_BITS = 2048, 8192  # of an RSA key: RFC 7518, 3.3 refuses smaller ones; larger ones are slow to verify
MAX_EXPONENT_BITS = 32  # largest exponent of an RSA key; nearly all have 65537. The time of a check grows with it
MAX_ID_CHARACTERS = 255  # characters of a key id and of an algorithm's name
REFRESH_MS = 3_600_000  # milliseconds until keys in use are fetched again
KEYS_TTL_MS = 24 * 3_600_000  # milliseconds that keys stay valid while the issuer is down
MAX_FAULTS = 5  # faults of one key set that are reported
NO_GENERATION = 0  # generation of an issuer without known or recent keys
_MAX_NUMBER_CHARACTERS = 2048  # characters of a number in a key; `MOST_BITS` needs fewer
_MEMBERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""Members of a public key by its type (RFC 7518, 6; RFC 8037, 2)."""
_ALGORITHMS = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""Algorithms of a key by its type and curve. None of them is symmetric, and `none` is not among them."""

_Source = tuple[IssuerName, str, str]
"""Issuer, its URL, and the configured URL of its keys. Another URL means other keys."""


class _RefusedKey(Exception):
    """A key is not accepted; the text says why. Empty for keys with another purpose."""


@dataclass(frozen=True, slots=True)
class PublishedKey:
    """A public key for checking tokens. `alg` is the only algorithm it is for; empty: any of its type."""

    kid: str | None
    alg: str
    members: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, said: object) -> Self:
        """Parse a JSON Web Key. Raises `_RefusedKey`."""
        if not isinstance(said, dict) or (said.get("kid") is not None and _id_of(said) is None):
            raise _RefusedKey("it is malformed")
        kind = said.get("kty")
        if kind == "oct" or "k" in said:
            raise _RefusedKey("it is symmetric")
        if "d" in said:
            raise _RefusedKey("it is private")
        operations = said.get("key_ops", ["verify"])  # RFC 7517, 4.2 and 4.3
        is_for_signatures = said.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
        if not isinstance(kind, str) or kind not in _MEMBERS or not is_for_signatures:
            raise _RefusedKey
        names = ("kty", *_MEMBERS[kind])
        values: list[Any] = [said.get(name) for name in names]
        alg = said.get("alg") or ""
        if not _is_text(alg, MAX_ID_CHARACTERS) or not all(_is_text(each, _MAX_NUMBER_CHARACTERS) for each in values):
            raise _RefusedKey("it is malformed")
        key = cls(said.get("kid"), alg, tuple(zip(names, values, strict=True)))
        key._check()
        return key

    def suits(self, algorithm: str) -> bool:
        """Return whether the key may sign with an algorithm (RFC 7518, 3.1)."""
        return algorithm in self._algorithms() and self.alg in ("", algorithm)

    def usable(self, algorithm: str) -> jwt.PyJWK:
        """Return the key as PyJWT's key for that algorithm."""
        return jwt.PyJWK(dict(self.members), algorithm)

    def as_jwk(self) -> dict[str, str]:
        """Return the key as a JSON Web Key, with the members that are used."""
        rest = {"kid": self.kid, "alg": self.alg or None}
        return {**dict(self.members), **{name: value for name, value in rest.items() if value is not None}}

    def _algorithms(self) -> Sequence[str]:
        members = dict(self.members)
        return _ALGORITHMS.get((members["kty"], members.get("crv", "")), ())

    def _check(self) -> None:
        if not (possible := self._algorithms()):
            raise _RefusedKey
        if self.alg not in ("", *possible):
            raise _RefusedKey(f"it is for {self.alg}")
        try:
            key = self.usable(possible[0]).key
        except Exception:  # parsers raise many kinds of errors
            raise _RefusedKey("it is malformed") from None
        if isinstance(key, RSAPublicKey) and not MIN_BITS <= key.key_size <= MAX_BITS:
            raise _RefusedKey(f"it has {key.key_size} bits")
        if isinstance(key, RSAPublicKey) and (bits := key.public_numbers().e.bit_length()) > MAX_EXPONENT_BITS:
            raise _RefusedKey(f"its exponent has {bits} bits")


class KeySet(NamedTuple):
    """Accepted keys of a set, and the faults of the others."""

    keys: tuple[PublishedKey, ...]
    oddities: tuple[str, ...]

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Accept the usable keys and silently skip those not for signatures. Raises `IssuerFailed` if there is none."""
        found = read_object(data, "its key set").get("keys")
        if not isinstance(found, list):
            raise IssuerFailed("its key set has no keys")
        if len(found) > MAX_KEYS:
            raise IssuerFailed(f"its key set has more than {MAX_KEYS} keys")
        keys: dict[PublishedKey, None] = {}
        oddities = []
        for number, each in enumerate(found, 1):
            try:
                keys[PublishedKey.parse(each)] = None
            except _RefusedKey as error:
                if str(error):
                    oddities.append(f"key {_id_of(each) or number} is left out: {error}")
        if not keys:
            raise IssuerFailed("; ".join(["its key set has no key that signs tokens", *oddities]))
        return cls(tuple(keys), tuple(oddities))


def _id_of(said: object) -> str | None:
    found = said.get("kid") if isinstance(said, dict) else None
    return found if _is_text(found, MAX_ID_CHARACTERS) else None


def _is_text(value: object, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most and value.isprintable()


class KeysState(NamedTuple):
    """State of an issuer's keys, for people. `failure` is the issuer's error, or lists refused keys."""

    fetched_on: Milliseconds | None
    ids: tuple[str, ...]
    failure: str


class FetchedKeys(NamedTuple):
    """Keys of an issuer, the time they were fetched, and their generation."""

    keys: tuple[PublishedKey, ...]
    oddities: tuple[str, ...]
    generation: int
    fetched_on: Milliseconds


class IssuerKeyCache(DocumentCache[_Source, Issuer, FetchedKeys]):
    """JWKS cache by issuer, with a JWKS refresh ahead of expiry. `folder` keeps it over restarts; empty: none."""

    def __init__(self, client: HttpClient, folder: str, clock: Clock, discovery: Discovery | None = None) -> None:
        """Create a cache. `discovery` is shared with other requests to the same issuers."""
        super().__init__(clock.monotonic, folder)
        self._client, self._clock = client, clock
        self._discovery = discovery or Discovery(client, clock)
        self._generations = itertools.count(NO_GENERATION + 1)

    async def key(self, issuer: Issuer, kid: str | None, algorithm: str) -> jwt.PyJWK:
        """Return the key for a token's signature. Raises `TokenRefused` (`later` if it cannot be fetched now)."""
        state = await self.get(issuer)
        if state.document is None or not state.is_good(self._clock.monotonic()):
            raise _not_had(issuer)
        if (found := _find_key(state.document.keys, kid, algorithm)) is None:
            if (newer := await self.get_newer(issuer)) is None:
                raise TokenRefused("The token is signed with a key that is not known yet", later=True)
            found = _find_key(newer.document.keys if newer.document else (), kid, algorithm)
            if found is None and newer.failure:
                raise _not_had(issuer)
        if found is None:
            raise TokenRefused("The token is signed with a key that its issuer does not have")
        return found.usable(algorithm)

    def generation(self, issuer: Issuer) -> int:
        """Return the generation of an issuer's keys, or 0. Results of another generation must be verified again.

        It is the generation of the key that `key` returned, if nothing was awaited since. Starts a background refresh
        on the running event loop when keys are due.
        """
        state, now = self.cached_state(issuer), self._clock.monotonic()
        if state.document is None or not state.is_good(now):
            return NO_GENERATION
        if now >= state.refresh_at:
            self.start_fetch(issuer)
        return state.document.generation

    def state(self, issuer: Issuer) -> KeysState:
        """Return the state of the keys, without fetching."""
        state = self.cached_state(issuer)
        keys, oddities, _, fetched_on = state.document or _NO_KEYS
        failure = self.away(issuer) or "; ".join(oddities[:MAX_FAULTS])
        if not state.is_good(self._clock.monotonic()):
            return KeysState(None, (), failure)
        return KeysState(fetched_on, tuple(key.kid for key in keys if key.kid), failure)

    def away(self, issuer: Issuer) -> str:
        """Return why the last fetch from the issuer failed; empty if it succeeded or never ran."""
        return str(self.cached_state(issuer).failure or "")

    def forget(self, issuer: Issuer) -> None:
        """Forget the keys of a changed or deleted issuer, stored ones included."""
        for source in [each for each in self.states if each[0] == issuer.name]:
            del self.states[source]
        super().forget(issuer)
        self._discovery.forget(issuer)

    def refetch_all(self) -> None:
        """Refetch all keys at their next use: an issuer was changed, perhaps to refuse a stolen key."""
        for state in self.states.values():
            state.refresh_at = self._clock.monotonic()

    async def close(self) -> None:
        """Stop fetching."""
        await super().close()
        await self._discovery.close()

    def _key_of(self, issuer: Issuer) -> _Source:
        return issuer.name, issuer.url, issuer.jwks_url

    async def _fetch(self, issuer: Issuer, before: FetchedKeys | None) -> Edition[FetchedKeys]:
        try:
            found = KeySet.parse(await self._request_keys(issuer))
        except IssuerFailed as error:
            logger.warning("issuer.no_keys", issuer=issuer.name, reason=str(error))
            raise
        except Exception as error:  # an issuer's bad answer is never the client's error
            logger.exception("issuer.no_keys", issuer=issuer.name)
            raise IssuerFailed("its answer could not be read") from error
        return self._edition(issuer, found, before, self._clock.wall())

    async def _request_keys(self, issuer: Issuer) -> bytes:
        url = await self._discovery.url(issuer, "jwks_uri")
        try:
            return await self._client.get(url, ACCEPT)
        except RequestFailed as error:
            self._discovery.forget(issuer)  # the URLs may have changed
            raise IssuerFailed(f"its keys cannot be had: {error}") from error

    def _file_name(self, source: _Source) -> str:
        return f"{source[0]}.json"

    def _read(self, issuer: Issuer, data: bytes) -> Edition[FetchedKeys] | None:
        kept = read_object(data, "the file")
        is_other = (kept["url"], kept["jwks_url"]) != (issuer.url, issuer.jwks_url)
        if is_other or self._clock.wall() - kept["fetched_on"] >= KEYS_TTL_MS:
            return None
        return self._edition(issuer, KeySet.parse(data), None, Milliseconds(kept["fetched_on"]))

    def _log_file_error(self, source: _Source, reason: str, *, is_read: bool) -> None:
        event = "issuer.kept_keys_unreadable" if is_read else "issuer.keys_not_kept"
        logger.warning(event, issuer=source[0], reason=reason)

    def _edition(
        self, issuer: Issuer, found: KeySet, before: FetchedKeys | None, fetched_on: Milliseconds
    ) -> Edition[FetchedKeys]:
        keys_before, oddities_before, generation, _ = before or _NO_KEYS
        if set(keys_before) != set(found.keys) or oddities_before != found.oddities:
            ids = [key.kid for key in found.keys]
            logger.info("issuer.keys_changed", issuer=issuer.name, ids=ids, left_out=found.oddities[:MAX_FAULTS])
        if not keys_before or not set(keys_before) <= set(found.keys):
            generation = next(self._generations)
        age = max(self._clock.wall() - fetched_on, 0)  # negative when the system clock was set back
        now = self._clock.monotonic()
        file = {"url": issuer.url, "jwks_url": issuer.jwks_url, "fetched_on": fetched_on}
        data = msgspec.json.encode(file | {"keys": [key.as_jwk() for key in found.keys]})
        document = FetchedKeys(*found, generation, fetched_on)
        return Edition(document, now + REFRESH_MS, now + KEYS_TTL_MS - age, data)


_NO_KEYS = FetchedKeys((), (), NO_GENERATION, Milliseconds(0))


def _find_key(keys: Sequence[PublishedKey], kid: str | None, algorithm: str) -> PublishedKey | None:
    """Return the key that a token's header names (RFC 7515, 4.1.4), or None."""
    named = [key for key in keys if kid is None or key.kid == kid]
    suiting = [key for key in named if key.suits(algorithm)]
    if kid is None and len(suiting) > 1:
        raise TokenRefused("The token does not say which of its issuer's keys it is signed with")
    if kid is not None and named and not suiting:
        raise TokenRefused("The token's algorithm is not that of its key")
    return suiting[0] if suiting else None


def _not_had(issuer: Issuer) -> TokenRefused:
    return TokenRefused(f"The keys of issuer {issuer.name} cannot be had now", later=True)
