"""JSON bodies: parses requests (contract 1.2), and splits and counts big ones first (contract 12.2).

Even for bodies of many megabytes, no step takes longer than a scan of the text.
"""

import enum
import functools
import json
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from ams.core.errors import BadRequest, InvalidInput, TooLarge
from ams.wire.base import CamelRequest, Request

T = TypeVar("T", bound=Request)


BIG_BODY = 256 * 1024  # larger bodies are parsed by a worker, or here one at a time, in turn with other requests
MAX_MESSAGES = 100_000  # in a request; small ones cost more to parse than to send
MAX_ATTRIBUTES = 100_000  # of a message, likewise
YIELD_MESSAGES = 256
YIELD_BYTES = 512 * 1024
"""Messages, and their bytes, of a big body parsed here or taken from a worker between two yields to the event loop."""


class BodyReader(Generic[T]):
    """Parses bodies of one type: first with exact names, then in any letter case. Unknown names are ignored."""

    def __init__(self, shape: type[T], refusal: str = "") -> None:
        """`refusal` is the text of the route's parse error; empty: it has no text of its own (contract 16)."""
        self._shape, self._error = shape, functools.partial(InvalidInput, refusal) if refusal else bad_request
        self._decode = msgspec.json.Decoder(shape).decode

    def read(self, body: bytes | msgspec.Raw) -> T:
        """Return the parsed body. Raises the route's parse error."""
        try:
            return self._decode(body)
        except (ValueError, RecursionError):  # names in other letter case, or an invalid body
            pass
        try:
            return _read_folded(body, self._shape)
        except (ValueError, RecursionError):
            raise self._error() from None

    def read_first(self, body: bytes) -> T:
        """Parse the first JSON value of a body and ignore the rest (contract 1.2)."""
        try:
            return self._decode(body)  # usual case: finding the end takes longer than parsing
        except (ValueError, RecursionError):
            pass
        try:
            first = first_value(body)
        except BadRequest:
            raise self._error() from None
        return self.read(first)


body_reader = functools.cache(BodyReader[Any])


MAX_MEMBERS = 10_000  # of an object with odd or unknown names: each costs more to check than to send
_MIN_COUNTED_BYTES = 128 * 1024  # members of shorter bodies are not counted
_members = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


def _read_folded(body: bytes | msgspec.Raw, shape: type[T]) -> T:
    """Parse an object with names in any letter case. The last of duplicates counts; unknown ones are skipped."""
    if len(memoryview(body)) > _MIN_COUNTED_BYTES:
        member_names(body, MAX_MEMBERS)  # counts them before any is parsed
    fields, members = _fields(shape), _members(body) or {}
    names = [name for name in members if name.lower() in fields]
    if len({name.lower() for name in names}) < len(names):  # a name is at its first position, with its last value
        names = [name for name in member_names(body, MAX_MEMBERS) if name.lower() in fields]
    last = {name.lower(): members[name] for name in names}
    return shape(**{each.name: _member(last[name], each.type) for name, each in fields.items() if name in last})


def member_names(body: bytes | msgspec.Raw, most: int) -> list[str]:
    """Return all non-empty names of an object in order, duplicates included. Raises `ValueError` for more members."""
    names: list[str] = []

    class Name(enum.Enum):
        ANY = ""

        @classmethod
        def _missing_(cls, value: object) -> "Name":
            if len(names) >= most:
                raise ValueError
            names.append(str(value))
            return cls.ANY

    msgspec.json.decode(body, type=dict[Name, msgspec.Raw] | None)
    return names


def _member(raw: msgspec.Raw, wanted: Any) -> Any:
    try:
        return _decoder(wanted).decode(raw)
    except ValueError:
        lists = [each for each in _options(wanted) if typing.get_origin(each) is list]
        shape, item = _shape_in(wanted), typing.get_args(lists[0])[0] if lists else None
        if shape is not None:
            return _read_folded(raw, shape)
        if item is None or _shape_in(item) is None:
            raise
        return [_member(each, item) for each in _each(raw) or ()]


_decoder = functools.cache(msgspec.json.Decoder[Any])


@functools.cache
def _fields(shape: type[Request]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name.lower(): field for field in msgspec.structs.fields(shape)}


def _options(wanted: Any) -> tuple[Any, ...]:
    is_union = isinstance(wanted, types.UnionType) or typing.get_origin(wanted) is typing.Union
    return typing.get_args(wanted) if is_union else (wanted,)


