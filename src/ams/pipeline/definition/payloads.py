"""Parses payloads (JSON, Avro, Protocol Buffers, text) into records with the types of a definition."""

import base64
import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache, partial
from typing import Any

import fastavro
import msgspec
from pyspark.sql import types as spark
from pyspark.sql.types import DataType

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.fields import coding_of, in_utf8, is_broken, json_text, parse_with_mark
from ams.validation.protobuf import ProtobufSchema

Record = Mapping[str, Any]
Convert = Callable[[Any], Any]  # converts a value to a type; None if it cannot
Conversions = Mapping[type[DataType], Convert]

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_LAST_SECOND = 253402300799


@dataclass(frozen=True, slots=True)
class Payload:
    """Reads messages into records."""

    fields: Mapping[str, DataType]
    required: frozenset[str] = frozenset()

    def __call__(self, data: bytes, attributes: Mapping[str, str]) -> Iterable[Record | Broken]:
        """Parse a message. Raises `Broken` if nothing of it can be read."""
        for piece in self._pieces(data):
            if isinstance(piece, Broken):
                yield piece
                continue
            try:
                found = self._record(piece)
                for name in sorted(self.required):
                    if found[name] is None:
                        raise Broken(f"field {name} is missing")
            except Broken as error:
                yield error
            else:
                yield {**found, "attributes": dict(attributes)}

    def _pieces(self, data: bytes) -> Iterable[Any]:
        raise NotImplementedError

    def _record(self, piece: Any) -> Record:
        raise NotImplementedError


class Json(Payload):
    """A JSON object, or a list of objects, each a record. Fields without a type are left out."""

    def _pieces(self, data: bytes) -> Iterable[Any]:
        read, mark = parse_with_mark(in_utf8(data, keeps_broken=True), self._parse)
        pieces = read if isinstance(read, list) else [read]
        if not mark:
            return pieces
        return [Broken(f"not {coding_of(data)}") if mark in json_text(each) else each for each in pieces]

    def _parse(self, data: bytes) -> Any:
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Broken(f"not JSON: {error}") from None
        except RecursionError:
            raise Broken("not JSON: nested too deeply") from None

    def _record(self, piece: Any) -> Record:
        if not isinstance(piece, dict):
            raise Broken("a JSON object is expected")
        return {name: _cast(piece.get(name), wanted, name, _CONVERT) for name, wanted in self.fields.items()}


@dataclass(frozen=True, slots=True)
class Text(Payload):
    """Lines of text, each a record: split at a separator, or one field."""

    separator: str = ""

    def _pieces(self, data: bytes) -> Iterable[str | Broken]:
        text = in_utf8(data, keeps_broken=True)
        try:
            return [line for line in text.decode().splitlines() if line]  # skips empty lines
        except UnicodeDecodeError:
            lines = text.decode("utf-8", "surrogateescape").splitlines()
            return [Broken(f"not text in {coding_of(data)}") if is_broken(line) else line for line in lines if line]

    def _record(self, piece: str) -> Record:
        try:
            lines = csv.reader(io.StringIO(piece), delimiter=self.separator, strict=True) if self.separator else None
            parts = [piece] if lines is None else next(lines, [])
        except csv.Error as error:
            raise Broken(f"not separated text: {error}") from None
        if len(parts) != len(self.fields):
            raise Broken(f"{len(self.fields)} fields are expected in a line, not {len(parts)}")
        pairs = zip(self.fields.items(), parts, strict=True)
        return {name: from_text(part, wanted, name) for (name, wanted), part in pairs}


@dataclass(frozen=True, slots=True)
class Avro(Payload):
    """Avro data without header, of one schema; `packed` messages hold several records."""

    schema: Mapping[str, Any] = field(default_factory=dict)
    packed: bool = False

    def _pieces(self, data: bytes) -> Iterable[Record | Broken]:
        stream = io.BytesIO(data)
        schema = fastavro.parse_schema(dict(self.schema))
        while True:
            before = stream.tell()
            try:
                read = _datum(stream, schema)
            except RecursionError:
                raise Broken("not Avro of this schema: nested too deeply") from None
            except Exception as error:  # the reader may raise anything for foreign bytes
                raise Broken(f"not Avro of this schema: {type(error).__name__}") from None
            if stream.tell() == before or (stream.tell() < len(data) and not self.packed):
                raise Broken("not Avro of this schema: bytes are left over")
            yield read
            if stream.tell() == len(data):
                return

    def _record(self, piece: Record) -> Record:
        return {name: piece.get(name) for name in self.fields}


