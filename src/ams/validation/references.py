"""Where a `$ref` leads: along a path of names within its schema, and nowhere else.

The names that parts may give themselves (`$id`, in draft 4 `id`) change what a path means for everything inside, and
two readers of a schema can easily differ about them. How often a schema looks is counted by our reading and done by the
engine's: so such names, and references that need them, are refused.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from ams.core.errors import InvalidInput
from ams.validation.violations import quoted

NOWHERE = object()  # where a reference leads that cannot be followed
_DATA = ("enum", "const", "default", "examples")  # keywords whose values are no schemas
_MAPS = ("properties", "patternProperties", "definitions", "$defs", "dependencies")
"""Keywords whose values hold schemas under names of the user's choice."""
_NAMES = ("$id", "id")
ROOT_ONLY = (*_NAMES, "$schema")  # keywords that only the whole of a schema may have


class References:
    """The references of one schema."""

    def __init__(self, schema: Any) -> None:
        self.root = schema
        self._schemas = {id(part) for part in schemas_in(schema)}

    def target(self, reference: Any) -> Any:
        """Return the schema that a reference leads to, `NOWHERE` when there is none or it is no schema."""
        if not is_plain(reference):
            return NOWHERE
        found = _follow(self.root, reference)
        return found if isinstance(found, bool) or id(found) in self._schemas else NOWHERE

    def check(self) -> None:
        """Raise `InvalidInput` for a name or a reference that only the engine could follow."""
        for key in _NAMES:
            if key in self.root and not _is_uri(self.root[key]):
                raise InvalidInput(f"{key} must be a URI: {quoted(self.root[key])}")
        for part in schemas_in(self.root):
            for key in ROOT_ONLY if part is not self.root else ():
                if isinstance(part.get(key), str):
                    raise InvalidInput(f"{key} is allowed at the root of a schema only: {quoted(part[key])}")
            if "$ref" in part:
                self._check_reference(part["$ref"])

    def _check_reference(self, reference: Any) -> None:
        if not is_plain(reference):
            raise InvalidInput(f'$ref must lead within the schema, as "#/definitions/site" does: {quoted(reference)}')
        if _follow(self.root, reference) is not NOWHERE and self.target(reference) is NOWHERE:
            raise InvalidInput(f"$ref must lead to a schema: {quoted(reference)}")


def schemas_in(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a schema that is a schema too, the whole first; values that are only compared are none."""
    left = [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            left += [inner for key, value in part.items() for inner in _inner(key, value)]
        elif isinstance(part, list):
            left += part


def is_plain(reference: Any) -> bool:
    """Return whether a reference is a path from the root: `#`, or `#/` and names."""
    return isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))


def _inner(key: str, value: Any) -> list[Any]:
    if key in _DATA:
        return []
    return list(value.values()) if key in _MAPS and isinstance(value, dict) else [value]


def _follow(schema: Any, reference: str) -> Any:
    for step in reference.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict):
            schema = schema.get(name, NOWHERE)
        elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
            schema = schema[int(name)]
        else:
            return NOWHERE
    return schema


def _is_uri(value: Any) -> bool:
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        return False
    try:
        parts = urlsplit(value)
        return parts.port is None or bool(parts.hostname)
    except ValueError:
        return False
