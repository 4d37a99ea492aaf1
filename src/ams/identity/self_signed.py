"""Tokens that a program signs itself, with the private key of its service account file, as Google's libraries do.

Such a token is a JWT by RS256 that names its key, says who it is twice (`iss` and `sub`), is good for an hour, and is
made for Pub/Sub: the libraries say so by `aud`, or without it by `scope` (Google's AIP-4111). Without that it is
refused: the same libraries sign with the same key what they show to others, who could then show it here.
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
from ams.core.public_keys import ID_LENGTH, PublicKey, is_client_email
from ams.identity import tokens

ALGORITHM = "RS256"
LONGEST_SECONDS = 3600  # from when a token is made until it expires
AUDIENCES = frozenset({"https://pubsub.googleapis.com/", "https://pubsub.googleapis.com"})
"""Values of `aud`, whatever endpoint the library was told."""
SCOPES = frozenset({"https://www.googleapis.com/auth/pubsub", "https://www.googleapis.com/auth/cloud-platform"})
"""One of these is in `scope` where there is no `aud`."""

_KEY_ID = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}")


class NamedKey(NamedTuple):
    """Which key a token says it is signed with. Nothing of that is verified."""

    id: str
    is_ours: bool  # whether it is surely no issuer's: the token says it is of a program whose key is called so


def named_key(token: str) -> NamedKey | None:
    """Return the key that a token names if one of a named token may be called so; None for all others."""
    try:
        header = tokens.header(token)
    except TokenRefused:  # whoever it is for says what is wrong with it
        return None
    if header.kid is None or not _KEY_ID.fullmatch(header.kid):
        return None
    return NamedKey(header.kid, is_client_email(header.issuer_url, header.kid))


def expiry(token: str, key: PublicKey, email: str, *, now: Milliseconds, leeway: float) -> Milliseconds:
    """Return the end of a token that the program called `email` signed with `key`; raise `TokenRefused`."""
    if tokens.header(token).issuer_url != email:
        raise TokenRefused("The token's iss is not the client_email of its key")
    loaded = load_pem_public_key(key.pem.encode())
    assert isinstance(loaded, RSAPublicKey)
    usable = jwt.PyJWK(jwt.algorithms.RSAAlgorithm.to_jwk(loaded, as_dict=True), ALGORITHM)
    said = tokens.claims(token, Issuer(IssuerName(""), email), usable, now=now, leeway=leeway)
    if said["sub"] != email:
        raise TokenRefused("The token's sub is not its iss")
    if "iat" not in said:
        raise TokenRefused("The token does not say when it was made")
    if said["exp"] - said["iat"] > LONGEST_SECONDS + leeway:
        raise TokenRefused(f"The token is good for longer than {LONGEST_SECONDS} seconds")
    audience = said.get("aud", "")
    audiences = [each for each in (audience if isinstance(audience, list) else [audience]) if each]
    if not AUDIENCES.issuperset(audiences):
        raise TokenRefused(f"The token is for another audience: {tokens.shown(', '.join(audiences))}")
    scope = said.get("scope", "")
    scopes = scope.split() if isinstance(scope, str) else []
    if not audiences and not SCOPES.intersection(scopes):
        raise TokenRefused("The token is not for Pub/Sub: neither its aud nor its scope says so")
    expires_on = tokens.expiry(said, leeway)
    assert expires_on is not None  # or it would have been refused
    return expires_on
