"""Formats of payloads (JSON, Avro, Protocol Buffers, text), which parse messages into typed records."""

import base64
import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

import fastavro
import msgspec
from pyspark.sql import types as spark
from pyspark.sql.types import DataType, StructType

from ams.core.errors import InvalidInput
from ams.pipeline.columns import PLACE, SOURCE
from ams.pipeline.errors import Broken, WrongOption
from ams.pipeline.jobs.fields import coding_of, in_utf8, is_broken, json_text, parse_with_mark
from ams.validation.protobuf import ProtobufSchema

Record = Mapping[str, Any]
Convert = Callable[[Any], Any]  # converts a value to a type; None if it cannot
Conversions = Mapping[type[DataType], Convert]

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_LAST_SECOND = 253402300799
_ATTRIBUTES = spark.MapType(spark.StringType(), spark.StringType())
_NO_SCHEMA = (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, ValueError, TypeError, KeyError)


def _whole(value: Any) -> int | None:
    return value if type(value) is int and _LOWEST <= value <= _HIGHEST else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _time(value: Any) -> datetime | None:
    if type(value) in (int, float):
        return datetime.fromtimestamp(value, UTC) if 0 <= value <= _LAST_SECOND else None
    return _in_utc(datetime.fromisoformat(value))


def _in_utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _null_on_error(convert: Convert) -> Convert:
    def convert_or_null(value: Any) -> Any:
        try:
            return convert(value)
        except (TypeError, ValueError, OverflowError):
            return None

    return convert_or_null


