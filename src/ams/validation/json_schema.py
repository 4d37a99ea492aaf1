"""Payloads in JSON, against JSON Schema of drafts 4, 6 and 7 (contract 15.1 and 15.3).

Formats are asserted. References lead within the schema only: nothing is fetched. Patterns run in time that grows with
the text and not with its powers, which is why they may not look ahead or refer back.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema_rs
import msgspec

from ams.errors import InvalidInput
from ams.validation.effort import Effort, extent
from ams.validation.references import ROOT_ONLY
from ams.validation.violations import ROOT, Violation, quoted, told, violations_of

PATTERN_BYTES = 2**18
"""What one compiled pattern may take; it also bounds the time for each character."""
MAX_DEPTH = 64
"""Objects and lists within each other, in a document."""
MAX_LOOKS = 10_000
"""How often a schema may look at one place that lies as deep as that."""
_MOST_LOOKS = 50_000_000
"""How often at all places of one document together: a second or two."""
_ALL, _FIRST = 10_000, 300_000
"""The same, up to which all violations are collected, or the first: a second at worst."""
_PATTERNS = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES)

_DRAFT_7 = jsonschema_rs.Draft7Validator
_DRAFTS: Mapping[str, type[jsonschema_rs.Validator]] = {
    "http://json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-07/schema": _DRAFT_7,
}


class JsonSchema:
    """One compiled schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile `schema`; raise `InvalidInput` with the compiler's text, or when it would take long to check."""
        self._effort = Effort(schema)
        self._validator = _compile(schema)
        self._looks = self._effort.looks(MAX_DEPTH)
        if self._looks > MAX_LOOKS:
            raise InvalidInput("Schema would take too long to check: its parts refer to each other too often")

    def check(self, index: int, data: bytes) -> None:
        """Raise `InvalidInput` unless `data` is a JSON document that the schema allows."""
        violations = self._violations(_document(index, data))
        if violations:
            raise InvalidInput(told(f"Message {index} data is not valid", violations))

    def _violations(self, document: Any) -> Sequence[Violation]:
        values, depth = extent(document)
        if depth > MAX_DEPTH:
            return [Violation(ROOT, f"Must not be nested deeper than {MAX_DEPTH} levels")]
        if values * self._looks > _MOST_LOOKS:
            return [Violation(ROOT, "Has too many values for so large a schema")]
        if self._validator.is_valid(document):
            return []
        looks = values * self._effort.looks(depth)
        if looks <= _ALL:
            return [each for error in self._validator.iter_errors(document) for each in violations_of(error)]
        return [self._first(document) if looks <= _FIRST else Violation(ROOT, "Does not match the schema")]

    def _first(self, document: Any) -> Violation:
        try:
            self._validator.validate(document)
        except jsonschema_rs.ValidationError as error:
            return violations_of(error)[0]
        raise AssertionError("a document that is not valid has a violation")


def _compile(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """Compile a schema by its draft, without the names it gives itself: nothing may refer to them."""
    said = schema.get("$schema")
    schema = {key: value for key, value in schema.items() if key not in ROOT_ONLY}
    draft = _DRAFTS.get(said.rstrip("#").replace("https:", "http:")) if isinstance(said, str) else None
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
    return draft(schema, validate_formats=True, pattern_options=_PATTERNS, offline=True)


def _reason(error: jsonschema_rs.ValidationError) -> str:
    place = ".".join(str(step) for step in error.instance_path)
    return f"{quoted(place)}: {quoted(error.message)}" if place else quoted(error.message)


def _document(index: int, data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"Message {index} data is not valid JSON format,{_detail(data, error)}") from None


def _detail(data: bytes, error: Exception) -> str:
    if not data.strip():
        return "EOF"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return "unexpected EOF" if "truncated" in str(error) else str(error)
