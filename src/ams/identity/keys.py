"""The keys of issuers: fetched when a token needs them, shared by all who wait, kept for when the issuer is away.

A verified token is only as good as its key. So a key set has a generation, which is another one as soon as a key has
vanished: a cache of verified tokens compares it at each use. That comparison also starts a new fetch of the keys, every
hour, in the background. A file with the keys is used only when the issuer cannot be had, so that a start needs none.

Of an issuer's JSON Web Key Set (RFC 7517), PyJWT drops unusable keys without a word, and takes symmetric and private
keys. Here these are left out and said: an issuer that publishes one lets all others sign in its name.
"""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from ams.outgoing.sharing import Shared
from ams.storage.files import Disk, write_whole

logger = structlog.get_logger("ams.identity")

MOST_KEYS = 100
FEWEST_BITS, MOST_BITS = 2048, 8192  # of an RSA key; fewer are refused by RFC 7518, 3.3, and more would take long
MOST_EXPONENT_BITS = 32
"""Of an RSA key: nearly all have 65537. A check takes as long as it is, and thousands of bits a processor's while."""
MOST_ID = 255  # characters of a key's id, and of the name of an algorithm
REFRESH = 3_600_000  # milliseconds after which keys that are in use are fetched again
GOOD = 24 * 3_600_000  # milliseconds that keys are good for when the issuer is away
AGAIN = 30_000  # milliseconds before an issuer is asked again that failed, or does not have a key that a token names
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
        """Whether it may sign by an algorithm (RFC 7518, 3.1)."""
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
    """Whether this is a text of at most so many characters, all of which may stand in a log and on a terminal."""
    return isinstance(value, str) and len(value) <= most and value.isprintable()


class KeysState(NamedTuple):
    """The state of an issuer's keys, for people; `failure` is of the issuer, or about keys that are left out."""

    fetched_on: Milliseconds | None
    ids: tuple[str, ...]
    failure: str


@dataclass(frozen=True, slots=True)
class _SourceState:
    """Known of a source; moments are of the monotonic clock, but `fetched_on`.

    A token that names an unknown key has the keys fetched again from `again_at` on.
    """

    keys: tuple[PublishedKey, ...] = ()
    generation: int = NO_GENERATION
    fetched_on: Milliseconds | None = None
    good_until: int = 0
    refresh_at: int = 0
    again_at: int = 0
    failure: str = ""
    oddities: tuple[str, ...] = ()


_NOTHING = _SourceState()


class StoredKeySet(NamedTuple):
    """Keys as they were kept."""

    keys: KeySet
    fetched_on: Milliseconds


class _File(msgspec.Struct):
    url: str
    jwks_url: str
    fetched_on: int
    keys: list[dict[str, Any]]


_decoder = msgspec.json.Decoder(_File)


class KeyFiles:
    """The files. One that cannot be read or written is logged, and is as if it were not there."""

    def __init__(self, folder: str) -> None:
        """`folder` is made when it is needed; empty: nothing is kept."""
        self._folder = folder

    def read(self, issuer: Issuer) -> StoredKeySet | None:
        """Return the keys that were kept for an issuer of this name and these URLs."""
        if not self._folder:
            return None
        try:
            with open(self._path(issuer), "rb") as file:
                kept = _decoder.decode(file.read())
            if (kept.url, kept.jwks_url) != (issuer.url, issuer.jwks_url):
                return None
            return StoredKeySet(KeySet.of(kept.keys), Milliseconds(kept.fetched_on))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError, IssuerFailed) as error:
            logger.warning("issuer.kept_keys_unreadable", issuer=issuer.name, reason=str(error))
            return None

    def write(self, issuer: Issuer, keys: Sequence[PublishedKey], fetched_on: Milliseconds) -> None:
        """Keep keys in place of those before."""
        if not self._folder:
            return
        file = _File(issuer.url, issuer.jwks_url, fetched_on, [key.published() for key in keys])
        try:
            Disk().make_folder(self._folder)
            write_whole(Disk(), self._path(issuer), msgspec.json.encode(file))
        except OSError as error:
            logger.warning("issuer.keys_not_kept", issuer=issuer.name, reason=error.strerror)

    def remove(self, issuer: Issuer) -> None:
        """Keep nothing for an issuer of this name."""
        if self._folder:
            with contextlib.suppress(OSError):
                os.unlink(self._path(issuer))

    def _path(self, issuer: Issuer) -> str:
        return os.path.join(self._folder, f"{issuer.name}.json")


