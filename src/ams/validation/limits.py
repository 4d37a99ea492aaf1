"""How large a schema may be. A schema is compiled on the way of somebody's publish, so it has to be something small."""

from collections.abc import Iterator
from typing import Any

import msgspec

from ams.errors import InvalidInput

MAX_BYTES = 256 * 1024
"""Of a schema written as JSON."""
MAX_DEPTH = 64
"""Objects and lists within each other."""
MAX_PATTERNS = 100
"""Regular expressions; each may take a quarter of a megabyte when compiled."""
_PATTERN_KEYS = ("pattern", "patternProperties", "patterns")


def check_size(schema: object) -> None:
    """Raise `InvalidInput` for a schema that is too deep, too large, or has too many patterns."""
    patterns = 0
    for key, value, depth in _parts(schema):
        if depth > MAX_DEPTH:
            raise InvalidInput(f"Schema is nested too deeply: at most {MAX_DEPTH} levels")
        if key in _PATTERN_KEYS:
            patterns += len(value) if isinstance(value, dict) else 1
    if len(msgspec.json.encode(schema)) > MAX_BYTES:
        raise InvalidInput(f"Schema is too large: at most {MAX_BYTES} bytes of JSON")
    if patterns > MAX_PATTERNS:
        raise InvalidInput(f"Schema has too many patterns: at most {MAX_PATTERNS}")


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
