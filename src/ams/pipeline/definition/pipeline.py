"""A definition of one's own as a plan."""

import re
from collections.abc import Mapping

from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.findings import Findings
from ams.pipeline.definition.sink import read_sink
from ams.pipeline.definition.source import read_source
from ams.pipeline.definition.steps import read_steps
from ams.pipeline.flows.flow import Flow
from ams.pipeline.plan import Plan

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


def plan_of_steps(said: Mapping[str, Value], name: str, folder: str, findings: Findings) -> Plan | None:
    """Plan what source, steps and sink say; None when something is wrong with them."""
    source = read_source(said["source"], findings) if "source" in said else None
    steps = read_steps(said.get("steps"), folder, findings)
    sink = read_sink(said["sink"], steps, findings) if "sink" in said else None
    if source is None or sink is None:
        return None
    subscribed = {"subscription": source.subscription} if source.subscription else {}
    flow = Flow(
        topics=source.topics,
        options={**source.options, **subscribed},
        before=steps.before,
        parse=steps.parse,
        parsed=steps.parsed,
        rows=steps.rows,
        row_columns=steps.row_columns,
        whole=steps.whole,
        sink=sink,
    )
    to = said["sink"].plain()
    after = {"steps": steps.lines[len(steps.lines) - len(steps.whole) :], "sink": to}
    return Plan(
        name=name,
        summary=f"{source} to {next(iter(to))}",
        run=flow.run,
        rows={"source": source.identity, "steps": steps.row_lines, "files": steps.files},
        options=after | ({"expectations": steps.checks} if steps.checks else {}),
        lines=[f"{'source':11} {source}", *steps.lines, f"{'sink':11} {_shown(to)}"],
    )


def name_of(said: Mapping[str, Value], otherwise: str, findings: Findings) -> str:
    """Return the name of a definition: what it says, or that of its file."""
    name = otherwise
    if "name" in said:
        with findings.catch(said["name"]):
            name = said["name"].text()
            if not _NAME.fullmatch(name):
                raise bad(said["name"].place, f"{name[:64]!r} is no name: letters, digits, - and _, 64 of them at most")
    return name


def _shown(said: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {each}" for name, each in said.items())
