"""The cost of a check, counted before it is done.

Most schemas look at one place of a document a few times. But two references to itself at each level look 2^depth times,
and so does a chain of names that each mention the next one twice. Such schemas are found before they are used, by
counting. Regular expressions are those of Rust, whose time is linear in the text, in a size that bounds the other
factor.
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

from ams.validation.references import NOWHERE, References, schemas_in

INLINE = 200_000
"""Units for one request on the event loop: some ten nanoseconds each, and enough for a hundred usual messages."""
INLINE_SECONDS = 0.02
"""Of the processor, for the same: estimates are of usual values, and some numbers take a thousand times as long."""
_LOOK = INLINE // 16  # units after which the time is looked at
EACH = 100  # units for looking at a message at all
LARGE = 16 * 1024  # bytes of a document from which on its numbers and texts could take long, were they chosen for that
PATTERN_BYTES = 2**16  # what one compiled pattern may take; it also bounds the time for each character
_SMALL_BYTES = 2**13
_LONG = 200  # characters of a pattern that is not tried as a small one
_CACHE_BYTES = 2**17  # what the engine may remember of a pattern's states while it runs, for each thread
PATTERNS = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=_CACHE_BYTES)
_SMALL = jsonschema_rs.RegexOptions(size_limit=_SMALL_BYTES, dfa_size_limit=_CACHE_BYTES)

LIGHT, HEAVY = 1, 40  # work for four characters of a text
ENDLESS = 10**9  # too often to be counted
MAX_DEPTH = 64  # objects and lists within each other, in a schema and in a document
_DEPTHS = (4, 8, 16, MAX_DEPTH)  # how deep documents are, for counts of what a schema that refers to itself does
_STEPS = 50_000  # parts of a schema looked at for a count
_VISITS = 250_000  # schemas of members and items added up for a count: a second at worst
_SAME_PLACE = ("not", "if", "then", "else")
_SAME_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
Group = list[Any]  # schemas of which one at most is about the same member or item
_SLOW_FORMATS = ("regex", "idn-hostname", "idn-email", "iri", "iri-reference")
"""Formats that take long for each character."""
_BRANCHES = ("anyOf", "oneOf")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_EXACT = 2**53  # numbers up to which a processor compares them; a larger one is compared digit by digit
_DIVIDING = 50  # work for a number that is divided, or compared digit by digit
_UNUSUAL_NUMBER = re.compile(rb"[0-9](?:[eE][-+]?[0-9]{3}|[0-9]{100})")
"""Such numbers are read digit by digit too: six bytes can take seven microseconds."""
_UNUSUAL = 400  # work for each byte of a document that has one, and is large or of a schema that divides
_FAR = 20  # how often usual numbers are divided in the time that one takes that is very small or very large
_READING = 4  # characters for one unit of work
UNIT_SECONDS = 1e-8  # about, of a unit of work


class TooMuch(Exception):
    """The work is over the budget; nothing is known of the message."""


class Budget:
    """Units left, and the time until which they can be spent; without a number of units there is no end of either."""

    def __init__(self, units: float = math.inf) -> None:
        self._left = units
        self._look_at = max(units - _LOOK, 0)
        self._until = time.thread_time() + INLINE_SECONDS

    def spend(self, units: float) -> None:
        """Take units before doing the work; raise `TooMuch` when there are not as many, or the time is up."""
        self._left -= units
        if self._left < self._look_at:
            if self._left < 0 or time.thread_time() > self._until:
                raise TooMuch
            self._look_at = max(self._left - _LOOK, 0)


class Watch:
    """Says when this thread has worked for some time. It may be asked after every step, and each step must be short."""

    def __init__(self, units: float) -> None:
        """Begin a time that is as long as some units of work usually take."""
        self._end = time.thread_time() + units * UNIT_SECONDS
        self._look_at = time.perf_counter() + units * UNIT_SECONDS

    def is_over(self) -> bool:
        """Return whether the time is up. The thread's own clock is slow, and only looked at when the other says so."""
        now = time.perf_counter()
        if now < self._look_at:
            return False
        left = self._end - time.thread_time()
        self._look_at = now + left
        return left <= 0

    def units_left(self) -> float:
        """Return the units of work for which there is still time."""
        return max(0, (self._end - time.thread_time()) / UNIT_SECONDS)


