"""Payloads in Avro's JSON encoding: schemas in Avro are told as JSON Schema, so that one engine checks in its bounds.

The reader of fastavro is no check: it takes a text where a number belongs, members that no field has, and several
documents for one. What is asked for here is what Avro's own encoders write: every field is there, a value of a union
that is not null is `{"TYPE": VALUE}`, and bytes are texts of the characters 0 to 255.
"""

from collections.abc import Mapping
from typing import Any

from ams.validation.avro import parsed

Schema = dict[str, Any]
_DRAFT = "http://json-schema.org/draft-04/schema#"
"""The draft to which 1.0 is no integer, as it is none to Avro."""
_BYTES: Schema = {"type": "string", "pattern": "^[\\u0000-\\u00ff]*$"}
_PRIMITIVES: Mapping[str, Schema] = {
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
    """Return the schema of documents in Avro's JSON encoding; raise `InvalidInput` for what is no schema in Avro."""
    teller = _Teller()
    whole = teller.told(parsed(schema))
    return {"$schema": _DRAFT, "allOf": [whole], "definitions": teller.definitions}


class _Teller:
    """Tells a parsed schema: names are full, every named type stands where it is first met."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {"bytes": _BYTES}
        self._named: dict[str, Schema] = {}

    def told(self, schema: Any) -> Schema:
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._named[schema]
        if isinstance(schema, list):
            return self._union(schema)
        kind = schema["type"]
        if kind == "array":
            return {"type": "array", "items": self.told(schema["items"])}
        if kind == "map":
            return {"type": "object", "additionalProperties": self.told(schema["values"])}
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(schema)
        return self.told(kind)

    def _union(self, branches: list[Any]) -> Schema:
        """Tell a union as one object with one member: to try each branch would take long within each other."""
        others = {_label(each): self.told(each) for each in branches if _label(each) != "null"}
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
            self.definitions[number] = {"allOf": [_PRIMITIVES["bytes"]], "minLength": size, "maxLength": size}
        else:
            fields = {each["name"]: self.told(each["type"]) for each in schema["fields"]}
            self.definitions[number] = _record(fields)
        return found


def _record(fields: dict[str, Schema]) -> Schema:
    found: Schema = {"type": "object", "properties": fields, "additionalProperties": False}
    return found | ({"required": list(fields)} if fields else {})  # draft 4 wants one at least


def _label(branch: Any) -> str:
    """Return what a union calls a type: its full name, or its kind."""
    if isinstance(branch, str):
        return branch
    name: str = branch["name"] if branch["type"] in ("record", "error", "enum", "fixed") else branch["type"]
    return name
