"""Idempotency keys: what is remembered of them."""

from collections.abc import Iterable
from hashlib import blake2b

from ams.names import TopicId

HASH_BYTES = 16


def key_hash(topic: TopicId, key: bytes) -> bytes:
    """Return 16 bytes that stand for a key of a topic."""
    return blake2b(topic + key, digest_size=HASH_BYTES).digest()


def content_hash(fragments: Iterable[bytes]) -> bytes:
    """Return 16 bytes that stand for the messages of an append, in order."""
    content = blake2b(digest_size=HASH_BYTES)
    for fragment in fragments:
        content.update(len(fragment).to_bytes(8, "little"))
        content.update(fragment)
    return content.digest()