@functools.lru_cache(1000)
def pattern_work(pattern: object) -> int:
    """Return the work of a pattern, compiled or not: most are small, a large one can take a microsecond a character."""
    if not isinstance(pattern, str) or len(pattern) > _LONG:
        return HEAVY
    try:
        matcher(pattern, _SMALL)
    except ValueError:
        return HEAVY
    return LIGHT


def matcher(pattern: str, options: jsonschema_rs.RegexOptions = PATTERNS) -> jsonschema_rs.Validator:
    """Compile a pattern; raise `jsonschema_rs.ValidationError` for what is none, or too large."""
    return jsonschema_rs.Draft7Validator({"pattern": pattern}, pattern_options=options, offline=True)


@dataclass(slots=True)
class _Around:
    """The weight of a schema at one place, and the schemas of the places below."""

    weight: int = 0
    members: list[Group] = field(default_factory=list)
    items: list[Group] = field(default_factory=list)


class Effort:
    """Counts what one schema does, each of its parts by a weight."""

    def __init__(self, references: References, weigh: Callable[[dict[str, Any]], int]) -> None:
        self._references, self._weigh = references, weigh
        self._around: dict[int, _Around] = {}
        self._known: dict[tuple[int, int], int] = {}
        self._targets: dict[int, Any] = {}
        self._steps = 0
        self._visits = 0

    def at(self, depth: int) -> int:
        """Return the work at a place at most `depth` levels down, with all above it."""
        try:
            return self._sum(self._references.root, depth)
        except RecursionError:
            return ENDLESS

    def _sum(self, schema: Any, depth: int) -> int:
        if depth < 0:
            return 0
        target = self._target(schema)
        if target is not None:
            return min(self._weigh({}) + self._sum(target, depth), ENDLESS)
        key = (id(schema), depth)
        if key not in self._known:
            around = self._around.get(id(schema))
            if around is None:
                around = self._around[id(schema)] = _Around()
                self._gather(schema, around, frozenset())
            members, items = (self._below(groups, depth - 1) for groups in (around.members, around.items))
            self._known[key] = min(around.weight + max(members, items), ENDLESS)  # a place holds the ones or the others
        return self._known[key]

    def _target(self, schema: dict[str, Any]) -> Any:
        """Return the one schema that a reference stands for, which is counted once for all references to it."""
        if "$ref" not in schema:
            return None
        if id(schema) not in self._targets:
            found = self._references.target(schema["$ref"])
            self._targets[id(schema)] = found if isinstance(found, dict) and "$ref" not in found else None
        return self._targets[id(schema)]

    def _below(self, groups: list[Group], depth: int) -> int:
        self._visits += sum(map(len, groups))
        if self._visits > _VISITS:
            return ENDLESS
        return sum(max(self._sum(each, depth) for each in group) for group in groups)

    def _gather(self, schema: Any, around: _Around, above: frozenset[int]) -> None:
        """Add what a schema, and all that look at the same place, say; `above` are those that led here."""
        self._steps += 1
        if schema is NOWHERE or id(schema) in above or self._steps > _STEPS or self._visits > _VISITS:
            around.weight = ENDLESS
        if not isinstance(schema, dict) or around.weight >= ENDLESS:
            return
        above |= {id(schema)}
        if "$ref" in schema:
            around.weight += self._weigh({})
            self._gather(self._references.target(schema["$ref"]), around, above)
            return
        around.weight += self._weigh(schema)
        members, items = _members(schema), _items(schema)
        self._visits += sum(map(len, members)) + sum(map(len, items))
        around.members += members
        around.items += items
        same_place = [each for key in _SAME_PLACE_LISTS for each in _list(schema.get(key))]
        same_place += [schema.get(key) for key in _SAME_PLACE]
        for each in [*same_place, *_values(schema.get("dependencies"))]:
            self._gather(each, around, above)


def looks_of(schema: dict[str, Any]) -> int:
    """Return how often a part of a schema looks at a place by itself."""
    return 1 + len(_list(schema.get("enum")))


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


