"""Cost estimates: bounds the work of a check before it runs.

Most schemas look at each place of a document a few times. But two self references at each level look 2^depth times, and
so does a chain of names that each mention the next one twice. Counting finds such schemas before they are used. Regular
expressions are Rust's: their time is linear in the text, and a limit of their size bounds the other factor.
"""

import functools
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec

from ams.validation.references import NO_TARGET, References, schemas_in

INLINE_UNITS = 200_000
"""Units for one request on the event loop, about ten nanoseconds each. Enough for a hundred usual messages."""
INLINE_SECONDS = 0.02
"""Processor time for the same. Estimates assume usual values, and some numbers take a thousand times as long."""
_UNITS_PER_LOOK = INLINE_UNITS // 16  # units between two looks at the clock
MESSAGE_UNITS = 100  # units for any message
LARGE_BYTES = 16 * 1024  # bytes of a document from which malicious numbers and texts could take long
PATTERN_BYTES = 2**16  # limit of one compiled pattern; bounds its time for each character too
_SMALL_BYTES = 2**13
_LONG_PATTERN_CHARACTERS = 200  # longer patterns (in characters) are never small
_CACHE_BYTES = 2**17  # engine's cache of a pattern's states, for each thread
PATTERN_OPTIONS = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=_CACHE_BYTES)
_SMALL_OPTIONS = jsonschema_rs.RegexOptions(size_limit=_SMALL_BYTES, dfa_size_limit=_CACHE_BYTES)

LIGHT_WORK, HEAVY_WORK = 1, 40  # work for four characters of a text
MAX_COUNT = 10**9  # stands for counts that are too large
MAX_DEPTH = 64  # nested objects and lists, in a schema and in a document
_DEPTHS = (4, 8, 16, MAX_DEPTH)  # depths of documents for which recursive schemas are counted
_MAX_PARTS = 50_000  # parts of a schema visited by one count
_MAX_ADDITIONS = 250_000  # additions in one count: a second at worst
_SAME_PLACE = ("not", "if", "then", "else")
_SAME_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
Group = list[Any]  # schemas of which at most one applies to the same member or item
_SLOW_FORMATS = ("regex", "idn-hostname", "idn-email", "iri", "iri-reference")
"""Formats with slow checks for each character."""
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_MAX_EXACT_NUMBER = 2**53  # larger numbers are compared digit by digit
_DIVISION_WORK = 50  # work to divide a number, or to compare it digit by digit
_UNUSUAL_NUMBER = re.compile(rb"[0-9](?:[eE][-+]?[0-9]{3}|[0-9]{100})")
"""Such numbers are parsed digit by digit: six bytes can take seven microseconds."""
_UNUSUAL_BYTE_WORK = 400  # work for each byte of a document with such a number, if it is large or its schema divides
_EXTREME_FACTOR = 20  # divisions of usual numbers in the time of one division of a very small or very large one
_CHARACTERS_PER_UNIT = 4  # characters for one unit of work
UNIT_SECONDS = 1e-8  # approximate time of one unit of work


class OverBudget(Exception):
    """The check is over the budget. The message may still be valid."""


class Budget:
    """Units of work left, and a deadline. Without units there is no limit of either."""

    def __init__(self, units: float = math.inf) -> None:
        self._left = units
        self._look_at = max(units - _UNITS_PER_LOOK, 0)
        self._until = time.thread_time() + INLINE_SECONDS

    def spend(self, units: float) -> None:
        """Take units before the work. Raises `OverBudget` when too few are left or the deadline has passed."""
        self._left -= units
        if self._left < self._look_at:
            if self._left < 0 or time.thread_time() > self._until:
                raise OverBudget
            self._look_at = max(self._left - _UNITS_PER_LOOK, 0)


class WorkTimer:
    """Timer for this thread's work. Call it after each step; steps must be short."""

    def __init__(self, units: float) -> None:
        """Start a timer for as long as `units` of work usually take."""
        self._end = time.thread_time() + units * UNIT_SECONDS
        self._look_at = time.perf_counter() + units * UNIT_SECONDS

    def is_over(self) -> bool:
        """Return whether the time is up. Reads the slow thread clock only when the fast one says so."""
        now = time.perf_counter()
        if now < self._look_at:
            return False
        left = self._end - time.thread_time()
        self._look_at = now + left
        return left <= 0

    def units_left(self) -> float:
        """Return the units of work that fit into the time left."""
        return max(0, (self._end - time.thread_time()) / UNIT_SECONDS)


@functools.lru_cache(1000)
def pattern_work(pattern: object) -> int:
    """Return the work of a pattern, compiled or not. Most are small; a large one can take a microsecond a character."""
    if not isinstance(pattern, str) or len(pattern) > _LONG_PATTERN_CHARACTERS:
        return HEAVY_WORK
    try:
        matcher(pattern, _SMALL_OPTIONS)
    except ValueError:
        return HEAVY_WORK
    return LIGHT_WORK


