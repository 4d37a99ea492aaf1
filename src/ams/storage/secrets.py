"""Tokens and other secrets: creation, encryption, and lookup by a keyed hash.

A stolen database does not allow a login: a token is stored encrypted (AES-GCM, bound to its user), with an HMAC-SHA256
for lookup. Both keys derive from one key of 32 bytes in a separate file or a setting.
"""

import hashlib
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ams.core.errors import Damaged, Unusable
from ams.core.names import SubscriptionId, UserId
from ams.storage.files import Disk, open_file, write_whole

KEY_BYTES = 32
_NONCE_BYTES = 12
_MAX_FILE_BYTES = 1024


def new_token() -> str:
    """Return a new token: 64 lower-case hex digits (contract 2)."""
    return hashlib.sha256(os.urandom(32)).hexdigest()


def token_hash(token: str) -> str:
    """Return the stored hash of a named token: SHA-256 as 64 hex digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def parse_key(text: str) -> bytes:
    """Parse a key of 64 hex digits. Raises `Unusable` without the text."""
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
    """Read the key in the file `path`; with `create`, make it (mode 0600) if missing. Raises `Unusable`.

    Use `create` only before there is a registry: tokens need the key that encrypted them.
    """
    files = files or Disk()
    if not files.exists(path):
        if not create:
            raise Unusable(f"{path} is missing, and stored tokens cannot be read without it: restore it")
        # Atomic and durable: the key must not be lost after a token was encrypted with it.
        write_whole(files, path, key_text(os.urandom(KEY_BYTES)))
    with open_file(files, path) as handle:
        return parse_key(files.read(handle, _MAX_FILE_BYTES, 0).decode("ascii", "replace"))


class Secrets:
    """Encrypts and looks up tokens with one key."""

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES
        self._lookup_key = hmac.digest(key, b"look-up of tokens", "sha256")
        self._cipher = AESGCM(hmac.digest(key, b"encryption of tokens", "sha256"))
        self.fingerprint = hmac.digest(key, b"fingerprint", "sha256").hex()  # reveals nothing about the key

    def digest(self, token: str) -> str:
        """Return the keyed hash for looking up a token."""
        return hmac.digest(self._lookup_key, token.encode("utf-8", "surrogatepass"), "sha256").hex()

    def encrypt(self, token: str, owner: UserId) -> bytes:
        """Encrypt a token, bound to its owner."""
        return self._seal(token, owner.encode())

    def decrypt(self, sealed: bytes, owner: UserId) -> str:
        """Decrypt a token. Raises `Damaged` if it was not encrypted for this owner."""
        damaged = f"the stored token of user {owner} is damaged; give the user a new one"
        return self._unseal(sealed, owner.encode(), damaged)

    def seal_push(self, secret: str, subscription: SubscriptionId) -> bytes:
        """Encrypt the signing secret of a subscription's deliveries, bound to the subscription."""
        return self._seal(secret, b"push " + subscription.encode())  # not a user id: cannot pass for a token

    def open_push(self, sealed: bytes, subscription: SubscriptionId) -> str:
        """Decrypt a signing secret. Raises `Damaged` if it was not encrypted for this subscription."""
        damaged = f"the stored push secret of subscription {subscription} is damaged; rotate it"
        return self._unseal(sealed, b"push " + subscription.encode(), damaged)

    def seal(self, text: str, bound: str) -> bytes:
        """Encrypt a text, bound to any kind of owner."""
        return self._seal(text, b"other " + bound.encode())

    def open(self, sealed: bytes, bound: str, damaged: str = "") -> str:
        """Decrypt a text. Raises `Damaged`, with the text `damaged`, if it was not encrypted for this owner."""
        damaged = damaged or f"the stored secret of {bound} is damaged; set it anew"
        return self._unseal(sealed, b"other " + bound.encode(), damaged)

    def _seal(self, text: str, bound: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text.encode(), bound)

    def _unseal(self, sealed: bytes, bound: bytes, damaged: str) -> str:
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound).decode()
        except (InvalidTag, ValueError):  # ValueError: too short
            raise Damaged(damaged) from None
