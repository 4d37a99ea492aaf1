"""What reading the three shapes of a description has in common: tables of names, and VOs by shares."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from ams.pipeline.jobs.fields import Record, needed, text, whole

Names = Mapping[str, tuple[str, Callable[[Record, str], Any]]]
"""By fields: what a shape calls them, and how they are read."""

_READERS: Final[Mapping[object, Callable[[Record, str], Any]]] = {str: needed, str | None: text, int | None: whole}


def named(kind: type[msgspec.Struct], table: str) -> Names:
    """Return the names of a table such as `id=ID url=URL`, each with the reader of the field's type."""
    types = {each.name: each.type for each in msgspec.structs.fields(kind)}
    pairs = (each.split("=") for each in table.split())
    return {field: (name, _READERS[types[field]]) for field, name in pairs}


def read(item: Record, names: Names) -> dict[str, Any]:
    """Return fields of an item; raises `Broken`, naming the field."""
    return {field: reader(item, name) for field, (name, reader) in names.items()}


def by_share(pairs: Iterable[tuple[str, Iterable[str]]]) -> dict[str, tuple[str, ...]]:
    """Return the VOs of each share, of pairs of a share and VOs that may use it."""
    found: dict[str, set[str]] = {}
    for share, vos in pairs:
        found.setdefault(share, set()).update(vos)
    return {share: distinct(vos) for share, vos in found.items()}


def ruled(rules: Iterable[str]) -> list[str]:
    """Return the VOs that the rules of a mapping policy name, as `VO:biomed`."""
    return [rule.removeprefix("VO:") for rule in rules if rule.startswith("VO:")]


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Return each name once, in order."""
    return tuple(sorted(set(names)))


def joined(*words: str | None) -> str | None:
    """Return those words that there are, with blanks between."""
    return " ".join(filter(None, words)) or None
