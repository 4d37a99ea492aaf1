"""Reads names, types and expressions of a definition file, and collects all its errors."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import yaml
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType

from ams.core.errors import BadDocument
from ams.core.names import is_resource_name
from ams.core.yaml_tree import Value, bad
from ams.pipeline.columns import PLACE
from ams.pipeline.errors import Finding, WrongDefinition, WrongOption
from ams.pipeline.expressions import Expression, WrongExpression, expression, hint, types
from ams.pipeline.expressions.types import BINARY, STRINGS, struct

T = TypeVar("T")

SOURCE, ATTRIBUTES = "source", "attributes"  # of the message; columns of every row beside its record's
ORDERING_KEY = "ordering_key"  # a column of unparsed messages, only for ordering keys; no table of a definition has it
PLACED = {field.name: field.dataType for field in PLACE.fields}
MESSAGE_TYPES: Mapping[str, DataType] = {**PLACED, ATTRIBUTES: STRINGS, "data": BINARY, SOURCE: struct(PLACED)}

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)  # of a definition, or of a table of its run
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)


class Findings:
    """Collects errors, so that reading can go on."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: list[Finding] = []

    def add(self, value: Value, reason: str) -> None:
        """Add an error of a value."""
        self._found.append(Finding(value.place.line, reason))

    @contextmanager
    def catch(self, value: Value) -> Iterator[None]:
        """Collect errors raised while a value is read, and continue after it."""
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
        """Read a mapping; names that are not `allowed`, and absent `needed` ones, are errors."""
        said = self.read(value, Value.mapping) or {}
        for name, each in said.items():
            if name not in allowed:
                self.add(each, f"unknown key {name!r}; there are {', '.join(allowed)}")
        for name in needed:
            if name not in said:
                self.add(value, f"{name!r} must be said")
        return {name: each for name, each in said.items() if name in allowed}

    def values(self, said: Mapping[str, Value], readers: Mapping[str, Callable[[Value], Any]]) -> dict[str, Any]:
        """Read the values that have a reader, in the readers' order; invalid ones are left out."""
        found: dict[str, Any] = {}
        for name, reader in readers.items():
            if name in said:
                with self.catch(said[name]):
                    found[name] = reader(said[name])
        return found

    def read(self, value: Value, reader: Callable[[Value], T]) -> T | None:
        """Read a value; None if it is invalid."""
        return next(iter(self.each([value], reader)), None)

    def each(self, values: Iterable[Value], read: Callable[[Value], T]) -> list[T]:
        """Read values; invalid ones are left out."""
        found: list[T] = []
        for value in values:
            with self.catch(value):
                found.append(read(value))
        return found

    def end(self) -> None:
        """Raise `WrongDefinition` with all errors by line, if there are any."""
        if self._found:
            unique = dict.fromkeys(sorted(self._found, key=lambda each: each.line))
            raise WrongDefinition(self.file, list(unique))


def _place(value: Value, position: int) -> tuple[int, int]:
    """Return line and column of a character in the file, counted without blanks."""
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


def check_name(value: Value, name: str, beside: Iterable[str] = (), taken: Collection[str] = (SOURCE,)) -> None:
    """Raise `BadDocument` for an invalid or duplicate column name; Spark ignores case."""
    if not _COLUMN.fullmatch(name):
        raise bad(value.place, f"{name[:64]!r} is no name of a column: letters, digits and _, 64 of them at most")
    if name.lower() in taken:
        raise bad(value.place, f"{name!r} is taken: every row has it")
    for other in beside:
        if other != name and other.lower() == name.lower():
            raise bad(value.place, f"{name!r} and {other!r} are one to Spark, which takes A for a")


def resource_name(value: Value) -> str:
    """Read the name of a topic or a subscription."""
    name = value.text()
    if not is_resource_name(name):
        raise bad(value.place, f"{name[:64]!r} is no name of a topic or subscription")
    return name


def known_column(value: Value, columns: Iterable[str]) -> str:
    """Read the name of an existing column. Raises `BadDocument`."""
    name, known = value.text(), list(columns)
    if name not in known:
        raise bad(value.place, f"no column {name!r}; {hint(name, known)}")
    return name


def known_columns(value: Value | None, columns: Iterable[str], findings: Findings) -> list[str]:
    """Read existing columns, one or a list; empty if absent."""
    known, found = list(columns), list[str]()

    def read(each: Value) -> None:
        name = known_column(each, known)
        if name in found:
            raise bad(each.place, f"{name!r} is said twice")
        found.append(name)

    findings.each(values_of(value) if value else [], read)
    return found


def known_keys(value: Value | None, columns: Mapping[str, DataType], findings: Findings) -> list[str]:
    """Read columns that rows can be compared by."""
    found = known_columns(value, columns, findings)
    for name in found:
        if value and types.is_nested(kind := columns[name]):
            findings.add(value, f"{name} is a {kind.typeName()}, which cannot be a key")
    return found


def values_of(value: Value) -> list[Value]:
    """Return the items of a list; any other value is the only item."""
    return [value] if isinstance(value.node, yaml.ScalarNode) and not value.is_null else value.values()


def read_fields(value: Value, findings: Findings, taken: Collection[str] = (SOURCE, ATTRIBUTES)) -> dict[str, DataType]:
    """Read names with types."""
    found: dict[str, DataType] = {}
    for name, each in value.mapping().items():
        with findings.catch(each):
            check_name(each, name, found, taken)
            found[name] = types.NULL  # fits everywhere: its error is reported only once
            found[name] = _type(each, findings)
    if not found:
        findings.add(value, "at least one field is expected here")
    return found


def _type(value: Value, findings: Findings) -> DataType:
    if isinstance(value.node, yaml.SequenceNode):
        items = value.values()
        if len(items) != 1:
            raise bad(value.place, "the type of a list is written as [TYPE]")
        return ArrayType(_type(items[0], findings))
    if isinstance(value.node, yaml.MappingNode):
        return struct(read_fields(value, findings, ()))
    word = value.text().replace(" ", "").lower()
    if word not in types.NAMED:
        meant = hint(word, types.NAMED, types.OTHER_NAMES)
        raise bad(value.place, f"no type {value.text()[:40]!r}; {meant}, [TYPE], or names with types")
    return types.NAMED[word]


def condition(value: Value, columns: Mapping[str, DataType], what: str) -> Expression:
    """Read a boolean expression. Raises `BadDocument`, naming `what`, for another type."""
    found = expression(value.text(), columns)
    if not types.fits(found.type, types.BOOLEAN):
        raise bad(value.place, f"{what} needs boolean, not {types.type_text(found.type)}")
    return found


ReadText = Callable[[str], Expression]


def expressions(
    value: Value, read: ReadText, findings: Findings, beside: Collection[str] = (), what: str = "an expression"
) -> dict[str, Expression]:
    """Read names with expressions; collect errors. Names may not repeat columns `beside`."""
    found: dict[str, Expression] = {}
    for name, each in value.mapping().items():
        with findings.catch(each):
            check_name(each, name, [*beside, *found])
            found[name] = _WRONG
            found[name] = read(each.text())
    if not value.mapping():
        findings.add(value, f"at least one name with {what} is expected here")
    return found


_WRONG = Expression(types.NULL, lambda: F.lit(None))  # fits everywhere, so that its error is reported only once