def matcher(pattern: str, options: jsonschema_rs.RegexOptions = PATTERN_OPTIONS) -> jsonschema_rs.Validator:
    """Compile a pattern. Raises `jsonschema_rs.ValidationError` if it is invalid or too large."""
    return jsonschema_rs.Draft7Validator({"pattern": pattern}, pattern_options=options, offline=True)


@dataclass(slots=True)
class _PlaceWeight:
    weight: int = 0
    members: list[Group] = field(default_factory=list)
    items: list[Group] = field(default_factory=list)


class Effort:
    """Counts the work of one schema, each part by its weight."""

    def __init__(self, references: References, weigh: Callable[[dict[str, Any]], int]) -> None:
        self._references, self._weigh = references, weigh
        self._around: dict[int, _PlaceWeight] = {}
        self._known: dict[tuple[int, int], int] = {}
        self._targets: dict[int, Any] = {}
        self._steps = self._visits = 0

    def at(self, depth: int) -> int:
        """Return the work down to `depth`, all levels above included."""
        try:
            return self._sum(self._references.root, depth)
        except RecursionError:
            return MAX_COUNT

    def _sum(self, schema: Any, depth: int) -> int:
        if depth < 0:
            return 0
        if (target := self._target(schema)) is not None:
            return min(self._weigh({}) + self._sum(target, depth), MAX_COUNT)
        key = (id(schema), depth)
        if key not in self._known:
            if (around := self._around.get(id(schema))) is None:
                around = self._around[id(schema)] = _PlaceWeight()
                self._add_weights(schema, around, frozenset())
            members, items = (self._work_below(groups, depth - 1) for groups in (around.members, around.items))
            # a place holds members or items, never both
            self._known[key] = min(around.weight + max(members, items), MAX_COUNT)
        return self._known[key]

    def _target(self, schema: dict[str, Any]) -> Any:
        """Return the shared schema of a reference: it is counted once for all references to it."""
        if "$ref" not in schema:
            return None
        if id(schema) not in self._targets:
            found = self._references.target(schema["$ref"])
            self._targets[id(schema)] = found if isinstance(found, dict) and "$ref" not in found else None
        return self._targets[id(schema)]

    def _work_below(self, groups: list[Group], depth: int) -> int:
        self._visits += sum(map(len, groups))
        if self._visits > _MAX_ADDITIONS:
            return MAX_COUNT
        return sum(max(self._sum(each, depth) for each in group) for group in groups)

    def _add_weights(self, schema: Any, around: _PlaceWeight, above: frozenset[int]) -> None:
        """Add the weights of a schema and of all others at the same place; `above` are the ancestors of this call."""
        self._steps += 1
        if schema is NO_TARGET or id(schema) in above or self._steps > _MAX_PARTS or self._visits > _MAX_ADDITIONS:
            around.weight = MAX_COUNT
        if not isinstance(schema, dict) or around.weight >= MAX_COUNT:
            return
        above |= {id(schema)}
        if "$ref" in schema:
            around.weight += self._weigh({})
            self._add_weights(self._references.target(schema["$ref"]), around, above)
            return
        around.weight += self._weigh(schema)
        members, items = _members(schema), _items(schema)
        self._visits += sum(map(len, members)) + sum(map(len, items))
        around.members += members
        around.items += items
        same_place = [each for key in _SAME_PLACE_LISTS for each in _list(schema.get(key))]
        same_place += [schema.get(key) for key in _SAME_PLACE]
        for each in [*same_place, *_values(schema.get("dependencies"))]:
            self._add_weights(each, around, above)


def count_looks(schema: dict[str, Any]) -> int:
    """Return how often a part of a schema looks at a place by itself."""
    return 1 + len(_list(schema.get("enum")))


def _members(schema: dict[str, Any]) -> list[Group]:
    named = [*_values(schema.get("properties")), schema.get("additionalProperties")]
    alone = [*_values(schema.get("patternProperties")), schema.get("propertyNames")]
    return _drop_empty([named, *([each] for each in alone)])


def _items(schema: dict[str, Any]) -> list[Group]:
    items = schema.get("items")
    return _drop_empty([[*(_list(items) or [items]), schema.get("additionalItems")], [schema.get("contains")]])


def _drop_empty(groups: list[Group]) -> list[Group]:
    return [kept for group in groups if (kept := [each for each in group if isinstance(each, dict)])]


def _values(value: Any) -> Group:
    return list(value.values()) if isinstance(value, dict) else []


def _list(value: Any) -> Group:
    return value if isinstance(value, list) else []


def extent(document: Any) -> tuple[int, int]:
    """Return the number of values in a document, and its depth."""
    values, depth, level = 0, 0, [document]
    while level:
        values += len(level)
        depth += 1
        level = [each for value in level for each in _children(value)]
    return values, depth


