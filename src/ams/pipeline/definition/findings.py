"""Everything that is wrong with a file, told at once."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import yaml

from ams.core.errors import BadDocument
from ams.core.yaml_tree import Value
from ams.pipeline.errors import Finding, WrongDefinition, WrongOption
from ams.pipeline.expressions import WrongExpression


class Findings:
    """Gathers what is wrong, so that reading can go on with the rest."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: list[Finding] = []

    def add(self, value: Value, reason: str) -> None:
        """Remember something wrong with a value."""
        self._found.append(Finding(value.place.line, reason))

    @contextmanager
    def catch(self, value: Value) -> Iterator[None]:
        """Remember what is raised while a value is read, and go on behind it."""
        try:
            yield
        except BadDocument as error:
            self._found.append(Finding(error.line or value.place.line, error.reason))
        except WrongExpression as error:
            line, column = _place(value, error.position)
            self._found.append(Finding(line, error.reason, column))
        except WrongOption as error:
            self.add(value, error.reason)

    def mapping(self, value: Value, allowed: Collection[str], needed: Collection[str] = ()) -> Mapping[str, Value]:
        """Read names and values, of which those not `allowed` and those `needed` and absent are wrong."""
        said: Mapping[str, Value] = {}
        with self.catch(value):
            said = value.mapping()
        for name, each in said.items():
            if name not in allowed:
                self.add(each, f"unknown key {name!r}; there are {', '.join(allowed)}")
        for name in needed:
            if name not in said:
                self.add(value, f"{name!r} must be said")
        return {name: each for name, each in said.items() if name in allowed}

    def end(self) -> None:
        """Raise `WrongDefinition` when something was wrong, in the order of the lines."""
        if self._found:
            unique = dict.fromkeys(sorted(self._found, key=lambda each: each.line))
            raise WrongDefinition(self.file, list(unique))


def _place(value: Value, position: int) -> tuple[int, int]:
    """Return line and column of a character of a text, which may be quoted or folded in the file.

    As many characters that are no blanks stand before it there as in the text.
    """
    node, text = value.node, value.text()
    start, end = node.start_mark, node.end_mark
    raw = (start.buffer or "")[start.pointer : end.pointer]
    style = node.style if isinstance(node, yaml.ScalarNode) else None
    at = raw.find("\n") + 1 if style in ("|", ">") else len(style or "")
    before = len("".join(text[: position - 1].split()))
    while at < len(raw) and (before or raw[at].isspace()):
        escaped = (style, raw[at : at + 2]) == ("'", "''") or (style == '"' and raw[at] == "\\")
        before -= not raw[at].isspace() and (not escaped or raw[at + 1 : at + 2] not in "nt \n")
        at += 2 if escaped else 1
    lines = raw[:at].split("\n")
    return start.line + len(lines), len(lines[-1]) + 1 + (start.column if len(lines) == 1 else 0)
