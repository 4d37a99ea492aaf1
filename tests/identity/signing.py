"""A minimal issuer: a real key, and tokens signed with it correctly and wrongly."""

import base64
import functools
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ams.core.errors import TokenRefused
from ams.core.issuer import Issuer
from ams.core.names import IssuerName
from tests.support.clock import ManualClock

NOW = ManualClock().now // 1000  # what the clocks of these tests begin with, in seconds
ISSUER = Issuer(IssuerName("egi"), "https://aai.egi.eu/auth/realms/egi", audiences=("ams",))
CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
SAID: Mapping[str, Any] = {"iss": ISSUER.url, "sub": "alice", "aud": "ams", "iat": NOW, "exp": NOW + 3600}


@functools.cache
def private_key(algorithm: str = "ES256") -> Any:
    if algorithm in CURVES:
        return ec.generate_private_key(CURVES[algorithm])
    return ed25519.Ed25519PrivateKey.generate() if algorithm == "EdDSA" else rsa.generate_private_key(65537, 2048)


def public_key(algorithm: str = "ES256", private: Any = None) -> jwt.PyJWK:
    key = (private or private_key("RS256" if algorithm[0] in "RP" else algorithm)).public_key()
    made: Any = jwt.get_algorithm_by_name(algorithm)
    return jwt.PyJWK(made.to_jwk(key, as_dict=True), algorithm)


def sign_claims(claims: Mapping[str, Any] = SAID, algorithm: str = "ES256", **headers: object) -> str:
    return signed_bytes(json.dumps(claims).encode(), algorithm, **headers)


def signed_bytes(payload: bytes, algorithm: str = "ES256", **headers: object) -> str:
    key = private_key("RS256" if algorithm[0] in "RP" else algorithm)
    return jwt.PyJWS().encode(payload, key, algorithm, headers=headers)


def signed_by_secret(secret: bytes, claims: Mapping[str, Any], algorithm: str = "HS256", **header: object) -> str:
    """Return a token signed with a shared secret: a public one, if it is a public key."""
    beginning = ".".join(base64url(json.dumps(each).encode()) for each in ({"alg": algorithm, **header}, claims))
    digest = hmac.digest(secret, beginning.encode(), f"sha{algorithm[2:]}")
    return f"{beginning}.{base64url(digest)}"


def put_together(header: bytes, payload: bytes) -> str:
    beginning = f"{base64url(header)}.{base64url(payload)}"
    signature = jwt.get_algorithm_by_name("ES256").sign(beginning.encode(), private_key())
    return f"{beginning}.{base64url(signature)}"


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@dataclass
class Issuers:
    """Stand-in for issuers with one real key and scripted answers; counts requests."""

    known: list[Issuer] = field(default_factory=lambda: [ISSUER])
    keys: dict[str, jwt.PyJWK] = field(default_factory=lambda: {ISSUER.url: public_key()})
    generations: int = 1
    answers: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    looked_up: int = 0

    async def by_url(self, url: str) -> Issuer | None:
        return next((issuer for issuer in self.known if issuer.url == url), None)

    async def for_opaque_tokens(self) -> Issuer | None:
        return next((issuer for issuer in self.known if issuer.takes_opaque), None)

    async def key(self, issuer: Issuer, kid: str | None, algorithm: str) -> jwt.PyJWK:
        self.looked_up += 1
        if issuer.url not in self.keys:
            raise TokenRefused("The keys of the issuer cannot be had", later=True)
        return self.keys[issuer.url]

    def generation(self, issuer: Issuer) -> int:
        return self.generations

    async def ask(self, issuer: Issuer, token: str) -> Mapping[str, Any] | None:
        self.asked.append(token)
        if token not in self.answers:
            raise TokenRefused("The issuer cannot be asked", later=True)
        return self.answers[token]
