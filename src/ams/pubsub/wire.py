"""How much is in a request, looked at in the form it came in: parsed, two bytes of it may take a hundred.

Only the numbers and lengths of fields are read. What is no message is found here, or by the parser.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from ams.core.errors import InvalidInput

SMALL = 128 * 2**10
"""Bytes of a request that is not looked at: parsed, that one takes little, too."""
MOST_FLAT = 524_288
"""Bytes of a request without messages in it: of ids and names."""
MOST_FIELDS = 10_000
"""Of a request in all, those of the messages in it among them."""
MOST_PUBLISHED = 128_000
"""The same of a publish: 1,000 messages with 100 attributes each have 107,001."""
NO_MESSAGE = "The request is no valid message of its type."
_PUBLISH = "google.pubsub.v1.PublishRequest"
_OWN: Mapping[str, tuple[int, str]] = {
    _PUBLISH: (1_016, "The value for message_count is too large. The maximum value is 1000."),
    "google.pubsub.v1.PubsubMessage": (116, "A message has too many attributes: at most 100 are allowed."),
}
"""How many fields a message of these types may have, and what is said of more: what it may have at most, each once, and
some that are not known yet."""
_TOO_MANY = "The request has too much in it: at most {} fields are allowed."
_TOO_LARGE = f"The request is too large: at most {MOST_FLAT} bytes are allowed."
_VARINT, _LENGTH = 0, 2
_FIXED: Mapping[int, int] = {1: 8, 5: 4}
"""Forms of so many bytes."""
_LONGEST_VARINT = 10


def check(descriptor: Any, said: bytes) -> None:
    """Raise `InvalidInput` for a request of a type with more in it than any that is served, and for what is no message.

    Groups, which no type here has, are refused, too.
    """
    if len(said) <= SMALL:
        return
    kind = _type(descriptor)
    if kind.is_flat:
        if len(said) > MOST_FLAT:
            raise InvalidInput(_TOO_LARGE)
        return
    try:
        _count(kind, said, MOST_PUBLISHED if descriptor.full_name == _PUBLISH else MOST_FIELDS)
    except IndexError:  # it ends within a field
        raise InvalidInput(NO_MESSAGE) from None


def _count(kind: "_Type", said: bytes, most: int) -> None:
    around: list[tuple[int, _Type, int]] = []
    """The messages around the one that is being read: its end, its type, how many fields it may have yet."""
    at, end, left, in_all = 0, len(said), kind.most, most
    while True:
        while at == end:
            if not around:
                return
            end, kind, left = around.pop()
        in_all, left = in_all - 1, left - 1
        if left < 0 or in_all < 0:
            raise InvalidInput(kind.refusal if left < 0 else _TOO_MANY.format(most))
        key, at = _varint(said, at)
        form = key & 7
        if form == _LENGTH:
            size, at = _varint(said, at)
            inner = kind.messages.get(key >> 3)
            if inner is not None and at + size <= end:
                around.append((end, kind, left))
                kind, end = _type(inner), at + size
                left = kind.most
                continue
            at += size
        elif form == _VARINT:
            _, at = _varint(said, at)
        elif form in _FIXED:
            at += _FIXED[form]
        else:
            raise InvalidInput(NO_MESSAGE)
        if at > end:
            raise InvalidInput(NO_MESSAGE)


class _Type(NamedTuple):
    """A type of messages."""

    most: int
    """Fields that one may have."""
    refusal: str
    messages: Mapping[int, Any]
    """Types of the fields to look into: an entry of a map is a pair at most."""
    is_flat: bool
    """Whether none of its fields is a message."""


@functools.cache
def _type(descriptor: Any) -> _Type:
    found = {each.number: each.message_type for each in descriptor.fields if each.message_type is not None}
    inner = {number: each for number, each in found.items() if not each.GetOptions().map_entry}
    most, refusal = _OWN.get(descriptor.full_name, (MOST_PUBLISHED, ""))
    return _Type(most, refusal, inner, not found)


def _varint(said: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; raise `IndexError`, `InvalidInput`."""
    first = said[at]
    if first < 0x80:
        return first, at + 1
    number, shift = first & 0x7F, 7
    for here in range(at + 1, at + _LONGEST_VARINT):
        number |= (said[here] & 0x7F) << shift
        if said[here] < 0x80:
            return number, here + 1
        shift += 7
    raise InvalidInput(NO_MESSAGE)
