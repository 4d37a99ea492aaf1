"""Keys as an issuer publishes them: a JSON Web Key Set (RFC 7517), of which those that sign tokens are taken.

PyJWT's own reader of sets drops what it cannot use without a word, and takes symmetric and private keys. Here these are
left out and said: an issuer that publishes one lets all others sign in its name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from ams.identity.discovery import IssuerFailed, read_object

MOST_KEYS = 100
"""Of one issuer."""
FEWEST_BITS, MOST_BITS = 2048, 8192
"""Of an RSA key; fewer are refused by RFC 7518, 3.3, and more would take long."""
MOST_EXPONENT_BITS = 32
"""Of an RSA key: nearly all have 65537. A check takes as long as it is, and thousands of bits a processor's while."""
MOST_ID = 255
"""Characters of a key's id, and of the name of an algorithm."""
_MOST_NUMBER = 2048
"""Characters of a number of a key: more than `MOST_BITS` have."""

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
"""What a key may sign by, by its type and curve. Nothing symmetric is among it, and no `none`."""


class _LeftOut(Exception):
    """A key that is not taken; the text says why. It is empty for keys that are for something else."""


@dataclass(frozen=True, slots=True)
class PublishedKey:
    """A public key that tokens may be signed with. Two are equal if they are the same in all that is used."""

    kid: str | None
    alg: str
    """The one algorithm it is for; empty: any that its type is good for."""
    members: tuple[tuple[str, str], ...]
    """Its type and numbers, as published."""

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        """Read a JSON Web Key; raise `_LeftOut`."""
        kind = said.get("kty")
        if kind == "oct" or "k" in said:
            raise _LeftOut("it is symmetric")
        if "d" in said:
            raise _LeftOut("it is private")
        if not isinstance(kind, str) or kind not in _MEMBERS or not _is_for_signatures(said):
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
        """Return it as what PyJWT checks signatures of that algorithm by."""
        return jwt.PyJWK(dict(self.members), algorithm)

    def published(self) -> dict[str, str]:
        """Return it as a JSON Web Key, with what is used of it."""
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
    """What was taken of a set, and what is wrong with the rest."""

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
        """Take what can be taken of JSON Web Keys; raise `IssuerFailed` when it is nothing.

        Keys that are for something else than signatures are left out without a word.
        """
        if len(found) > MOST_KEYS:
            raise IssuerFailed(f"its key set has more than {MOST_KEYS} keys")
        keys: dict[PublishedKey, None] = {}
        oddities = []
        for number, each in enumerate(found, 1):
            try:
                keys[_read(each)] = None
            except _LeftOut as error:
                if str(error):
                    oddities.append(f"key {_id_of(each) or number} is left out: {error}")
        if not keys:
            raise IssuerFailed("; ".join(["its key set has no key that signs tokens", *oddities]))
        return cls(tuple(keys), tuple(oddities))


def _read(said: object) -> PublishedKey:
    if not isinstance(said, dict) or (said.get("kid") is not None and _id_of(said) is None):
        raise _LeftOut("it is malformed")
    return PublishedKey.read(said)


def _id_of(said: object) -> str | None:
    found = said.get("kid") if isinstance(said, dict) else None
    return found if _is_text(found, MOST_ID) else None


def _is_text(value: object, most: int) -> bool:
    """Whether this is a text of at most so many characters, all of which may stand in a log and on a terminal."""
    return isinstance(value, str) and len(value) <= most and value.isprintable()


def _is_for_signatures(said: Mapping[str, Any]) -> bool:
    """Whether a key's `use` and `key_ops` let signatures be checked by it (RFC 7517, 4.2 and 4.3)."""
    operations = said.get("key_ops", ["verify"])
    return said.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
