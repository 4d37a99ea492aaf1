"""The keys of issuers: fetched when a token needs them, shared by all who wait, kept for when the issuer is away.

A verified token is only as good as its key. So a key set has a generation, which is another one as soon as a key has
vanished: a cache of verified tokens compares it at each use. That comparison also starts a new fetch of the keys, every
hour, in the background. A file with the keys is used only when the issuer cannot be had, so that a start needs none.

Of an issuer's JSON Web Key Set (RFC 7517), PyJWT drops unusable keys without a word, and takes symmetric and private
keys. Here these are left out and said: an issuer that publishes one lets all others sign in its name.
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

MOST_KEYS = 100
FEWEST_BITS, MOST_BITS = 2048, 8192  # of an RSA key; fewer are refused by RFC 7518, 3.3, and more would take long
MOST_EXPONENT_BITS = 32
"""Of an RSA key: nearly all have 65537. A check takes as long as it is, and thousands of bits a processor's while."""
MOST_ID = 255  # characters of a key's id, and of the name of an algorithm
REFRESH = 3_600_000  # milliseconds after which keys that are in use are fetched again
GOOD = 24 * 3_600_000  # milliseconds that keys are good for when the issuer is away
MOST_ODDITIES = 5  # of a key set, that are shown
NO_GENERATION = 0  # of an issuer whose keys are not known, or are too old
_MOST_NUMBER = 2048  # characters of a number of a key: more than `MOST_BITS` have
_MEMBERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""Types of keys, and what a public key of that type consists of (RFC 7518, 6; RFC 8037, 2)."""
_ALGORITHMS = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""Algorithms of a key, by its type and curve. Nothing symmetric is among them, and no `none`."""

_Source = tuple[IssuerName, str, str]
"""The issuer, its URL, and the URL of its keys where that is set: with another one the keys are not the same."""


class _LeftOut(Exception):
    """A key that is not taken; the text says why. It is empty for keys that are for something else."""


@dataclass(frozen=True, slots=True)
class PublishedKey:
    """A public key that tokens may be signed with; `alg` is the one algorithm it is for, empty: any of its type."""

    kid: str | None
    alg: str
    members: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, said: object) -> Self:
        """Read a JSON Web Key; raise `_LeftOut`."""
        if not isinstance(said, dict) or (said.get("kid") is not None and _id_of(said) is None):
            raise _LeftOut("it is malformed")
        kind = said.get("kty")
        if kind == "oct" or "k" in said:
            raise _LeftOut("it is symmetric")
        if "d" in said:
            raise _LeftOut("it is private")
        operations = said.get("key_ops", ["verify"])  # RFC 7517, 4.2 and 4.3
        is_for_signatures = said.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
        if not isinstance(kind, str) or kind not in _MEMBERS or not is_for_signatures:
            raise _LeftOut
        names = ("kty", *_MEMBERS[kind])
        values: list[Any] = [said.get(name) for name in names]
        alg = said.get("alg") or ""
        if not _is_text(alg, MOST_ID) or not all(_is_text(each, _MOST_NUMBER) for each in values):
            raise _LeftOut("it is malformed")
        key = cls(said.get("kid"), alg, tuple(zip(names, values, strict=True)))
        key._check()
        return key

    def suits(self, algorithm: str) -> bool:
        """Return whether it may sign by an algorithm (RFC 7518, 3.1)."""
        return algorithm in self._algorithms() and self.alg in ("", algorithm)

    def usable(self, algorithm: str) -> jwt.PyJWK:
        """Return it as PyJWT's key for signatures of that algorithm."""
        return jwt.PyJWK(dict(self.members), algorithm)

    def published(self) -> dict[str, str]:
        """Return it as a JSON Web Key, with the members that are used."""
        rest = {"kid": self.kid, "alg": self.alg or None}
        return {**dict(self.members), **{name: value for name, value in rest.items() if value is not None}}

    def _algorithms(self) -> Sequence[str]:
        members = dict(self.members)
        return _ALGORITHMS.get((members["kty"], members.get("crv", "")), ())

    def _check(self) -> None:
        possible = self._algorithms()
        if not possible:
            raise _LeftOut
        if self.alg not in ("", *possible):
            raise _LeftOut(f"it is for {self.alg}")
        try:
            key = self.usable(possible[0]).key
        except Exception:  # a parser's, of many kinds
            raise _LeftOut("it is malformed") from None
        if isinstance(key, RSAPublicKey) and not FEWEST_BITS <= key.key_size <= MOST_BITS:
            raise _LeftOut(f"it has {key.key_size} bits")
        if isinstance(key, RSAPublicKey) and (bits := key.public_numbers().e.bit_length()) > MOST_EXPONENT_BITS:
            raise _LeftOut(f"its exponent has {bits} bits")


