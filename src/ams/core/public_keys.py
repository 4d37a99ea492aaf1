"""Public keys of named tokens, whose private half a program has; `ams.identity.self_signed` checks what it shows."""

import hashlib
from typing import NamedTuple, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from ams.core.errors import InvalidInput
from ams.core.names import TokenName

FEWEST_BITS, MOST_BITS = 2048, 4096  # of a key: fewer are refused by RFC 7518, 3.3, and more take long
EXPONENT = 65537  # That of nearly all keys. Others are refused, as with a large one a check takes long.
ID_LENGTH = 40  # hexadecimal digits of a key's id
_LONGEST = 8192  # characters of a key in PEM


class PublicKey(NamedTuple):
    """An RSA key."""

    pem: str  # SubjectPublicKeyInfo (RFC 7468, 13)
    id: str  # the beginning of the key's SHA-256: the same wherever the key is

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a key in PEM; raise `InvalidInput`."""
        try:
            key = load_pem_public_key(text.encode()) if len(text) <= _LONGEST else None
        except (ValueError, UnsupportedAlgorithm):  # the former for halves of characters, too
            key = None
        if (
            not isinstance(key, RSAPublicKey)
            or not FEWEST_BITS <= key.key_size <= MOST_BITS
            or key.public_numbers().e != EXPONENT
        ):
            raise InvalidInput(
                f"Invalid public_key: give an RSA key of {FEWEST_BITS} to {MOST_BITS} bits and exponent {EXPONENT}, "
                "in PEM"
            )
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return cls(pem.decode(), hashlib.sha256(der).hexdigest()[:ID_LENGTH])


def client_email(token: TokenName, key: str) -> str:
    """Return the name of a program with the key of this id, as a mail address. It never changes for a token."""
    return f"{token}@{key}.ams.invalid"


def is_client_email(text: str, key: str) -> bool:
    """Return whether a text is what a program with the key of this id may call itself, by whatever token."""
    return text.endswith(client_email(TokenName(""), key))
