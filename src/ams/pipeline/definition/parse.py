"""The step that takes messages apart."""

from collections.abc import Mapping
from typing import Any

import fastavro.schema
import msgspec
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.fields import (
    ATTRIBUTES,
    MESSAGE_TYPES,
    SOURCE,
    Findings,
    check_name,
    fields,
    known_columns,
)
from ams.pipeline.definition.payloads import Avro, Json, Payload, Text
from ams.pipeline.definition.reading import Steps
from ams.pipeline.expressions import types

KEYS = ("format", "fields", "schema", "required", "separator", "packed")


def parse_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `parse`."""
    if steps.parse is not None:
        raise bad(value.place, "messages are parsed once")
    if steps.whole or any(word != "filter" for word in steps.said):
        raise bad(value.place, "only filter can stand before parse")
    said = findings.mapping(value, KEYS, ("format",))
    if "format" in said:
        steps.parse = findings.read(said["format"], lambda form: _parser(form, said, steps, findings))
    found = steps.parse.fields if isinstance(steps.parse, Payload) else {}
    steps.before, steps.rows = steps.rows, []
    steps.parsed = {**found, ATTRIBUTES: types.STRINGS}
    steps.columns = {**steps.parsed, SOURCE: MESSAGE_TYPES[SOURCE]}


def _parser(form: Value, said: Mapping[str, Value], steps: Steps, findings: Findings) -> Payload:
    kind = form.one_of("json", "avro", "text")
    for name, of in (("fields", "json or text"), ("separator", "text"), ("schema", "avro"), ("packed", "avro")):
        if name in said and kind not in of:
            findings.add(said[name], f"{name} is for {of}")
    if kind == "avro":
        return _avro(form, said, steps, findings)
    if "fields" not in said:
        raise bad(form.place, f"fields must be said: the names and types {kind} is read into")
    found = fields(said["fields"], findings)
    required = frozenset(known_columns(said.get("required"), found, findings))
    if kind == "json":
        return Json(found, required)
    _check_text(found, said, findings)
    return Text(found, required, said["separator"].text() if "separator" in said else "")


def _avro(form: Value, said: Mapping[str, Value], steps: Steps, findings: Findings) -> Payload:
    if "schema" not in said:
        raise bad(form.place, "schema must be said: the file of the Avro schema")
    schema, found = _avro_fields(said["schema"], steps.file(said["schema"]))
    for name in found:
        with findings.catch(said["schema"]):
            check_name(said["schema"], name, [each for each in found if each < name], (SOURCE, ATTRIBUTES))
    packed = said["packed"].switch() if "packed" in said else False
    return Avro(found, frozenset(known_columns(said.get("required"), found, findings)), schema, packed)


def _check_text(found: Mapping[str, DataType], said: Mapping[str, Value], findings: Findings) -> None:
    for name, kind in found.items():
        if types.is_nested(kind):
            findings.add(said["fields"], f"field {name}: text holds no {kind.typeName()}")
    separator = said.get("separator")
    if separator is None and len(found) > 1:
        findings.add(said["fields"], "several fields need a separator")
    if separator is not None and (len(separator.text()) != 1 or separator.text() in '"\n\r'):
        findings.add(separator, "a separator is one character, and neither a quote nor the end of a line")


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


def _avro_fields(value: Value, schema: bytes) -> tuple[dict[str, Any], dict[str, DataType]]:
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
