"""Signing: how receivers know who sent a delivery, after Standard Webhooks (https://www.standardwebhooks.com).

A secret is `whsec_` and base64 of 24 to 64 bytes. While a secret is replaced there are two, and a delivery has a
signature by each, so that receivers may change theirs at any time in between.
"""

import base64
import hmac
import os
from collections.abc import Sequence

PREFIX = "whsec_"
SECRET_BYTES = 32
"""Of a new secret."""
_LEAST_BYTES, _MOST_BYTES = 24, 64


def new_secret() -> str:
    """Return a fresh secret."""
    return PREFIX + base64.b64encode(os.urandom(SECRET_BYTES)).decode()


def key(secret: str) -> bytes:
    """Return the bytes to sign with; raise `ValueError`, which does not show it, for what is no secret."""
    try:
        found = base64.b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
    except ValueError:
        found = b""
    if not _LEAST_BYTES <= len(found) <= _MOST_BYTES:
        raise ValueError(f"a signing secret must be {PREFIX} and base64 of {_LEAST_BYTES} to {_MOST_BYTES} bytes")
    return found


def signatures(keys: Sequence[bytes], webhook_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`: one signature for each key; `timestamp` is in seconds."""
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return " ".join("v1," + base64.b64encode(hmac.digest(each, signed, "sha256")).decode() for each in keys)
