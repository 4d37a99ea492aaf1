"""How often a schema looks at one place of a document, and what else it does there: so how long it takes.

Most schemas look a few times. But two references to itself at each level look 2^depth times, and so does a chain of
names that each mention the next one twice. Such schemas are told before they are used, by counting.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ams.validation.references import NOWHERE, References

ENDLESS = 10**9
"""Too often to be counted."""
_STEPS = 50_000
"""Parts of a schema looked at for a count."""
_SAME_PLACE = ("not", "if", "then", "else")
_SAME_PLACE_LISTS = ("allOf", "anyOf", "oneOf")


Group = list[Any]
"""Schemas of which one at most is about the same member or item."""


@dataclass(slots=True)
class _Around:
    """What a schema says of one place: the weight of what it does, and the schemas of what lies below it."""

    weight: int = 0
    members: list[Group] = field(default_factory=list)
    items: list[Group] = field(default_factory=list)


class Effort:
    """Counts what one schema does, each of its parts by a weight."""

    def __init__(self, references: References, weigh: Callable[[dict[str, Any]], int]) -> None:
        self._references = references
        self._weigh = weigh
        self._around: dict[int, _Around] = {}
        self._known: dict[tuple[int, int], int] = {}
        self._steps = 0

    def at(self, depth: int) -> int:
        """Return what is done at a place, with all above it, that lies at most `depth` levels down."""
        try:
            return self._sum(self._references.root, depth)
        except RecursionError:
            return ENDLESS

    def _sum(self, schema: Any, depth: int) -> int:
        if depth < 0:
            return 0
        key = (id(schema), depth)
        if key not in self._known:
            around = self._all_around(schema)
            members, items = (self._below(groups, depth - 1) for groups in (around.members, around.items))
            self._known[key] = min(around.weight + max(members, items), ENDLESS)  # a place holds the ones or the others
        return self._known[key]

    def _below(self, groups: list[Group], depth: int) -> int:
        return sum(max(self._sum(each, depth) for each in group) for group in groups)

    def _all_around(self, schema: dict[str, Any]) -> _Around:
        if id(schema) not in self._around:
            self._around[id(schema)] = around = _Around()
            self._gather(schema, around, frozenset())
        return self._around[id(schema)]

    def _gather(self, schema: Any, around: _Around, above: frozenset[int]) -> None:
        """Add what a schema, and all that look at the same place, say; `above` are those that led here."""
        self._steps += 1
        if schema is NOWHERE or id(schema) in above or self._steps > _STEPS:
            around.weight = ENDLESS
        if not isinstance(schema, dict) or around.weight >= ENDLESS:
            return
        above |= {id(schema)}
        if "$ref" in schema:
            around.weight += 1
            self._gather(self._references.target(schema["$ref"]), around, above)
            return
        around.weight += self._weigh(schema)
        around.members += _members(schema)
        around.items += _items(schema)
        for each in _same_place(schema):
            self._gather(each, around, above)


def looks_of(schema: dict[str, Any]) -> int:
    """Return how often a part of a schema looks at a place by itself."""
    return 1 + len(_list(schema.get("enum")))


def _same_place(schema: dict[str, Any]) -> Iterator[Any]:
    for key in _SAME_PLACE_LISTS:
        yield from _list(schema.get(key))
    for key in _SAME_PLACE:
        yield schema.get(key)
    yield from _values(schema.get("dependencies"))


def _members(schema: dict[str, Any]) -> list[Group]:
    named = [*_values(schema.get("properties")), schema.get("additionalProperties")]
    alone = [*_values(schema.get("patternProperties")), schema.get("propertyNames")]
    return _filled([named, *([each] for each in alone)])


def _items(schema: dict[str, Any]) -> list[Group]:
    items = schema.get("items")
    return _filled([[*(_list(items) or [items]), schema.get("additionalItems")], [schema.get("contains")]])


def _filled(groups: list[Group]) -> list[Group]:
    """Leave out what is no schema that looks anywhere."""
    return [kept for group in groups if (kept := [each for each in group if isinstance(each, dict)])]


def _values(value: Any) -> Group:
    return list(value.values()) if isinstance(value, dict) else []


def _list(value: Any) -> Group:
    return value if isinstance(value, list) else []


def extent(document: Any) -> tuple[int, int]:
    """Return how many values a document holds, and how many levels."""
    values, depth, level = 0, 0, [document]
    while level:
        values += len(level)
        depth += 1
        level = [each for value in level for each in _children(value)]
    return values, depth


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
