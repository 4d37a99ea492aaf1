"""Avro schemas as types of columns."""

from collections.abc import Mapping
from typing import Any

import fastavro
import fastavro.schema
import msgspec
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ams.core.yaml_tree import Value, bad
from ams.pipeline.expressions import types

_PLAIN: Mapping[str, DataType] = {
    "string": types.STRING,
    "enum": types.STRING,
    "int": types.BIGINT,
    "long": types.BIGINT,
    "float": types.DOUBLE,
    "double": types.DOUBLE,
    "boolean": types.BOOLEAN,
    "bytes": types.BINARY,
    "fixed": types.BINARY,
}
_LOGICAL: Mapping[str, DataType] = {
    "timestamp-millis": types.TIMESTAMP,
    "timestamp-micros": types.TIMESTAMP,
    "date": types.DATE,
    "uuid": types.STRING,
}


_NO_SCHEMA = (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, ValueError, TypeError, KeyError)


class _Odd(Exception):
    """A schema that no columns can be made of."""


def avro_fields(value: Value, schema: bytes) -> tuple[dict[str, Any], dict[str, DataType]]:
    """Read the text of a schema; return it and the types of its record's fields.

    Raises `BadDocument` for a schema of something else than a record, and for types that no column has: unions of
    several types, records that hold themselves, decimals.
    """
    try:
        read = msgspec.json.decode(schema)
        fastavro.parse_schema(read)
        record = _type(read, {}, ())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad(value.place, f"the schema is not JSON: {error}") from None
    except _NO_SCHEMA as error:
        raise bad(value.place, f"not an Avro schema: {error}") from None
    except _Odd as error:
        raise bad(value.place, f"the schema cannot be used: {error}") from None
    if not isinstance(record, StructType):
        raise bad(value.place, "the schema must be of a record")
    return read, {each.name: each.dataType for each in record.fields}


def _type(schema: Any, named: dict[str, Any], above: tuple[str, ...]) -> DataType:
    if isinstance(schema, list):
        return _of_union(schema, named, above)
    if isinstance(schema, str):
        if schema in named:
            return _type(named[schema], named, above)
        return _plain(schema)
    if schema.get("logicalType") in _LOGICAL:
        return _LOGICAL[schema["logicalType"]]
    if "logicalType" in schema:
        raise _Odd(f"the logical type {schema['logicalType']} has no column type")
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _type(kind, named, above)
    if kind == "array":
        return ArrayType(_type(schema["items"], named, above))
    if kind == "map":
        return MapType(types.STRING, _type(schema["values"], named, above))
    if "name" in schema and kind in ("record", "enum", "fixed"):
        return _of_named(kind, schema, named, above)
    return _type(kind, named, above)


def _of_named(kind: str, schema: dict[str, Any], named: dict[str, Any], above: tuple[str, ...]) -> DataType:
    name = schema["name"]
    if name in above:
        raise _Odd(f"record {name} holds itself")
    space = schema.get("namespace")
    named.update({name: schema} | ({f"{space}.{name}": schema} if space else {}))
    if kind == "fixed" and not schema["size"]:
        raise _Odd(f"{name} has no bytes")
    if kind != "record":
        return _plain(kind)
    if not schema["fields"]:
        raise _Odd(f"record {name} has no fields")
    return types.struct({each["name"]: _type(each["type"], named, (*above, name)) for each in schema["fields"]})


def _of_union(schema: list[Any], named: dict[str, Any], above: tuple[str, ...]) -> DataType:
    branches = [each for each in schema if each != "null"]
    if len(branches) != 1:
        raise _Odd("a union of several types has no column type; null and one other is taken")
    return _type(branches[0], named, above)


def _plain(word: str) -> DataType:
    if word not in _PLAIN:
        raise _Odd(f"{word} has no column type")
    return _PLAIN[word]
