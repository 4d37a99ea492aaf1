"""What a message holds, as records: JSON, Avro or text, read into the types a definition asks for."""

import base64
import binascii
import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import fastavro
import msgspec
from pyspark.sql import types as spark
from pyspark.sql.types import DataType

from ams.pipeline.errors import Broken

Record = Mapping[str, Any]
"""The fields of a record."""

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_LAST_SECOND = 253402300799
"""The end of the year 9999."""


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON object, or a list of objects, of which each is a record. Fields that are not asked for are left out."""

    fields: Mapping[str, DataType]
    required: frozenset[str] = frozenset()

    def __call__(self, data: bytes, attributes: Mapping[str, str]) -> Iterable[Record | Broken]:
        """Read a message."""
        try:
            read = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Broken(f"not JSON: {error}") from None
        except RecursionError:
            raise Broken("not JSON: nested too deeply") from None
        for each in read if isinstance(read, list) else [read]:
            yield _or_broken(lambda value: self._record(value, attributes), each)

    def _record(self, read: Any, attributes: Mapping[str, str]) -> Record:
        if not isinstance(read, dict):
            raise Broken("a JSON object is expected")
        found = {name: _read(read.get(name), wanted, name) for name, wanted in self.fields.items()}
        return _complete(found, self.required, attributes)


@dataclass(frozen=True, slots=True)
class Text:
    """Lines of text, each a record: split at a separator, or as a whole the only field."""

    fields: Mapping[str, DataType]
    required: frozenset[str] = frozenset()
    separator: str = ""

    def __call__(self, data: bytes, attributes: Mapping[str, str]) -> Iterable[Record | Broken]:
        """Read a message; empty lines say nothing."""
        try:
            lines = data.decode().splitlines()
        except UnicodeDecodeError:
            raise Broken("not text in UTF-8") from None
        for line in lines:
            if line:
                yield _or_broken(lambda value: self._record(value, attributes), line)

    def _record(self, line: str, attributes: Mapping[str, str]) -> Record:
        parts = self._parts(line)
        if len(parts) != len(self.fields):
            raise Broken(f"{len(self.fields)} fields are expected in a line, not {len(parts)}")
        pairs = zip(self.fields.items(), parts, strict=True)
        found = {name: from_text(part, wanted, name) for (name, wanted), part in pairs}
        return _complete(found, self.required, attributes)

    def _parts(self, line: str) -> list[str]:
        if not self.separator:
            return [line]
        try:
            return next(csv.reader(io.StringIO(line), delimiter=self.separator, strict=True), [])
        except csv.Error as error:
            raise Broken(f"not separated text: {error}") from None


@dataclass(frozen=True, slots=True)
class Avro:
    """Avro data without header, of one schema; `packed` messages hold several, one behind the other."""

    schema: Mapping[str, Any]
    fields: Mapping[str, DataType]
    required: frozenset[str] = frozenset()
    packed: bool = False

    def __call__(self, data: bytes, attributes: Mapping[str, str]) -> Iterable[Record | Broken]:
        """Read a message."""
        stream = io.BytesIO(data)
        schema = fastavro.parse_schema(dict(self.schema))
        while True:
            before = stream.tell()
            record = self._next(stream, schema)
            if stream.tell() == before or (stream.tell() < len(data) and not self.packed):
                raise Broken("not Avro of this schema: bytes are left over")
            found = {name: record.get(name) for name in self.fields}
            yield _or_broken(lambda value: _complete(value, self.required, attributes), found)
            if stream.tell() == len(data):
                return

    def _next(self, stream: io.BytesIO, schema: Any) -> dict[str, Any]:
        try:
            read = fastavro.schemaless_reader(stream, schema, None)
        except RecursionError:
            raise Broken("not Avro of this schema: nested too deeply") from None
        except Exception as error:  # whatever a reader does with bytes that are something else
            raise Broken(f"not Avro of this schema: {type(error).__name__}") from None
        assert isinstance(read, dict)
        return read


def _or_broken(read: Callable[[Any], Record], value: Any) -> Record | Broken:
    try:
        return read(value)
    except Broken as error:
        return error


def _complete(found: dict[str, Any], required: frozenset[str], attributes: Mapping[str, str]) -> Record:
    for name in sorted(required):
        if found[name] is None:
            raise Broken(f"field {name} is missing")
    return {**found, "attributes": dict(attributes)}


def _read(value: Any, wanted: DataType, name: str) -> Any:
    """Return a JSON value as what is wanted; raise `Broken` naming the field."""
    if value is None:
        return None
    if isinstance(wanted, spark.ArrayType) and isinstance(value, list):
        return [_read(each, wanted.elementType, f"{name}[{place}]") for place, each in enumerate(value)]
    if isinstance(wanted, spark.MapType) and isinstance(value, dict):
        return {key: _read(each, wanted.valueType, f"{name}.{key[:40]}") for key, each in value.items()}
    if isinstance(wanted, spark.StructType) and isinstance(value, dict):
        return {each.name: _read(value.get(each.name), each.dataType, f"{name}.{each.name}") for each in wanted.fields}
    converted = _CONVERT.get(type(wanted), _never)(value)
    if converted is None:
        raise Broken(f"field {name}: {wanted.simpleString()} is expected, not {_kind(value)}")
    return converted


def from_text(part: str, wanted: DataType, name: str) -> Any:
    """Return a part of a line as what is wanted; what is empty says nothing; raise `Broken` naming the field."""
    if part == "" and not isinstance(wanted, spark.StringType):
        return None
    convert: Callable[[str], Any] = _FROM_TEXT.get(type(wanted), _never)
    converted = convert(part)
    if converted is None:
        raise Broken(f"field {name}: {wanted.simpleString()} is expected")
    return converted


def _kind(value: Any) -> str:
    kinds = {str: "text", bool: "boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds.get(type(value), "something else")


def _never(_: Any) -> Any:
    """Convert nothing."""
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and _LOWEST <= value <= _HIGHEST else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _time(value: Any) -> datetime | None:
    """Read ISO 8601, UTC if it names no zone, or seconds since 1970."""
    if type(value) in (int, float):
        return datetime.fromtimestamp(value, UTC) if 0 <= value <= _LAST_SECOND else None
    try:
        read = datetime.fromisoformat(value)
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def _day(value: Any) -> date | None:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        return None


def _bytes(value: Any) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return None


def _parsed(kind: Callable[[str], Any], then: Callable[[Any], Any]) -> Callable[[str], Any]:
    def read(part: str) -> Any:
        try:
            return then(kind(part))
        except ValueError:
            return None

    return read


_CONVERT: Mapping[type[DataType], Callable[[Any], Any]] = {
    spark.StringType: _text,
    spark.LongType: _whole,
    spark.DoubleType: _number,
    spark.BooleanType: _boolean,
    spark.TimestampType: _time,
    spark.DateType: _day,
    spark.BinaryType: _bytes,
}
_FROM_TEXT: Mapping[type[DataType], Callable[[str], Any]] = {
    **_CONVERT,
    spark.LongType: _parsed(int, _whole),
    spark.DoubleType: _parsed(float, _number),
    spark.BooleanType: lambda part: {"true": True, "false": False}.get(part.lower()),
}
