"""Attributes of messages, against the `attributes` part of a schema. The part is our own: the contract has none.

    {"required": ["site"], "values": {"type": ["raw", "clean"]}, "patterns": {"site": "^[A-Z]+$"}, "closed": true}

`required`: names that must be there. `values`: what a named attribute may be. `patterns`: a regular expression that
must match somewhere in the value, with the limits of `patterns`. `closed`: no names but those mentioned.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
import msgspec

from ams.core.errors import InvalidInput
from ams.validation import patterns
from ams.validation.budget import Budget
from ams.validation.violations import Violation, quoted, told


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    required: list[str] = []
    values: dict[str, list[str]] = {}
    patterns: dict[str, str] = {}
    closed: bool = False


class AttributeRules:
    """One compiled `attributes` part."""

    def __init__(self, part: Mapping[str, Any]) -> None:
        """Read and compile the part; raise `InvalidInput` that says what is wrong with it."""
        self._part = _read(part)
        self._values = {name: frozenset(allowed) for name, allowed in self._part.values.items()}
        self._patterns = {name: _matcher(name, pattern) for name, pattern in self._part.patterns.items()}
        self._work = {name: patterns.work(pattern) for name, pattern in self._part.patterns.items()}
        self._known = frozenset([*self._part.required, *self._part.values, *self._part.patterns])

    def check(self, index: int, attributes: Mapping[str, str], budget: Budget) -> None:
        """Raise `InvalidInput` unless the attributes keep all rules, `TooMuch` over the budget."""
        budget.spend(len(self._known) + sum(work * len(attributes.get(name, "")) for name, work in self._work.items()))
        violations = list(self._violations(attributes))
        if violations:
            raise InvalidInput(told(f"Message {index} attributes are not valid", violations))

    def _violations(self, attributes: Mapping[str, str]) -> Iterator[Violation]:
        for name in self._part.required:
            if name not in attributes:
                yield Violation(quoted(name), "is required")
        for name, allowed in self._values.items():
            if name in attributes and attributes[name] not in allowed:
                listed = ", ".join(f'"{value}"' for value in self._part.values[name])
                yield Violation(quoted(name), f"must be one of the following: {quoted(listed)}")
        for name, matcher in self._patterns.items():
            if name in attributes and not matcher.is_valid(attributes[name]):
                yield Violation(quoted(name), f"Does not match pattern '{quoted(self._part.patterns[name])}'")
        if self._part.closed:
            for name in attributes:
                if name not in self._known:
                    yield Violation(quoted(name), "is not allowed")


def _read(part: Mapping[str, Any]) -> _Part:
    try:
        return msgspec.convert(part, _Part)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"Schema attributes are not valid: {error}") from None


def _matcher(name: str, pattern: str) -> jsonschema_rs.Validator:
    try:
        return patterns.matcher(pattern)
    except jsonschema_rs.ValidationError:
        text = f"Schema attributes are not valid: pattern of {quoted(name)} is no regular expression, or too large"
        raise InvalidInput(text) from None
