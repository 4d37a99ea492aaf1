"""JSON bodies: how requests are read (contract 1.2), and how big ones are split and counted before (contract 12.2).

Whatever megabytes a big body holds, no step takes longer than to pass over its text.
"""

import enum
import functools
import json
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from ams.core.errors import AmsError, BadRequest, InvalidInput, TooLarge
from ams.wire.base import CamelRequest, Request
from ams.wire.projects import AccessListChange, NewAccessList

T = TypeVar("T", bound=Request)


BIG_BODY = 256 * 1024  # bodies above this are read by a worker process, or one at a time, other requests in between
MAX_MESSAGES = 100_000  # in a request; small ones cost more to read than to send
MAX_ATTRIBUTES = 100_000  # of a message, likewise
BREATH_MESSAGES = 256
BREATH_BYTES = 512 * 1024
"""Messages of a big body that are read, or taken from a worker, between two breaths, and bytes of them."""


class Reader(Generic[T]):
    """Reads bodies of one shape: exact spelling first, then without regard to letter case, ignoring what is unknown."""

    def __init__(self, shape: type[T], refusal: Callable[[], AmsError]) -> None:
        self._shape, self._refusal = shape, refusal
        self._decode = msgspec.json.Decoder(shape).decode

    def read(self, body: bytes | msgspec.Raw) -> T:
        """Return the body as its shape; raise the route's parse error."""
        try:
            return self._decode(body)
        except (ValueError, RecursionError):  # another spelling, or no such body
            pass
        try:
            return _folded(body, self._shape)
        except (ValueError, RecursionError):
            raise self._refusal() from None

    def read_first(self, body: bytes) -> T:
        """Do what `read` does with the first JSON value of a body, whatever follows it (contract 1.2)."""
        try:
            return self._decode(body)  # nothing follows it: to find its end takes longer than to read it
        except (ValueError, RecursionError):
            pass
        try:
            first = first_value(body)
        except BadRequest:
            raise self._refusal() from None
        return self.read(first)


MAX_MEMBERS = 10_000  # of an object with odd spellings or unknown names: each costs more to look at than to send
_FEW_BYTES = 128 * 1024  # the members of a shorter body are not counted
_members = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


def _folded(body: bytes | msgspec.Raw, shape: type[T]) -> T:
    """Read an object, names in any spelling; of a name that is given twice only the last is read.

    What is unknown is passed over as text: whatever it holds, nothing is made of it.
    """
    if len(memoryview(body)) > _FEW_BYTES:
        count_members(body, MAX_MEMBERS)
    fields, members = _fields(shape), _members(body) or {}
    names = [name for name in members if name.lower() in fields]
    if len({name.lower() for name in names}) < len(names):  # a name stands where it came first, with its last value
        names = [name for name in member_names(body, MAX_MEMBERS) if name.lower() in fields]
    last = {name.lower(): members[name] for name in names}
    return shape(**{each.name: _member(last[name], each.type) for name, each in fields.items() if name in last})


def count_members(body: bytes | msgspec.Raw, most: int) -> None:
    """Raise `ValueError` as soon as an object has a member too many, before anything is made of them."""
    member_names(body, most)


def member_names(body: bytes | msgspec.Raw, most: int) -> list[str]:
    """Return an object's names but the empty one, as often as each is given, in order; raise as `count_members`."""
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
    """Read a value of an object or a list: exactly, and where objects are wanted, without regard to letter case."""
    try:
        return _decoder(wanted).decode(raw)
    except ValueError:
        lists = [each for each in _options(wanted) if typing.get_origin(each) is list]
        shape, item = _shape_in(wanted), typing.get_args(lists[0])[0] if lists else None
        if shape is not None:
            return _folded(raw, shape)
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
_values = json.JSONDecoder(parse_int=str, parse_float=str)  # finds where a value ends; numbers of any size may be in it
_BLANKS = " \t\r\n"  # JSON's white space


def bad_request() -> BadRequest:
    """Return the parse error of routes that have no text of their own (contract 16)."""
    return BadRequest("Invalid Request Body")


