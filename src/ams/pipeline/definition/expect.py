"""The step `expect`."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from operator import and_

import yaml
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.fields import Findings, condition, known_column, known_columns, known_keys, values_of
from ams.pipeline.definition.reading import FAIL, SET_ASIDE, WARN, Expectation, Steps, place_among
from ams.pipeline.expressions import Expression, expression, types

Rule = tuple[str, Callable[[DataFrame, Column], Column]]
"""What is said, as text, and as what makes the column that is true where it holds."""
_SHARE = re.compile(r"0?\.\d{1,9}|[01](\.0{1,9})?", re.ASCII)
_LONGEST = 200
"""Characters of a name."""


def expect_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `expect`: one expectation, or a list of them."""
    items = value.values() if isinstance(value.node, yaml.SequenceNode) else [value]
    found = [made for some in findings.each(items, lambda item: _expectation(item, steps, findings)) for made in some]
    if not items:
        findings.add(value, "at least one expectation is expected here")
    steps.add(lambda rows, watch: watch.expect(found, rows))
    if not steps.whole:
        steps.row_lines += [f"expect {each}" for each in found if each.on_failure == SET_ASIDE]
        steps.checks += [f"{each.on_failure} {each}, of {each.share}" for each in found if each.on_failure != SET_ASIDE]


def _expectation(item: Value, steps: Steps, findings: Findings) -> list[Expectation]:
    """Read an expectation; none when something is wrong with it."""
    said = findings.mapping(item, (*_RULES, "name", "on_failure"))
    kinds = [name for name in _RULES if name in said]
    if len(kinds) != 1:
        raise bad(item.place, f"one of {', '.join(_RULES)} must be said{', not several' if kinds else ''}")
    [kind] = kinds
    on_failure = _on_failure(kind, said, steps)
    found: list[Expectation] = []
    with findings.catch(said[kind]):
        text, holds = _RULES[kind](said[kind], steps, findings)
        rule = f"{kind} {' '.join(text.split())}"[:_LONGEST]
        name = said["name"].text() if "name" in said else rule
        if not name.isprintable() or len(name) > _LONGEST:
            raise bad(item.place, f"the name of an expectation is one line of at most {_LONGEST} characters")
        if name in steps.expected:
            raise bad(item.place, f"there is an expectation {name!r} already; give this one another name")
        steps.expected.add(name)
        share = _at_least(said[kind]) if kind == "share" else Decimal(1)
        found.append(Expectation(name=name, rule=rule, holds=holds, on_failure=on_failure, at_least=share))
    return found


def _on_failure(kind: str, said: Mapping[str, Value], steps: Steps) -> str:
    """Read what becomes of rows: only those of a batch can be set aside, as a result is made anew each time."""
    choices = [FAIL, WARN] if steps.whole or kind == "share" else [SET_ASIDE, FAIL, WARN]
    if "on_failure" not in said:
        return choices[0]
    if steps.whole and said["on_failure"].text() == SET_ASIDE:
        raise bad(said["on_failure"].place, "behind steps over all rows none is set aside: expect it before, or filter")
    return said["on_failure"].one_of(*choices)


def _not_null(value: Value, steps: Steps, findings: Findings) -> Rule:
    names = known_columns(_not_empty(value), steps.columns, findings)
    return ", ".join(names), lambda _, __: reduce(and_, (F.col(name).isNotNull() for name in names))


def _range(value: Value, steps: Steps, findings: Findings) -> Rule:
    said = findings.mapping(value, ("column", *_BOUNDS))
    if "column" not in said or len(said) < 2:
        raise bad(value.place, "column must be said, and min or max, or both")
    name = known_column(said["column"], steps.columns)
    bounds: dict[str, Expression] = {}
    for bound in _BOUNDS.keys() & said.keys():
        with findings.catch(said[bound]):
            bounds[bound] = expression(said[bound].text(), {})
            kinds = [steps.columns[name], bounds[bound].type]
            both = types.common(kinds)
            if both is None or not types.is_ordered(both):
                shown = [types.shown(each) for each in kinds]
                raise bad(said[bound].place, f"{name} is {shown[0]}, which is not compared with {shown[1]}")

    def holds(_: DataFrame, __: Column) -> Column:
        inside = [_BOUNDS[bound][1](F.col(name), limit.column()) for bound, limit in bounds.items()]
        return reduce(and_, inside) | F.col(name).isNull()

    told = [f"{word} {said[bound].text()}" for bound, (word, _) in _BOUNDS.items() if bound in said]
    return " ".join([name, *told]), holds


def _unique(value: Value, steps: Steps, findings: Findings) -> Rule:
    by = known_keys(_not_empty(value), steps.columns, findings)
    return ", ".join(by), lambda rows, reached: place_among(rows, [reached, *by]) == 1


def _condition(value: Value, steps: Steps, _: Findings) -> Rule:
    found = condition(value, steps.columns, "condition")
    return value.text(), lambda _, __: found.column().cast("boolean")


def _share(value: Value, steps: Steps, findings: Findings) -> Rule:
    said = findings.mapping(value, ("condition", "at_least"))
    if len(said) < 2:
        raise bad(value.place, "condition and at_least must be said")
    rule: list[Rule] = findings.each([said["condition"]], lambda each: _condition(each, steps, findings))
    return rule[0] if rule else ("", lambda _, reached: reached)


def _at_least(value: Value) -> Decimal:
    said = value.mapping()["at_least"]
    if not _SHARE.fullmatch(said.text()):
        raise bad(said.place, "a share from 0 to 1 is expected here, such as 0.95")
    return Decimal(said.text())


def _not_empty(value: Value) -> Value:
    if not values_of(value):
        raise bad(value.place, "at least one column is expected here")
    return value


_BOUNDS = {"min": ("from", Column.__ge__), "max": ("to", Column.__le__)}
_RULES: Mapping[str, Callable[[Value, Steps, Findings], Rule]] = {
    "not_null": _not_null,
    "range": _range,
    "unique": _unique,
    "condition": _condition,
    "share": _share,
}
"""What can be expected."""
