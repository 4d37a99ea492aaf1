"""The section `steps` of a definition: reads each step and builds its function on rows."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastavro.schema
import msgspec
import yaml
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ams.core.errors import InvalidInput
from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition import fields
from ams.pipeline.definition.fields import ATTRIBUTES, MESSAGE_TYPES, SOURCE, Findings
from ams.pipeline.definition.payloads import Avro, Json, Payload, Protobuf, Text, from_text
from ams.pipeline.definition.step_reader import Steps, expect_step, one_of_each
from ams.pipeline.errors import Broken
from ams.pipeline.expressions import Expression, aggregate, expression, hint, types
from ams.pipeline.protobuf import compile_definition

KEYS = ("format", "fields", "schema", "required", "separator", "packed")
_KINDS_WITH: Mapping[str, str] = {
    "fields": "json, protobuf or text", "separator": "text", "schema": "avro or protobuf", "packed": "avro",
}  # fmt: skip


def _parse(value: Value, steps: Steps, findings: Findings) -> None:
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
    kind = form.one_of("json", "avro", "protobuf", "text")
    for name, of in _KINDS_WITH.items():
        if name in said and kind not in of:
            findings.add(said[name], f"{name} is for {of}")
    if kind == "avro":
        return _avro(form, said, steps, findings)
    if "fields" not in said:
        raise bad(form.place, f"fields must be said: the names and types {kind} is read into")
    found = fields.read_fields(said["fields"], findings)
    required = frozenset(fields.known_columns(said.get("required"), found, findings))
    if kind == "json":
        return Json(found, required)
    if kind == "protobuf":
        return Protobuf(found, required, _descriptor(form, said, steps))
    for name, type_ in found.items():
        if types.is_nested(type_):
            findings.add(said["fields"], f"field {name}: text holds no {type_.typeName()}")
    separator = said.get("separator")
    if separator is None and len(found) > 1:
        findings.add(said["fields"], "several fields need a separator")
    if separator is not None and (len(separator.text()) != 1 or separator.text() in '"\n\r'):
        findings.add(separator, "a separator is one character, and neither a quote nor the end of a line")
    return Text(found, required, said["separator"].text() if "separator" in said else "")


def _descriptor(form: Value, said: Mapping[str, Value], steps: Steps) -> bytes:
    if "schema" not in said:
        raise bad(form.place, "schema must be said: the file of the definition in Protocol Buffers")
    try:
        return compile_definition(steps.file(said["schema"]).decode(errors="replace"))
    except InvalidInput as error:
        raise bad(said["schema"].place, error.message) from None


def _avro(form: Value, said: Mapping[str, Value], steps: Steps, findings: Findings) -> Payload:
    if "schema" not in said:
        raise bad(form.place, "schema must be said: the file of the Avro schema")
    value = said["schema"]
    try:
        read = msgspec.json.decode(steps.file(said["schema"]))
        record = _avro_type(fastavro.schema.expand_schema(read))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad(value.place, f"the schema is not JSON: {error}") from None
    except _NO_SCHEMA as error:
        raise bad(value.place, f"not an Avro schema: {error}") from None
    except _Odd as error:
        raise bad(value.place, f"the schema cannot be used: {error}") from None
    if not isinstance(record, StructType):
        raise bad(value.place, "the schema must be of a record")
    schema, found = read, {each.name: each.dataType for each in record.fields}
    for name in found:
        with findings.catch(said["schema"]):
            fields.check_name(said["schema"], name, [each for each in found if each < name], (SOURCE, ATTRIBUTES))
    packed = said["packed"].switch() if "packed" in said else False
    return Avro(found, frozenset(fields.known_columns(said.get("required"), found, findings)), schema, packed)


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
    """A schema that fits no columns."""


def _avro_type(schema: Any) -> DataType:
    """Return the type of an expanded schema: a name in it refers to an enclosing record."""
    if isinstance(schema, list):
        branches = [each for each in schema if each != "null"]
        if len(branches) != 1:
            raise _Odd("a union of several types has no column type; null and one other is taken")
        return _avro_type(branches[0])
    if isinstance(schema, str):
        return _plain(schema)
    if logical := schema.get("logicalType"):
        if logical not in _LOGICAL:
            raise _Odd(f"the logical type {logical} has no column type")
        return _LOGICAL[logical]
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _avro_type(kind)
    if kind == "array":
        return ArrayType(_avro_type(schema["items"]))
    if kind == "map":
        return MapType(types.STRING, _avro_type(schema["values"]))
    if kind == "record":
        if not schema["fields"]:
            raise _Odd(f"record {schema['name']} has no fields")
        return types.struct({each["name"]: _avro_type(each["type"]) for each in schema["fields"]})
    if kind == "fixed" and not schema["size"]:
        raise _Odd(f"{schema['name']} has no bytes")
    return _plain(kind)


def _plain(word: str) -> DataType:
    if word in ("null", "error"):
        raise _Odd(f"{word} has no column type")
    if word not in _PLAIN:
        raise _Odd(f"record {word} holds itself")
    return _PLAIN[word]


def read_steps(value: Value | None, folder: str, findings: Findings) -> Steps:
    """Read the section `steps`."""
    steps = Steps(folder)
    if value is not None:
        with findings.catch(value):
            findings.each(value.values(), lambda item: _step(item, steps, findings))
    return steps


def _step(item: Value, steps: Steps, findings: Findings) -> None:
    said = item.mapping()
    if len(said) != 1:
        raise bad(item.place, f"a step is one word with what it needs; there are {', '.join(_STEPS)}")
    [(word, value)] = said.items()
    if word not in _STEPS:
        raise bad(value.place, f"no step {word!r}; {hint(word, _STEPS)}")
    with findings.catch(value):
        _STEPS[word](value, steps, findings)
    steps.said.append(word)
    steps.lines.append(f"{word:11} {_format_value(value.plain())}")
    if not steps.whole and word != "expect":
        steps.row_lines.append(steps.lines[-1])


def _format_value(said: object) -> str:
    if isinstance(said, dict):
        return ", ".join(f"{name}: {_format_value(each)}" for name, each in said.items())
    return f"[{', '.join(map(_format_value, said))}]" if isinstance(said, list) else str(said)


def _filter(value: Value, steps: Steps, _: Findings) -> None:
    found = fields.condition(value, steps.columns, "filter")
    steps.add(lambda rows, _: rows.where(found.column()))


def _derive(value: Value, steps: Steps, findings: Findings) -> None:
    before = dict(steps.columns)
    found = fields.expressions(value, lambda text: expression(text, before), findings, before)
    steps.columns |= {name: each.type for name, each in found.items()}
    steps.add(lambda rows, _: rows.withColumns(_cast_columns(found)))


def _select(value: Value, steps: Steps, findings: Findings) -> None:
    before = dict(steps.columns)
    if isinstance(value.node, yaml.SequenceNode):
        names = [each for each in fields.known_columns(value, before, findings) if each != SOURCE]
        found = {name: expression(f"`{name}`", before) for name in names}
    else:
        found = fields.expressions(value, lambda text: expression(text, before), findings)
    source = [SOURCE] if SOURCE in before else []
    steps.columns = {name: each.type for name, each in found.items()} | {name: before[name] for name in source}
    steps.add(lambda rows, _: rows.select(*_cast_and_alias(found), *source))


def _explode(value: Value, steps: Steps, findings: Findings) -> None:
    said = findings.mapping(value, ("column", "as"), ("column",))
    if "column" not in said:
        return
    column, name = said["column"], fields.known_column(said["column"], steps.columns)
    of = steps.columns[name]
    if not isinstance(of, ArrayType):
        raise bad(column.place, f"{name} is no array but {types.type_text(of)}")
    made = said["as"].text() if "as" in said else name
    del steps.columns[name]
    fields.check_name(said.get("as", column), made, steps.columns)
    steps.columns[made] = of.elementType

    def explode(rows: DataFrame, _: object) -> DataFrame:
        return rows.select(F.explode(name).alias(made), *(each for each in rows.columns if each not in (name, made)))

    steps.add(explode)


def _join(value: Value, steps: Steps, findings: Findings) -> None:
    said = findings.mapping(value, ("file", "by", "fields"), ("file", "by", "fields"))
    if len(said) < 3:
        return
    table = fields.read_fields(said["fields"], findings)
    by = fields.known_columns(said["by"], steps.columns, findings)
    for name in by:
        if table.get(name) != (kind := steps.columns[name]):
            findings.add(said["fields"], f"{name} is {types.type_text(kind)} in the rows, so it must be in the file")
    for name in table:
        if name in steps.columns and name not in by:
            findings.add(said["fields"], f"there is a column {name} already")
        with findings.catch(said["fields"]):
            fields.check_name(said["fields"], name, steps.columns)
    if not table.keys() >= set(by):
        return
    values = _reference(said["file"], steps.file(said["file"]), table, by)
    steps.columns |= table

    def join(rows: DataFrame, _: object) -> DataFrame:
        known = rows.sparkSession.createDataFrame(values, types.struct(table))
        return rows.join(F.broadcast(known), on=by, how="left")

    steps.add(join)


def _reference(value: Value, content: bytes, kinds: Mapping[str, DataType], by: Sequence[str]) -> list[dict[str, Any]]:
    try:
        lines = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        absent = [name for name in kinds if name not in (lines.fieldnames or ())]
        if absent:
            raise bad(value.place, f"{value.text()} has no column {', '.join(absent)}")
        rows = [{name: from_text(line[name] or "", kind, name) for name, kind in kinds.items()} for line in lines]
    except (UnicodeDecodeError, csv.Error) as error:
        raise bad(value.place, f"{value.text()} is no CSV in UTF-8: {error}") from None
    except Broken as error:
        raise bad(value.place, f"{value.text()}, line {lines.line_num}: {error}") from None
    counted = Counter(tuple(row[name] for name in by) for row in rows)
    for key, count in counted.items():
        if count > 1:
            raise bad(value.place, f"{value.text()} has {', '.join(map(str, key))[:80]} twice")
    return rows


def _deduplicate(value: Value, steps: Steps, findings: Findings) -> None:
    if SOURCE not in steps.columns:
        raise bad(value.place, "behind aggregate there is one row for each key already")
    said = findings.mapping(value, ("by", "keep"), ("by",))
    by = fields.known_keys(said.get("by"), steps.columns, findings)
    keep = said["keep"].one_of("first", "last") if "keep" in said else "first"
    steps.add_whole(lambda rows, _: one_of_each(rows, by, last=keep == "last"))


def _aggregate(value: Value, steps: Steps, findings: Findings) -> None:
    said = findings.mapping(value, ("by", "values"), ("values",))
    before, by = dict(steps.columns), fields.known_keys(said.get("by"), steps.columns, findings)
    figures: dict[str, Expression] = {}
    if "values" in said:
        figures = fields.expressions(said["values"], lambda text: aggregate(text, before, by), findings, by, "a figure")
        for name in figures.keys() & set(by):
            findings.add(said["values"].mapping()[name], f"{name!r} is said twice")
    steps.add_whole(lambda rows, _: rows.groupBy(*by).agg(*_cast_and_alias(figures)))
    steps.columns = {name: before[name] for name in by} | {name: each.type for name, each in figures.items()}


def _cast_columns(columns: Mapping[str, Expression]) -> dict[str, Column]:
    kinds = types.struct({name: each.type for name, each in columns.items()})
    return {name: each.column().cast(kinds[name].dataType) for name, each in columns.items()}


def _cast_and_alias(columns: Mapping[str, Expression]) -> list[Column]:
    return [value.alias(name) for name, value in _cast_columns(columns).items()]


_STEPS: Mapping[str, Callable[[Value, Steps, Findings], None]] = {
    "parse": _parse,
    "filter": _filter,
    "derive": _derive,
    "select": _select,
    "explode": _explode,
    "join": _join,
    "expect": expect_step,
    "deduplicate": _deduplicate,
    "aggregate": _aggregate,
}
