"""Payloads in Avro: one bare binary datum of the schema, without header, and nothing after it (contract 15.3, O12).

A datum is walked through, never built: its bytes are not trusted. A reader that builds it can be made to build a list
of a billion nulls by five bytes, and a value inside a value by each byte.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from ams.core.errors import InvalidInput
from ams.validation.cost import Budget
from ams.validation.violations import quoted

MAX_NESTING = 100
"""Records within records of a datum whose schema refers to itself."""
_STEP = 4
"""Units of work for one value."""
_INT, _LONG = 32, 64
"""Bits."""

Walk = Callable[[bytes, int, int], int]
"""Takes data, where a value begins and how deep it lies; returns where it ends, raises `_Wrong`."""


class _Wrong(Exception):
    """The datum is not what the schema says; the text says where and why."""


class AvroSchema:
    """One compiled schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile `schema`; raise `InvalidInput` with the compiler's text."""
        compiler = _Compiler()
        self._walk = _compile(compiler, schema)
        self._work = compiler.work

    def check(self, index: int, data: bytes, budget: Budget) -> None:
        """Raise `InvalidInput` unless `data` is one datum of the schema and nothing else, `TooMuch` over the budget."""
        budget.spend(self._work(len(data)))
        try:
            end = self._walk(data, 0, 0)
        except _Wrong as wrong:
            raise InvalidInput(f"Message {index} is not valid.{quoted(str(wrong))}") from None
        if end != len(data):
            raise InvalidInput(f"Message {index} is not valid.{len(data) - end} bytes left over after the datum")


def parsed(schema: dict[str, Any]) -> Any:
    """Return a schema with full names; raise `InvalidInput` with the compiler's text."""
    with _told():
        return parse_schema(_described(schema))