def _children(value: Any) -> Iterable[Any]:
    """Return the children of a value without a copy (hot path: every value of a document)."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


class Extent(NamedTuple):
    """The size of a document, or an upper limit of it."""

    bytes: int
    values: int
    objects: int
    depth: int


class Weights(NamedTuple):
    """Work down to a place, all levels above included."""

    looks: int
    names: int  # names looked up in objects
    dividing: int  # numbers divided, or compared digit by digit
    reading: int  # texts read, weighted by their patterns and formats
    reading_much: int  # the same for a malicious text, for which small patterns are as slow as large ones


class Load(NamedTuple):
    """Work for one document."""

    weights: Weights
    quoted: int  # bytes of the largest schema value that a violation quotes
    extent: Extent

    @property
    def violations(self) -> int:
        """Largest number of violations in a document."""
        return self.extent.values * self.weights.looks + self.extent.objects * self.weights.names

    @property
    def copied_bytes(self) -> int:
        """Largest number of bytes in its violations: each copies the value and the expectation."""
        each = (self.weights.looks + self.weights.names) * self.extent.depth
        return each * self.extent.bytes + self.violations * self.quoted

    @property
    def work(self) -> int:
        """Units of work for a document."""
        reading = self.weights.reading_much if self.extent.bytes > LARGE_BYTES else self.weights.reading
        numbers = self.weights.dividing * self.extent.values * _DIVISION_WORK
        return self.violations + numbers + reading * self.extent.bytes // _CHARACTERS_PER_UNIT


class Loads:
    """Loads of one schema. Counted at construction, because a count is slow."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Count the loads. Raises `InvalidInput` for references that only the engine could follow."""
        references = References(schema)
        references.check()
        weighing = (count_looks, _names_of, _dividing_of, _reading_of, functools.partial(_reading_of, light=HEAVY_WORK))
        efforts = [Effort(references, weigh) for weigh in weighing]
        parts = list(schemas_in(schema))
        depths = _DEPTHS if any("$ref" in part for part in parts) else _DEPTHS[-1:]
        self._weights = [(depth, Weights(*(effort.at(depth) for effort in efforts))) for depth in depths]
        self._quoted = max((len(msgspec.json.encode(each)) for each in _compared_values(schema)), default=0)
        self.looks: int = self._weights[-1][1].looks  # most looks at one place at any depth
        self.divides = self._weights[-1][1].dividing > 0  # True if numbers are divided, or compared digit by digit
        self.branches = any("anyOf" in part or "oneOf" in part for part in parts)
        """True if one violation can contain many others."""

    def of(self, extent: Extent) -> Load:
        """Return the load of a document; that of the deepest one if it is too deep."""
        weights = next((each for depth, each in self._weights if extent.depth <= depth), self._weights[-1][1])
        return Load(weights, self._quoted, extent)

    def size_within(self, work: int, depth: int) -> int:
        """Return the largest size in bytes of a document of this depth, in the worst case, for some units of work."""
        worst = Extent(LARGE_BYTES, LARGE_BYTES // 2, LARGE_BYTES // 3, depth)
        reading = LARGE_BYTES * (_UNUSUAL_BYTE_WORK if self.divides else 1)
        return LARGE_BYTES * work // max(work, self.of(worst).work + reading)


def work_of_reading(document: bytes, values: int, *, divides: bool) -> int:
    """Return the units of work to read a document of at most `values` values, divisions included."""
    if (divides or len(document) > LARGE_BYTES) and _UNUSUAL_NUMBER.search(document):
        return len(document) * _UNUSUAL_BYTE_WORK
    return values + len(document) // 16


def _compared_values(schema: dict[str, Any]) -> Iterator[object]:
    for part in schemas_in(schema):
        yield from (part[key] for key in ("const", "enum", "pattern", "format") if key in part)
        names = [part.get("required"), *_values(part.get("dependencies"))]
        yield from (name for each in names if isinstance(each, list) for name in each)


def _names_of(schema: dict[str, Any]) -> int:
    dependencies = schema.get("dependencies")
    named = (schema.get("required"), schema.get("properties"), dependencies, *_values(dependencies))
    return sum(len(_values(each) or _list(each)) for each in named)


def _dividing_of(schema: dict[str, Any]) -> int:
    divisor = schema.get("multipleOf")
    divided = 0 if divisor is None else 1 if _is_within(divisor, 1 / _MAX_EXACT_NUMBER) else _EXTREME_FACTOR
    return divided + sum(not _is_within(schema.get(key), 0) for key in _BOUNDS)


def _is_within(value: Any, least: float) -> bool:
    """Return whether a number is neither too large nor too small for a processor. Other values are not within."""
    return not isinstance(value, int | float) or least <= abs(value) <= _MAX_EXACT_NUMBER


def _reading_of(schema: dict[str, Any], light: int = LIGHT_WORK) -> int:
    """Return the work of reading; `light` is that of a small pattern, as slow as a large one on a malicious text."""
    of_names = schema.get("patternProperties")
    patterns = list(of_names) if isinstance(of_names, dict) else []
    patterns += [schema["pattern"]] if "pattern" in schema else []
    read = sum(max(light, pattern_work(each)) for each in patterns)
    if isinstance(schema.get("format"), str):
        read += HEAVY_WORK if schema["format"] in _SLOW_FORMATS else LIGHT_WORK
    read += sum(key in schema for key in ("minLength", "maxLength", "const", "enum"))
    return read + 4 * ("uniqueItems" in schema)
