"""JSON bodies: how requests are read (contract 1.2)."""

import functools
import types
import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from ams.errors import AmsError


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    """Base of request bodies. Absent and null are the same, so every field is optional.

    A field of another spelling or an unknown one fails the exact reading and leads to the patient one.
    """


T = TypeVar("T", bound=Shape)


class Reader(Generic[T]):
    """Reads bodies of one shape: exact spelling first, then without regard to letter case, ignoring what is unknown."""

    def __init__(self, shape: type[T], refusal: Callable[[], AmsError]) -> None:
        self._shape = shape
        self._refusal = refusal
        self._decoder = msgspec.json.Decoder(shape)

    def read(self, body: bytes) -> T:
        """Return the body as its shape; raise the route's parse error."""
        try:
            return self._decoder.decode(body)
        except (ValueError, RecursionError):
            return self._read_patiently(body)

    def _read_patiently(self, body: bytes) -> T:
        try:
            value = msgspec.json.decode(body)
            if value is None:
                return self._shape()
            return msgspec.convert(_folded(value, self._shape), self._shape)
        except (ValueError, RecursionError):
            raise self._refusal() from None


def _folded(value: Any, wanted: Any) -> Any:
    """Rename an object's members to the spelling of its shape, leaving out unknown ones; the last of a name wins."""
    if isinstance(value, list):
        item = _argument(wanted, list)
        return value if item is None or _shape_in(item) is None else [_folded(each, item) for each in value]
    shape = _shape_in(wanted)
    if not isinstance(value, dict) or shape is None:
        return value
    fields = _fields(shape)
    found = {}
    for name, member in value.items():
        field = fields.get(name.lower())
        if field is not None:
            found[field.encode_name] = _folded(member, field.type)
    return found


@functools.cache
def _fields(shape: type[Shape]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name.lower(): field for field in msgspec.structs.fields(shape)}


def _options(wanted: Any) -> tuple[Any, ...]:
    is_union = isinstance(wanted, types.UnionType) or typing.get_origin(wanted) is typing.Union
    return typing.get_args(wanted) if is_union else (wanted,)


def _shape_in(wanted: Any) -> type[Shape] | None:
    return next((each for each in _options(wanted) if isinstance(each, type) and issubclass(each, Shape)), None)


def _argument(wanted: Any, container: type) -> Any:
    for each in _options(wanted):
        if typing.get_origin(each) is container:
            return typing.get_args(each)[0]
    return None