def _compile(compiler: "_Compiler", schema: dict[str, Any]) -> Walk:
    parts = parsed(schema)
    with _told():
        return compiler.walk(parts)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Raise what is wrong with a schema as `InvalidInput`."""
    try:
        yield
    except KeyError as error:
        raise InvalidInput(f"{error.args[0]} is required") from None
    except (SchemaParseException, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(_reason(error)) from None


def _described(schema: Any) -> Any:
    """Return the schema inside `{"type": ...}`: a union on top can only be written so, as the whole is an object."""
    while isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
        schema = schema["type"]
    return schema


def _reason(error: Exception) -> str:
    if isinstance(error, UnknownType):
        name = error.name.get("type") if isinstance(error.name, dict) else error.name
        return f'unknown type name: "{quoted(name)}"'
    return quoted(f"schema is not valid: {error}")


class _Compiler:
    """Makes walks of a parsed schema: names are full, every named type stands where it is first met."""

    def __init__(self) -> None:
        self._named: dict[str, Walk] = {}
        self._parts = self._levels = 0
        self._repeats = False

    def work(self, size: int) -> int:
        """Return the units of work (`ams.validation.cost`) that a datum of a size takes at most.

        Every step uses up bytes, but for those into records; without lists, and types used twice, each step is made
        once.
        """
        levels = min(self._levels, MAX_NESTING)
        return _STEP * (size * levels if self._repeats else self._parts) + size // 16

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
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(schema)
        return self.walk(kind)

    def _by_name(self, name: str) -> Walk:
        """Return what walks a named type; it may be still in the making, when it holds itself."""
        named = self._named
        self._repeats = True
        if name not in named:
            raise ValueError(f"there is no type {name}")

        def later(data: bytes, at: int, depth: int) -> int:
            return named[name](data, at, depth)

        return later if named[name] is _unfinished else named[name]

    def _define(self, schema: Mapping[str, Any]) -> Walk:
        kind, name = schema["type"], schema["name"]
        self._named[name] = _unfinished
        if kind == "enum":
            self._named[name] = _enum(len(schema["symbols"]))
        elif kind == "fixed":
            self._named[name] = _fixed(schema["size"])
        else:
            self._named[name] = _in_turn([(each["name"], self.walk(each["type"])) for each in schema["fields"]])
        return self._named[name]


def _unfinished(_data: bytes, at: int, _depth: int) -> int:
    """Stand for a type in the making."""
    return at


def _null(_data: bytes, at: int, _depth: int) -> int:
    """Walk a type without bytes. A type made only of such types is one too, or a few names would make endless work."""
    return at


def _in_turn(fields: list[tuple[str, Walk]]) -> Walk:
    """Walk a record: its fields one after the other."""
    filled = [each for each in fields if each[1] is not _null]

    def walk(data: bytes, at: int, depth: int) -> int:
        if depth > MAX_NESTING:
            raise _Wrong("nested too deeply")
        for name, field in filled:
            try:
                at = field(data, at, depth + 1)
            except _Wrong as wrong:
                raise _Wrong(f'field "{name}": {wrong}') from None
        return at

    return walk if filled else _null


MOST_EMPTY_ITEMS = 1000
"""Items without bytes in one array: ten bytes may say that there are 2^63 of them, which every reader would make."""


def _blocks(item: Walk) -> Walk:
    """Walk an array or map: blocks of items, each with its count, until a count of 0."""

    def walk(data: bytes, at: int, depth: int) -> int:
        if depth > MAX_NESTING:
            raise _Wrong("nested too deeply")
        empty = 0
        while True:
            count, at = _integer(data, at, _LONG)
            if count == 0:
                return at
            if count < 0:  # then the size of the block in bytes follows
                count, (_, at) = -count, _integer(data, at, _LONG)
            if item is _null:
                empty += count
                if empty > MOST_EMPTY_ITEMS:
                    raise _Wrong(f"an array of more than {MOST_EMPTY_ITEMS} items without bytes")
                continue
            for _ in range(count):
                at = item(data, at, depth + 1)

    return walk


def _union(branches: list[Walk]) -> Walk:
    def walk(data: bytes, at: int, depth: int) -> int:
        branch, at = _integer(data, at, _LONG)
        if not 0 <= branch < len(branches):
            raise _Wrong(f"there is no branch {branch} in a union of {len(branches)}")
        return branches[branch](data, at, depth)

    return walk


def _enum(symbols: int) -> Walk:
    def walk(data: bytes, at: int, _depth: int) -> int:
        symbol, at = _integer(data, at, _INT)
        if not 0 <= symbol < symbols:
            raise _Wrong(f"there is no symbol {symbol} in an enum of {symbols}")
        return at

    return walk


def _fixed(size: object) -> Walk:
    if not isinstance(size, int) or size < 0:
        raise ValueError("the size of a fixed type is a number from 0 on")
    length = size

    def walk(data: bytes, at: int, _depth: int) -> int:
        return _skip(data, at, length)

    return walk if length else _null


def _boolean(data: bytes, at: int, _depth: int) -> int:
    end = _skip(data, at, 1)
    if data[at] > 1:
        raise _Wrong(f"a boolean is 0 or 1, not {data[at]}")
    return end


def _int(data: bytes, at: int, _depth: int) -> int:
    return _integer(data, at, _INT)[1]


def _long(data: bytes, at: int, _depth: int) -> int:
    return _integer(data, at, _LONG)[1]


def _float(data: bytes, at: int, _depth: int) -> int:
    return _skip(data, at, 4)


def _double(data: bytes, at: int, _depth: int) -> int:
    return _skip(data, at, 8)


def _bytes(data: bytes, at: int, _depth: int) -> int:
    return _measured(data, at)[1]


def _measured(data: bytes, at: int) -> tuple[int, int]:
    """Return where bytes that tell their length begin and end."""
    length, start = _integer(data, at, _LONG)
    if length < 0:
        raise _Wrong(f"a length of {length}")
    return start, _skip(data, start, length)


def _string(data: bytes, at: int, _depth: int) -> int:
    start, end = _measured(data, at)
    try:
        data[start:end].decode()
    except UnicodeDecodeError:
        raise _Wrong("a string that is not UTF-8") from None
    return end


def _skip(data: bytes, at: int, length: int) -> int:
    if len(data) - at < length:
        raise _Wrong(f"unexpected end of data: {length} bytes wanted, {len(data) - at} there")
    return at + length


def _integer(data: bytes, at: int, bits: int) -> tuple[int, int]:
    """Read a zigzag number of variable length; return it and where it ends."""
    raw = shift = 0
    while True:
        if at >= len(data):
            raise _Wrong("unexpected end of data in a number")
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 70:
            raise _Wrong("a number of more than 10 bytes")
    if raw >> bits:
        raise _Wrong(f"a number of more than {bits} bits")
    return (raw >> 1) ^ -(raw & 1), at


_PRIMITIVES: Mapping[str, Walk] = {
    "null": _null, "boolean": _boolean, "int": _int, "long": _long, "float": _float, "double": _double,
    "bytes": _bytes, "string": _string,
}  # fmt: skip
