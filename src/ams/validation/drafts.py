"""Drafts of JSON Schema: which one a schema is of, and compiling it."""

import copy
from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from ams.core.errors import InvalidInput
from ams.validation import patterns
from ams.validation.references import ROOT_ONLY, schemas_in
from ams.validation.violations import quoted

_DRAFT_7 = jsonschema_rs.Draft7Validator
_DRAFTS: Mapping[str, type[jsonschema_rs.Validator]] = {
    "http://json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-07/schema": _DRAFT_7,
}


_LATER = jsonschema_rs.Draft201909Validator
_UNCHECKED: Mapping[type[jsonschema_rs.Validator], tuple[str, ...]] = {
    _DRAFT_7: ("uuid", "duration"),
    jsonschema_rs.Draft6Validator: (
        "uuid", "duration", "idn-hostname", "iri", "iri-reference", "relative-json-pointer",
    ),
    jsonschema_rs.Draft4Validator: (
        "uuid", "duration", "idn-hostname", "iri", "iri-reference", "relative-json-pointer", "json-pointer",
        "uri-reference", "uri-template",
    ),
}  # fmt: skip
"""Formats that a draft did not know yet, and the engine so lets pass: they are asserted as later drafts say."""
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
"""What draft 4 wrote as two keywords, the first of them true or false, and later drafts as one."""

_FORMATS = {
    name: _LATER({"format": name}, validate_formats=True, offline=True).is_valid
    for name in _UNCHECKED[jsonschema_rs.Draft4Validator]
}


def compiled(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """Compile a schema by its draft, without the names it gives itself: nothing may refer to them.

    A schema that names no draft is one of draft 7 that may write limits as draft 4 did (contract 15.1). Raises
    `InvalidInput` with the compiler's text.
    """
    said = schema.get("$schema")
    draft = _DRAFTS.get(said.rstrip("#").replace("https:", "http:")) if isinstance(said, str) else None
    schema = {key: value for key, value in schema.items() if key not in ROOT_ONLY}
    try:
        return _validator(draft, schema) if draft else _validator(_DRAFT_7, _modern(schema))
    except jsonschema_rs.ValidationError as error:
        raise InvalidInput(_reason(error)) from None


def _modern(schema: dict[str, Any]) -> dict[str, Any]:
    """Write limits as draft 7 does; what has none to be exclusive of is left, and so refused."""
    schema = copy.deepcopy(schema)
    for part in schemas_in(schema):
        for exclusive, limit in _BOUNDS.items():
            if isinstance(part.get(exclusive), bool) and limit in part and part.pop(exclusive):
                part[exclusive] = part.pop(limit)
    return schema


def _validator(draft: type[jsonschema_rs.Validator], schema: dict[str, Any]) -> jsonschema_rs.Validator:
    formats = {name: _FORMATS[name] for name in _UNCHECKED[draft]}
    return draft(schema, formats=formats, validate_formats=True, pattern_options=patterns.OPTIONS, offline=True)


def _reason(error: jsonschema_rs.ValidationError) -> str:
    place = ".".join(str(step) for step in error.instance_path)
    return f"{quoted(place)}: {quoted(error.message)}" if place else quoted(error.message)
