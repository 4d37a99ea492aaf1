"""Which messages go where: rules and the names they make, as values."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

SOURCE_TOPIC = "topic"
"""In a name between braces: the topic a message was read from, and no attribute."""

_HOLE = re.compile(r"\{([^{}]+)\}")
_LITERAL = re.compile(r"[a-zA-Z0-9_-]*")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says of some messages where they go; the first rule that holds for a message decides."""

    attribute: str = ""
    """The attribute that is looked at; empty: the rule holds for every message."""
    values: tuple[str, ...] = ()
    """What the attribute must be, one of these; empty: anything, but the message must have it."""
    to: tuple[str, ...] = ()
    """Topics, each of which gets the message; `{NAME}` stands for the attribute NAME, `{topic}` for the topic the
    message was read from. Empty: the message goes nowhere."""

    def __post_init__(self) -> None:
        if self.values and not self.attribute:
            raise ValueError("values without an attribute: which one is looked at?")
        check_names(self.to)


class Part(NamedTuple):
    """A piece of a name: a text, or what an attribute says."""

    text: str
    attribute: str | None = None


def parts(name: str) -> list[Part]:
    """Return the pieces of a name; raise `ValueError` for one that can never be a topic's.

    >>> parts("SITE_{site}")
    [Part(text='SITE_', attribute=None), Part(text='', attribute='site')]
    """
    pieces = _HOLE.split(name)
    texts, attributes = pieces[::2], pieces[1::2]
    for text in texts:
        if not _LITERAL.fullmatch(text):
            raise ValueError(f"{name!r} is no name of a topic: letters, digits, -, _ and {{ATTRIBUTE}}")
    found = [each for pair in zip(texts, [*attributes, None], strict=True) for each in _pair(*pair)]
    if not found:
        raise ValueError("a topic has a name")
    return found


def check_names(names: Sequence[str]) -> None:
    """Raise `ValueError` for the first that can never be a topic's, or stands there twice."""
    for name in names:
        parts(name)
    if len(set(names)) < len(names):
        raise ValueError("a topic stands there twice")


def _pair(text: str, attribute: str | None) -> list[Part]:
    return [*([Part(text)] if text else []), *([Part("", attribute)] if attribute else [])]
