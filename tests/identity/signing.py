"""An issuer's keys in small: a real key, tokens that are signed with it in every right and wrong way."""

import base64
import functools
import json
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ams.core.clock import ManualClock
from ams.core.issuer import Issuer
from ams.core.names import IssuerName

NOW = ManualClock().now // 1000
"""What the clocks of these tests begin with, in seconds."""
ISSUER = Issuer(IssuerName("egi"), "https://aai.egi.eu/auth/realms/egi", audiences=("ams",))
SAID: Mapping[str, Any] = {"iss": ISSUER.url, "sub": "alice", "aud": "ams", "iat": NOW, "exp": NOW + 3600}


@functools.cache
def private_key(algorithm: str = "ES256") -> Any:
    """Return the same key for an algorithm each time."""
    match algorithm:
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "ES384":
            return ec.generate_private_key(ec.SECP384R1())
        case "ES512":
            return ec.generate_private_key(ec.SECP521R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        case _:
            return rsa.generate_private_key(65537, 2048)


def public_key(algorithm: str = "ES256", private: Any = None) -> jwt.PyJWK:
    """Return the key as an issuer's JWKS has it."""
    key = (private or private_key("RS256" if algorithm[0] in "RP" else algorithm)).public_key()
    made: Any = jwt.get_algorithm_by_name(algorithm)
    return jwt.PyJWK(made.to_jwk(key, as_dict=True), algorithm)


def signed(claims: Mapping[str, Any] = SAID, algorithm: str = "ES256", **headers: object) -> str:
    """Return a token that says this."""
    return signed_bytes(json.dumps(claims).encode(), algorithm, **headers)


def signed_bytes(payload: bytes, algorithm: str = "ES256", **headers: object) -> str:
    """Return a token of bytes that need not be what a payload must be."""
    key = private_key("RS256" if algorithm[0] in "RP" else algorithm)
    return jwt.PyJWS().encode(payload, key, algorithm, headers=headers)


def put_together(header: bytes, payload: bytes) -> str:
    """Return a token of any bytes, signed with the key."""
    beginning = f"{base64url(header)}.{base64url(payload)}"
    signature = jwt.get_algorithm_by_name("ES256").sign(beginning.encode(), private_key())
    return f"{beginning}.{base64url(signature)}"


def base64url(data: bytes) -> str:
    """Write bytes as tokens do."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
