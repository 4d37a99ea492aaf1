"""JSON bodies, parsed and written like the reference (contract 2 and 4).

The first JSON value counts; anything after it is ignored. Names match in any letter case, unknown ones are ignored, and
null means absent. Errors have the reference's texts if those are known.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from ams.core.errors import BadRequest
from ams.wire.base import Request

T = TypeVar("T", bound=Request)
V = TypeVar("V")

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DIGITS = 18
_BLANKS = " \t\r\n"
_KINDS = {bool: "bool", str: "string", list: "array", dict: "object", int: "number", float: "number"}


def read_body(body: bytes, fields: type[T]) -> T:
    """Parse a body. All fields are optional, their types must be in `_CHECKS`. Raises `BadRequest`."""
    if (value := _first_value(body.decode("utf-8", "replace"))) is None:
        return fields()
    if not isinstance(value, dict):
        raise _malformed_error(f"json: cannot unmarshal {_KINDS[type(value)]} into an object")
    known = {field.name: field for field in msgspec.structs.fields(fields)}
    found: dict[str, Any] = {}
    for name, member in value.items():
        field = known.get(name.lower())
        if field is None or member is None:
            continue
        called, check = _CHECKS[field.type]
        try:
            found[field.name] = check(member)
        except TypeError as error:
            kind = _KINDS.get(type(error.args[0] if error.args else member), "null")
            said = f"json: cannot unmarshal {kind} into field {field.name} of type {called}"
            raise _malformed_error(said) from None
    return fields(**found)


def encode_body(body: object) -> bytes:
    """Return an answer as JSON, indented by one blank."""
    return msgspec.json.format(msgspec.json.encode(body), indent=1)


def _first_value(text: str) -> Any:
    if not (begun := text.lstrip(_BLANKS)):
        raise _malformed_error("EOF")
    try:
        return _DECODER.raw_decode(begun)[0]
    except json.JSONDecodeError as error:
        raise _malformed_error(_reason(error, begun)) from None
    except RecursionError:
        raise _malformed_error("exceeded max depth") from None
    except ValueError as error:
        raise _malformed_error(str(error)) from None


def _reason(error: json.JSONDecodeError, text: str) -> str:
    rest = text[error.pos :]
    is_cut_word = rest == "-" or any(word.startswith(rest) for word in ("true", "false", "null"))
    if not rest.strip(_BLANKS) or error.msg.startswith("Unterminated string") or is_cut_word:
        return "unexpected EOF"
    if error.pos == 0:
        return f"invalid character {rest[0]!r} looking for beginning of value"
    return f"invalid character {rest[0]!r} at position {error.pos + 1}"


def _malformed_error(reason: str) -> BadRequest:
    return BadRequest(f"Poorly formatted JSON. {reason}")


def _constant(name: str) -> Any:
    raise ValueError(f"invalid character {name[0]!r} looking for beginning of value")


def _in_order_of_last(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Keep the last position of a duplicate name: names that differ only in case may be in between."""
    found = dict(members)
    if len(found) == len(members):
        return found
    names = dict.fromkeys(name for name, _ in reversed(members))
    return {name: found[name] for name in reversed(names)}


_DECODER = json.JSONDecoder(
    parse_int=lambda digits: int(digits) if len(digits) <= _MAX_DIGITS else float("inf"),
    parse_constant=_constant,
    object_pairs_hook=_in_order_of_last,
)


def _text(value: object) -> str:
    return "" if value is None else _SURROGATE.sub("\ufffd", _of_type(str, value))


def _of_type(kind: type[V], value: object) -> V:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(value)
    return value


# By the type of a field: its name in the reference, and its parser.
_CHECKS: Mapping[object, tuple[str, Callable[[object], object]]] = {
    str | None: ("string", _text),
    int | None: ("int", lambda value: _of_type(int, value)),
    bool | None: ("bool", lambda value: _of_type(bool, value)),
    tuple[str, ...] | None: ("[]string", lambda value: tuple(map(_text, _of_type(list, value)))),
    Mapping[str, str] | None: (
        "map[string]string",
        lambda value: {_text(name): _text(each) for name, each in _of_type(dict, value).items()},
    ),
}
