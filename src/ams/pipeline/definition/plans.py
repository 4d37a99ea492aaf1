"""From a definition file, or the name of a job, to a plan that can be run."""

import os
import re
from collections.abc import Mapping, Sequence

from ams.core.yaml_tree import Value, bad, read_tree
from ams.pipeline.definition.findings import Findings
from ams.pipeline.definition.flow import Flow
from ams.pipeline.definition.jobs import plan_of_file, plan_of_job
from ams.pipeline.definition.sinks import read_sink
from ams.pipeline.definition.source import read_source
from ams.pipeline.definition.steps import read_steps
from ams.pipeline.errors import Finding, WrongDefinition
from ams.pipeline.plan import Plan

OF_JOBS = ("name", "job", "options")
OF_STEPS = ("name", "source", "steps", "sink")
_ENDINGS = (".yaml", ".yml")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


def is_file(target: str) -> bool:
    """Whether what is to be run names a file, `-` being standard input."""
    return target == "-" or target.endswith(_ENDINGS) or "/" in target


def read_plan(target: str, settings: Sequence[str] = ()) -> Plan:
    """Read a definition file, or a job by its name, with options `KEY=VALUE` that win over the file's.

    Raises `WrongDefinition` with everything that is wrong with a file, and `WrongOption` for options of a job.
    """
    if not is_file(target):
        return plan_of_job(target, settings)
    root = read_tree(target)
    if root is None:
        raise WrongDefinition(target, [Finding(1, "it says nothing")])
    findings = Findings(root.file)
    plan = _plan(root, target, settings, findings)
    findings.end()
    assert plan is not None
    return plan


def _plan(root: Value, target: str, settings: Sequence[str], findings: Findings) -> Plan | None:
    stem = "stdin" if target == "-" else os.path.splitext(os.path.basename(target))[0]
    said = findings.mapping(root, dict.fromkeys((*OF_JOBS, *OF_STEPS)))
    if "job" in said:
        findings.mapping(root, OF_JOBS)
        return plan_of_file(said, settings, findings, _name(said, said["job"].text(), findings))
    findings.mapping(root, OF_STEPS, ("source", "sink"))
    if settings:
        findings.add(root, "--set is for options of jobs; a definition of steps has none")
    return _plan_of_steps(said, _name(said, stem, findings), os.path.dirname(target), findings)


def _plan_of_steps(said: Mapping[str, Value], name: str, folder: str, findings: Findings) -> Plan | None:
    """Plan what source, steps and sink say; None when something is wrong with them."""
    source = read_source(said["source"], findings) if "source" in said else None
    steps = read_steps(said.get("steps"), folder, findings)
    sink = read_sink(said["sink"], steps, findings) if "sink" in said else None
    if source is None or sink is None:
        return None
    to = said["sink"].plain()
    after = {"steps": steps.lines[len(steps.lines) - len(steps.whole) :], "sink": to}
    return Plan(
        name=name,
        summary=f"{source} to {next(iter(to))}",
        run=Flow(source, steps, sink).run,
        rows={"source": source.identity, "steps": steps.row_lines, "files": steps.files},
        options=after | ({"expectations": steps.checks} if steps.checks else {}),
        lines=[
            f"{'source':11} {source}",
            *steps.lines,
            f"{'sink':11} {', '.join(f'{name}: {each}' for name, each in to.items())}",
        ],
    )


def _name(said: Mapping[str, Value], otherwise: str, findings: Findings) -> str:
    """Return the name of a definition: what it says, or that of its file."""
    name = otherwise
    if "name" in said:
        with findings.catch(said["name"]):
            name = said["name"].text()
            if not _NAME.fullmatch(name):
                raise bad(said["name"].place, f"{name[:64]!r} is no name: letters, digits, - and _, 64 of them at most")
    return name
