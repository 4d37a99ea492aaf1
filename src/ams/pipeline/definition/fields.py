"""Names, types and expressions as a definition file says them."""

import re
from collections.abc import Collection, Iterable, Mapping

import yaml
from pyspark.sql.types import ArrayType, DataType

from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.findings import Findings
from ams.pipeline.expressions import Expression, expression, hint, types
from ams.pipeline.flows.steps.schemas import ATTRIBUTES, SOURCE

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
TAKEN = (SOURCE, ATTRIBUTES)
"""Columns that every row has, and no step may make."""


def column_name(value: Value, taken: Collection[str] = (SOURCE,)) -> str:
    """Read the name of a column that is made; raise `BadDocument` for what cannot be one."""
    return checked_name(value, value.text(), taken)


def checked_name(value: Value, name: str, taken: Collection[str] = (SOURCE,)) -> str:
    """Return the name of a column that is made; raise `BadDocument` for what cannot be one."""
    if not _NAME.fullmatch(name):
        raise bad(value.place, f"{name[:64]!r} is no name of a column: letters, digits and _, 64 of them at most")
    if name.lower() in taken:
        raise bad(value.place, f"{name!r} is taken: every row has it")
    return name


def check_apart(value: Value, name: str, others: Iterable[str]) -> None:
    """Raise `BadDocument` for a name that Spark, to which upper and lower case are one, takes for another one."""
    for other in others:
        if other != name and other.lower() == name.lower():
            raise bad(value.place, f"{name!r} and {other!r} are one to Spark, which takes A for a")


def known_column(value: Value, columns: Iterable[str]) -> str:
    """Read the name of a column there is; raise `BadDocument` for another."""
    name = value.text()
    known = list(columns)
    if name not in known:
        raise bad(value.place, f"no column {name!r}; {hint(name, known)}")
    return name


def known_columns(value: Value, columns: Iterable[str], findings: Findings) -> list[str]:
    """Read a list of columns there are, or one of them."""
    known, found = list(columns), []
    for each in values_of(value):
        with findings.catch(each):
            found.append(known_column(each, known))
            if found.count(found[-1]) > 1:
                raise bad(each.place, f"{found.pop()!r} is said twice")
    return found


def values_of(value: Value) -> list[Value]:
    """Return the items of a list; one that is no list is the only one."""
    return [value] if isinstance(value.node, yaml.ScalarNode) and not value.is_null else value.values()


def fields(value: Value, findings: Findings, taken: Collection[str] = TAKEN) -> dict[str, DataType]:
    """Read names with types."""
    found: dict[str, DataType] = {}
    for name, each in value.mapping().items():
        with findings.catch(each):
            checked_name(each, name, taken)
            check_apart(each, name, found)
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
        return types.struct(fields(value, findings, ()))
    word = value.text().replace(" ", "").lower()
    if word not in types.NAMED:
        meant = hint(word, types.NAMED, types.OTHER_NAMES)
        raise bad(value.place, f"no type {value.text()[:40]!r}; {meant}, [TYPE], or names with types")
    return types.NAMED[word]


def expressions(
    value: Value,
    columns: Mapping[str, DataType],
    findings: Findings,
    taken: Collection[str] = (SOURCE,),
    beside: Collection[str] = (),
) -> dict[str, Expression]:
    """Read names with expressions; of what is wrong, remember it and go on.

    `beside` are the columns that stay beside those that are made.
    """
    found: dict[str, Expression] = {}
    for name, each in value.mapping().items():
        with findings.catch(each):
            checked_name(each, name, taken)
            check_apart(each, name, [*beside, *found])
            found[name] = expression(each.text(), columns)
    if not found and not value.mapping():
        findings.add(value, "at least one name with an expression is expected here")
    return found