class KeySet(NamedTuple):
    """The keys that were taken of a set, and what is wrong with the rest."""

    keys: tuple[PublishedKey, ...]
    oddities: tuple[str, ...]

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Read a set; raise `IssuerFailed` when none of its keys can be taken."""
        found = read_object(data, "its key set").get("keys")
        if not isinstance(found, list):
            raise IssuerFailed("its key set has no keys")
        return cls.of(found)

    @classmethod
    def of(cls, found: Sequence[Any]) -> Self:
        """Take usable keys, without a word about others than for signatures; raise `IssuerFailed` without any."""
        if len(found) > MOST_KEYS:
            raise IssuerFailed(f"its key set has more than {MOST_KEYS} keys")
        keys: dict[PublishedKey, None] = {}
        oddities = []
        for number, each in enumerate(found, 1):
            try:
                keys[PublishedKey.read(each)] = None
            except _LeftOut as error:
                if str(error):
                    oddities.append(f"key {_id_of(each) or number} is left out: {error}")
        if not keys:
            raise IssuerFailed("; ".join(["its key set has no key that signs tokens", *oddities]))
        return cls(tuple(keys), tuple(oddities))


def _id_of(said: object) -> str | None:
    found = said.get("kid") if isinstance(said, dict) else None
    return found if _is_text(found, MOST_ID) else None


def _is_text(value: object, most: int) -> bool:
    """Return whether this is a text of at most so many characters, all of which a log and a terminal may show."""
    return isinstance(value, str) and len(value) <= most and value.isprintable()


class KeysState(NamedTuple):
    """The state of an issuer's keys, for people; `failure` is of the issuer, or about keys that are left out."""

    fetched_on: Milliseconds | None
    ids: tuple[str, ...]
    failure: str


class FetchedKeys(NamedTuple):
    """Keys of an issuer, when they were fetched, and their generation."""

    keys: tuple[PublishedKey, ...]
    oddities: tuple[str, ...]
    generation: int
    fetched_on: Milliseconds


class _File(msgspec.Struct):
    url: str
    jwks_url: str
    fetched_on: int
    keys: list[dict[str, Any]]


_decoder = msgspec.json.Decoder(_File)


