"""A service account file, as Google's libraries read it: a key pair is made here, and its private half stays there."""

from typing import NamedTuple

import msgspec

from ams.client import wire

BITS = 2048
"""Of a key."""
NOBODY = "https://ams.invalid/"
"""Where the libraries would log in, which they do not do for Pub/Sub: they sign what they show. No host is called so
(RFC 6761, 6.4), so nothing that is signed with a key gets to somebody else.
"""


class KeyPair(NamedTuple):
    """Both halves of a key, in PEM."""

    public: str
    """SubjectPublicKeyInfo."""
    private: str
    """PKCS #8, not encrypted."""


def new_key() -> KeyPair:
    """Make an RSA key."""
    # Not at the top: it takes long to load, and few commands need it.
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, BITS)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    return KeyPair(public.decode(), private.decode())


def service_account(project: str, token: wire.NamedToken, private: str) -> str:
    """Return what a file says of a token that was made with the public half of a key."""
    said = {
        "type": "service_account",
        "project_id": project,
        "private_key_id": token.key_id,
        "private_key": private,
        "client_email": token.client_email,
        "client_id": token.key_id,
        "auth_uri": f"{NOBODY}auth",
        "token_uri": f"{NOBODY}token",
        "universe_domain": "googleapis.com",
    }
    return msgspec.json.format(msgspec.json.encode(said), indent=2).decode()