def _datum(stream: io.BytesIO, schema: Any) -> Any:
    before = stream.tell()
    try:
        return fastavro.schemaless_reader(stream, schema, None)
    except UnicodeDecodeError:  # the datum's end is known: the message's others can be read
        stream.seek(before)
        fastavro.schemaless_reader(stream, schema, None, handle_unicode_errors="replace")
        return Broken("not Avro of this schema: a text is not UTF-8")


@dataclass(frozen=True, slots=True)
class Protobuf(Json):
    """A binary message in Protocol Buffers, read as its JSON, with the names of the definition."""

    descriptor: bytes = b""

    def _pieces(self, data: bytes) -> Iterable[Any]:
        try:
            return [_protobuf_schema(self.descriptor).as_dict(data, whole=True)]
        except ValueError as error:
            raise Broken(f"not Protocol Buffers of this schema: {error}") from None

    def _record(self, piece: Any) -> Record:
        return {name: _cast(piece.get(name), wanted, name, _FROM_PROTOBUF) for name, wanted in self.fields.items()}


_protobuf_schema = lru_cache(4)(ProtobufSchema)


def _cast(value: Any, wanted: DataType, name: str, by: Conversions) -> Any:
    if value is None:
        return None
    if isinstance(wanted, spark.ArrayType) and isinstance(value, list):
        return [_cast(each, wanted.elementType, f"{name}[{place}]", by) for place, each in enumerate(value)]
    if isinstance(wanted, spark.MapType) and isinstance(value, dict):
        return {key: _cast(each, wanted.valueType, f"{name}.{key[:40]}", by) for key, each in value.items()}
    if isinstance(wanted, spark.StructType) and isinstance(value, dict):
        parts = ((each.name, each.dataType) for each in wanted.fields)
        return {part: _cast(value.get(part), kind, f"{name}.{part}", by) for part, kind in parts}
    convert = by.get(type(wanted))
    converted = convert(value) if convert else None
    if converted is None:
        kind = _KINDS.get(type(value), "something else")
        raise Broken(f"field {name}: {wanted.simpleString()} is expected, not {kind}")
    return converted


def from_text(part: str, wanted: DataType, name: str) -> Any:
    """Convert a part of a line; empty gives None. Raises `Broken` with the field's name."""
    if part == "" and not isinstance(wanted, spark.StringType):
        return None
    convert = _FROM_TEXT.get(type(wanted))
    converted = convert(part) if convert else None
    if converted is None:
        raise Broken(f"field {name}: {wanted.simpleString()} is expected")
    return converted


def _whole(value: Any) -> int | None:
    return value if type(value) is int and _LOWEST <= value <= _HIGHEST else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _time(value: Any) -> datetime | None:
    if type(value) in (int, float):
        return datetime.fromtimestamp(value, UTC) if 0 <= value <= _LAST_SECOND else None
    read = datetime.fromisoformat(value)
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


def _null_on_error(convert: Convert) -> Convert:

    def convert_or_null(value: Any) -> Any:
        try:
            return convert(value)
        except (TypeError, ValueError, OverflowError):
            return None

    return convert_or_null


_KINDS = {str: "text", bool: "boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}
_CONVERT: Conversions = {
    spark.StringType: lambda value: value if isinstance(value, str) else None,
    spark.LongType: _whole,
    spark.DoubleType: _number,
    spark.BooleanType: lambda value: value if isinstance(value, bool) else None,
    spark.TimestampType: _null_on_error(_time),
    spark.DateType: _null_on_error(date.fromisoformat),
    spark.BinaryType: _null_on_error(partial(base64.b64decode, validate=True)),
}
_FROM_TEXT: Conversions = {
    **_CONVERT,
    spark.LongType: _null_on_error(lambda part: _whole(int(part))),
    spark.DoubleType: _null_on_error(lambda part: _number(float(part))),
    spark.BooleanType: lambda part: {"true": True, "false": False}.get(part.lower()),
}
_FROM_PROTOBUF: Conversions = {  # JSON of Protocol Buffers writes 64-bit numbers and NaN as texts
    **_CONVERT,
    spark.LongType: lambda value: (_FROM_TEXT if isinstance(value, str) else _CONVERT)[spark.LongType](value),
    spark.DoubleType: lambda value: (_FROM_TEXT if isinstance(value, str) else _CONVERT)[spark.DoubleType](value),
}
