"""Keys of programs, and tokens signed with them: as Google's libraries do, and wrongly."""

import functools
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from ams.cli.tokens import service_account
from ams.client import wire
from ams.core.names import TokenName
from ams.core.public_keys import PublicKey, client_email

AUDIENCE = "https://pubsub.googleapis.com/"
SCOPE = "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/pubsub"


def private_key(name: str = "one") -> rsa.RSAPrivateKey:
    """Return the same key for a name each time."""
    return _make_key(name)


@functools.cache
def _make_key(_name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def public_pem(name: str = "one") -> str:
    return private_key(name).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def public_key(name: str = "one") -> PublicKey:
    return PublicKey.read(public_pem(name))


def private_pem(name: str = "one") -> str:
    return private_key(name).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def sign_token(now: float, key: str = "one", *, algorithm: str = "RS256", by: Any = None, **claims: object) -> str:
    """Return a token of the named token `ci` signed by a key; `now` is in seconds, claims of None are left out, and
    `by` is another signing key."""
    email = client_email(TokenName("ci"), public_key(key).id)
    said = {"iss": email, "sub": email, "aud": AUDIENCE, "iat": now, "exp": now + 3600, **claims}
    payload = json.dumps({name: value for name, value in said.items() if value is not None}).encode()
    return jwt.PyJWS().encode(payload, by or private_key(key), algorithm, headers={"kid": public_key(key).id})


def library_token(key: str = "one", name: str = "ci", audience: str | None = AUDIENCE) -> str:
    """Return the current token of Google's Python library for a service account file; without an audience by scopes."""
    from google.oauth2.service_account import Credentials

    token = wire.NamedToken(
        name=name, user="anna", key_id=public_key(key).id,
        client_email=client_email(TokenName(name), public_key(key).id),
    )  # fmt: skip
    file, scopes = json.loads(service_account("P", token, private_pem(key))), None if audience else SCOPE.split()
    found: Any = Credentials.from_service_account_info(file, scopes=scopes, always_use_jwt_access=True)
    found._create_self_signed_jwt(audience)  # as its transport for gRPC does
    headers: dict[str, str] = {}
    found.before_request(None, "POST", "https://pubsub.googleapis.com/", headers)
    return headers["authorization"].removeprefix("Bearer ")
