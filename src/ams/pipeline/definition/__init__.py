"""Definition files of pipelines (docs/reference/pipeline.md): YAML that is checked whole before Spark starts."""

import os
from collections.abc import Sequence

from ams.core.yaml_tree import Value, read_tree
from ams.pipeline.definition.findings import Findings
from ams.pipeline.definition.jobs import plan_of_file, plan_of_job
from ams.pipeline.definition.pipeline import name_of, plan_of_steps
from ams.pipeline.errors import Finding, WrongDefinition
from ams.pipeline.plan import Plan

OF_JOBS = ("name", "job", "options")
OF_STEPS = ("name", "source", "steps", "sink")
_ENDINGS = (".yaml", ".yml")


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
        return plan_of_file(said, settings, findings, name_of(said, said["job"].text(), findings))
    findings.mapping(root, OF_STEPS, ("source", "sink"))
    if settings:
        findings.add(root, "--set is for options of jobs; a definition of steps has none")
    return plan_of_steps(said, name_of(said, stem, findings), os.path.dirname(target), findings)
