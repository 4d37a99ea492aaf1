"""What a schema does at one place of a document, in work that is counted before it is done."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from ams.validation import patterns
from ams.validation.effort import Effort, looks_of
from ams.validation.references import References, schemas_in

_SLOW_FORMATS = ("regex", "idn-hostname", "idn-email", "iri", "iri-reference")
"""Formats that take long for each character."""
_BRANCHES = ("anyOf", "oneOf")
_READING = 4
"""Characters for one unit of work."""


class Extent(NamedTuple):
    """How large a document is, or is at most."""

    bytes: int
    values: int
    objects: int
    depth: int


class Load(NamedTuple):
    """What is done at a place, with all above it."""

    looks: int
    names: int
    """Names looked up in an object."""
    reading: int
    """How often a text is read, patterns and formats by their work."""
    quoted: int
    """Bytes of the largest value of the schema that a violation is told with."""
    extent: Extent

    @property
    def findings(self) -> int:
        """How many violations there can be in a document."""
        return self.extent.values * self.looks + self.extent.objects * self.names

    @property
    def copied(self) -> int:
        """Bytes its violations hold at most: each has a copy of the value it is about, and of what that should be."""
        return (self.looks + self.names) * self.extent.depth * self.extent.bytes + self.findings * self.quoted

    @property
    def work(self) -> int:
        """Units of work for a document (`ams.validation.budget`)."""
        return self.findings + self.reading * self.extent.bytes // _READING


class Loads:
    """The loads of one schema, by how deep documents are."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Raise `InvalidInput` for references that only the engine could follow."""
        references = References(schema)
        references.check()
        self._looks, self._names, self._reading = (
            Effort(references, weigh) for weigh in (looks_of, _names_of, _reading_of)
        )
        self._quoted = max((len(msgspec.json.encode(each)) for each in _quoted(schema)), default=0)
        self.branches = any(key in part for part in schemas_in(schema) for key in _BRANCHES)
        """Whether one violation can hold many others."""

    def looks(self, depth: int) -> int:
        """Return how often a place is looked at that lies at most `depth` levels down."""
        return self._looks.at(depth)

    def of(self, extent: Extent) -> Load:
        """Return the load of a document."""
        depth = extent.depth
        return Load(self._looks.at(depth), self._names.at(depth), self._reading.at(depth), self._quoted, extent)


def _quoted(schema: dict[str, Any]) -> Iterator[object]:
    for part in schemas_in(schema):
        yield from (part[key] for key in ("const", "enum", "pattern", "format") if key in part)
        names = [part.get("required"), *_values(part.get("dependencies"))]
        yield from (name for each in names if isinstance(each, list) for name in each)


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def _names_of(schema: dict[str, Any]) -> int:
    dependencies = schema.get("dependencies")
    lists = _values(dependencies)
    return sum(_size(each) for each in (schema.get("required"), schema.get("properties"), dependencies, *lists))


def _reading_of(schema: dict[str, Any]) -> int:
    read = sum(patterns.work(each) for each in _patterns(schema))
    if isinstance(schema.get("format"), str):
        read += patterns.HEAVY if schema["format"] in _SLOW_FORMATS else patterns.LIGHT
    return (
        read + sum(key in schema for key in ("minLength", "maxLength", "const", "enum")) + 4 * ("uniqueItems" in schema)
    )


def _patterns(schema: dict[str, Any]) -> list[Any]:
    of_names = schema.get("patternProperties")
    return [*(of_names if isinstance(of_names, dict) else ()), *([schema["pattern"]] if "pattern" in schema else ())]


def _size(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0
