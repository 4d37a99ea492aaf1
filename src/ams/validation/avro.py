"""Payloads in Avro: one bare binary datum of the schema, or Avro's JSON encoding (contract 15.3, O12).

A binary datum has no header, and nothing after it. It is scanned, never decoded into objects: five bytes can stand for
a list of a billion nulls, and each byte for a further level of nesting.

For payloads in JSON the schema is translated to JSON Schema, so the same engine and limits apply. fastavro's reader is
too lenient. Only the output of Avro's own encoders is valid: every field is present, a value of a union that is not
null is `{"TYPE": VALUE}`, and bytes are texts of the characters 0 to 255.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from ams.core.errors import InvalidInput
from ams.validation.cost import Budget
from ams.validation.violations import quote

MAX_NESTING = 100  # nested records of a datum whose schema is recursive
_VALUE_UNITS = 4  # units of work for one value
MAX_EMPTY_ITEMS = 1000
"""Items without bytes in one array. Ten bytes can announce 2^63 of them, and every reader would create them all."""
_INT, _LONG = 32, 64  # bits
_NAMED_TYPES = ("record", "error", "enum", "fixed")

Walk = Callable[[bytes, int, int], int]
"""Takes data, the start of a value and its depth; returns the end of the value. Raises `_BadDatum`."""


class _BadDatum(Exception):
    """The datum does not match the schema; the text has the place and the reason."""


class AvroSchema:
    """One compiled schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile `schema`. Raises `InvalidInput` with the compiler's text."""
        compiler, parts = _Compiler(), _parse(schema)
        with _readable_errors():
            self._walk = compiler.walk(parts)
        self._work = compiler.work

    def check(self, index: int, data: bytes, budget: Budget) -> None:
        """Raise `InvalidInput` unless `data` is exactly one datum of the schema, `TooMuch` over the budget."""
        budget.spend(self._work(len(data)))
        try:
            end = self._walk(data, 0, 0)
        except _BadDatum as wrong:
            raise InvalidInput(f"Message {index} is not valid.{quote(str(wrong))}") from None
        if end != len(data):
            raise InvalidInput(f"Message {index} is not valid.{len(data) - end} bytes left over after the datum")


def _parse(schema: Any) -> Any:
    # A union at the top can only be written as `{"type": ...}`, because a schema is an object.
    while isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
        schema = schema["type"]
    with _readable_errors():
        return parse_schema(schema)


