"""The steps over all rows there are."""

from collections.abc import Callable, Mapping

from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.fields import check_apart, checked_name, known_columns
from ams.pipeline.definition.findings import Findings
from ams.pipeline.definition.reading import Steps
from ams.pipeline.expressions import parse, type_of, types
from ams.pipeline.expressions.tree import Call
from ams.pipeline.expressions.types import Type
from ams.pipeline.flows.steps import Aggregate, Deduplicate
from ams.pipeline.flows.steps.schemas import SOURCE
from ams.pipeline.flows.steps.whole import Figure

AGGREGATES: Mapping[str, tuple[Callable[[Type], bool], Type | None]] = {
    "count": (lambda _: True, types.WHOLE),
    "count_distinct": (lambda given: types.is_ordered(given) or given == types.BYTES, types.WHOLE),
    "sum": (types.is_number, None),
    "average": (types.is_number, types.NUMBER),
    "min": (types.is_ordered, None),
    "max": (types.is_ordered, None),
    "median": (types.is_number, types.NUMBER),
    "p95": (types.is_number, types.NUMBER),
}
"""What may be computed over rows: of what, and what comes out, None being the same type."""


def deduplicate_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `deduplicate`."""
    said = findings.mapping(value, ("by", "keep"), ("by",))
    if SOURCE not in steps.columns:
        raise bad(value.place, "behind aggregate there is one row for each key already")
    by = known_columns(said["by"], steps.columns, findings) if "by" in said else []
    keep = said["keep"].text() if "keep" in said else "first"
    if keep not in ("first", "last"):
        raise bad(said["keep"].place, f"first or last can be kept, not {keep[:40]!r}")
    _check_keys(value, by, steps, findings)
    steps.add_whole(Deduplicate(by, keep == "last"))


def aggregate_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `aggregate`."""
    said = findings.mapping(value, ("by", "values"), ("values",))
    by = known_columns(said["by"], steps.columns, findings) if "by" in said else []
    _check_keys(value, by, steps, findings)
    figures: dict[str, Figure] = {}
    found: dict[str, Type] = {name: steps.columns[name] for name in by}
    for name, each in (said["values"].mapping() if "values" in said else {}).items():
        with findings.catch(each):
            if checked_name(each, name) in found:
                raise bad(each.place, f"{name!r} is said twice")
            check_apart(each, name, found)
            figures[name], found[name] = _figure(each, steps.columns)
    if not figures and "values" in said:
        findings.add(said["values"], "at least one name with a figure is expected here")
    before = dict(steps.columns)
    step = Aggregate(by, figures, before, found)
    steps.add_whole(step)
    steps.columns = dict(found)


def _check_keys(value: Value, by: list[str], steps: Steps, findings: Findings) -> None:
    for name in by:
        if steps.columns[name].word in ("map", "list", "record"):
            findings.add(value, f"{name} is a {steps.columns[name].word}, which cannot be a key")


def _figure(value: Value, columns: Mapping[str, Type]) -> tuple[Figure, Type]:
    node = parse(value.text())
    if not isinstance(node, Call) or node.name not in AGGREGATES:
        raise bad(value.place, f"one of {', '.join(AGGREGATES)} is expected here, such as sum(name)")
    accepts, result = AGGREGATES[node.name]
    if node.name == "count":
        if node.arguments:
            raise bad(value.place, "count() counts rows, and takes nothing in its brackets")
        return Figure("count", None), types.WHOLE
    if len(node.arguments) != 1:
        raise bad(value.place, f"{node.name} takes 1 argument, not {len(node.arguments)}")
    given = type_of(node.arguments[0], columns)
    if not accepts(given):
        raise bad(value.place, f"{node.name} does not work on {given}")
    return Figure(node.name, node.arguments[0]), result or given