class Keys(DocumentCache[_Source, Issuer, FetchedKeys]):
    """Keys by issuer. `folder` is where they are kept; empty: nothing is kept over a restart."""

    def __init__(self, client: HttpClient, folder: str, clock: Clock, discovery: Discovery | None = None) -> None:
        """`discovery` is shared with other requests to the same issuers."""
        super().__init__(clock.monotonic, folder)
        self._client, self._clock = client, clock
        self._discovery = discovery or Discovery(client, clock)
        self._generations = itertools.count(NO_GENERATION + 1)

    async def key(self, issuer: Issuer, kid: str | None, algorithm: str) -> jwt.PyJWK:
        """Return the key for a token's signature; raise `TokenRefused`, `later` when the keys cannot be had now."""
        state = await self.get(issuer)
        if state.document is None or not state.is_good(self._clock.monotonic()):
            raise _not_had(issuer)
        found = _found(state.document.keys, kid, algorithm)
        if found is None:
            newer = await self.get_newer(issuer)
            if newer is None:
                raise TokenRefused("The token is signed with a key that is not known yet", later=True)
            found = _found(newer.document.keys if newer.document else (), kid, algorithm)
            if found is None and newer.failure:
                raise _not_had(issuer)
        if found is None:
            raise TokenRefused("The token is signed with a key that its issuer does not have")
        return found.usable(algorithm)

    def generation(self, issuer: Issuer) -> int:
        """Return the generation of an issuer's keys, 0 for none; what was verified in another is to be verified again.

        It is that of a key as long as nothing was awaited since `key` returned it. Keys that are due are fetched again
        in the background of the running event loop.
        """
        state, now = self.known(issuer), self._clock.monotonic()
        if state.document is None or not state.is_good(now):
            return NO_GENERATION
        if now >= state.refresh_at:
            self.start_fetch(issuer)
        return state.document.generation

    def state(self, issuer: Issuer) -> KeysState:
        """Return the state of the keys; nothing is fetched for it."""
        state = self.known(issuer)
        keys, oddities, _, fetched_on = state.document or _NO_KEYS
        failure = self.away(issuer) or "; ".join(oddities[:MOST_ODDITIES])
        if not state.is_good(self._clock.monotonic()):
            return KeysState(None, (), failure)
        return KeysState(fetched_on, tuple(key.kid for key in keys if key.kid), failure)

    def away(self, issuer: Issuer) -> str:
        """Return why the issuer did not give its keys the last time it was asked; empty when it did, or was not."""
        return str(self.known(issuer).failure or "")

    def forget(self, issuer: Issuer) -> None:
        """Forget the keys of an issuer that was changed or deleted, also those that are kept in the file."""
        for source in [each for each in self.states if each[0] == issuer.name]:
            del self.states[source]
        super().forget(issuer)
        self._discovery.forget(issuer)

    def look_again(self) -> None:
        """Fetch all keys again when they are used next: an issuer was changed, perhaps to refuse a stolen key."""
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
            found = KeySet.read(await self._asked(issuer))
        except IssuerFailed as error:
            logger.warning("issuer.no_keys", issuer=issuer.name, reason=str(error))
            raise
        except Exception as error:  # no response of an issuer is an error of the client with the token
            logger.exception("issuer.no_keys", issuer=issuer.name)
            raise IssuerFailed("its answer could not be read") from error
        return self._edition(issuer, found, before, self._clock.wall())

    async def _asked(self, issuer: Issuer) -> bytes:
        url = await self._discovery.jwks_url(issuer)
        try:
            return await self._client.get(url, ACCEPT)
        except RequestFailed as error:
            self._discovery.forget(issuer)  # they may have moved
            raise IssuerFailed(f"its keys cannot be had: {error}") from error

    def _file_name(self, source: _Source) -> str:
        return f"{source[0]}.json"

    def _read(self, issuer: Issuer, data: bytes) -> Edition[FetchedKeys] | None:
        kept = _decoder.decode(data)
        is_other = (kept.url, kept.jwks_url) != (issuer.url, issuer.jwks_url)
        if is_other or self._clock.wall() - kept.fetched_on >= GOOD:
            return None
        return self._edition(issuer, KeySet.of(kept.keys), None, Milliseconds(kept.fetched_on))

    def _log_file_error(self, source: _Source, reason: str, *, is_read: bool) -> None:
        event = "issuer.kept_keys_unreadable" if is_read else "issuer.keys_not_kept"
        logger.warning(event, issuer=source[0], reason=reason)

    def _edition(
        self, issuer: Issuer, found: KeySet, before: FetchedKeys | None, fetched_on: Milliseconds
    ) -> Edition[FetchedKeys]:
        keys_before, oddities_before, generation, _ = before or _NO_KEYS
        if set(keys_before) != set(found.keys) or oddities_before != found.oddities:
            ids = [key.kid for key in found.keys]
            logger.info("issuer.keys_changed", issuer=issuer.name, ids=ids, left_out=found.oddities[:MOST_ODDITIES])
        if not keys_before or not set(keys_before) <= set(found.keys):
            generation = next(self._generations)
        age = max(self._clock.wall() - fetched_on, 0)  # below 0: the machine's time was put back
        now = self._clock.monotonic()
        file = _File(issuer.url, issuer.jwks_url, fetched_on, [key.published() for key in found.keys])
        return Edition(
            FetchedKeys(*found, generation, fetched_on), now + REFRESH, now + GOOD - age, msgspec.json.encode(file)
        )


_NO_KEYS = FetchedKeys((), (), NO_GENERATION, Milliseconds(0))


def _found(keys: Sequence[PublishedKey], kid: str | None, algorithm: str) -> PublishedKey | None:
    """Return the key a token is signed with by what its header says (RFC 7515, 4.1.4), None when it is not there."""
    named = [key for key in keys if kid is None or key.kid == kid]
    suiting = [key for key in named if key.suits(algorithm)]
    if kid is None and len(suiting) > 1:
        raise TokenRefused("The token does not say which of its issuer's keys it is signed with")
    if kid is not None and named and not suiting:
        raise TokenRefused("The token's algorithm is not that of its key")
    return suiting[0] if suiting else None


def _not_had(issuer: Issuer) -> TokenRefused:
    return TokenRefused(f"The keys of issuer {issuer.name} cannot be had now", later=True)
