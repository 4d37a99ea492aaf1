"""Targets of `$ref`: only paths of names within its schema.

A part of a schema may name itself (`$id`, in draft 4 `id`). It changes the meaning of paths inside it, and two parsers
can easily disagree. Our estimate follows our reading, and the engine follows its own. So these names, and references
that need them, are refused.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from ams.core.errors import InvalidInput
from ams.validation.violations import quote

NO_TARGET = object()  # target of a reference that cannot be followed
_DATA_KEYWORDS = ("enum", "const", "default", "examples")  # keywords whose values are not schemas
_MAP_KEYWORDS = ("properties", "patternProperties", "definitions", "$defs", "dependencies")
"""Keywords whose values hold schemas under the user's names."""
_NAME_KEYWORDS = ("$id", "id")
ROOT_KEYWORDS = (*_NAME_KEYWORDS, "$schema")  # keywords allowed only at the root of a schema


class References:
    """The references of one schema."""

    def __init__(self, schema: Any) -> None:
        self.root = schema
        self._schemas = {id(part) for part in schemas_in(schema)}

    def target(self, reference: Any) -> Any:
        """Return the schema a reference points to; `NO_TARGET` if it does not exist or is not a schema."""
        if not is_plain(reference):
            return NO_TARGET
        found = _follow(self.root, reference)
        return found if isinstance(found, bool) or id(found) in self._schemas else NO_TARGET

    def check(self) -> None:
        """Raise `InvalidInput` for a name or a reference that only the engine could follow."""
        for key in _NAME_KEYWORDS:
            if key in self.root and not _is_uri(self.root[key]):
                raise InvalidInput(f"{key} must be a URI: {quote(self.root[key])}")
        for part in schemas_in(self.root):
            for key in ROOT_KEYWORDS if part is not self.root else ():
                if isinstance(part.get(key), str):
                    raise InvalidInput(f"{key} is allowed at the root of a schema only: {quote(part[key])}")
            if "$ref" not in part:
                continue
            reference, example = part["$ref"], "#/definitions/site"
            if not is_plain(reference):
                raise InvalidInput(f'$ref must lead within the schema, as "{example}" does: {quote(reference)}')
            if _follow(self.root, reference) is not NO_TARGET and self.target(reference) is NO_TARGET:
                raise InvalidInput(f"$ref must lead to a schema: {quote(reference)}")


def schemas_in(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema within a schema, the whole first. Values that are only compared are not schemas."""
    left = [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            for key, value in part.items():
                if key not in _DATA_KEYWORDS:
                    left += value.values() if key in _MAP_KEYWORDS and isinstance(value, dict) else [value]
        elif isinstance(part, list):
            left += part


def is_plain(reference: Any) -> bool:
    """Return whether a reference is a path from the root: `#`, or `#/` and names."""
    return isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))


def _follow(schema: Any, reference: str) -> Any:
    for step in reference.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict):
            schema = schema.get(name, NO_TARGET)
        elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
            schema = schema[int(name)]
        else:
            return NO_TARGET
    return schema


def _is_uri(value: Any) -> bool:
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        return False
    try:
        parts = urlsplit(value)
        return parts.port is None or bool(parts.hostname)
    except ValueError:
        return False
