"""Payloads in JSON, against JSON Schema of drafts 4, 6 and 7 (contract 15.1 and 15.3).

Formats are asserted. References stay within the schema: nothing is fetched. Patterns run in linear time, so look-ahead
and back references are not allowed.
"""

import copy
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from types import GenericAlias
from typing import Any

import jsonschema_rs
import msgspec

from ams.core.errors import InvalidInput
from ams.validation import cost
from ams.validation.references import ROOT_KEYWORDS, schemas_in
from ams.validation.violations import MAX_VIOLATIONS, ROOT, Violation, quote, violations_of, violations_text

MAX_LOOKS = 10_000  # most looks at one place at the largest depth
_QUICK_CHECK_UNITS = cost.INLINE_UNITS // 4  # units of work for a document checked without its own estimate
_SHALLOW_DEPTH = 8  # nested objects and lists in such a document
_MIN_ESTIMATED_UNITS = 2000  # fewer units of work need no exact estimate
_ALL_LIMIT, _FIRST_LIMIT = 10_000, 300_000  # possible violations up to which all, or the first, are reported
_MAX_COPIED_BYTES = 2**24  # bytes of all violations: the engine creates all before it returns the first
_COPIED_BYTES_PER_UNIT = 8  # bytes copied by one unit of work
_DRAFT_7 = jsonschema_rs.Draft7Validator
_DRAFTS: Mapping[str, type[jsonschema_rs.Validator]] = {
    "http://json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-07/schema": _DRAFT_7,
}
_FORMATS_AFTER_7 = ("uuid", "duration")
_FORMATS_AFTER_6 = (*_FORMATS_AFTER_7, "idn-hostname", "iri", "iri-reference", "relative-json-pointer")
_MISSING_FORMATS: Mapping[type[jsonschema_rs.Validator], tuple[str, ...]] = {
    _DRAFT_7: _FORMATS_AFTER_7,
    jsonschema_rs.Draft6Validator: _FORMATS_AFTER_6,
    jsonschema_rs.Draft4Validator: (*_FORMATS_AFTER_6, "json-pointer", "uri-reference", "uri-template"),
}
"""Formats newer than a draft, which the engine ignores. Asserted here as later drafts define them."""
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
"""Limits that are two keywords in draft 4 (the first a boolean), and one keyword in later drafts."""

_FORMATS = {
    name: jsonschema_rs.Draft201909Validator({"format": name}, validate_formats=True, offline=True).is_valid
    for name in _MISSING_FORMATS[jsonschema_rs.Draft4Validator]
}


