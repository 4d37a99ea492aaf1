"""The step `expect`."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

import yaml
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.fields import known_column, known_columns, values_of
from ams.pipeline.definition.findings import Findings
from ams.pipeline.definition.reading import Steps
from ams.pipeline.definition.whole_steps import check_keys
from ams.pipeline.expressions import Expression, expression, types
from ams.pipeline.flows.expectations import FAIL, SET_ASIDE, WARN, Expect, Expectation
from ams.pipeline.flows.steps.whole import published

Holds = Callable[[DataFrame, Column], Column]
_SHARE = re.compile(r"0(\.\d{1,9})?|1(\.0{1,9})?|\.\d{1,9}", re.ASCII)
_LONGEST = 200
"""Characters of a name."""


def expect_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `expect`: one expectation, or a list of them."""
    items = value.values() if isinstance(value.node, yaml.SequenceNode) else [value]
    found = []
    for item in items:
        with findings.catch(item):
            found.append(_expectation(item, steps, findings))
    if not items:
        findings.add(value, "at least one expectation is expected here")
    expectations = [each for each in found if each]
    steps.add(Expect(expectations))
    if not steps.whole:
        steps.row_lines += [f"expect {each.reason}" for each in expectations if each.on_failure == SET_ASIDE]
        steps.checks += [f"{each.on_failure} {each}" for each in expectations if each.on_failure != SET_ASIDE]


def _expectation(item: Value, steps: Steps, findings: Findings) -> Expectation | None:
    said = findings.mapping(item, (*_KINDS, "name", "on_failure"))
    kinds = [name for name in _KINDS if name in said]
    if len(kinds) != 1:
        raise bad(item.place, f"one of {', '.join(_KINDS)} must be said{', not several' if kinds else ''}")
    [kind] = kinds
    on_failure = _on_failure(kind, said, steps)
    read = None
    with findings.catch(said[kind]):
        read = _KINDS[kind](said[kind], steps, findings)
    if read is None:
        return None
    text, holds, at_least = read
    rule = f"{kind} {' '.join(text.split())}"[:_LONGEST]
    name = said["name"].text() if "name" in said else rule
    if not name.isprintable() or len(name) > _LONGEST:
        raise bad(item.place, f"the name of an expectation is one line of at most {_LONGEST} characters")
    if name in steps.expected:
        raise bad(item.place, f"there is an expectation {name!r} already; give this one another name")
    steps.expected.add(name)
    return Expectation(name=name, rule=rule, holds=holds, on_failure=on_failure, at_least=at_least)


def _on_failure(kind: str, said: Mapping[str, Value], steps: Steps) -> str:
    """Read what becomes of rows: only those of a batch can be set aside, as a result is made anew each time."""
    choices = [FAIL, WARN] if steps.whole or kind == "share" else [SET_ASIDE, FAIL, WARN]
    if "on_failure" not in said:
        return choices[0]
    chosen = said["on_failure"].text()
    if chosen == SET_ASIDE and steps.whole:
        raise bad(said["on_failure"].place, "behind steps over all rows none is set aside: expect it before, or filter")
    return said["on_failure"].one_of(*choices)


def _not_null(value: Value, steps: Steps, findings: Findings) -> tuple[str, Holds, Decimal]:
    names = _columns(value, steps, findings)
    return ", ".join(names), lambda _, __: _all([F.col(name).isNotNull() for name in names]), Decimal(1)


def _range(value: Value, steps: Steps, findings: Findings) -> tuple[str, Holds, Decimal] | None:
    said = findings.mapping(value, ("column", "min", "max"), ("column",))
    if "column" not in said:
        return None
    name = known_column(said["column"], steps.columns)
    kind = steps.columns[name]
    if not {"min", "max"} & said.keys():
        raise bad(value.place, "min or max must be said, or both")
    bounds: dict[str, Expression] = {}
    for bound in ("min", "max"):
        if bound in said:
            with findings.catch(said[bound]):
                bounds[bound] = expression(said[bound].text(), {})
                both = types.common([kind, bounds[bound].type])
                if both is None or not types.is_ordered(both):
                    of = types.shown(bounds[bound].type)
                    raise bad(said[bound].place, f"{name} is {types.shown(kind)}, which is not compared with {of}")
    text = " ".join([name, *(f"{word} {said[bound].text()}" for bound, word in _BOUNDS.items() if bound in said)])

    def holds(_: DataFrame, __: Column) -> Column:
        column = F.col(name)
        least = [column >= bounds["min"].column()] if "min" in bounds else []
        most = [column <= bounds["max"].column()] if "max" in bounds else []
        return column.isNull() | _all([*least, *most])

    return text, holds, Decimal(1)


def _unique(value: Value, steps: Steps, findings: Findings) -> tuple[str, Holds, Decimal]:
    by = _columns(value, steps, findings)
    check_keys(value, by, steps, findings)

    def holds(rows: DataFrame, reached: Column) -> Column:
        window = Window.partitionBy(reached, *by).orderBy(*published(rows))
        return F.row_number().over(window) == 1

    return ", ".join(by), holds, Decimal(1)


def _condition(value: Value, steps: Steps, _: Findings) -> tuple[str, Holds, Decimal]:
    found = expression(value.text(), steps.columns)
    if not types.fits(found.type, types.BOOLEAN):
        raise bad(value.place, f"a condition is boolean, not {types.shown(found.type)}")
    return value.text(), lambda _, __: found.column().cast("boolean"), Decimal(1)


def _share(value: Value, steps: Steps, findings: Findings) -> tuple[str, Holds, Decimal] | None:
    said = findings.mapping(value, ("condition", "at_least"), ("condition", "at_least"))
    share = Decimal(1)
    if "at_least" in said:
        with findings.catch(said["at_least"]):
            if not _SHARE.fullmatch(said["at_least"].text()):
                raise bad(said["at_least"].place, "a share from 0 to 1 is expected here, such as 0.95")
            share = Decimal(said["at_least"].text())
    found = None
    if "condition" in said:
        with findings.catch(said["condition"]):
            text, holds, _ = _condition(said["condition"], steps, findings)
            found = text, holds, share
    return found


def _columns(value: Value, steps: Steps, findings: Findings) -> list[str]:
    if not values_of(value):
        raise bad(value.place, "at least one column is expected here")
    return known_columns(value, steps.columns, findings)


def _all(conditions: list[Column]) -> Column:
    found = F.lit(True)
    for each in conditions:
        found = found & each
    return found


_BOUNDS = {"min": "from", "max": "to"}
_KINDS = {"not_null": _not_null, "range": _range, "unique": _unique, "condition": _condition, "share": _share}
"""What can be expected."""
