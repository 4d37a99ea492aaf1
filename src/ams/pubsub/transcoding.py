"""Transcoding: from JSON and queries to requests, and from answers to JSON, by the descriptors of their messages.

Both are Google's mapping of Protocol Buffers to JSON, as `google.protobuf.json_format` has it, but strict: base64 must
be base64, and an error says which field it is about. It takes a tenth of the time of that library, which would keep the
event loop for seconds over one large publish.
"""

import binascii
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
import pybase64
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from ams.core.errors import InvalidInput
from ams.core.fair_share import SMALL
from ams.pubsub.protos import Message

MOST_VALUES = 300_000  # of a body, keys among them: a publish of 1,000 messages with 100 attributes each has 206,000
_MARKS = b"[{,:"  # of which each value needs one
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_PLAIN_PACKAGE = "google.protobuf."  # types that have a form of their own in JSON
_SHOWN_CHARACTERS = 100  # of a value in an error


class BadPayload(InvalidInput):
    """A body or a query that is no request; `violation` says the same of one field."""

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.violation = {"field": field, "description": text} if field else {"description": text}


def read_json(body: bytes) -> object:
    """Return what a body says, an empty object for none; raise `BadPayload`."""
    if not body.strip():
        return {}
    if len(body) > SMALL and _count(body) > MOST_VALUES and _count(_STRING.sub(b"", body)) > MOST_VALUES:
        raise BadPayload(f"Invalid JSON payload received. It has too many values: at most {MOST_VALUES} are allowed.")
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise BadPayload("Invalid JSON payload received. It is nested too deeply.") from None
    except ValueError as error:
        raise BadPayload(f"Invalid JSON payload received. {error}") from None


def _count(body: bytes) -> int:
    return sum(body.count(mark) for mark in _MARKS)


def fill(message: Message, value: object, path: str = "") -> None:
    """Set the fields of a message that a value of JSON names; null sets nothing. Raises `BadPayload`."""
    if message.DESCRIPTOR.full_name.startswith(_PLAIN_PACKAGE):
        _fill_plain(message, value, path)
        return
    if not isinstance(value, dict):
        raise _bad_value(path, "an object is needed", value)
    fields = _fields(message.DESCRIPTOR)
    for name, each in value.items():
        field = fields.get(name)
        if field is None:
            where = f" at '{path}'" if path else ""
            raise BadPayload(
                f'Invalid JSON payload received. Unknown name "{name[:_SHOWN_CHARACTERS]}"{where}: Cannot find field.',
                path,
            )
        if each is not None:
            _check_once(message, field, name, value, path)
            field.set(message, each, f"{path}.{name}" if path else name)


def _check_once(message: Message, field: "_Field", name: str, value: Mapping[str, object], path: str) -> None:
    """Refuse a field that is there under both of its names, and a second one of a `oneof`."""
    if name != field.json_name and field.json_name in value:
        raise BadPayload(f"Invalid JSON payload received. The field '{field.json_name}' is there twice.", path)
    if field.oneof and (before := message.WhichOneof(field.oneof)):
        raise BadPayload(
            f"Invalid JSON payload received. The oneof field '{field.oneof}' is already set: '{before}' and '{name}'"
            " exclude each other.",
            path,
        )


def _fill_plain(message: Message, value: object, path: str) -> None:
    try:
        json_format.ParseDict(value, message)  # type: ignore[arg-type]  # some are a string
    except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError):
        raise _bad_value(path, message.DESCRIPTOR.full_name, value) from None


class _Field(NamedTuple):
    json_name: str
    oneof: str
    set: Callable[[Message, Any, str], None]
    show: Callable[[Any, bool], object]
    is_bool: bool
    is_repeated: bool
    message: Any  # descriptor of its type; None: it is no message


@functools.cache
def _fields(descriptor: Any) -> Mapping[str, _Field]:
    """Return the fields of a type by the names that JSON may give them."""
    found = {}
    for each in descriptor.fields:
        field = _field(each)
        found[each.name] = found[each.json_name] = field
    return found


def _field(each: Any) -> _Field:
    oneof = each.containing_oneof.name if each.containing_oneof else ""
    inner = each.message_type
    showing: Callable[[Any, bool], object] = _shown_map
    if inner is not None and inner.GetOptions().map_entry:
        setting = _map(each.name)
    else:
        read, show = _KINDS.get(each.type, (None, _shown_as_it_is))
        if each.type == FieldDescriptor.TYPE_ENUM:
            read, show = _enum(each.enum_type)
        setting = _setting(each.name, read, is_repeated=each.is_repeated)
        showing = (lambda values, numbers: [show(value, numbers) for value in values]) if each.is_repeated else show
    return _Field(
        each.json_name, oneof, setting, showing, each.type == FieldDescriptor.TYPE_BOOL, each.is_repeated, inner
    )


Reader = Callable[[Any], Any]  # raises `ValueError` for a value of another kind, with what is needed


