"""JSON bodies as the reference reads and writes them (contract 2 and 4).

The first JSON value counts, whatever follows it; names are matched without regard to letter case, unknown ones passed
over; null says nothing. An error says what cannot be read in the reference's words, where those are known.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from ams.core.errors import BadRequest
from ams.wire.base import Request

T = TypeVar("T", bound=Request)

_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_DIGITS = 18
_BLANKS = " \t\r\n"
_WORDS = ("true", "false", "null")


def read(body: bytes, fields: type[T]) -> T:
    """Return a body as what its fields say, all of them optional; raise `BadRequest`.

    The types of the fields say what their values must be; see `_CHECKS`.
    """
    value = _first_value(body.decode("utf-8", "replace"))
    if value is None:
        return fields()
    if not isinstance(value, dict):
        raise _poor(f"json: cannot unmarshal {_kind(value)} into an object")
    known = {field.name: field for field in msgspec.structs.fields(fields)}
    found: dict[str, Any] = {}
    for name, member in value.items():
        field = known.get(name.lower())
        if field is not None and member is not None:
            found[field.name] = _checked(field.name, member, field.type)
    return fields(**found)


def encoded(body: object) -> bytes:
    """Write an answer, indented by one blank."""
    return msgspec.json.format(msgspec.json.encode(body), indent=1)


def _first_value(text: str) -> Any:
    begun = text.lstrip(_BLANKS)
    if not begun:
        raise _poor("EOF")
    try:
        return _DECODER.raw_decode(begun)[0]
    except json.JSONDecodeError as error:
        raise _poor(_reason(error, begun)) from None
    except RecursionError:
        raise _poor("exceeded max depth") from None
    except ValueError as error:
        raise _poor(str(error)) from None


def _reason(error: json.JSONDecodeError, text: str) -> str:
    rest = text[error.pos :]
    if not rest.strip(_BLANKS) or error.msg.startswith("Unterminated string") or _is_cut_word(rest):
        return "unexpected EOF"
    if error.pos == 0:
        return f"invalid character {rest[0]!r} looking for beginning of value"
    return f"invalid character {rest[0]!r} at position {error.pos + 1}"


def _is_cut_word(rest: str) -> bool:
    return any(word.startswith(rest) for word in _WORDS) or rest in ("-",)


def _poor(reason: str) -> BadRequest:
    return BadRequest(f"Poorly formatted JSON. {reason}")


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float("inf")


def _constant(name: str) -> Any:
    raise ValueError(f"invalid character {name[0]!r} looking for beginning of value")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_constant=_constant)


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    kinds = {str: "string", list: "array", dict: "object", int: "number", float: "number"}
    return kinds.get(type(value), "null")


def _text(value: object) -> str:
    """Return a text that can be stored; half of a pair of surrogates is no letter."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(value)
    return _SURROGATE.sub("\ufffd", value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(value)
    return tuple(_text(each) for each in value)


def _text_map(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError(value)
    return {_text(name): _text(each) for name, each in value.items()}


_CHECKS: Mapping[object, tuple[str, Callable[[object], object]]] = {
    str | None: ("string", _text),
    int | None: ("int", _whole),
    bool | None: ("bool", _switch),
    tuple[str, ...] | None: ("[]string", _texts),
    Mapping[str, str] | None: ("map[string]string", _text_map),
}
"""Type of a field: how the reference calls it, and what reads it."""


def _checked(name: str, value: object, kind: object) -> object:
    called, check = _CHECKS[kind]
    try:
        return check(value)
    except TypeError as error:
        wrong = error.args[0] if error.args else value
        raise _poor(f"json: cannot unmarshal {_kind(wrong)} into field {name} of type {called}") from None
