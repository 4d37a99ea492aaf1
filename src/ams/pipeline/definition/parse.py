"""The step that takes messages apart."""

from collections.abc import Mapping

from pyspark.sql.types import DataType

from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.avro import avro_fields
from ams.pipeline.definition.fields import ATTRIBUTES, MESSAGE_TYPES, SOURCE, check_name, fields, known_columns
from ams.pipeline.definition.findings import Findings
from ams.pipeline.definition.payloads import Avro, Json, Payload, Text
from ams.pipeline.definition.reading import Steps
from ams.pipeline.expressions import types

FORMATS = ("json", "avro", "text")
KEYS = ("format", "fields", "schema", "required", "separator", "packed")


def parse_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `parse`."""
    if steps.parse is not None:
        raise bad(value.place, "messages are parsed once")
    if steps.whole or any(word != "filter" for word in steps.said):
        raise bad(value.place, "only filter can stand before parse")
    said = findings.mapping(value, KEYS, ("format",))
    found: dict[str, DataType] = {}
    if "format" in said:
        with findings.catch(said["format"]):
            steps.parse = parser = _parser(said["format"], said, steps, findings)
            found = dict(parser.fields)
    steps.before, steps.rows = steps.rows, []
    steps.parsed = {**found, ATTRIBUTES: types.STRINGS}
    steps.columns = {**steps.parsed, SOURCE: MESSAGE_TYPES[SOURCE]}


def _parser(form: Value, said: Mapping[str, Value], steps: Steps, findings: Findings) -> Payload:
    kind = form.text()
    if kind not in FORMATS:
        raise bad(form.place, f"no format {kind!r}; there are {', '.join(FORMATS)}")
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
    schema, found = avro_fields(said["schema"], steps.file(said["schema"]))
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
