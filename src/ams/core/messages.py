"""The message: ordering key, attributes and base64 text, and its ready-made JSON.

Decoding and encoding a message costs more than all else that happens to it, so its JSON is made once, when it is
published, and joined into answers as it is. Users of the bytes (Kafka, Arrow, schemas) decode them themselves.
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
"""JSON members of a message without the braces: `"orderingKey":"..","attributes":{..},"data":".."`; key and attributes
are left out when empty.

Data is ASCII. When some of it had to be escaped there is a blank before it, so that its length can be told by a look
at one byte (`sent_bytes`).
"""

_encode = msgspec.json.Encoder().encode
_data_of = attrgetter("data")
_STANDARD, _STRICTLY = repeat(None), repeat(True)  # the alphabet of base64 and how it is decoded, for each of many
_FRAME = len('"data":""')  # what a fragment without attributes has beside its data
_SIGN = len('"data":')  # the quote before the data of a fragment without attributes, or a blank if it has escapes
_QUOTE, _COLON, _COMMA = b'":,'
_PLAIN = {_QUOTE}
_KEY = b'"orderingKey":'  # how the fragment of a message with an ordering key begins
_sign = itemgetter(_SIGN)
_text = msgspec.json.Decoder(str).decode


class Message(NamedTuple):
    """A published message, checked."""

    attributes: Mapping[str, str]
    data: str  # base64 text exactly as it came
    fragment: Fragment
    ordering_key: str = ""  # messages of one key may be handed on in order; empty: none


class Sent(Protocol):
    """A message as it was read from a request, before anything is made of it."""

    @property
    def attributes(self) -> Mapping[str, str] | None:
        """None: there are none."""

    @property
    def data(self) -> str:
        """base64 text exactly as it came."""

    @property
    def ordering_key(self) -> str | None:
        """None or empty: it has none."""


class _MadeWhenAsked(Sequence[Message]):
    """Messages of which the fragments are there; each is made when somebody asks for it, as most are stored as such."""

    __slots__ = ("fragments",)
    fragments: Sequence[Fragment]

    def _made(self, of: slice) -> Iterator[Message]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.fragments)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return list(self._made(index))
        place = range(len(self))[index]
        return next(self._made(slice(place, place + 1)))

    def __iter__(self) -> Iterator[Message]:
        return self._made(slice(None))


class Batch(_MadeWhenAsked):
    """The messages of a publish request, and what is counted of them."""

    __slots__ = ("data_bytes", "largest", "not_base64", "sent", "size")

    def __init__(
        self,
        sent: Sequence[Sent],
        fragments: Sequence[Fragment],
        size: int,
        largest: int,
        data_bytes: int,
        not_base64: int = 0,
    ) -> None:
        self.sent = sent  # the messages as they were read, for who needs no fragment: no `Message` is made of them
        self.fragments, self.largest = fragments, largest
        self.size = size  # bytes of the fragments
        self.data_bytes = data_bytes  # bytes that a publish request counts for: of its data texts (contract 12.2)
        self.not_base64 = not_base64  # messages whose data is other text than base64

    @property
    def has_ordering_keys(self) -> bool:
        """Return whether some have an ordering key."""
        # Nothing is looked at when there is nothing but data in the fragments, which is usual.
        return self.size != self.data_bytes + _FRAME * len(self.fragments) and has_ordering_keys(self.fragments)

    def payloads(self) -> Iterator[bytes]:
        """Decode the data of each; the iterator raises `ValueError` at the first that is not base64 on one line."""
        return map(pybase64.b64decode, map(_data_of, self.sent), _STANDARD, _STRICTLY)

    def in_order(self) -> Sequence[Fragment]:
        """Return the fragments with attributes in the order of their names, so that equal messages have equal ones."""
        if self.size == self.data_bytes + _FRAME * len(self.fragments):  # data alone, all of it without escapes
            return self.fragments
        return [
            message(each.data, dict(sorted(each.attributes.items())), each.ordering_key or "").fragment
            if each.attributes and len(each.attributes) > 1
            else fragment
            for each, fragment in zip(self.sent, self.fragments, strict=True)
        ]

    def _made(self, of: slice) -> Iterator[Message]:
        for each, fragment in zip(self.sent[of], self.fragments[of], strict=True):
            yield Message(each.attributes or {}, each.data, fragment, each.ordering_key or "")


class Parsed(_MadeWhenAsked):
    """Messages of which only the fragments are there: each is read from its own."""

    __slots__ = ()

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self.fragments = fragments

    def _made(self, of: slice) -> Iterator[Message]:
        return map(parse, self.fragments[of])


def batch_of(messages: Sequence[Message], *, not_base64: int = 0) -> Batch:
    """Return messages with what is counted of them."""
    if isinstance(messages, Batch):
        return messages
    made = _counted(messages, [each.fragment for each in messages])
    made.not_base64 = not_base64
    return made


def batch_of_base64(sent: Sequence[Sent]) -> Batch | None:
    """Make messages that all have data, base64 on one line; None when one has not. Ordering keys are not looked at.

    Every step is taken for all messages at once: a call of our own for each would cost as much as the step.
    """
    if len(sent) == 1:  # usual too, and lists of one cost more than what is done here
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
        if not all(map(pybase64.b64decode, texts, _STANDARD, _STRICTLY)):
            return None
    except ValueError:
        return None
    fragments = [
        _base64_fragment(text, each.attributes) if each.attributes else b'"data":"%b"' % text.encode()
        for each, text in zip(sent, texts, strict=True)
    ]
    return _counted(sent, cast("list[Fragment]", fragments))


def batch_of_base64_and_keys(sent: Sequence[Sent]) -> Batch | None:
    """Do the same for messages that may have ordering keys; None too when one of these is too long."""
    made = batch_of_base64(sent)
    if made is None or not all(is_ordering_key(each.ordering_key or "") for each in sent):
        return None
    pairs = zip(sent, made.fragments, strict=True)
    return _counted(sent, [with_ordering_key(fragment, each.ordering_key) for each, fragment in pairs])


def _counted(sent: Sequence[Sent], fragments: Sequence[Fragment]) -> Batch:
    lengths = [*map(len, fragments)]
    return Batch(sent, fragments, sum(lengths), max(lengths, default=0), sum([len(each.data) for each in sent]))


class Stored(NamedTuple):
    """A message in the log."""

    offset: Offset
    time: Milliseconds  # publish time, given by the log; never goes backwards within a topic
    fragment: Fragment


class _Body(msgspec.Struct, rename="camel"):
    data: str
    attributes: Mapping[str, str] = {}
    ordering_key: str = ""


class _Attributes(msgspec.Struct):
    attributes: Mapping[str, str] = {}


def message(
    data: str, attributes: Mapping[str, str] | None = None, ordering_key: str = "", *, plain: bool = False
) -> Message:
    """Make a message and its JSON; `plain` says that the data is known to need no escapes, as base64 does not."""
    if plain:
        fragment = _base64_fragment(data, attributes)
    elif attributes:
        fragment = Fragment(b'"attributes":%b,"data":%b' % (_encode(attributes), _escaped(data)))
    else:
        fragment = Fragment(b'"data":' + _escaped(data))
    return Message(attributes or {}, data, with_ordering_key(fragment, ordering_key), ordering_key)


def _base64_fragment(data: str, attributes: Mapping[str, str] | None) -> Fragment:
    if not attributes:
        return Fragment(b'"data":"%b"' % data.encode())
    return Fragment(b'"attributes":%b,"data":"%b"' % (_encode(attributes), data.encode()))


def quoted_base64(data: bytes, attributes: Mapping[str, str] | None) -> Fragment:
    """Return the fragment of a message whose data is a JSON text; raise `ValueError` for one that is not base64."""
    if data[:1] != b'"' or not pybase64.b64decode(data[1:-1], None, True):
        raise ValueError
    return Fragment(b'"attributes":%b,"data":%b' % (_encode(attributes), data) if attributes else b'"data":' + data)


def parse(fragment: bytes) -> Message:
    """Read a fragment back into a message."""
    body = msgspec.json.decode(b"{" + fragment + b"}", type=_Body)
    return Message(body.attributes, body.data, Fragment(fragment), body.ordering_key)


def is_ordering_key(key: str) -> bool:
    """Return whether a message may have this for its ordering key; empty: it has none."""
    return len(key.encode()) <= MAX_ORDERING_KEY


def with_ordering_key(fragment: Fragment, key: str | None) -> Fragment:
    """Return the fragment of a message that had no ordering key with this one; None or empty: as it is."""
    return Fragment(b"%b%b,%b" % (_KEY, _encode(key), fragment)) if key else fragment


def ordering_key_of(fragment: bytes) -> str:
    """Return the ordering key of a message; empty: it has none. Nothing else of it is read."""
    return _text(fragment[len(_KEY) : _key_end(fragment)]) if fragment.startswith(_KEY) else ""


def split_ordering_key(fragment: Fragment) -> tuple[bytes, Fragment]:
    """Return the member with the ordering key, a comma at its end, and the other members; no key: nothing, and all."""
    if not fragment.startswith(_KEY):
        return b"", fragment
    end = _key_end(fragment) + 1
    return fragment[:end], Fragment(fragment[end:])


def has_ordering_keys(fragments: Sequence[Fragment]) -> bool:
    """Return whether some of these messages have an ordering key."""
    # Of the names a fragment begins with this is the last in the alphabet: one look at the largest is the quickest.
    return max(fragments, default=b"").startswith(_KEY)


def _key_end(fragment: bytes) -> int:
    """Return where the comma behind the key is, between two quotes.

    Within a JSON text a backslash is before a quote, and no comma; so a comma before one is that, or the key's last.
    """
    found = fragment.index(b',"', len(_KEY))
    return found + 2 if fragment[found + 2] == _COMMA else found


def attributes_of(fragment: bytes) -> Mapping[str, str]:
    """Read the attributes of a fragment."""
    return msgspec.json.decode(b"{%b}" % fragment, type=_Attributes).attributes


def decoded_data(text: str) -> bytes:
    """Decode the data of a message, line breaks tolerated (contract 17.1, M7); raise `ValueError` for other text."""
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError:
        return pybase64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)


def data_or_text(text: str) -> bytes:
    """Return the data of a message as bytes; what is no base64, as the text it is."""
    try:
        return decoded_data(text)
    except ValueError:
        return text.encode()


def sent_bytes(fragments: Sequence[Fragment], size: int) -> int:
    """Return the bytes of data (`Batch.data_bytes`) in fragments of `size` bytes together."""
    if are_data_alone(fragments):
        return size - _FRAME * len(fragments)
    return sum(map(_data_length, fragments))


def are_data_alone(fragments: Sequence[Fragment]) -> bool:
    """Return whether each is `"data":"` with text that needed no escapes, and a quote: none has attributes or a key."""
    return set(map(_sign, fragments)) == _PLAIN


def _data_length(fragment: Fragment) -> int:
    opening = fragment.rfind(b'"', 0, -1)
    if fragment[opening - 1] == _COLON:
        return len(fragment) - 2 - opening
    return len(parse(fragment).data)


def _escaped(data: str) -> bytes:
    shown = json.dumps(data).encode()
    return shown if len(shown) == len(data) + 2 else b" " + shown
