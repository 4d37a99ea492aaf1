"""Drafts of JSON Schema: which one a schema is of, and compiling it."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from ams.errors import InvalidInput
from ams.validation import patterns
from ams.validation.references import ROOT_ONLY
from ams.validation.violations import quoted

_DRAFT_7 = jsonschema_rs.Draft7Validator
_DRAFTS: Mapping[str, type[jsonschema_rs.Validator]] = {
    "http://json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-07/schema": _DRAFT_7,
}


def compiled(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """Compile a schema by its draft, without the names it gives itself: nothing may refer to them.

    Raises `InvalidInput` with the compiler's text.
    """
    said = schema.get("$schema")
    draft = _DRAFTS.get(said.rstrip("#").replace("https:", "http:")) if isinstance(said, str) else None
    schema = {key: value for key, value in schema.items() if key not in ROOT_ONLY}
    try:
        return _validator(draft or _DRAFT_7, schema)
    except jsonschema_rs.ValidationError as error:
        older = None if draft else _of_draft_4(schema)
        if older is None:
            raise InvalidInput(_reason(error)) from None
        return older


def _of_draft_4(schema: dict[str, Any]) -> jsonschema_rs.Validator | None:
    """Compile what names no draft and is none of draft 7: draft 4 wrote some things otherwise (contract 15.1)."""
    try:
        return _validator(jsonschema_rs.Draft4Validator, schema)
    except jsonschema_rs.ValidationError:
        return None


def _validator(draft: type[jsonschema_rs.Validator], schema: dict[str, Any]) -> jsonschema_rs.Validator:
    return draft(schema, validate_formats=True, pattern_options=patterns.OPTIONS, offline=True)


def _reason(error: jsonschema_rs.ValidationError) -> str:
    place = ".".join(str(step) for step in error.instance_path)
    return f"{quoted(place)}: {quoted(error.message)}" if place else quoted(error.message)
