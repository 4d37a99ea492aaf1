"""Plans of built-in jobs: their options from a file, from `--set`, or both."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml

from ams.core.errors import BadDocument
from ams.core.yaml_tree import Value, parse_tree
from ams.pipeline.definition.findings import Findings
from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs import load
from ams.pipeline.jobs.base import Job, in_effect, read_options, takes_text
from ams.pipeline.plan import Plan


def plan_of_job(name: str, settings: Sequence[str]) -> Plan:
    """Plan a job with options written KEY=VALUE; raise `WrongOption` for what cannot be."""
    job = load(name)
    given = settings_of(job, settings)
    options, wrong = read_options(job.options, given)
    if options is None:
        raise wrong[0] if len(wrong) == 1 else WrongOption(wrong[0].option, "; ".join(_told(wrong)))
    return plan(job, job.name, options)


def plan_of_file(said: Mapping[str, Value], settings: Sequence[str], findings: Findings, name: str) -> Plan | None:
    """Plan the job that a file names, `--set` winning over its options; None when something is wrong with it."""
    made: Plan | None = None
    with findings.catch(said["job"]):
        job = load(said["job"].text())
        values = _values(said.get("options"), job, findings)
        given = {**values, **settings_of(job, settings)}
        options, wrong = read_options(job.options, given)
        for each in wrong:
            findings.add(_place(said, each.option), f"option {each.option}: {each.reason}")
        if options is not None:
            made = plan(job, name or job.name, options)
    return made


def plan(job: Job[Any], name: str, options: msgspec.Struct) -> Plan:
    """Make a plan of a job whose options are read."""
    values = msgspec.to_builtins(options)
    return Plan(
        name=name,
        summary=job.summary,
        run=lambda run: job.run(run, options),
        rows={"job": job.name},
        options=in_effect(job, options),
        lines=[f"job      {job.name}: {job.summary}", *(f"option   {key} = {_shown(values[key])}" for key in values)],
    )


def settings_of(job: Job[Any], settings: Sequence[str]) -> dict[str, Any]:
    """Read options written KEY=VALUE: as YAML, but for those that are text; raise `WrongOption` for what is none."""
    found: dict[str, Any] = {}
    for each in settings:
        name, equals, text = each.partition("=")
        if not equals:
            raise WrongOption("--set", f"{each!r} must look like KEY=VALUE")
        found[name] = text if takes_text(job.options, name) else _read(name, text)
    return found


def _read(name: str, text: str) -> Any:
    try:
        tree = parse_tree(text, f"--set {name}")
    except BadDocument as error:
        raise WrongOption(name, error.reason) from None
    return tree.plain() if tree else None


def _values(options: Value | None, job: Job[Any], findings: Findings) -> dict[str, Any]:
    """Return the options of a file as plain values; text stays text, also if it looks like a number."""
    if options is None:
        return {}
    found: dict[str, Any] = {}
    for name, value in options.mapping().items():
        with findings.catch(value):
            is_scalar = isinstance(value.node, yaml.ScalarNode) and not value.is_null
            found[name] = value.text() if is_scalar and takes_text(job.options, name) else value.plain()
    return found


def _place(said: Mapping[str, Value], option: str) -> Value:
    options = said.get("options")
    return options.mapping().get(option, options) if options else said["job"]


def _told(wrong: Sequence[WrongOption]) -> list[str]:
    return [wrong[0].reason, *(str(each) for each in wrong[1:])]


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()
