"""Avro schemas as types of columns."""

from collections.abc import Mapping
from typing import Any

import fastavro.schema
import msgspec
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ams.core.yaml_tree import Value, bad
from ams.pipeline.expressions import types

_PLAIN: Mapping[str, DataType] = {
    **dict.fromkeys(("string", "enum"), types.STRING),
    **dict.fromkeys(("int", "long"), types.BIGINT),
    **dict.fromkeys(("float", "double"), types.DOUBLE),
    **dict.fromkeys(("bytes", "fixed"), types.BINARY),
    "boolean": types.BOOLEAN,
}
_LOGICAL: Mapping[str, DataType] = {
    **dict.fromkeys(("timestamp-millis", "timestamp-micros"), types.TIMESTAMP),
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
        record = _type(fastavro.schema.expand_schema(read))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad(value.place, f"the schema is not JSON: {error}") from None
    except _NO_SCHEMA as error:
        raise bad(value.place, f"not an Avro schema: {error}") from None
    except _Odd as error:
        raise bad(value.place, f"the schema cannot be used: {error}") from None
    if not isinstance(record, StructType):
        raise bad(value.place, "the schema must be of a record")
    return read, {each.name: each.dataType for each in record.fields}


def _type(schema: Any) -> DataType:
    """Return the type of a schema in which each name stands for a record that it is in, as others are expanded."""
    if isinstance(schema, list):
        branches = [each for each in schema if each != "null"]
        if len(branches) != 1:
            raise _Odd("a union of several types has no column type; null and one other is taken")
        return _type(branches[0])
    if isinstance(schema, str):
        return _plain(schema)
    if logical := schema.get("logicalType"):
        if logical not in _LOGICAL:
            raise _Odd(f"the logical type {logical} has no column type")
        return _LOGICAL[logical]
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _type(kind)
    if kind == "array":
        return ArrayType(_type(schema["items"]))
    if kind == "map":
        return MapType(types.STRING, _type(schema["values"]))
    if kind == "record":
        if not schema["fields"]:
            raise _Odd(f"record {schema['name']} has no fields")
        return types.struct({each["name"]: _type(each["type"]) for each in schema["fields"]})
    if kind == "fixed" and not schema["size"]:
        raise _Odd(f"{schema['name']} has no bytes")
    return _plain(kind)


def _plain(word: str) -> DataType:
    if word in ("null", "error"):
        raise _Odd(f"{word} has no column type")
    if word not in _PLAIN:
        raise _Odd(f"record {word} holds itself")
    return _PLAIN[word]