@contextlib.contextmanager
def _readable_errors() -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise InvalidInput(f"{error.args[0]} is required") from None
    except UnknownType as error:
        name = error.name.get("type") if isinstance(error.name, dict) else error.name
        raise InvalidInput(f'unknown type name: "{quote(name)}"') from None
    except (SchemaParseException, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(quote(f"schema is not valid: {error}")) from None


class _Compiler:
    """Compiles a parsed schema to scanners. Names are full, and each named type is defined where it first occurs."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}  # scanners; None: under construction
        self._parts = self._levels = 0
        self._repeats = False

    def work(self, size: int) -> int:
        """Return the most units of work (`ams.validation.cost`) for a datum of `size` bytes.

        Every step except one into a record consumes bytes. Without lists and types used twice, each record occurs once.
        """
        levels = min(self._levels, MAX_NESTING)
        return _VALUE_UNITS * (size * levels if self._repeats else self._parts) + size // 16

    def walk(self, schema: Any) -> Walk:
        self._parts += 1
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._by_name(schema)
        self._levels += 1
        if isinstance(schema, list):
            return _union([self.walk(each) for each in schema])
        kind = schema["type"]
        self._repeats |= kind in ("array", "map")
        if kind == "array":
            return _blocks(self.walk(schema["items"]))
        if kind == "map":
            return _blocks(_in_turn([("key", _string), ("value", self.walk(schema["values"]))]))
        if kind in _NAMED_TYPES:
            return self._define(schema)
        return self.walk(kind)

    def _by_name(self, name: str) -> Walk:
        """Return the scanner of a named type, which may still be under construction if the type is recursive."""
        named = self._named
        self._repeats = True
        if name not in named:
            raise ValueError(f"there is no type {name}")

        def later(data: bytes, at: int, depth: int) -> Any:
            return named[name](data, at, depth)

        return named[name] or later

    def _define(self, schema: Mapping[str, Any]) -> Walk:
        kind, name = schema["type"], schema["name"]
        self._named[name] = None
        if kind == "enum":
            walk = _enum(len(schema["symbols"]))
        elif kind == "fixed":
            walk = _walk_fixed(schema["size"])
        else:
            walk = _in_turn([(each["name"], self.walk(each["type"])) for each in schema["fields"]])
        self._named[name] = walk
        return walk


def _null(_data: bytes, at: int, _depth: int) -> int:
    """Scan a type without bytes. Types of such types only become this one, else few names could mean endless work."""
    return at


def _in_turn(fields: list[tuple[str, Walk]]) -> Walk:
    filled = [each for each in fields if each[1] is not _null]

    def walk(data: bytes, at: int, depth: int) -> int:
        if depth > MAX_NESTING:
            raise _BadDatum("nested too deeply")
        for name, field in filled:
            try:
                at = field(data, at, depth + 1)
            except _BadDatum as wrong:
                raise _BadDatum(f'field "{name}": {wrong}') from None
        return at

    return walk if filled else _null


def _blocks(item: Walk) -> Walk:
    """Scan an array or map: counted blocks of items, until a count of 0."""

    def walk(data: bytes, at: int, depth: int) -> int:
        if depth > MAX_NESTING:
            raise _BadDatum("nested too deeply")
        empty = 0
        while True:
            count, at = _integer(data, at, _LONG)
            if count == 0:
                return at
            if count < 0:  # a negative count is followed by the block's size in bytes
                count, (_, at) = -count, _integer(data, at, _LONG)
            if item is _null:
                empty += count
                if empty > MAX_EMPTY_ITEMS:
                    raise _BadDatum(f"an array of more than {MAX_EMPTY_ITEMS} items without bytes")
                continue
            for _ in range(count):
                at = item(data, at, depth + 1)

    return walk


def _union(branches: list[Walk]) -> Walk:
    def walk(data: bytes, at: int, depth: int) -> int:
        branch, at = _integer(data, at, _LONG)
        if not 0 <= branch < len(branches):
            raise _BadDatum(f"there is no branch {branch} in a union of {len(branches)}")
        return branches[branch](data, at, depth)

    return walk


def _enum(symbols: int) -> Walk:
    def walk(data: bytes, at: int, _depth: int) -> int:
        symbol, at = _integer(data, at, _INT)
        if not 0 <= symbol < symbols:
            raise _BadDatum(f"there is no symbol {symbol} in an enum of {symbols}")
        return at

    return walk


def _walk_fixed(size: object) -> Walk:
    if not isinstance(size, int) or size < 0:
        raise ValueError("the size of a fixed type is a number from 0 on")
    length = size

    def walk(data: bytes, at: int, _depth: int) -> int:
        return _skip(data, at, length)

    return walk if length else _null


# Functions, not partials: called for each value of an array.
def _int(data: bytes, at: int, _depth: int) -> int:
    return _integer(data, at, _INT)[1]


def _long(data: bytes, at: int, _depth: int) -> int:
    return _integer(data, at, _LONG)[1]


def _boolean(data: bytes, at: int, _depth: int) -> int:
    end = _skip(data, at, 1)
    if data[at] > 1:
        raise _BadDatum(f"a boolean is 0 or 1, not {data[at]}")
    return end


def _bytes(data: bytes, at: int, _depth: int) -> int:
    return _span(data, at)[1]


def _span(data: bytes, at: int) -> tuple[int, int]:
    """Return the start and end of length-prefixed bytes."""
    length, start = _integer(data, at, _LONG)
    if length < 0:
        raise _BadDatum(f"a length of {length}")
    return start, _skip(data, start, length)


def _string(data: bytes, at: int, _depth: int) -> int:
    start, end = _span(data, at)
    try:
        data[start:end].decode()
    except UnicodeDecodeError:
        raise _BadDatum("a string that is not UTF-8") from None
    return end


def _skip(data: bytes, at: int, length: int) -> int:
    if len(data) - at < length:
        raise _BadDatum(f"unexpected end of data: {length} bytes wanted, {len(data) - at} there")
    return at + length


def _integer(data: bytes, at: int, bits: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        if at >= len(data):
            raise _BadDatum("unexpected end of data in a number")
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 70:
            raise _BadDatum("a number of more than 10 bytes")
    if raw >> bits:
        raise _BadDatum(f"a number of more than {bits} bits")
    return (raw >> 1) ^ -(raw & 1), at


_PRIMITIVES: Mapping[str, Walk] = {
    "null": _null, "boolean": _boolean, "int": _int, "long": _long, "float": _walk_fixed(4), "double": _walk_fixed(8),
    "bytes": _bytes, "string": _string,
}  # fmt: skip

Schema = dict[str, Any]
_DRAFT = "http://json-schema.org/draft-04/schema#"
"""In draft 4, as in Avro, 1.0 is not an integer."""
_JSON_PRIMITIVES: Mapping[str, Schema] = {
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "int": {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    "long": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    "float": {"type": "number"},
    "double": {"type": "number"},
    "bytes": {"$ref": "#/definitions/bytes"},
    "string": {"type": "string"},
}


def json_schema(schema: dict[str, Any]) -> Schema:
    """Return the JSON Schema of Avro's JSON encoding. Raises `InvalidInput` if `schema` is not an Avro schema."""
    translator = _Translator()
    whole = translator.translate(_parse(schema))
    return {"$schema": _DRAFT, "allOf": [whole], "definitions": translator.definitions}


class _Translator:
    """Translates a parsed schema. Names are full, and each named type is defined where it first occurs."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {"bytes": {"type": "string", "pattern": "^[\\u0000-\\u00ff]*$"}}
        self._named: dict[str, Schema] = {}

    def translate(self, schema: Any) -> Schema:
        if isinstance(schema, str):
            return _JSON_PRIMITIVES.get(schema) or self._named[schema]
        if isinstance(schema, list):
            return self._union(schema)
        kind = schema["type"]
        if kind == "array":
            return {"type": "array", "items": self.translate(schema["items"])}
        if kind == "map":
            return {"type": "object", "additionalProperties": self.translate(schema["values"])}
        if kind in _NAMED_TYPES:
            return self._define(schema)
        return self.translate(kind)

    def _union(self, branches: list[Any]) -> Schema:
        """Translate a union to an object with one member. Trying each branch would be slow for nested unions."""
        others = {_label(each): self.translate(each) for each in branches if _label(each) != "null"}
        types = ["object"] if len(others) == len(branches) else ["object", "null"]
        return {
            "type": types, "properties": others, "additionalProperties": False, "minProperties": 1, "maxProperties": 1,
        }  # fmt: skip

    def _define(self, schema: Mapping[str, Any]) -> Schema:
        kind, number = schema["type"], f"t{len(self._named)}"
        found = self._named[schema["name"]] = {"$ref": f"#/definitions/{number}"}
        if kind == "enum":
            self.definitions[number] = {"enum": schema["symbols"]}
        elif kind == "fixed":
            size = schema["size"]
            self.definitions[number] = {"allOf": [_JSON_PRIMITIVES["bytes"]], "minLength": size, "maxLength": size}
        else:
            fields = {each["name"]: self.translate(each["type"]) for each in schema["fields"]}
            record: Schema = {"type": "object", "properties": fields, "additionalProperties": False}
            # Draft 4 needs at least one required name.
            self.definitions[number] = record | ({"required": list(fields)} if fields else {})
        return found


def _label(branch: Any) -> Any:
    if isinstance(branch, str):
        return branch
    return branch["name"] if branch["type"] in _NAMED_TYPES else branch["type"]
