"""Public keys of named tokens: of a key pair whose private half is with a program, in a service account file.

What such a program shows is checked in `ams.identity.self_signed`.
"""

import hashlib
from typing import NamedTuple, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from ams.core.errors import InvalidInput
from ams.core.names import TokenName

FEWEST_BITS, MOST_BITS = 2048, 4096
"""Of a key: fewer are refused by RFC 7518, 3.3, and more take long."""
EXPONENT = 65537
"""That of nearly all keys. Others are refused, as with a large one a check takes long."""
ID_LENGTH = 40
"""Hexadecimal digits of a key's id."""
_LONGEST = 8192
"""Characters of a key in PEM."""


class PublicKey(NamedTuple):
    """An RSA key."""

    pem: str
    """SubjectPublicKeyInfo (RFC 7468, 13)."""
    id: str
    """The beginning of the key's SHA-256: the same wherever the key is."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a key in PEM; raise `InvalidInput`."""
        key = _loaded(text)
        if key is None or not FEWEST_BITS <= key.key_size <= MOST_BITS or key.public_numbers().e != EXPONENT:
            raise InvalidInput(
                f"Invalid public_key: give an RSA key of {FEWEST_BITS} to {MOST_BITS} bits and exponent {EXPONENT}, "
                "in PEM"
            )
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return cls(pem.decode(), hashlib.sha256(der).hexdigest()[:ID_LENGTH])


def client_email(token: TokenName, key: str) -> str:
    """Return what a program with the key of this id calls itself, in the form of an address of mail; no mail gets
    there.

    It has nothing in it that may change as long as the token is there, as the name of its user may.
    """
    return f"{token}@{key}.ams.invalid"


def is_client_email(text: str, key: str) -> bool:
    """Whether a text is what a program with the key of this id may call itself, by whatever token."""
    return text.endswith(client_email(TokenName(""), key))


def _loaded(text: str) -> RSAPublicKey | None:
    if len(text) > _LONGEST:
        return None
    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):  # the former for halves of characters, too
        return None
    return key if isinstance(key, RSAPublicKey) else None