def _shape_in(wanted: Any) -> type[Request] | None:
    return next((each for each in _options(wanted) if isinstance(each, type) and issubclass(each, Request)), None)


_strings = msgspec.json.Decoder(dict[str, str | None] | None)
_values = json.JSONDecoder(parse_int=str, parse_float=str)  # finds the end of a value; accepts numbers of any size
_BLANKS = " \t\r\n"  # JSON's white space


def bad_request() -> BadRequest:
    """Return the parse error of routes without a text of their own (contract 16)."""
    return BadRequest("Invalid Request Body")


def strings(body: bytes) -> dict[str, str]:
    """Parse a map of texts with exact names (contract 1.2), or an empty body. Raises `BadRequest`."""
    if not body:
        return {}
    try:
        return {name: value for name, value in (_strings.decode(body) or {}).items() if value is not None}
    except (ValueError, RecursionError):
        raise bad_request() from None


def first_value(body: bytes) -> bytes:
    """Return the first JSON value of a body, without the rest (contract 1.2). Raises `BadRequest`."""
    try:
        text = body.decode().lstrip(_BLANKS)
        return text[: _values.raw_decode(text)[1]].encode() if text else b""
    except (ValueError, RecursionError):
        raise bad_request() from None


class _BigPublishBody(Request, frozen=True):
    messages: msgspec.Raw = msgspec.Raw(b"null")


class _BigMessage(CamelRequest, frozen=True):
    data: msgspec.Raw = msgspec.Raw(b"null")
    attributes: msgspec.Raw = msgspec.Raw(b"null")
    ordering_key: msgspec.Raw = msgspec.Raw(b"null")
    message_id: msgspec.Raw = msgspec.Raw(b"null")
    publish_time: msgspec.Raw = msgspec.Raw(b"null")


_BAD_MESSAGES = "Invalid Message Arguments"
_big_publish, _big_message = BodyReader(_BigPublishBody, _BAD_MESSAGES), BodyReader(_BigMessage, _BAD_MESSAGES)
_each = msgspec.json.Decoder(list[msgspec.Raw] | None).decode


def holds_few(body: bytes) -> bool:
    """Return whether the number of braces and colons rules out too many messages or attributes."""
    return body.count(b"{") <= MAX_MESSAGES and body.count(b":") <= MAX_ATTRIBUTES


def slices_of(body: bytes) -> Iterator[Sequence[msgspec.Raw]]:
    """Yield the messages of a publish body in slices that parse quickly; the first is empty.

    Raises `InvalidInput` "Invalid Message Arguments", `TooLarge` for more than `MAX_MESSAGES`.
    """
    raw = _big_publish.read(body).messages
    yield ()
    try:
        if bytes(raw).count(b",") >= MAX_MESSAGES:  # possibly too many: commas also occur in texts
            _count_objects(raw, MAX_MESSAGES)
        messages = _each(raw) or []
    except (ValueError, RecursionError):
        raise InvalidInput(_BAD_MESSAGES) from None
    start = size = 0
    for number, each in enumerate(messages):
        size += len(memoryview(each))
        if number - start >= YIELD_MESSAGES or size >= YIELD_BYTES:
            yield messages[start : number + 1]
            start, size = number + 1, 0
    yield messages[start:]


def check_attributes(message: msgspec.Raw) -> None:
    """Raise `TooLarge` for more than `MAX_ATTRIBUTES`, `InvalidInput` if it is not a message."""
    if len(memoryview(message)) <= BIG_BODY:
        return
    attributes = _big_message.read(message).attributes
    text = bytes(attributes)
    if text.count(b",") < MAX_ATTRIBUTES:
        return
    try:
        if text.startswith(b"["):
            _count_objects(attributes, MAX_ATTRIBUTES)
        elif text.startswith(b"{"):
            try:
                member_names(attributes, MAX_ATTRIBUTES)
            except ValueError:
                raise TooLarge from None
    except (ValueError, RecursionError):  # neither an object of texts nor a list of pairs
        raise InvalidInput(_BAD_MESSAGES) from None


def _count_objects(items: msgspec.Raw, most: int) -> None:
    numbers = iter(range(most))

    class Counted(msgspec.Struct):
        def __post_init__(self) -> None:
            if next(numbers, None) is None:
                raise TooLarge

    msgspec.json.decode(items, type=list[Counted] | None)
