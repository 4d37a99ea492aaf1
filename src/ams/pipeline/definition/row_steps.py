"""The steps that look at one row at a time."""

import yaml
from pyspark.sql.types import ArrayType

from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.fields import (
    check_apart,
    column_name,
    expressions,
    fields,
    known_column,
    known_columns,
)
from ams.pipeline.definition.findings import Findings
from ams.pipeline.definition.reading import Steps
from ams.pipeline.definition.reference import read_reference
from ams.pipeline.expressions import expression, types
from ams.pipeline.flows.steps import Derive, Explode, Filter, Join, Select
from ams.pipeline.flows.steps.schemas import SOURCE


def filter_step(value: Value, steps: Steps, _: Findings) -> None:
    """Read `filter`."""
    found = expression(value.text(), steps.columns)
    if not types.fits(found.type, types.BOOLEAN):
        raise bad(value.place, f"filter needs boolean, not {types.shown(found.type)}")
    steps.add(Filter(found))


def derive_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `derive`."""
    found = expressions(value, steps.columns, findings, beside=steps.columns)
    steps.columns |= {name: each.type for name, each in found.items()}
    steps.add(Derive(found))


def select_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `select`."""
    before = dict(steps.columns)
    if isinstance(value.node, yaml.SequenceNode):
        names = [each for each in known_columns(value, before, findings) if each != SOURCE]
        found = {name: expression(f"`{name}`", before) for name in names}
    else:
        found = expressions(value, before, findings)
    made = {name: each.type for name, each in found.items()}
    steps.columns = made | ({SOURCE: before[SOURCE]} if SOURCE in before else {})
    steps.add(Select(found))


def explode_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `explode`."""
    said = findings.mapping(value, ("column", "as"), ("column",))
    if "column" not in said:
        return
    name = known_column(said["column"], steps.columns)
    of = steps.columns[name]
    if not isinstance(of, ArrayType):
        raise bad(said["column"].place, f"{name} is no array but {types.shown(of)}")
    made = column_name(said["as"]) if "as" in said else name
    del steps.columns[name]
    check_apart(said["as"] if "as" in said else said["column"], made, steps.columns)
    steps.columns[made] = of.elementType
    steps.add(Explode(name, made))


def join_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `join`."""
    said = findings.mapping(value, ("file", "by", "fields"), ("file", "by", "fields"))
    if len(said) < 3:
        return
    table = fields(said["fields"], findings)
    by = known_columns(said["by"], steps.columns, findings)
    for name in by:
        if table.get(name) != steps.columns[name]:
            findings.add(
                said["fields"], f"{name} is {types.shown(steps.columns[name])} in the rows, so it must be in the file"
            )
    for name in table:
        if name in steps.columns and name not in by:
            findings.add(said["fields"], f"there is a column {name} already")
        with findings.catch(said["fields"]):
            check_apart(said["fields"], name, steps.columns)
    if not table.keys() >= set(by):
        return
    rows = read_reference(said["file"], steps.file(said["file"]), table, by)
    steps.columns |= table
    steps.add(Join(by, table, rows))
