"""How large a schema may be. A schema is compiled on the way of somebody's publish, so it has to be something small."""

from collections.abc import Iterator
from typing import Any

import msgspec

from ams.core.errors import InvalidInput
from ams.validation import patterns

MAX_BYTES = 256 * 1024
"""Of a schema written as JSON."""
MAX_DEPTH = 64
"""Objects and lists within each other."""
MAX_PATTERNS = 30
"""Regular expressions; each may take 64 KiB when compiled, and several times that when it is used."""
_PATTERN_BYTES = {patterns.LIGHT: 2**14, patterns.HEAVY: 2**18}
"""What a pattern takes in memory, by its work, once it is used."""
_GROWTH = 40
"""Bytes of memory for each of a schema's JSON: what the densest schemas take once they are used."""


def check_size(schema: object) -> int:
    """Return how many bytes of memory a schema takes at most.

    Raises `InvalidInput` for one that is too deep, too large, or has too many patterns.
    """
    found: list[object] = []
    for key, value, depth in _parts(schema):
        if depth > MAX_DEPTH:
            raise InvalidInput(f"Schema is nested too deeply: at most {MAX_DEPTH} levels")
        found += _patterns(key, value)
    size = len(msgspec.json.encode(schema))
    if size > MAX_BYTES:
        raise InvalidInput(f"Schema is too large: at most {MAX_BYTES} bytes of JSON")
    if len(found) > MAX_PATTERNS:
        raise InvalidInput(f"Schema has too many patterns: at most {MAX_PATTERNS}")
    return size * _GROWTH + sum(_PATTERN_BYTES[patterns.work(each)] for each in found)


def _patterns(key: str, value: Any) -> list[object]:
    """Return the regular expressions under a name: in attributes they are values, of members' names they are names."""
    if key == "pattern":
        return [value]
    if not isinstance(value, dict):
        return []
    return list(value.values()) if key == "patterns" else list(value) if key == "patternProperties" else []


def _parts(schema: object) -> Iterator[tuple[str, Any, int]]:
    """Yield every value in a schema, with its name (empty in lists) and how deep its container lies, from 1."""
    left: list[tuple[str, Any, int]] = [("", schema, 0)]
    while left:
        part = left.pop()
        yield part
        _, value, depth = part
        if isinstance(value, dict):
            left += [(name, each, depth + 1) for name, each in value.items()]
        elif isinstance(value, list):
            left += [("", each, depth + 1) for each in value]
