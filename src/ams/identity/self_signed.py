"""Tokens that a program signs itself, with the private key of its service account file, as Google's libraries do.

Such a token is a JWT by RS256. It names its key, has the program in both `iss` and `sub`, and is valid for an hour. It
is for Pub/Sub by its `aud`, or without one by its `scope` (Google's AIP-4111). Without either it is refused: the
libraries sign tokens for other services with the same key, and those services could replay them here.
"""

import re
from typing import NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from ams.core.clock import Milliseconds
from ams.core.errors import TokenRefused
from ams.core.issuer import Issuer
from ams.core.names import IssuerName
from ams.core.public_keys import KEY_ID_LENGTH, PublicKey, is_client_email
from ams.identity import tokens

ALGORITHM = "RS256"
MAX_LIFETIME_SECONDS = 3600  # from `iat` to `exp`
AUDIENCES = frozenset({"https://pubsub.googleapis.com/", "https://pubsub.googleapis.com"})
"""Accepted values of `aud`, for every endpoint a library may be configured with."""
SCOPES = frozenset({"https://www.googleapis.com/auth/pubsub", "https://www.googleapis.com/auth/cloud-platform"})
"""`scope` has one of these if there is no `aud`."""

_KEY_ID = re.compile(rf"[0-9a-f]{{{KEY_ID_LENGTH}}}")


class NamedKey(NamedTuple):
    """The key that a token names. Not verified."""

    id: str
    is_ours: bool  # True if it cannot be an issuer's: the token names a program with such a key


def named_key(token: str) -> NamedKey | None:
    """Return the key that a token names if a named token may have it, or None."""
    try:
        header = tokens.header(token)
    except TokenRefused:  # its recipient reports the error
        return None
    if header.kid is None or not _KEY_ID.fullmatch(header.kid):
        return None
    return NamedKey(header.kid, is_client_email(header.issuer_url, header.kid))


def expiry(token: str, key: PublicKey, email: str, *, now: Milliseconds, leeway: float) -> Milliseconds:
    """Return when a token expires that the program `email` signed with `key`. Raises `TokenRefused`."""
    tokens.refuse_if(tokens.header(token).issuer_url != email, "The token's iss is not the client_email of its key")
    loaded = load_pem_public_key(key.pem.encode())
    assert isinstance(loaded, RSAPublicKey)
    usable = jwt.PyJWK(jwt.algorithms.RSAAlgorithm.to_jwk(loaded, as_dict=True), ALGORITHM)
    said = tokens.claims(token, Issuer(IssuerName(""), email), usable, now=now, leeway=leeway)
    tokens.refuse_if(said["sub"] != email, "The token's sub is not its iss")
    tokens.refuse_if("iat" not in said, "The token does not say when it was made")
    is_long = said["exp"] - said["iat"] > MAX_LIFETIME_SECONDS + leeway
    tokens.refuse_if(is_long, f"The token is good for longer than {MAX_LIFETIME_SECONDS} seconds")
    audience = said.get("aud", "")
    audiences = [each for each in (audience if isinstance(audience, list) else [audience]) if each]
    if not AUDIENCES.issuperset(audiences):
        raise TokenRefused(f"The token is for another audience: {tokens.quote_claim(', '.join(audiences))}")
    scope = said.get("scope", "")
    scopes = scope.split() if isinstance(scope, str) else []
    is_for_others = not audiences and not SCOPES.intersection(scopes)
    tokens.refuse_if(is_for_others, "The token is not for Pub/Sub: neither its aud nor its scope says so")
    expires_on = tokens.expiry(said, leeway)
    assert expires_on is not None  # otherwise it was refused above
    return expires_on
