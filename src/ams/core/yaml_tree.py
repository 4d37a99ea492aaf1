"""A YAML file as a tree in which each value has its line number.

Safe for files of strangers: nothing is constructed but text, numbers, lists and mappings; size and depth are capped;
aliases, with which a small file can stand for a huge one, and tags are refused. Plain words mean what they mean in
YAML 1.2 and JSON: `on`, `no` and `1:30` are text.
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

_NULLS = ("", "~", "null", "Null", "NULL")
_SWITCHES = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WHOLE = re.compile(r"[-+]?\d+", re.ASCII)
_FRACTION = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?", re.ASCII)
_NOT_IN_JSON = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1
_DIGITS = 25


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
    """A value and the file it stands in; each method reads it as one type and raises `BadDocument` if it is another."""

    node: yaml.Node
    file: str
    name: yaml.Node | None = None  # the name that stands before it in a mapping

    @property
    def place(self) -> FileLine:
        """Where it begins: at its name if it has one."""
        return FileLine(self.file, (self.name or self.node).start_mark.line + 1)

    @property
    def is_null(self) -> bool:
        """Return whether nothing is said."""
        return _is_null(self.node)

    def mapping(self, allowed: Collection[str] | None = None) -> "dict[str, Value]":
        """Return names and values; nothing is an empty mapping; `allowed` are the names that may occur."""
        if self.is_null:
            return {}
        if not isinstance(self.node, yaml.MappingNode):
            raise bad(self.place, f"names with values are expected here, not {_what(self.node)}")
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
        """Return the values of a list; nothing is an empty one."""
        if self.is_null:
            return []
        if not isinstance(self.node, yaml.SequenceNode):
            raise bad(self.place, f"a list is expected here, not {_what(self.node)}")
        return [Value(each, self.file) for each in self.node.value]

    def text(self) -> str:
        """Return text, also what looks like a number or a switch: names may be `2024` or `on`."""
        if not isinstance(self.node, yaml.ScalarNode) or self.is_null:
            raise bad(self.place, f"text is expected here, not {_what(self.node)}")
        return str(self.node.value)

    def one_of(self, *choices: str) -> str:
        """Return a text that is one of some."""
        text = self.text()
        if text not in choices:
            raise bad(self.place, f"{text!r} is none of {', '.join(choices)}")
        return text

    def texts(self) -> tuple[str, ...]:
        """Return the texts of a list, sorted, each once; nothing is none."""
        return tuple(sorted({each.text() for each in self.values()}))

    def number(self, lowest: int, highest: int) -> int:
        """Return a whole number within bounds."""
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
        """Return the value as JSON has it."""
        if isinstance(self.node, yaml.MappingNode):
            return {name: value.plain() for name, value in self.mapping().items()}
        if isinstance(self.node, yaml.SequenceNode):
            return [value.plain() for value in self.values()]
        text = str(self.node.value)
        if self.is_null:
            return None
        if not _is_plain(self.node):
            return text
        if text in _SWITCHES:
            return _SWITCHES[text]
        if not (_FRACTION.fullmatch(text) or _NOT_IN_JSON.fullmatch(text)):
            return text
        whole = _WHOLE.fullmatch(text)
        if whole and len(text) < _DIGITS and _LOWEST <= int(text) <= _HIGHEST:
            return int(text)
        if not whole and not _NOT_IN_JSON.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
        raise bad(self.place, f"{text[:40]!r} is no number in JSON, or too large")


def read_tree(path: str) -> Value | None:
    """Read a YAML file, `-` for standard input; None when it says nothing; raise `BadDocument` for what is no YAML."""
    shown = "standard input" if path == "-" else path
    content = _capped(sys.stdin.buffer.read(MAX_BYTES + 1), shown) if path == "-" else read_capped(path)
    try:
        return parse_tree(content.decode(), shown)
    except UnicodeDecodeError:
        raise BadDocument(f"{shown} is not text in UTF-8") from None


def parse_tree(text: str, shown: str) -> Value | None:
    """Read text as YAML, its file called `shown`; None when it says nothing; raise `BadDocument` for no YAML."""
    try:
        node = _Loader(text).get_single_node()
    except _Refused as error:
        raise bad(FileLine(shown, error.line), f"{error}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise bad(FileLine(shown, line), f"not YAML: {error.problem}") from None
    except yaml.YAMLError:
        raise BadDocument(f"{shown} is not YAML: it holds characters that no text has") from None
    return Value(node, shown) if node else None


def read_capped(path: str) -> bytes:
    """Read a file of at most `MAX_BYTES`; raise `BadDocument` when it is larger or cannot be read."""
    try:
        with open(path, "rb") as file:
            return _capped(file.read(MAX_BYTES + 1), path)
    except OSError as error:
        raise BadDocument(f"{path}: {error.strerror}") from error


def _capped(content: bytes, shown: str) -> bytes:
    if len(content) > MAX_BYTES:
        raise BadDocument(f"{shown} is larger than {MAX_BYTES} bytes")
    return content


def _is_plain(node: yaml.Node) -> bool:
    """Return whether it is a word without quotes, which may stand for a number, a switch or nothing."""
    return isinstance(node, yaml.ScalarNode) and not node.style


def _is_null(node: yaml.Node) -> bool:
    return _is_plain(node) and node.value in _NULLS


def _what(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "names with values"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "nothing" if _is_null(node) else f"{str(node.value)[:40]!r}"


class _Refused(Exception):
    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


class _Loader(yaml.SafeLoader):
    """Composes nodes, nothing more; without aliases and tags, and not too deep."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.NodeEvent = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it out
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise _Refused("aliases (*name) are not taken; write it out", line)
        if getattr(event, "tag", None):
            raise _Refused("tags (!name) are not taken", line)
        if self._depth == MAX_DEPTH:
            raise _Refused(f"deeper than {MAX_DEPTH} levels", line)
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node
