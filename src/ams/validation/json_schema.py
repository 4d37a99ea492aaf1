"""Payloads in JSON, against JSON Schema of drafts 4, 6 and 7 (contract 15.1 and 15.3).

Formats are asserted. References lead within the schema only: nothing is fetched. Patterns run in time that grows with
the text and not with its powers, which is why they may not look ahead or refer back.
"""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import jsonschema_rs
import msgspec

from ams.core.errors import InvalidInput
from ams.validation.budget import Budget
from ams.validation.drafts import compiled
from ams.validation.effort import extent
from ams.validation.load import Extent, Load, Loads
from ams.validation.violations import MOST, ROOT, Violation, told, violations_of

MAX_DEPTH = 64
"""Objects and lists within each other, in a document."""
MAX_LOOKS = 10_000
"""How often a schema may look at one place that lies as deep as that."""
_MOST_LOOKS = 50_000_000
"""How often at all places of one document together: a second or two."""
_LITTLE = 2000
"""Units of work that are not worth an exact estimate."""
_ALL, _FIRST = 10_000, 300_000
"""Possible violations up to which all are collected, or the first: a second at worst."""
_COPIED = 2**24
"""Bytes that violations may hold: the engine makes all of them before it tells one."""
_COPYING = 8
"""Bytes copied for one unit of work."""


class JsonSchema:
    """One compiled schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile `schema`; raise `InvalidInput` with the compiler's text, or when it would take long to check."""
        self._loads = Loads(schema)
        self._validator = compiled(schema)
        self._looks = self._loads.looks(MAX_DEPTH)
        if self._looks > MAX_LOOKS:
            raise InvalidInput("Schema would take too long to check: its parts refer to each other too often")

    def check(self, index: int, data: bytes, budget: Budget) -> None:
        """Raise `InvalidInput` unless `data` is a JSON document that the schema allows, `TooMuch` over the budget."""
        most = _most(data)
        budget.spend(most.values + most.bytes // 16)
        violations = self._violations(_document(index, data), most, budget)
        if violations:
            raise InvalidInput(told(f"Message {index} data is not valid", violations))

    def _violations(self, document: Any, most: Extent, budget: Budget) -> Sequence[Violation]:
        if most.depth > MAX_DEPTH or self._loads.of(most).work > _LITTLE:
            values, depth = extent(document)
            if depth > MAX_DEPTH:
                return [Violation(ROOT, f"Must not be nested deeper than {MAX_DEPTH} levels")]
            if values * self._looks > _MOST_LOOKS:
                return [Violation(ROOT, "Has too many values for so large a schema")]
            most = most._replace(values=values, depth=depth)
        load = self._loads.of(most)
        budget.spend(load.work)
        return [] if self._validator.is_valid(document) else self._found(document, load, budget)

    def _found(self, document: Any, load: Load, budget: Budget) -> Sequence[Violation]:
        """Return as much of what is wrong as can be told without holding much memory."""
        is_light = load.copied <= _COPIED
        if load.findings <= _ALL and is_light:
            budget.spend(load.copied // _COPYING)
            errors = itertools.islice(self._validator.iter_errors(document), MOST)
            return [each for error in errors for each in violations_of(error)]
        if load.findings <= _FIRST and (is_light or not self._loads.branches):
            return [self._first(document)]
        return [Violation(ROOT, "Does not match the schema")]

    def _first(self, document: Any) -> Violation:
        try:
            self._validator.validate(document)
        except jsonschema_rs.ValidationError as error:
            return violations_of(error)[0]
        raise AssertionError("a document that is not valid has a violation")


def _most(data: bytes) -> Extent:
    """Return how large a document is at most, without reading it."""
    objects, lists = data.count(b"{"), data.count(b"[")
    return Extent(len(data), 1 + data.count(b",") + objects + lists, objects, 1 + objects + lists)


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
    if isinstance(error, UnicodeDecodeError):
        return "invalid UTF-8"
    if "truncated" not in str(error):
        return str(error)
    return "invalid surrogate pair" if _is_whole(data) else "unexpected EOF"


def _is_whole(data: bytes) -> bool:
    """Return whether data that looked cut off has all its brackets and quotes: then half a surrogate pair misled."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
