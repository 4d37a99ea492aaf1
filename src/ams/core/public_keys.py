"""Public keys of named tokens. `ams.identity.self_signed` verifies tokens signed with the private key of a program."""

import hashlib
from typing import NamedTuple, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from ams.core.errors import InvalidInput
from ams.core.names import TokenName

MIN_BITS, MAX_BITS = 2048, 4096  # of a key: RFC 7518, 3.3 forbids fewer, and verifying takes long with more
EXPONENT = 65537  # others are refused: verifying takes long with a large exponent
KEY_ID_LENGTH = 40  # hexadecimal digits of a key's id
_MAX_PEM_LENGTH = 8192  # characters of a key in PEM


class PublicKey(NamedTuple):
    """An RSA key."""

    pem: str  # SubjectPublicKeyInfo (RFC 7468, 13)
    id: str  # prefix of the key's SHA-256

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse a key in PEM. Raises `InvalidInput`."""
        try:
            key = load_pem_public_key(text.encode()) if len(text) <= _MAX_PEM_LENGTH else None
        except (ValueError, UnsupportedAlgorithm):  # ValueError also for lone surrogates
            key = None
        if (
            not isinstance(key, RSAPublicKey)
            or not MIN_BITS <= key.key_size <= MAX_BITS
            or key.public_numbers().e != EXPONENT
        ):
            raise InvalidInput(
                f"Invalid public_key: give an RSA key of {MIN_BITS} to {MAX_BITS} bits and exponent {EXPONENT}, in PEM"
            )
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return cls(pem.decode(), hashlib.sha256(der).hexdigest()[:KEY_ID_LENGTH])


def client_email(token: TokenName, key: str) -> str:
    """Return the stable mail address of the program with this key id."""
    return f"{token}@{key}.ams.invalid"


def is_client_email(text: str, key: str) -> bool:
    """Return whether a program with this key id may use `text` as its mail address, with any token."""
    return text.endswith(client_email(TokenName(""), key))