class JsonSchema:
    """One compiled schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile `schema`. Raises `InvalidInput` with the compiler's text, or if checks would be slow."""
        self._loads = cost.Loads(schema)
        self._short = self._loads.size_within(_QUICK_CHECK_UNITS, _SHALLOW_DEPTH)
        """Bytes up to which any shallow document is quick to check."""
        self._validator = compile_validator(schema)
        if self._loads.looks > MAX_LOOKS:
            raise InvalidInput("Schema would take too long to check: its parts refer to each other too often")

    def count_valid(self, documents: Iterable[bytes], watch: cost.WorkTimer) -> int:
        """Return how many leading documents are certainly valid, as far as quick checks can tell.

        Each is too short and shallow to be slow, and `watch` limits the time of all. So none needs an estimate.
        """
        most, is_valid = self._short, self._validator.is_valid
        count = size = 0
        try:
            for each in documents:
                size += len(each)
                if size > most:  # more than since the last look at the clock, or this one alone
                    if len(each) > most or watch.is_over():
                        break
                    size = len(each)
                if not is_valid(_read_shallow(each)):
                    break
                count += 1
        except (ValueError, RecursionError):  # not base64, not JSON, or too deep
            pass
        return count

    def check(self, index: int, data: bytes, budget: cost.Budget) -> None:
        """Raise `InvalidInput` unless `data` is a JSON document that the schema allows, `TooMuch` over the budget."""
        objects, lists = data.count(b"{"), data.count(b"[")
        most = cost.Extent(len(data), 1 + data.count(b",") + objects + lists, objects, 1 + objects + lists)
        budget.spend(cost.work_of_reading(data, most.values, divides=self._loads.divides))
        try:
            document = msgspec.json.decode(data)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"Message {index} data is not valid JSON format,{_detail(data, error)}") from None
        if violations := self._violations(document, most, budget):
            raise InvalidInput(violations_text(f"Message {index} data is not valid", violations))

    def _violations(self, document: Any, most: cost.Extent, budget: cost.Budget) -> Sequence[Violation]:
        load = self._loads.of(most)
        if most.depth > cost.MAX_DEPTH or load.work > _MIN_ESTIMATED_UNITS:
            values, depth = cost.extent(document)
            if depth > cost.MAX_DEPTH:
                return [Violation(ROOT, f"Must not be nested deeper than {cost.MAX_DEPTH} levels")]
            load = self._loads.of(most._replace(values=values, depth=depth))
        budget.spend(load.work)
        return [] if self._validator.is_valid(document) else self._collect_violations(document, load, budget)

    def _collect_violations(self, document: Any, load: cost.Load, budget: cost.Budget) -> Sequence[Violation]:
        """Return as many violations as fit into little memory."""
        is_light = load.copied_bytes <= _MAX_COPIED_BYTES
        if load.violations <= _ALL_LIMIT and is_light:
            budget.spend(load.copied_bytes // _COPIED_BYTES_PER_UNIT)
            errors = itertools.islice(self._validator.iter_errors(document), MAX_VIOLATIONS)
            return [each for error in errors for each in violations_of(error)]
        if load.violations <= _FIRST_LIMIT and (is_light or not self._loads.branches):
            try:
                self._validator.validate(document)
            except jsonschema_rs.ValidationError as error:
                return [violations_of(error)[0]]
        return [Violation(ROOT, "Does not match the schema")]


def _shallow_type(levels: int) -> Any:
    """Return the type of a JSON value of at most that depth. Parses as fast as one of any depth."""
    scalar = None | bool | int | float | str
    if not levels:
        return scalar
    below = _shallow_type(levels - 1)
    return scalar | GenericAlias(list, (below,)) | GenericAlias(dict, (str, below))


_read_shallow = msgspec.json.Decoder(_shallow_type(_SHALLOW_DEPTH)).decode


def _detail(data: bytes, error: Exception) -> str:
    if not data.strip():
        return "EOF"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "invalid UTF-8"
    if "truncated" not in str(error):
        return str(error)
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return "unexpected EOF"
    return "invalid surrogate pair"  # brackets and quotes are complete, so half a surrogate pair misled the parser


def compile_validator(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """Compile a schema without its own ids. Raises `InvalidInput` with the compiler's text.

    Without `$schema` it is draft 7, in which limits as in draft 4 are allowed too (contract 15.1).
    """
    said = schema.get("$schema")
    draft = _DRAFTS.get(said.rstrip("#").replace("https:", "http:")) if isinstance(said, str) else None
    schema = {key: value for key, value in schema.items() if key not in ROOT_KEYWORDS}
    try:
        return _validator(draft, schema) if draft else _validator(_DRAFT_7, _modernise_limits(schema))
    except jsonschema_rs.ValidationError as error:
        place, message = ".".join(str(step) for step in error.instance_path), quote(error.message)
        raise InvalidInput(f"{quote(place)}: {message}" if place else message) from None


def _modernise_limits(schema: dict[str, Any]) -> dict[str, Any]:
    """Rewrite exclusive limits as in draft 7. An incomplete one stays, and is refused later."""
    schema = copy.deepcopy(schema)
    for part in schemas_in(schema):
        for exclusive, limit in _BOUNDS.items():
            if isinstance(part.get(exclusive), bool) and limit in part and part.pop(exclusive):
                part[exclusive] = part.pop(limit)
    return schema


def _validator(draft: type[jsonschema_rs.Validator], schema: dict[str, Any]) -> jsonschema_rs.Validator:
    formats = {name: _FORMATS[name] for name in _MISSING_FORMATS[draft]}
    return draft(schema, formats=formats, validate_formats=True, pattern_options=cost.PATTERN_OPTIONS, offline=True)
