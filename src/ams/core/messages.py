"""The message: attributes and base64 text, and its ready-made JSON.

Decoding and encoding a message costs more than all else that happens to it, so its JSON is made once, when it is
published, and joined into answers as it is. Who needs the bytes (Kafka, Arrow, schemas) decodes at its own edge.
"""

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, NewType

import msgspec
import pybase64

from ams.core.clock import Milliseconds
from ams.core.names import Offset

Fragment = NewType("Fragment", bytes)
"""JSON members of a message without the braces: `"attributes":{..},"data":".."`; attributes left out when empty.

Data is ASCII. When some of it had to be escaped there is a blank before it, so that its length can be told by a look
at one byte (`sizes`).
"""


class Message(NamedTuple):
    """What a publisher sent, checked."""

    attributes: Mapping[str, str]
    data: str
    """base64 text exactly as it came."""
    fragment: Fragment


class Stored(NamedTuple):
    """A message in the log."""

    offset: Offset
    time: Milliseconds
    """Publish time, given by the log; never goes backwards within a topic."""
    fragment: Fragment


class _Body(msgspec.Struct):
    data: str
    attributes: Mapping[str, str] = {}


_encode = msgspec.json.Encoder().encode


def message(data: str, attributes: Mapping[str, str] | None = None, *, plain: bool = False) -> Message:
    """Make a message and its JSON; `plain` says that the data is known to need no escapes, as base64 does not."""
    shown = b'"%b"' % data.encode() if plain else _escaped(data)
    if not attributes:
        return Message({}, data, Fragment(b'"data":' + shown))
    return Message(attributes, data, Fragment(b'"attributes":%b,"data":%b' % (_encode(attributes), shown)))


def in_order(sent: Message) -> Fragment:
    """Return the fragment with the attributes in the order of their names, so that equal messages have equal ones."""
    if len(sent.attributes) < 2:
        return sent.fragment
    return message(sent.data, dict(sorted(sent.attributes.items()))).fragment


def parse(fragment: bytes) -> Message:
    """Read a fragment back into a message."""
    body = msgspec.json.decode(b"{" + fragment + b"}", type=_Body)
    return Message(body.attributes, body.data, Fragment(fragment))


def decoded_data(text: str) -> bytes:
    """Decode the data of a message, line breaks within tolerated (contract 17.1, M7).

    Raises `ValueError` when it is not standard, padded base64.
    """
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError:
        return pybase64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)


def data_bytes(messages: Sequence[Message]) -> int:
    """Return the bytes a publish request counts for: the lengths of its data texts (contract 12.2)."""
    return sum([len(each.data) for each in messages])


_FRAME = len('"data":""')
"""What a fragment without attributes has beside its data."""
_SIGN = len('"data":')
"""Where a fragment without attributes has the quote before its data, or a blank if there are escapes in it."""
_QUOTE, _COLON = b'":'
_PLAIN = {_QUOTE}
_sign = itemgetter(_SIGN)


def sizes(messages: Sequence[Stored]) -> tuple[int, int]:
    """Return the bytes of messages in the log, and of their data, which a request counts for (`data_bytes`).

    When none has attributes or escapes, which is usual, one number gives the other.
    """
    fragments = [fragment for _, _, fragment in messages]
    whole = sum(map(len, fragments))
    if set(map(_sign, fragments)) == _PLAIN:
        return whole, whole - _FRAME * len(fragments)
    return whole, sum(map(_data_length, fragments))


def _data_length(fragment: Fragment) -> int:
    opening = fragment.rfind(b'"', 0, -1)
    if fragment[opening - 1] == _COLON:
        return len(fragment) - 2 - opening
    return len(parse(fragment).data)


def _escaped(data: str) -> bytes:
    shown = json.dumps(data).encode()
    return shown if len(shown) == len(data) + 2 else b" " + shown
