"""What reading the three shapes of a description has in common: tables of names, and VOs by shares."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ams.pipeline.jobs import fields
from ams.pipeline.jobs.fields import Record

Item = dict[str, Any]
"""A part of a description, by the columns of `catalogue`; what is not in it is null."""
Names = Mapping[str, tuple[str, Callable[[Record, str], Any]]]
"""By columns: what a shape calls them, and how they are read."""
Vos = Mapping[str, list[str]]
"""The VOs that may use each share."""


def names(**pairs: str) -> Names:
    """Return the names of a table such as `needed="id=ID", text="url=URL"`, by their readers in `fields`."""
    told = ((reader, *pair.split("=")) for reader, words in pairs.items() for pair in words.split())
    return {column: (name, getattr(fields, reader)) for reader, column, name in told}


def read(item: Record, names: Names) -> Item:
    """Return columns of an item; raises `Broken`, naming the field."""
    return {column: reader(item, name) for column, (name, reader) in names.items()}


def by_share(pairs: Iterable[tuple[str, Iterable[str]]]) -> Vos:
    """Return the VOs of each share, of pairs of a share and VOs that may use it."""
    found: dict[str, set[str]] = {}
    for share, vos in pairs:
        found.setdefault(share, set()).update(vos)
    return {share: sorted(vos) for share, vos in found.items()}


def ruled(rules: Iterable[str]) -> list[str]:
    """Return the VOs that the rules of a mapping policy name, as `VO:biomed`."""
    return [rule.removeprefix("VO:") for rule in rules if rule.startswith("VO:")]


def joined(*words: str | None) -> str | None:
    """Return those words that there are, with blanks between."""
    return " ".join(filter(None, words)) or None
