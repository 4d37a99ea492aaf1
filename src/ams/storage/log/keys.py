"""Idempotency keys: which there may be, and what every engine remembers of them."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from ams.core.errors import InvalidInput
from ams.core.messages import Message, in_order
from ams.core.names import TopicId

HASH_BYTES = 16
MAX_KEY = 255
"""Characters of an idempotency key."""


def check_key(key: str | None) -> None:
    """Raise `InvalidInput` for a key that is none."""
    if key is not None and not 1 <= len(key) <= MAX_KEY:
        raise InvalidInput(f"An idempotency key has 1 to {MAX_KEY} characters")


def key_hash(topic: TopicId, key: bytes) -> bytes:
    """Return 16 bytes that stand for a key of a topic."""
    return blake2b(topic + key, digest_size=HASH_BYTES).digest()


def content_hash(messages: Sequence[Message]) -> bytes:
    """Return 16 bytes that stand for the messages of an append, in order; the order of attributes means nothing."""
    return _hash([in_order(each) for each in messages])


def is_content(remembered: bytes, messages: Sequence[Message]) -> bool:
    """Whether these messages are those of a remembered hash.

    It may be one over the attributes as they were sent: it was so in earlier versions, whose keys are still known.
    """
    return remembered in (content_hash(messages), _hash([each.fragment for each in messages]))


def _hash(fragments: Iterable[bytes]) -> bytes:
    content = blake2b(digest_size=HASH_BYTES)
    for fragment in fragments:
        content.update(len(fragment).to_bytes(8, "little"))
        content.update(fragment)
    return content.digest()
