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
    options, wrong = read_options(job.options, _settings(job, settings))
    if options is None:
        raise WrongOption(wrong[0].option, "; ".join([wrong[0].reason, *map(str, wrong[1:])]))
    return _plan(job, job.name, options)


def plan_of_file(said: Mapping[str, Value], settings: Sequence[str], findings: Findings, name: str) -> Plan | None:
    """Plan the job that a file names, `--set` winning over its options; None when something is wrong with it."""
    made: Plan | None = None
    with findings.catch(said["job"]):
        job = load(said["job"].text())
        places = said["options"].mapping() if "options" in said else {}
        given = {**_values(places, job, findings), **_settings(job, settings)}
        options, wrong = read_options(job.options, given)
        for each in wrong:
            findings.add(
                places.get(each.option, said.get("options", said["job"])), f"option {each.option}: {each.reason}"
            )
        if options is not None:
            made = _plan(job, name or job.name, options)
    return made


def _plan(job: Job[Any], name: str, options: msgspec.Struct) -> Plan:
    shown = {name: msgspec.json.encode(value).decode() for name, value in msgspec.to_builtins(options).items()}
    return Plan(
        name=name,
        summary=job.summary,
        run=lambda run: job.run(run, options),
        rows={"job": job.name},
        options=in_effect(job, options),
        lines=[f"job      {job.name}: {job.summary}", *(f"option   {key} = {value}" for key, value in shown.items())],
    )


def _settings(job: Job[Any], settings: Sequence[str]) -> dict[str, Any]:
    """Read options written KEY=VALUE: as YAML, but for those that are text; raise `WrongOption` for what is none."""
    found: dict[str, Any] = {}
    for each in settings:
        name, equals, text = each.partition("=")
        if not equals:
            raise WrongOption("--set", f"{each!r} must look like KEY=VALUE")
        try:
            found[name] = text if takes_text(job.options, name) else _plain(parse_tree(text, f"--set {name}"))
        except BadDocument as error:
            raise WrongOption(name, error.reason) from None
    return found


def _plain(tree: Value | None) -> Any:
    return tree.plain() if tree else None


def _values(said: Mapping[str, Value], job: Job[Any], findings: Findings) -> dict[str, Any]:
    """Return the options of a file as plain values; text stays text, also if it looks like a number."""
    found: dict[str, Any] = {}
    for name, value in said.items():
        with findings.catch(value):
            is_scalar = isinstance(value.node, yaml.ScalarNode) and not value.is_null
            found[name] = value.text() if is_scalar and takes_text(job.options, name) else value.plain()
    return found