def _children(value: Any) -> Iterable[Any]:
    """Return the values in a value, without a copy: this runs for every value of a document."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


class Extent(NamedTuple):
    """How large a document is, or is at most."""

    bytes: int
    values: int
    objects: int
    depth: int


class Weights(NamedTuple):
    """Work at a place, with all above it."""

    looks: int
    names: int  # names looked up in an object
    dividing: int  # how often a number is divided, or compared digit by digit
    reading: int  # how often a text is read, patterns and formats by their work
    reading_much: int
    """The same for a text that was made for a pattern, to which a small one is as much work as a large one."""


class Load(NamedTuple):
    """Work for a document."""

    weights: Weights
    quoted: int  # bytes of the largest value of the schema that stands in a violation
    extent: Extent

    @property
    def violations(self) -> int:
        """How many violations there can be in a document."""
        return self.extent.values * self.weights.looks + self.extent.objects * self.weights.names

    @property
    def copied(self) -> int:
        """Bytes its violations hold at most: each has a copy of the value it is about, and of what that should be."""
        each = (self.weights.looks + self.weights.names) * self.extent.depth
        return each * self.extent.bytes + self.violations * self.quoted

    @property
    def work(self) -> int:
        """Units of work for a document."""
        reading = self.weights.reading_much if self.extent.bytes > LARGE else self.weights.reading
        numbers = self.weights.dividing * self.extent.values * _DIVIDING
        return self.violations + numbers + reading * self.extent.bytes // _READING


class Loads:
    """The loads of one schema. All are counted when it is made: a count takes long too."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Raise `InvalidInput` for references that only the engine could follow."""
        references = References(schema)
        references.check()
        weighing = looks_of, _names_of, _dividing_of, _reading_of, functools.partial(_reading_of, light=HEAVY)
        efforts = [Effort(references, weigh) for weigh in weighing]
        parts = list(schemas_in(schema))
        depths = _DEPTHS if any("$ref" in part for part in parts) else _DEPTHS[-1:]
        self._weights = [(depth, Weights(*(effort.at(depth) for effort in efforts))) for depth in depths]
        self._quoted = max((len(msgspec.json.encode(each)) for each in _quoted(schema)), default=0)
        self.looks: int = self._weights[-1][1].looks  # how often a place is looked at, as deep as it may be
        self.divides = self._weights[-1][1].dividing > 0  # whether numbers are divided, or compared digit by digit
        self.branches = any(key in part for part in parts for key in _BRANCHES)
        """True if one violation can hold many others."""

    def of(self, extent: Extent) -> Load:
        """Return the load of a document, that of the deepest one when it is too deep."""
        weights = next((each for depth, each in self._weights if extent.depth <= depth), self._weights[-1][1])
        return Load(weights, self._quoted, extent)

    def size_within(self, work: int, depth: int) -> int:
        """Return the bytes that a document of such depth may have, however made, within some units of work."""
        worst = Extent(LARGE, LARGE // 2, LARGE // 3, depth)
        reading = LARGE * (_UNUSUAL if self.divides else 1)
        return LARGE * work // max(work, self.of(worst).work + reading)


def work_of_reading(document: bytes, values: int, *, divides: bool) -> int:
    """Return the units of work that it takes to read a document of at most so many values, and to divide by them."""
    if (divides or len(document) > LARGE) and _UNUSUAL_NUMBER.search(document):
        return len(document) * _UNUSUAL
    return values + len(document) // 16


def _quoted(schema: dict[str, Any]) -> Iterator[object]:
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
    divided = 0 if divisor is None else 1 if _is_within(divisor, 1 / _EXACT) else _FAR
    return divided + sum(not _is_within(schema.get(key), 0) for key in _BOUNDS)


def _is_within(value: Any, least: float) -> bool:
    """Return whether a number is not too large or small for a processor; what is no number is neither."""
    return not isinstance(value, int | float) or least <= abs(value) <= _EXACT


def _reading_of(schema: dict[str, Any], light: int = LIGHT) -> int:
    """`light` is the work of a small pattern: on a text made for it, such a one takes as long as a large one."""
    of_names = schema.get("patternProperties")
    patterns = list(of_names) if isinstance(of_names, dict) else []
    patterns += [schema["pattern"]] if "pattern" in schema else []
    read = sum(max(light, pattern_work(each)) for each in patterns)
    if isinstance(schema.get("format"), str):
        read += HEAVY if schema["format"] in _SLOW_FORMATS else LIGHT
    return (
        read + sum(key in schema for key in ("minLength", "maxLength", "const", "enum")) + 4 * ("uniqueItems" in schema)
    )