_KINDS = {str: "text", bool: "boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}
_FROM_JSON: Conversions = {
    spark.StringType: lambda value: value if isinstance(value, str) else None,
    spark.LongType: _whole,
    spark.DoubleType: _number,
    spark.BooleanType: lambda value: value if isinstance(value, bool) else None,
    spark.TimestampType: _null_on_error(_time),
    spark.DateType: _null_on_error(date.fromisoformat),
    spark.BinaryType: _null_on_error(partial(base64.b64decode, validate=True)),
}
_FROM_TEXT: Conversions = {
    **_FROM_JSON,
    spark.LongType: _null_on_error(lambda part: _whole(int(part))),
    spark.DoubleType: _null_on_error(lambda part: _number(float(part))),
    spark.BooleanType: lambda part: {"true": True, "false": False}.get(part.lower()),
}
_FROM_PROTOBUF: Conversions = {  # JSON of Protocol Buffers writes 64-bit numbers and NaN as texts
    **_FROM_JSON,
    spark.LongType: lambda value: (_FROM_TEXT if isinstance(value, str) else _FROM_JSON)[spark.LongType](value),
    spark.DoubleType: lambda value: (_FROM_TEXT if isinstance(value, str) else _FROM_JSON)[spark.DoubleType](value),
}
_FROM_AVRO: Conversions = {  # fastavro has read logical types
    **_FROM_JSON,
    spark.StringType: lambda value: str(value) if isinstance(value, str | UUID) else None,
    spark.TimestampType: lambda value: _in_utc(value) if isinstance(value, datetime) else None,
    spark.DateType: lambda value: value if type(value) is date else None,
    spark.BinaryType: lambda value: value if isinstance(value, bytes) else None,
}


class Payload:
    """A format: reads the data of a message into records."""

    conversions: Conversions
    is_nested = True  # whether fields can be arrays, maps and structs

    def __init__(self, columns: str | StructType, required: Sequence[str] = ()) -> None:
        """Make a format; Spark must be running, as it reads the text.

        Args:
            columns: Names and types of the records' fields, such as `"site string, jobs bigint"`. Other fields of a
                payload are left out.
            required: Fields without which a record is broken.

        Raises:
            WrongOption: A type has no conversion, or a required field no column.
        """
        schema = columns if isinstance(columns, StructType) else StructType.fromDDL(columns)
        assert isinstance(schema, StructType)
        self.fields = {each.name: each.dataType for each in schema.fields}
        self.required = frozenset(required)
        for name, kind in self.fields.items():
            self._check_type(name, kind)
        if unknown := self.required - self.fields.keys():
            raise WrongOption("required", f"there is no column {', '.join(sorted(unknown))}")

    @property
    def record(self) -> StructType:
        """Columns of a record: its fields, and the attributes of its message."""
        fields = [spark.StructField(name, kind) for name, kind in self.fields.items()]
        return StructType([*fields, spark.StructField("attributes", _ATTRIBUTES)])

    @property
    def schema(self) -> StructType:
        """Columns of a table of records: those of `record`, and `source`, which names the message."""
        return StructType([*self.record.fields, spark.StructField(SOURCE, PLACE)])

    def _check_type(self, name: str, kind: DataType) -> None:
        if self.is_nested and isinstance(kind, spark.ArrayType):
            self._check_type(f"{name}[]", kind.elementType)
        elif self.is_nested and isinstance(kind, spark.MapType) and isinstance(kind.keyType, spark.StringType):
            self._check_type(f"{name}.*", kind.valueType)
        elif self.is_nested and isinstance(kind, StructType):
            for each in kind.fields:
                self._check_type(f"{name}.{each.name}", each.dataType)
        elif type(kind) not in self.conversions:
            known = ", ".join(each().simpleString() for each in self.conversions)
            raise WrongOption("columns", f"{name} is {kind.simpleString()}; there are {known}")

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
        return {name: _cast(piece.get(name), wanted, name, self.conversions) for name, wanted in self.fields.items()}


class Json(Payload):
    """A JSON object, or a list of objects, each a record."""

    conversions = _FROM_JSON

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
        return super()._record(piece)


class Text(Payload):
    """Lines of text, each a record: split at a separator, with quotes as in CSV, or one field."""

    conversions = _FROM_TEXT
    is_nested = False

    def __init__(self, columns: str | StructType, required: Sequence[str] = (), *, separator: str = "") -> None:
        """Make a format; also raises `WrongOption` for a separator that cannot be used."""
        super().__init__(columns, required)
        self.separator = separator
        if len(separator) > 1 or separator in tuple('"\n\r'):
            raise WrongOption("separator", "is one character, and neither a quote nor the end of a line")
        if not separator and len(self.fields) > 1:
            raise WrongOption("separator", "several fields need one")

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
        return {name: _from_text(part, wanted, name) for (name, wanted), part in pairs}


class Avro(Payload):
    """Avro data without header, of one schema."""

    conversions = _FROM_AVRO

    def __init__(
        self, columns: str | StructType, required: Sequence[str] = (), *, definition: str, packed: bool = False
    ) -> None:
        """Make a format; also raises `WrongOption` for a definition that cannot be used.

        Args:
            columns: As for all formats; fields of the Avro record.
            required: As for all formats.
            definition: The Avro schema as JSON, of a record.
            packed: A message holds several datums, one behind the other.
        """
        super().__init__(columns, required)
        self.packed = packed
        try:
            self.definition = msgspec.json.decode(definition)
            parsed: Any = fastavro.parse_schema(self.definition)
            known = {each["name"] for each in parsed["fields"]}
        except _NO_SCHEMA as error:
            raise WrongOption("definition", f"is no Avro schema of a record: {error}") from None
        if unknown := self.fields.keys() - known:
            raise WrongOption("columns", f"the Avro schema has no field {', '.join(sorted(unknown))}")

    def _pieces(self, data: bytes) -> Iterable[Record | Broken]:
        stream = io.BytesIO(data)
        schema = fastavro.parse_schema(self.definition)
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


def _datum(stream: io.BytesIO, schema: Any) -> Any:
    before = stream.tell()
    try:
        return fastavro.schemaless_reader(stream, schema, None)
    except UnicodeDecodeError:  # the datum's end is known: the message's others can be read
        stream.seek(before)
        fastavro.schemaless_reader(stream, schema, None, handle_unicode_errors="replace")
        return Broken("not Avro of this schema: a text is not UTF-8")


class Protobuf(Payload):
    """A binary message in Protocol Buffers, read as its JSON, with the names of the definition."""

    conversions = _FROM_PROTOBUF

    def __init__(self, columns: str | StructType, required: Sequence[str] = (), *, definition: str) -> None:
        """Make a format; `definition` is the text of a `.proto` file. Also raises `WrongOption` for it."""
        from ams.pipeline.protobuf import compile_definition  # only the driver compiles

        super().__init__(columns, required)
        try:
            self.descriptor = compile_definition(definition)
        except InvalidInput as error:
            raise WrongOption("definition", error.message) from None

    def _pieces(self, data: bytes) -> Iterable[Any]:
        try:
            return [_protobuf_schema(self.descriptor).as_dict(data, whole=True)]
        except ValueError as error:
            raise Broken(f"not Protocol Buffers of this schema: {error}") from None


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


def _from_text(part: str, wanted: DataType, name: str) -> Any:
    if part == "" and not isinstance(wanted, spark.StringType):
        return None
    convert = _FROM_TEXT.get(type(wanted))
    converted = convert(part) if convert else None
    if converted is None:
        raise Broken(f"field {name}: {wanted.simpleString()} is expected")
    return converted
