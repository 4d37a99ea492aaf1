"""Names, types and expressions as a definition file says them."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NoReturn

import yaml
from pyspark.sql.types import ArrayType, DataType

from ams.core.yaml_tree import Value, bad
from ams.pipeline.columns import PLACE
from ams.pipeline.definition.findings import Findings
from ams.pipeline.expressions import Expression, expression, hint, types
from ams.pipeline.expressions.types import BINARY, STRINGS, struct

SOURCE, ATTRIBUTES = "source", "attributes"
"""Columns every row has besides those of its record: where its message stands, and the attributes of that."""
ORDERING_KEY = "ordering_key"
"""A column of messages as they come, for ordering keys alone: it is in no table that a definition makes of them."""
PLACED = {field.name: field.dataType for field in PLACE.fields}
MESSAGE_TYPES: Mapping[str, DataType] = {**PLACED, ATTRIBUTES: STRINGS, "data": BINARY, SOURCE: struct(PLACED)}
"""The columns a definition begins with."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)


def check_name(value: Value, name: str, beside: Iterable[str] = (), taken: Collection[str] = (SOURCE,)) -> None:
    """Raise `BadDocument` for a name that no column can be made under, `beside` being those that are there.

    To Spark, upper and lower case are one.
    """
    if not _NAME.fullmatch(name):
        raise bad(value.place, f"{name[:64]!r} is no name of a column: letters, digits and _, 64 of them at most")
    if name.lower() in taken:
        raise bad(value.place, f"{name!r} is taken: every row has it")
    for other in beside:
        if other != name and other.lower() == name.lower():
            raise bad(value.place, f"{name!r} and {other!r} are one to Spark, which takes A for a")


def known_column(value: Value, columns: Iterable[str]) -> str:
    """Read the name of a column there is; raise `BadDocument` for another."""
    name, known = value.text(), list(columns)
    if name not in known:
        raise bad(value.place, f"no column {name!r}; {hint(name, known)}")
    return name


def known_columns(value: Value | None, columns: Iterable[str], findings: Findings) -> list[str]:
    """Read a list of columns there are, or one of them; none where nothing is said."""
    known, found = list(columns), list[str]()
    for each in values_of(value) if value else []:
        with findings.catch(each):
            found.append(known_column(each, known))
            if found.count(found[-1]) > 1:
                raise bad(each.place, f"{found.pop()!r} is said twice")
    return found


def known_keys(value: Value | None, columns: Mapping[str, DataType], findings: Findings) -> list[str]:
    """Read columns that rows can be compared by."""
    found = known_columns(value, columns, findings)
    for name in found:
        if value and types.is_nested(kind := columns[name]):
            findings.add(value, f"{name} is a {kind.typeName()}, which cannot be a key")
    return found


def values_of(value: Value) -> list[Value]:
    """Return the items of a list; one that is no list is the only one."""
    return [value] if isinstance(value.node, yaml.ScalarNode) and not value.is_null else value.values()


def fields(value: Value, findings: Findings, taken: Collection[str] = (SOURCE, ATTRIBUTES)) -> dict[str, DataType]:
    """Read names with types."""
    found: dict[str, DataType] = {}
    for name, each in value.mapping().items():
        with findings.catch(each):
            check_name(each, name, found, taken)
            found[name] = types.NULL  # fits everywhere, so that what is wrong with it is told only once
            found[name] = _type(each, findings)
    if not found:
        findings.add(value, "at least one field is expected here")
    return found


def _type(value: Value, findings: Findings) -> DataType:
    """Read a type: a word, `[T]` for lists, names with types for records."""
    if isinstance(value.node, yaml.SequenceNode):
        items = value.values()
        if len(items) != 1:
            raise bad(value.place, "the type of a list is written as [TYPE]")
        return ArrayType(_type(items[0], findings))
    if isinstance(value.node, yaml.MappingNode):
        return struct(fields(value, findings, ()))
    word = value.text().replace(" ", "").lower()
    if word not in types.NAMED:
        meant = hint(word, types.NAMED, types.OTHER_NAMES)
        raise bad(value.place, f"no type {value.text()[:40]!r}; {meant}, [TYPE], or names with types")
    return types.NAMED[word]


def condition(value: Value, columns: Mapping[str, DataType], what: str) -> Expression:
    """Read an expression that is true or not; raise `BadDocument`, naming what needs it, for one of another type."""
    found = expression(value.text(), columns)
    if not types.fits(found.type, types.BOOLEAN):
        raise bad(value.place, f"{what} needs boolean, not {types.shown(found.type)}")
    return found


def expressions(
    value: Value,
    read: Callable[[str], Expression],
    findings: Findings,
    beside: Collection[str] = (),
    what: str = "an expression",
) -> dict[str, Expression]:
    """Read names with expressions; of what is wrong, remember it and go on.

    `beside` are the columns that stay beside those that are made.
    """
    found: dict[str, Expression] = {}
    for name, each in value.mapping().items():
        with findings.catch(each):
            check_name(each, name, [*beside, *found])
            found[name] = _WRONG
            found[name] = read(each.text())
    if not value.mapping():
        findings.add(value, f"at least one name with {what} is expected here")
    return found


def _never() -> NoReturn:
    raise AssertionError("a definition that is wrong is not run")


_WRONG = Expression(types.NULL, _never)
"""In the place of an expression that is wrong: it fits everywhere, so that this is told only once."""
