"""Definition files of pipelines (docs/reference/pipeline.md): YAML that is checked whole before Spark starts."""

from collections.abc import Sequence

from ams.pipeline.definition.findings import Findings
from ams.pipeline.definition.jobs import plan_of_file, plan_of_job
from ams.pipeline.errors import WrongOption
from ams.pipeline.plan import Plan
from ams.yaml_tree import read_tree

KEYS = ("name", "job", "options", "source", "steps", "sink")
ENDINGS = (".yaml", ".yml")


def is_file(target: str) -> bool:
    """Whether what is to be run names a file, `-` being standard input."""
    return target == "-" or target.endswith(ENDINGS) or "/" in target


def read_plan(target: str, settings: Sequence[str] = ()) -> Plan:
    """Read a definition file, or a job by its name, with options `KEY=VALUE` that win over the file's.

    Raises `WrongDefinition` with everything that is wrong with a file, and `WrongOption` for options of a job.
    """
    if not is_file(target):
        return plan_of_job(target, settings)
    root = read_tree(target)
    if root is None:
        raise WrongOption("FILE", f"{target} says nothing")
    findings = Findings(root.file)
    said = findings.mapping(root, KEYS)
    plan = plan_of_file(said, settings, findings, "") if "job" in said else None
    findings.end()
    assert plan is not None
    return plan