def read_access_list(body: bytes, refusal: str) -> list[str]:
    """Return the names of a modifyAcl body; raise `InvalidInput` with `refusal`, also without the field."""
    names = Reader(NewAccessList, lambda: InvalidInput(refusal)).read(body).authorized_users
    if names is None:
        raise InvalidInput(refusal)
    return names


def read_access_change(body: bytes, refusal: str) -> tuple[list[str], list[str]]:
    """Return whom a changeAcl body adds and removes; raise `InvalidInput` with `refusal`."""
    change = Reader(AccessListChange, lambda: InvalidInput(refusal)).read(body)
    if change.add is None and change.remove is None:
        raise InvalidInput(refusal)
    return change.add or [], change.remove or []


def strings(body: bytes) -> dict[str, str]:
    """Read a body that is a map of texts, names matched exactly (contract 1.2), or empty; raise `BadRequest`."""
    if not body:
        return {}
    try:
        return {name: value for name, value in (_strings.decode(body) or {}).items() if value is not None}
    except (ValueError, RecursionError):
        raise bad_request() from None


def first_value(body: bytes) -> bytes:
    """Return the first JSON value of a body, whatever follows it (contract 1.2); raise `BadRequest`."""
    try:
        text = body.decode().lstrip(_BLANKS)
        return text[: _values.raw_decode(text)[1]].encode() if text else b""
    except (ValueError, RecursionError):
        raise bad_request() from None


class _BigPublishBody(Request, frozen=True):
    """A `PublishBody`, its messages left as they came."""

    messages: msgspec.Raw = msgspec.Raw(b"null")


class _BigMessage(CamelRequest, frozen=True):
    """A `PublishedMessage`, its fields left as they came."""

    data: msgspec.Raw = msgspec.Raw(b"null")
    attributes: msgspec.Raw = msgspec.Raw(b"null")
    ordering_key: msgspec.Raw = msgspec.Raw(b"null")
    message_id: msgspec.Raw = msgspec.Raw(b"null")
    publish_time: msgspec.Raw = msgspec.Raw(b"null")


_big_publish = Reader(_BigPublishBody, lambda: InvalidInput("Invalid Message Arguments"))
_big_message = Reader(_BigMessage, lambda: InvalidInput("Invalid Message Arguments"))
_each = msgspec.json.Decoder(list[msgspec.Raw] | None).decode


def holds_few(body: bytes) -> bool:
    """Return whether the braces and colons of a body say that it has neither too many messages nor attributes."""
    return body.count(b"{") <= MAX_MESSAGES and body.count(b":") <= MAX_ATTRIBUTES


def slices_of(body: bytes) -> Iterator[Sequence[msgspec.Raw]]:
    """Yield the messages of a publish body in slices that take a moment to read; the first is empty.

    Raises `InvalidInput` "Invalid Message Arguments", `TooLarge` for more than `MAX_MESSAGES`.
    """
    raw = _big_publish.read(body).messages
    yield ()
    try:
        if bytes(raw).count(b",") >= MAX_MESSAGES:  # perhaps too many; commas stand in texts too
            _count_objects(raw, MAX_MESSAGES)
        messages = _each(raw) or []
    except (ValueError, RecursionError):
        raise InvalidInput("Invalid Message Arguments") from None
    start = size = 0
    for number, each in enumerate(messages):
        size += len(memoryview(each))
        if number - start >= BREATH_MESSAGES or size >= BREATH_BYTES:
            yield messages[start : number + 1]
            start, size = number + 1, 0
    yield messages[start:]


def check_attributes(message: msgspec.Raw) -> None:
    """Raise `TooLarge` for a message of more than `MAX_ATTRIBUTES`, `InvalidInput` for what is none."""
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
                count_members(attributes, MAX_ATTRIBUTES)
            except ValueError:
                raise TooLarge from None
    except (ValueError, RecursionError):  # no object of texts and no list of pairs
        raise InvalidInput("Invalid Message Arguments") from None


def _count_objects(items: msgspec.Raw, most: int) -> None:
    numbers = iter(range(most))

    class Counted(msgspec.Struct):
        def __post_init__(self) -> None:
            if next(numbers, None) is None:
                raise TooLarge

    msgspec.json.decode(items, type=list[Counted] | None)
