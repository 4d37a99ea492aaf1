"""What reading the three shapes of a description has in common."""

from collections.abc import Iterable, Mapping
from typing import Any

Item = dict[str, Any]
"""A part of a description, by the columns of `catalogue`; what is not in it is null."""
Vos = Mapping[str, list[str]]
"""The VOs that may use each share."""


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
