"""A YAML file as a tree in which each value has its line number.

Safe for untrusted files: only text, numbers, lists and mappings are constructed. Size and depth are limited. Tags and
aliases, which can expand a small file to a huge one, are refused. Plain scalars follow YAML 1.2 and JSON: `on`, `no`
and `1:30` are text.
"""

import math
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from ams.core.errors import BadDocument

MAX_BYTES = 1 << 20
MAX_DEPTH = 60

_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?\d+", re.ASCII)
_FRACTION = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?", re.ASCII)
_NOT_IN_JSON = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MAX_DIGITS = 25


class FileLine(NamedTuple):
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def bad(place: FileLine, text: str) -> BadDocument:
    """Return the error for a place in a file."""
    return BadDocument(f"{place}: {text}", place.line, text)


@dataclass(frozen=True, slots=True)
class Value:
    """A value in a file. Each method reads it as one type and raises `BadDocument` for another."""

    node: yaml.Node
    file: str
    name: yaml.Node | None = None  # its key in a mapping

    @property
    def place(self) -> FileLine:
        """The line of its key, or its own."""
        return FileLine(self.file, (self.name or self.node).start_mark.line + 1)

    @property
    def is_null(self) -> bool:
        """Return whether the value is null."""
        return self._is_plain and self.node.value in ("", "~", "null", "Null", "NULL")

    @property
    def _is_plain(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and not self.node.style

    @property
    def _shown(self) -> str:
        if isinstance(self.node, yaml.MappingNode):
            return "names with values"
        if isinstance(self.node, yaml.SequenceNode):
            return "a list"
        return "nothing" if self.is_null else f"{str(self.node.value)[:40]!r}"

    def mapping(self, allowed: Collection[str] | None = None) -> "dict[str, Value]":
        """Return a mapping, empty for null; `allowed` are the permitted keys."""
        if self.is_null:
            return {}
        if not isinstance(self.node, yaml.MappingNode):
            raise bad(self.place, f"names with values are expected here, not {self._shown}")
        found: dict[str, Value] = {}
        for key, node in self.node.value:
            name, value = Value(key, self.file).text(), Value(node, self.file, key)
            if name in found:
                raise bad(value.place, f"{name!r} is said twice")
            if allowed is not None and name not in allowed:
                raise bad(value.place, f"unknown key {name!r}; there are {', '.join(allowed)}")
            found[name] = value
        return found

    def values(self) -> "list[Value]":
        """Return the values of a list, empty for null."""
        if self.is_null:
            return []
        if not isinstance(self.node, yaml.SequenceNode):
            raise bad(self.place, f"a list is expected here, not {self._shown}")
        return [Value(each, self.file) for each in self.node.value]

    def text(self) -> str:
        """Return text, also for plain numbers and booleans: names may be `2024` or `on`."""
        if not isinstance(self.node, yaml.ScalarNode) or self.is_null:
            raise bad(self.place, f"text is expected here, not {self._shown}")
        return str(self.node.value)

    def one_of(self, *choices: str) -> str:
        """Return a text that is one of `choices`."""
        text = self.text()
        if text not in choices:
            raise bad(self.place, f"{text!r} is none of {', '.join(choices)}")
        return text

    def texts(self) -> tuple[str, ...]:
        """Return the texts of a list, sorted, without duplicates; empty for null."""
        return tuple(sorted({each.text() for each in self.values()}))

    def number(self, lowest: int, highest: int) -> int:
        """Return an integer within bounds."""
        value = self.plain()
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise bad(self.place, f"a whole number from {lowest} to {highest} is expected here")
        return value

    def switch(self) -> bool:
        """Return true or false."""
        value = self.plain()
        if not isinstance(value, bool):
            raise bad(self.place, "true or false is expected here")
        return value

    def plain(self) -> Any:
        """Return the value as JSON types."""
        if isinstance(self.node, yaml.MappingNode):
            return {name: value.plain() for name, value in self.mapping().items()}
        if isinstance(self.node, yaml.SequenceNode):
            return [value.plain() for value in self.values()]
        text = str(self.node.value)
        if self.is_null:
            return None
        if not self._is_plain:
            return text
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        if not (_FRACTION.fullmatch(text) or _NOT_IN_JSON.fullmatch(text)):
            return text
        whole = _INTEGER.fullmatch(text)
        if whole and len(text) < _MAX_DIGITS and -(2**63) <= int(text) < 2**64:
            return int(text)
        if not whole and not _NOT_IN_JSON.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
        raise bad(self.place, f"{text[:40]!r} is no number in JSON, or too large")


def read_tree(path: str) -> Value | None:
    """Parse a YAML file (`-`: standard input); None if it is empty. Raises `BadDocument`."""
    shown = "standard input" if path == "-" else path
    content = _require_max_bytes(sys.stdin.buffer.read(MAX_BYTES + 1), shown) if path == "-" else read_capped(path)
    try:
        return parse_tree(content.decode(), shown)
    except UnicodeDecodeError:
        raise BadDocument(f"{shown} is not text in UTF-8") from None


def parse_tree(text: str, shown: str) -> Value | None:
    """Parse YAML text; `shown` is its file's name in errors. None if it is empty. Raises `BadDocument`."""
    try:
        node = _Loader(text, shown).get_single_node()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise bad(FileLine(shown, line), f"not YAML: {error.problem}") from None
    except yaml.YAMLError:
        raise BadDocument(f"{shown} is not YAML: it holds characters that no text has") from None
    return Value(node, shown) if node else None


def read_capped(path: str) -> bytes:
    """Read a file. Raises `BadDocument` if it is unreadable or larger than `MAX_BYTES`."""
    try:
        with open(path, "rb") as file:
            return _require_max_bytes(file.read(MAX_BYTES + 1), path)
    except OSError as error:
        raise BadDocument(f"{path}: {error.strerror}") from error


def _require_max_bytes(content: bytes, shown: str) -> bytes:
    if len(content) > MAX_BYTES:
        raise BadDocument(f"{shown} is larger than {MAX_BYTES} bytes")
    return content


class _Loader(yaml.SafeLoader):
    """Composes nodes without constructing objects; refuses aliases, tags and deep nesting."""

    def __init__(self, text: str, shown: str) -> None:
        super().__init__(text)
        self._shown, self._depth = shown, 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.NodeEvent = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it out
        place = FileLine(self._shown, event.start_mark.line + 1 if event.start_mark else 1)
        if isinstance(event, yaml.AliasEvent):
            raise bad(place, "aliases (*name) are not taken; write it out")
        if getattr(event, "tag", None):
            raise bad(place, "tags (!name) are not taken")
        if self._depth == MAX_DEPTH:
            raise bad(place, f"deeper than {MAX_DEPTH} levels")
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node
