"""The section `steps` of a definition."""

from collections.abc import Callable, Mapping

from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.expect import expect_step
from ams.pipeline.definition.findings import Findings
from ams.pipeline.definition.parse import parse_step
from ams.pipeline.definition.reading import Steps
from ams.pipeline.definition.row_steps import derive_step, explode_step, filter_step, join_step, select_step
from ams.pipeline.definition.whole_steps import aggregate_step, deduplicate_step
from ams.pipeline.expressions import hint

Reader = Callable[[Value, Steps, Findings], None]
STEPS: Mapping[str, Reader] = {
    "parse": parse_step,
    "filter": filter_step,
    "derive": derive_step,
    "select": select_step,
    "explode": explode_step,
    "join": join_step,
    "expect": expect_step,
    "deduplicate": deduplicate_step,
    "aggregate": aggregate_step,
}
"""The steps there are."""


def read_steps(value: Value | None, folder: str, findings: Findings) -> Steps:
    """Read the section `steps`."""
    steps = Steps(folder)
    items: list[Value] = []
    if value is not None:
        with findings.catch(value):
            items = value.values()
    for item in items:
        with findings.catch(item):
            _step(item, steps, findings)
    if not steps.whole:
        steps.row_columns = dict(steps.columns)
    return steps


def _step(item: Value, steps: Steps, findings: Findings) -> None:
    said = item.mapping()
    if len(said) != 1:
        raise bad(item.place, f"a step is one word with what it needs; there are {', '.join(STEPS)}")
    [(word, value)] = said.items()
    if word not in STEPS:
        raise bad(value.place, f"no step {word!r}; {hint(word, STEPS)}")
    with findings.catch(value):
        STEPS[word](value, steps, findings)
    steps.said.append(word)
    steps.lines.append(f"{word:11} {_shown(value.plain())}")
    if not steps.whole and word != "expect":
        steps.row_lines.append(steps.lines[-1])


def _shown(said: object) -> str:
    if isinstance(said, dict):
        return ", ".join(f"{name}: {_shown(each)}" for name, each in said.items())
    return f"[{', '.join(map(_shown, said))}]" if isinstance(said, list) else str(said)
