"""The steps over all rows there are."""

from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.fields import check_apart, checked_name, known_columns
from ams.pipeline.definition.findings import Findings
from ams.pipeline.definition.reading import Steps
from ams.pipeline.expressions import Expression, aggregate, types
from ams.pipeline.flows.steps import Aggregate, Deduplicate
from ams.pipeline.flows.steps.schemas import SOURCE


def deduplicate_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `deduplicate`."""
    said = findings.mapping(value, ("by", "keep"), ("by",))
    if SOURCE not in steps.columns:
        raise bad(value.place, "behind aggregate there is one row for each key already")
    by = known_columns(said["by"], steps.columns, findings) if "by" in said else []
    keep = said["keep"].text() if "keep" in said else "first"
    if keep not in ("first", "last"):
        raise bad(said["keep"].place, f"first or last can be kept, not {keep[:40]!r}")
    check_keys(value, by, steps, findings)
    steps.add_whole(Deduplicate(by, keep == "last"))


def aggregate_step(value: Value, steps: Steps, findings: Findings) -> None:
    """Read `aggregate`."""
    said = findings.mapping(value, ("by", "values"), ("values",))
    by = known_columns(said["by"], steps.columns, findings) if "by" in said else []
    check_keys(value, by, steps, findings)
    figures: dict[str, Expression] = {}
    for name, each in (said["values"].mapping() if "values" in said else {}).items():
        with findings.catch(each):
            if checked_name(each, name) in by:
                raise bad(each.place, f"{name!r} is said twice")
            check_apart(each, name, [*by, *figures])
            figures[name] = aggregate(each.text(), steps.columns, by)
    if "values" in said and not said["values"].mapping():
        findings.add(said["values"], "at least one name with a figure is expected here")
    steps.add_whole(Aggregate(by, figures))
    steps.columns = {name: steps.columns[name] for name in by} | {name: each.type for name, each in figures.items()}


def check_keys(value: Value, by: list[str], steps: Steps, findings: Findings) -> None:
    """Remember columns that rows cannot be compared by."""
    for name in by:
        if types.is_nested(kind := steps.columns[name]):
            findings.add(value, f"{name} is a {kind.typeName()}, which cannot be a key")
