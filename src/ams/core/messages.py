"""Messages: ordering key, attributes, base64 data, and the JSON encoded at publish.

Encoding dominates the cost of a message. So its JSON is encoded once, at publish, and copied into answers. Code that
needs the bytes (Kafka, Arrow, schemas) decodes them itself.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import NamedTuple, NewType, Protocol, cast, overload

import msgspec
import pybase64

from ams.core.clock import Milliseconds
from ams.core.names import Offset

MAX_ORDERING_KEY = 1024  # bytes of an ordering key, as UTF-8

Fragment = NewType("Fragment", bytes)
"""JSON members of a message without the braces: `"orderingKey":"..","attributes":{..},"data":".."`.

Empty key and attributes are omitted. Data is ASCII. A blank before the data says that it contains escapes, so that
`sent_bytes` needs only one byte to know.
"""

_encode = msgspec.json.Encoder().encode
_data_of = attrgetter("data")
_ALPHABETS, _VALIDATE_FLAGS = repeat(None), repeat(True)  # arguments of b64decode, one per message
_FRAME_BYTES = len('"data":""')  # overhead of a fragment without attributes
_PLAIN = {ord('"')}
_KEY = b'"orderingKey":'  # how the fragment of a message with an ordering key begins
_sign = itemgetter(len('"data":'))  # the quote before the data; a blank there means that the data has escapes
_text = msgspec.json.Decoder(str).decode


class Message(NamedTuple):
    """A published message, checked."""

    attributes: Mapping[str, str]
    data: str  # base64 text exactly as it came
    fragment: Fragment
    ordering_key: str = ""  # empty: none


class Sent(Protocol):
    """A message as decoded from a request."""

    @property
    def attributes(self) -> Mapping[str, str] | None:
        """Attributes; None: no attributes."""

    @property
    def data(self) -> str:
        """Base64 text exactly as received."""

    @property
    def ordering_key(self) -> str | None:
        """Ordering key; None or empty: none."""


class _LazyMessages(Sequence[Message]):
    """Messages made from their fragments on access, as most fragments are stored without an access."""

    __slots__ = ("fragments",)
    fragments: Sequence[Fragment]

    def _messages_in(self, of: slice) -> Iterator[Message]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.fragments)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return list(self._messages_in(index))
        place = range(len(self))[index]
        return next(self._messages_in(slice(place, place + 1)))

    def __iter__(self) -> Iterator[Message]:
        return self._messages_in(slice(None))


class Batch(_LazyMessages):
    """Messages of a publish request, and their sizes."""

    __slots__ = ("data_bytes", "largest", "not_base64", "sent", "size")

    def __init__(
        self, sent: Sequence[Sent], fragments: Sequence[Fragment], size: int, largest: int, data_bytes: int,
        not_base64: int = 0,
    ) -> None:  # fmt: skip
        self.sent = sent  # the decoded messages; reading them makes no `Message`
        self.fragments, self.largest = fragments, largest
        self.size = size  # bytes of the fragments
        self.data_bytes = data_bytes  # bytes of the data texts, for quotas and counts (contract 12.2)
        self.not_base64 = not_base64  # messages whose data is not base64

    @property
    def has_ordering_keys(self) -> bool:
        """Return whether any message has an ordering key."""
        # The size tells that all fragments hold only data, which is usual.
        return self.size != self.data_bytes + _FRAME_BYTES * len(self.fragments) and has_ordering_keys(self.fragments)

    def payloads(self) -> Iterator[bytes]:
        """Yield the decoded data. Raises `ValueError` at the first that is not base64 on one line."""
        return map(pybase64.b64decode, map(_data_of, self.sent), _ALPHABETS, _VALIDATE_FLAGS)

    def in_order(self) -> Sequence[Fragment]:
        """Return the fragments with sorted attributes, so that equal messages have equal fragments."""
        if self.size == self.data_bytes + _FRAME_BYTES * len(self.fragments):  # data alone, all of it without escapes
            return self.fragments
        return [
            message(each.data, dict(sorted(each.attributes.items())), each.ordering_key or "").fragment
            if each.attributes and len(each.attributes) > 1
            else fragment
            for each, fragment in zip(self.sent, self.fragments, strict=True)
        ]

    def _messages_in(self, of: slice) -> Iterator[Message]:
        for each, fragment in zip(self.sent[of], self.fragments[of], strict=True):
            yield Message(each.attributes or {}, each.data, fragment, each.ordering_key or "")


class ParsedMessages(_LazyMessages):
    """Messages parsed from fragments on access."""

    __slots__ = ()

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self.fragments = fragments

    def _messages_in(self, of: slice) -> Iterator[Message]:
        return map(parse, self.fragments[of])


def batch_of(messages: Sequence[Message], *, not_base64: int = 0) -> Batch:
    """Return a batch of messages."""
    if isinstance(messages, Batch):
        return messages
    made = _new_batch(messages, [each.fragment for each in messages])
    made.not_base64 = not_base64
    return made


def batch_of_base64(sent: Sequence[Sent]) -> Batch | None:
    """Return a batch of messages with base64 data on one line; None if any has other or no data. Ignores ordering keys.

    Each step runs on all messages in C: a Python call per message would double its cost.
    """
    if len(sent) == 1:  # a frequent case that is faster without lists
        data = sent[0].data
        try:
            if not pybase64.b64decode(data, None, True):
                return None
        except ValueError:
            return None
        fragment = _base64_fragment(data, sent[0].attributes)
        size = len(fragment)
        return Batch(sent, (fragment,), size, size, len(data))
    texts = [each.data for each in sent]
    try:
        if not all(map(pybase64.b64decode, texts, _ALPHABETS, _VALIDATE_FLAGS)):
            return None
    except ValueError:
        return None
    fragments = [
        _base64_fragment(text, each.attributes) if each.attributes else b'"data":"%b"' % text.encode()
        for each, text in zip(sent, texts, strict=True)
    ]
    return _new_batch(sent, cast("list[Fragment]", fragments))


def batch_of_base64_and_keys(sent: Sequence[Sent]) -> Batch | None:
    """Like `batch_of_base64`, with ordering keys; None also when a key is too long."""
    made = batch_of_base64(sent)
    if made is None or not all(is_ordering_key(each.ordering_key or "") for each in sent):
        return None
    pairs = zip(sent, made.fragments, strict=True)
    return _new_batch(sent, [with_ordering_key(fragment, each.ordering_key) for each, fragment in pairs])


def _new_batch(sent: Sequence[Sent], fragments: Sequence[Fragment]) -> Batch:
    lengths = [*map(len, fragments)]
    return Batch(sent, fragments, sum(lengths), max(lengths, default=0), sum([len(each.data) for each in sent]))


class Stored(NamedTuple):
    """A message in the log."""

    offset: Offset
    time: Milliseconds  # publish time, given by the log; never goes backwards within a topic
    fragment: Fragment


class _PublishBody(msgspec.Struct, rename="camel"):
    data: str
    attributes: Mapping[str, str] = {}
    ordering_key: str = ""


class _Attributes(msgspec.Struct):
    attributes: Mapping[str, str] = {}


def message(
    data: str, attributes: Mapping[str, str] | None = None, ordering_key: str = "", *, plain: bool = False
) -> Message:
    """Make a message and its JSON. `plain`: the data needs no escapes, as base64."""
    if plain:
        fragment = _base64_fragment(data, attributes)
    elif attributes:
        fragment = Fragment(b'"attributes":%b,"data":%b' % (_encode(attributes), _encode_data(data)))
    else:
        fragment = Fragment(b'"data":' + _encode_data(data))
    return Message(attributes or {}, data, with_ordering_key(fragment, ordering_key), ordering_key)


def _base64_fragment(data: str, attributes: Mapping[str, str] | None) -> Fragment:
    if not attributes:
        return Fragment(b'"data":"%b"' % data.encode())
    return Fragment(b'"attributes":%b,"data":"%b"' % (_encode(attributes), data.encode()))


def quoted_base64(data: bytes, attributes: Mapping[str, str] | None) -> Fragment:
    """Return the fragment for data given as a quoted JSON string. Raises `ValueError` if it is not base64."""
    if data[:1] != b'"' or not pybase64.b64decode(data[1:-1], None, True):
        raise ValueError
    return Fragment(b'"attributes":%b,"data":%b' % (_encode(attributes), data) if attributes else b'"data":' + data)


def parse(fragment: bytes) -> Message:
    """Parse a fragment."""
    body = msgspec.json.decode(b"{" + fragment + b"}", type=_PublishBody)
    return Message(body.attributes, body.data, Fragment(fragment), body.ordering_key)


def is_ordering_key(key: str) -> bool:
    """Return whether an ordering key is valid; empty is valid."""
    return len(key.encode()) <= MAX_ORDERING_KEY


def with_ordering_key(fragment: Fragment, key: str | None) -> Fragment:
    """Add an ordering key to a fragment that has none; None or empty adds nothing."""
    return Fragment(b"%b%b,%b" % (_KEY, _encode(key), fragment)) if key else fragment


def ordering_key_of(fragment: bytes) -> str:
    """Return the ordering key of a fragment, or empty, without parsing the rest."""
    return _text(fragment[len(_KEY) : _key_end(fragment)]) if fragment.startswith(_KEY) else ""


def split_ordering_key(fragment: Fragment) -> tuple[bytes, Fragment]:
    """Split a fragment into the ordering key member, with its comma, and the rest; the first is empty without a key."""
    if not fragment.startswith(_KEY):
        return b"", fragment
    end = _key_end(fragment) + 1
    return fragment[:end], Fragment(fragment[end:])


def has_ordering_keys(fragments: Sequence[Fragment]) -> bool:
    """Return whether any of these messages has an ordering key."""
    # "orderingKey" sorts after the other names that a fragment can begin with, so the largest fragment decides.
    return max(fragments, default=b"").startswith(_KEY)


def _key_end(fragment: bytes) -> int:
    """Return the position of the comma after the key, between two quotes.

    In a JSON string each quote is escaped. So `,"` is that comma, or a comma that ends the key and the closing quote.
    """
    found = fragment.index(b',"', len(_KEY))
    return found + 2 if fragment[found + 2 : found + 3] == b"," else found


def attributes_of(fragment: bytes) -> Mapping[str, str]:
    """Read the attributes of a fragment."""
    return msgspec.json.decode(b"{%b}" % fragment, type=_Attributes).attributes


def decoded_data(text: str) -> bytes:
    """Decode base64 data; line breaks are tolerated (contract 17.1, M7). Raises `ValueError`."""
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError:
        return pybase64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)


def data_or_text(text: str) -> bytes:
    """Return decoded data, or the text as bytes if it is not base64."""
    try:
        return decoded_data(text)
    except ValueError:
        return text.encode()


def sent_bytes(fragments: Sequence[Fragment], size: int) -> int:
    """Return the bytes of data (`Batch.data_bytes`) in fragments with a total of `size` bytes."""
    if are_data_alone(fragments):
        return size - _FRAME_BYTES * len(fragments)
    return sum(map(_data_length, fragments))


def are_data_alone(fragments: Sequence[Fragment]) -> bool:
    """Return whether all fragments hold only data without escapes: no attributes, no ordering key."""
    return set(map(_sign, fragments)) == _PLAIN


def _data_length(fragment: Fragment) -> int:
    opening = fragment.rfind(b'"', 0, -1)
    return len(fragment) - 2 - opening if fragment[opening - 1 : opening] == b":" else len(parse(fragment).data)


def _encode_data(data: str) -> bytes:
    shown = json.dumps(data).encode()
    return shown if len(shown) == len(data) + 2 else b" " + shown