def _setting(name: str, read: Reader | None, *, is_repeated: bool) -> Callable[[Message, Any, str], None]:
    """Return what sets a field; without `read` it is a message, or several."""

    def set_one(message: Message, value: Any, path: str) -> None:
        if read is None:
            inner = getattr(message, name)
            inner.SetInParent()
            fill(inner, value, path)
            return
        try:
            setattr(message, name, read(value))
        except (ValueError, TypeError) as error:
            raise _bad_value(path, str(error), value) from None

    def set_all(message: Message, value: Any, path: str) -> None:
        if not isinstance(value, list):
            raise _bad_value(path, "a list is needed", value)
        values = getattr(message, name)
        if read is None:
            for at, each in enumerate(value):
                fill(values.add(), each, f"{path}[{at}]")
            return
        try:
            values.extend([read(each) for each in value])
        except (ValueError, TypeError) as error:
            raise _bad_value(path, str(error), value) from None

    return set_all if is_repeated else set_one


def _map(name: str) -> Callable[[Message, Any, str], None]:
    """Return what sets a map of strings: there is no other one."""

    def set_map(message: Message, value: Any, path: str) -> None:
        try:
            getattr(message, name).update(value)
        except (ValueError, TypeError, AttributeError):
            raise _bad_value(path, "an object of strings is needed", value) from None

    return set_map


def _read_string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("TYPE_STRING")
    return value


def _read_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("TYPE_BOOL")
    return value


def _read_int(value: Any) -> int:
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    is_text = isinstance(value, str) and len(value) <= len(str(-(2**63))) and value.lstrip("-").isdecimal()
    if isinstance(value, bool) or not (is_whole or is_text):
        raise ValueError("a whole number is needed")
    return int(value)


def _read_bytes(value: Any) -> bytes:
    """Read base64 of either alphabet, with padding or without."""
    text = _read_string(value)
    if "-" in text or "_" in text:
        text = text.replace("-", "+").replace("_", "/")
    try:
        return pybase64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("TYPE_BYTES, Base64 decoding failed") from None


def _enum(kind: Any) -> tuple[Reader, Callable[[Any, bool], object]]:
    numbers: dict[str, int] = {each.name: each.number for each in kind.values}
    names = {each.number: each.name for each in kind.values}

    def read(value: Any) -> int:
        if isinstance(value, str) and value in numbers:
            return numbers[value]
        if (number := _read_int(value)) not in names:
            raise ValueError("one of " + ", ".join(numbers) + " is needed")
        return number

    return read, lambda value, in_numbers: value if in_numbers else names.get(value, value)


def _shown_as_it_is(value: Any, in_numbers: bool) -> object:
    return value


def _shown_map(value: Any, in_numbers: bool) -> object:
    return dict(value)


def show(message: Message, in_numbers: bool = False) -> object:
    """Return an answer as values of JSON, its enums by their names or `in_numbers`. What is empty is left out."""
    if message.DESCRIPTOR.full_name.startswith(_PLAIN_PACKAGE):
        return json_format.MessageToDict(message)
    fields = _fields(message.DESCRIPTOR)
    return {
        (field := fields[each.name]).json_name: field.show(value, in_numbers) for each, value in message.ListFields()
    }


_KINDS: Mapping[int, tuple[Reader | None, Callable[[Any, bool], object]]] = {
    FieldDescriptor.TYPE_STRING: (_read_string, _shown_as_it_is),
    FieldDescriptor.TYPE_BYTES: (_read_bytes, lambda value, _: pybase64.b64encode(value).decode()),
    FieldDescriptor.TYPE_BOOL: (_read_bool, _shown_as_it_is),
    FieldDescriptor.TYPE_INT32: (_read_int, _shown_as_it_is),
    FieldDescriptor.TYPE_INT64: (_read_int, lambda value, _: str(value)),
    FieldDescriptor.TYPE_MESSAGE: (None, show),
}
"""How scalars are read and shown; requests and answers have no others but enums."""


def read_query(descriptor: Any, query: str, ignored: frozenset[str]) -> Mapping[str, object]:
    """Return what a query says as values of JSON for `fill`; names of inner fields have dots. Raises `BadPayload`."""
    found: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True, errors="strict"):
        if name not in ignored:
            _put(found, descriptor, name.split("."), text)
    return found


def _put(found: dict[str, Any], descriptor: Any, names: Sequence[str], text: str) -> None:
    *outer, last = names
    for name in outer:
        field = _fields(descriptor).get(name) if descriptor is not None else None
        descriptor = field.message if field is not None else None
        found = found.setdefault(name, {})
    field = _fields(descriptor).get(last) if descriptor is not None else None
    if field is None or not isinstance(found, dict):
        name = ".".join(names)[:_SHOWN_CHARACTERS]
        raise BadPayload(
            f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query parameter.'
            f" Field '{name}' could not be found in request message."
        )
    value: object = {"true": True, "false": False}.get(text, text) if field.is_bool else text
    if field.is_repeated:
        found.setdefault(last, []).append(value)
    else:
        found[last] = value


def _bad_value(path: str, needed: str, value: object) -> BadPayload:
    text = f', "{value[:_SHOWN_CHARACTERS]}"' if isinstance(value, str) else ""
    return BadPayload(f"Invalid value at '{path or 'request'}' ({needed}){text}", path)
