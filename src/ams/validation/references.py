"""Where a `$ref` leads within a JSON schema: along a path of names, or to a part that has a name (`$id`) of its own."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

NOWHERE = object()
"""Where a reference leads that cannot be followed here."""


class References:
    """The references of one schema."""

    def __init__(self, schema: Any) -> None:
        self._base = urldefrag(_name(schema)).url
        self._named = {self._whole(_name(part)): part for part in _parts(schema) if _name(part)}
        self._named[self._base] = schema

    def target(self, reference: Any) -> Any:
        """Return the schema that a reference leads to, `NOWHERE` when it is not part of this one."""
        if not isinstance(reference, str):
            return NOWHERE
        whole = self._whole(reference)
        if whole in self._named:
            return self._named[whole]
        place, path = urldefrag(whole)
        return _follow(self._named.get(place, NOWHERE), path) if path.startswith("/") else NOWHERE

    def _whole(self, reference: str) -> str:
        """Write a reference in full; one within this schema is put together by hand, as a base may be of any form."""
        full = self._base + reference if reference.startswith("#") else urljoin(self._base, reference)
        return full.rstrip("#")


def _follow(schema: Any, path: str) -> Any:
    for step in unquote(path).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict):
            schema = schema.get(name, NOWHERE)
        elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
            schema = schema[int(name)]
        else:
            return NOWHERE
    return schema


def _name(schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    name = schema.get("$id", schema.get("id", ""))
    return name if isinstance(name, str) else ""


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    left = [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            left += part.values()
        elif isinstance(part, list):
            left += part