class Keys:
    """Keys by issuer. `folder` is where they are kept; empty: nothing is kept over a restart."""

    def __init__(self, client: HttpClient, folder: str, clock: Clock, discovery: Discovery | None = None) -> None:
        """`discovery` is shared with other requests to the same issuers."""
        self._client = client
        self._kept = KeyFiles(folder)
        self._clock = clock
        self._discovery = discovery or Discovery(client, clock)
        self._known: dict[_Source, _SourceState] = {}
        self._going_on: Shared[_Source, None] = Shared()
        self._generations = itertools.count(NO_GENERATION + 1)

    async def key(self, issuer: Issuer, kid: str | None, algorithm: str) -> jwt.PyJWK:
        """Return the key for a token's signature; raise `TokenRefused`, `later` when the keys cannot be had now."""
        if self._is_too_old(self._of(issuer)):
            if self._may_ask(issuer):
                await self._going_on.result(_source(issuer), lambda: self._fetched(issuer))
            if self._is_too_old(self._of(issuer)):
                raise _not_had(issuer)
        known = self._of(issuer)
        if self._clock.monotonic() >= known.refresh_at:
            self._going_on.start(_source(issuer), lambda: self._fetched(issuer))
        found = _found(known.keys, kid, algorithm)
        if found is None:
            if not self._may_ask(issuer):
                raise TokenRefused("The token is signed with a key that is not known yet", later=True)
            # Noted before the request: made-up key ids must not cause a request to the issuer each.
            self._known[_source(issuer)] = replace(known, again_at=self._clock.monotonic() + AGAIN)
            await self._going_on.result(_source(issuer), lambda: self._fetched(issuer))
            known = self._of(issuer)
            found = _found(known.keys, kid, algorithm)
        if found is None and known.failure:
            raise _not_had(issuer)
        if found is None:
            raise TokenRefused("The token is signed with a key that its issuer does not have")
        return found.usable(algorithm)

    def generation(self, issuer: Issuer) -> int:
        """Return the generation of an issuer's keys, 0 for none; what was verified in another is to be verified again.

        It is that of a key as long as nothing was awaited since `key` returned it. Keys that are due are fetched again
        in the background of the running event loop.
        """
        known = self._known.get((issuer.name, issuer.url, issuer.jwks_url), _NOTHING)
        now = self._clock.monotonic()
        if now >= known.good_until:
            return NO_GENERATION
        if now >= known.refresh_at:
            self._going_on.start(_source(issuer), lambda: self._fetched(issuer))
        return known.generation

    def state(self, issuer: Issuer) -> KeysState:
        """Return the state of the keys; nothing is fetched for it."""
        known = self._of(issuer)
        failure = known.failure or "; ".join(known.oddities[:MOST_ODDITIES])
        if self._is_too_old(known):
            return KeysState(None, (), failure)
        return KeysState(known.fetched_on, tuple(key.kid for key in known.keys if key.kid), failure)

    def away(self, issuer: Issuer) -> str:
        """Return why the issuer did not give its keys the last time it was asked; empty when it did, or was not."""
        return self._of(issuer).failure

    def forget(self, issuer: Issuer) -> None:
        """Forget the keys of an issuer that was changed or deleted, also those that are kept in the file."""
        for source in [each for each in self._known if each[0] == issuer.name]:
            del self._known[source]
        self._discovery.forget(issuer)
        self._kept.remove(issuer)

    def look_again(self) -> None:
        """Fetch all keys again when they are used next: an issuer was changed, perhaps to refuse a stolen key."""
        for source, known in self._known.items():
            self._known[source] = replace(known, refresh_at=self._clock.monotonic())

    async def close(self) -> None:
        """Stop fetching."""
        await self._going_on.close()
        await self._discovery.close()

    def _of(self, issuer: Issuer) -> _SourceState:
        return self._known.get(_source(issuer), _NOTHING)

    def _is_too_old(self, known: _SourceState) -> bool:
        return self._clock.monotonic() >= known.good_until

    def _may_ask(self, issuer: Issuer) -> bool:
        """Whether the issuer may be asked for what is lacking, or is being asked already."""
        return self._clock.monotonic() >= self._of(issuer).again_at or _source(issuer) in self._going_on

    async def _fetched(self, issuer: Issuer) -> None:
        try:
            found = KeySet.read(await self._asked(issuer))
        except IssuerFailed as error:
            logger.warning("issuer.no_keys", issuer=issuer.name, reason=str(error))
            await self._go_on(issuer, str(error))
        except Exception:  # no response of an issuer is an error of the client with the token
            logger.exception("issuer.no_keys", issuer=issuer.name)
            await self._go_on(issuer, "its answer could not be read")
        else:
            fetched_on = self._clock.wall()
            await asyncio.to_thread(self._kept.write, issuer, found.keys, fetched_on)
            self._note(issuer, found, fetched_on, good_for=GOOD)

    async def _asked(self, issuer: Issuer) -> bytes:
        url = await self._discovery.jwks_url(issuer)
        try:
            return await self._client.get(url, ACCEPT)
        except RequestFailed as error:
            self._discovery.forget(issuer)  # they may have moved
            raise IssuerFailed(f"its keys cannot be had: {error}") from error

    async def _go_on(self, issuer: Issuer, failure: str) -> None:
        """Go on with the keys that are known, at the start with those of the file, if any."""
        if _source(issuer) not in self._known:
            kept = await asyncio.to_thread(self._kept.read, issuer)
            if kept is not None:
                age = max(self._clock.wall() - kept.fetched_on, 0)  # below 0: the machine's time was put back
                if age < GOOD:
                    self._note(issuer, kept.keys, kept.fetched_on, good_for=GOOD - age)
        soon = self._clock.monotonic() + AGAIN
        known = self._of(issuer)
        self._known[_source(issuer)] = replace(known, refresh_at=soon, again_at=soon, failure=failure)

    def _note(self, issuer: Issuer, found: KeySet, fetched_on: Milliseconds, good_for: int) -> None:
        now = self._clock.monotonic()
        before = self._of(issuer)
        has_lost_none = bool(before.keys) and set(before.keys) <= set(found.keys)
        if set(before.keys) != set(found.keys) or before.oddities != found.oddities:
            ids = [key.kid for key in found.keys]
            logger.info("issuer.keys_changed", issuer=issuer.name, ids=ids, left_out=found.oddities[:MOST_ODDITIES])
        self._known[_source(issuer)] = _SourceState(
            keys=found.keys,
            generation=before.generation if has_lost_none else next(self._generations),
            fetched_on=fetched_on,
            good_until=now + good_for,
            refresh_at=now + REFRESH,
            again_at=before.again_at,
            oddities=found.oddities,
        )


def _source(issuer: Issuer) -> _Source:
    return issuer.name, issuer.url, issuer.jwks_url


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
