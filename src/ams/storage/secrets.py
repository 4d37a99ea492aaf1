"""Tokens: made, encrypted to be shown again, and found by a keyed hash; other secrets likewise.

The database alone is not enough to log in: a token is stored encrypted (AES-GCM, bound to its user) and beside it an
HMAC-SHA256 by which it is looked up. Both keys come from one key of 32 bytes, kept in a file apart from the database
or in a setting.
"""

import hashlib
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ams.core.errors import Damaged, Unusable
from ams.core.names import SubscriptionId, UserId
from ams.storage.files import Disk, opened, write_whole

KEY_BYTES = 32
_NONCE_BYTES = 12
_MAX_FILE_BYTES = 1024


def new_token() -> str:
    """Return a fresh token: 64 lower-case hex digits (contract 2)."""
    return hashlib.sha256(os.urandom(32)).hexdigest()


def token_hash(token: str) -> str:
    """Return the hash that is kept of a named token: SHA-256 as 64 hex digits; any text has one."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def parse_key(text: str) -> bytes:
    """Read a key from 64 hex digits; raise `Unusable` for any other text, without showing it."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise Unusable("the token key must be 64 hex digits")
    return key


def key_text(key: bytes) -> bytes:
    """Return the content of a key file."""
    return key.hex().encode() + b"\n"


def key_file(path: str, *, create: bool, files: Disk | None = None) -> bytes:
    """Read the key kept at `path`; with `create`, make one (for the owner only) when there is none. Raises `Unusable`.

    `create` is right only while there is no registry: its tokens need the key they were encrypted with.
    """
    files = files or Disk()
    if not files.exists(path):
        if not create:
            raise Unusable(f"{path} is missing, and stored tokens cannot be read without it: restore it")
        # Durable as one step: a key must never be lost once a token was encrypted with it.
        write_whole(files, path, key_text(os.urandom(KEY_BYTES)))
    with opened(files, path) as handle:
        return parse_key(files.read(handle, _MAX_FILE_BYTES, 0).decode("ascii", "replace"))


class Secrets:
    """Encrypts and looks up tokens with one key."""

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES
        self._lookup_key = _derived(key, b"look-up of tokens")
        self._cipher = AESGCM(_derived(key, b"encryption of tokens"))
        self.fingerprint = _derived(key, b"fingerprint").hex()  # reveals nothing about the key

    def digest(self, token: str) -> str:
        """Return the keyed hash by which a token is found; any text has one."""
        return hmac.digest(self._lookup_key, token.encode("utf-8", "surrogatepass"), "sha256").hex()

    def encrypt(self, token: str, owner: UserId) -> bytes:
        """Encrypt a token so that it can be read back for this owner only."""
        return self._sealed(token, owner.encode())

    def decrypt(self, sealed: bytes, owner: UserId) -> str:
        """Read an encrypted token; raise `Damaged` when it is not what was written for this owner."""
        damaged = f"the stored token of user {owner} is damaged; give the user a new one"
        return self._opened(sealed, owner.encode(), damaged)

    def seal_push(self, secret: str, subscription: SubscriptionId) -> bytes:
        """Encrypt the secret that signs the deliveries of a subscription; it reads back for this one only."""
        return self._sealed(secret, b"push " + subscription.encode())  # no user is called so: it passes for no token

    def open_push(self, sealed: bytes, subscription: SubscriptionId) -> str:
        """Read an encrypted secret; raise `Damaged` when it is not what was written for this subscription."""
        damaged = f"the stored push secret of subscription {subscription} is damaged; rotate it"
        return self._opened(sealed, b"push " + subscription.encode(), damaged)

    def seal(self, text: str, bound: str) -> bytes:
        """Encrypt a text so that it can be read back for this owner only, of any kind."""
        return self._sealed(text, b"other " + bound.encode())

    def open(self, sealed: bytes, bound: str) -> str:
        """Read an encrypted text; raise `Damaged` when it is not what was written for this owner."""
        return self._opened(sealed, b"other " + bound.encode(), f"the stored secret of {bound} is damaged; set it anew")

    def _sealed(self, text: str, bound: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text.encode(), bound)

    def _opened(self, sealed: bytes, bound: bytes, damaged: str) -> str:
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound).decode()
        except (InvalidTag, ValueError):  # the latter when it is too short
            raise Damaged(damaged) from None


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.digest(key, purpose, "sha256")
