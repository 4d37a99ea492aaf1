"""Payloads in JSON, against JSON Schema of drafts 4, 6 and 7 (contract 15.1 and 15.3).

Formats are asserted. References lead within the schema only: nothing is fetched. Patterns run in time that grows with
the text and not with its powers, which is why they may not look ahead or refer back.
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
from ams.validation.references import ROOT_ONLY, schemas_in
from ams.validation.violations import MOST, ROOT, Violation, quoted, violations_of, violations_text

MAX_LOOKS = 10_000  # how often a schema may look at one place that lies as deep as that
_SHORT = cost.INLINE // 4  # units of work that a document may take which is checked without an estimate of its own
_SHALLOW = 8  # objects and lists within each other in such a document
_LITTLE = 2000  # units of work that are not worth an exact estimate
_ALL, _FIRST = 10_000, 300_000  # possible violations up to which all are collected, or the first: a second at worst
_COPIED = 2**24  # bytes that violations may hold: the engine makes all of them before it returns the first
_COPYING = 8  # bytes copied for one unit of work
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
"""Limits of two keywords in draft 4, the first of them true or false, and of one in later drafts."""

_FORMATS = {
    name: _LATER({"format": name}, validate_formats=True, offline=True).is_valid
    for name in _UNCHECKED[jsonschema_rs.Draft4Validator]
}


class JsonSchema:
    """One compiled schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile `schema`; raise `InvalidInput` with the compiler's text, or when it would take long to check."""
        self._loads = cost.Loads(schema)
        self._short = self._loads.size_within(_SHORT, _SHALLOW)
        """Bytes up to which any shallow document is soon checked."""
        self._validator = compiled(schema)
        if self._loads.looks > MAX_LOOKS:
            raise InvalidInput("Schema would take too long to check: its parts refer to each other too often")

    def allowed(self, documents: Iterable[bytes], watch: cost.Watch) -> int:
        """Return how many documents from the first on the schema surely allows, as far as that is found in no time.

        Each is so short and shallow that it cannot take long, and the time of all is watched. So none needs an
        estimate.
        """
        most, is_valid = self._short, self._validator.is_valid
        count = size = 0
        try:
            for each in documents:
                size += len(each)
                if size > most:  # since the last look at the watch, or this one alone
                    if len(each) > most or watch.is_over():
                        break
                    size = len(each)
                if not is_valid(_read_shallow(each)):
                    break
                count += 1
        except (ValueError, RecursionError):  # not base64, no JSON, or deeper
            pass
        return count

    def check(self, index: int, data: bytes, budget: cost.Budget) -> None:
        """Raise `InvalidInput` unless `data` is a JSON document that the schema allows, `TooMuch` over the budget."""
        most = _most(data)
        budget.spend(cost.work_of_reading(data, most.values, divides=self._loads.divides))
        try:
            document = msgspec.json.decode(data)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"Message {index} data is not valid JSON format,{_detail(data, error)}") from None
        violations = self._violations(document, most, budget)
        if violations:
            raise InvalidInput(violations_text(f"Message {index} data is not valid", violations))

    def _violations(self, document: Any, most: cost.Extent, budget: cost.Budget) -> Sequence[Violation]:
        load = self._loads.of(most)
        if most.depth > cost.MAX_DEPTH or load.work > _LITTLE:
            values, depth = cost.extent(document)
            if depth > cost.MAX_DEPTH:
                return [Violation(ROOT, f"Must not be nested deeper than {cost.MAX_DEPTH} levels")]
            load = self._loads.of(most._replace(values=values, depth=depth))
        budget.spend(load.work)
        return [] if self._validator.is_valid(document) else self._found(document, load, budget)

    def _found(self, document: Any, load: cost.Load, budget: cost.Budget) -> Sequence[Violation]:
        """Return as much of what is wrong as can be said without holding much memory."""
        is_light = load.copied <= _COPIED
        if load.violations <= _ALL and is_light:
            budget.spend(load.copied // _COPYING)
            errors = itertools.islice(self._validator.iter_errors(document), MOST)
            return [each for error in errors for each in violations_of(error)]
        if load.violations <= _FIRST and (is_light or not self._loads.branches):
            try:
                self._validator.validate(document)
            except jsonschema_rs.ValidationError as error:
                return [violations_of(error)[0]]
        return [Violation(ROOT, "Does not match the schema")]


def _shallow(levels: int) -> Any:
    """Return the type of a JSON value that is at most so deep. It is read as fast as one of any depth."""
    scalar = None | bool | int | float | str
    if not levels:
        return scalar
    below = _shallow(levels - 1)
    return scalar | GenericAlias(list, (below,)) | GenericAlias(dict, (str, below))


_read_shallow = msgspec.json.Decoder(_shallow(_SHALLOW)).decode


def _most(data: bytes) -> cost.Extent:
    """Return how large a document is at most, without reading it."""
    objects, lists = data.count(b"{"), data.count(b"[")
    return cost.Extent(len(data), 1 + data.count(b",") + objects + lists, objects, 1 + objects + lists)


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
    return "invalid surrogate pair"  # it has all its brackets and quotes: half a pair misled


def compiled(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """Compile a schema without the names it gives itself; raise `InvalidInput` with the compiler's text.

    Without a named draft it is one of draft 7 that may write limits as draft 4 did (contract 15.1).
    """
    said = schema.get("$schema")
    draft = _DRAFTS.get(said.rstrip("#").replace("https:", "http:")) if isinstance(said, str) else None
    schema = {key: value for key, value in schema.items() if key not in ROOT_ONLY}
    try:
        return _validator(draft, schema) if draft else _validator(_DRAFT_7, _modern(schema))
    except jsonschema_rs.ValidationError as error:
        place, message = ".".join(str(step) for step in error.instance_path), quoted(error.message)
        raise InvalidInput(f"{quoted(place)}: {message}" if place else message) from None


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
    return draft(schema, formats=formats, validate_formats=True, pattern_options=cost.PATTERNS, offline=True)
