"""Plans of runs: of a built-in job, of a job in a Python file, or of a file with a job's name and options."""

import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from ams.core.errors import AmsError, BadDocument
from ams.core.yaml_tree import Value, bad, parse_tree, read_tree
from ams.pipeline.errors import Failed, Finding, WrongJobFile, WrongOption
from ams.pipeline.job_run import RunPlan
from ams.pipeline.jobs import load
from ams.pipeline.jobs.base import Job, read_options, takes_text
from ams.pipeline.run import Run, Stopped

_YAML = (".yaml", ".yml")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)  # of a run, and of its folder


def read_plan(target: str, settings: Sequence[str] = ()) -> RunPlan:
    """Plan the run of a job; `KEY=VALUE` settings override options.

    Args:
        target: Name of a built-in job, a Python file with one job, or a YAML file with `job`, `options` and `name`.
        settings: Options of the job.

    Raises:
        WrongJobFile: The file is invalid.
        WrongOption: An option is invalid, or there is no such job.
    """
    if target == "-" or target.endswith(_YAML):
        return _plan_of_yaml(target, settings)
    job = _load_file(target) if target.endswith(".py") or "/" in target else load(target)
    options, wrong = read_options(job.options, _read_settings(job, settings))
    if options is None:
        raise WrongOption(wrong[0].option, "; ".join([wrong[0].reason, *map(str, wrong[1:])]))
    return RunPlan(job, job.name, options)


def _load_file(file: str) -> Job[Any]:
    """Load the job of a Python file. Tasks get the file's functions by value, so that executors need no copy."""
    if not os.path.isfile(file):
        raise BadDocument(f"{file}: {os.strerror(2)}", None, os.strerror(2))
    name = f"ams_job_{re.sub('[^A-Za-z0-9_]', '_', Path(file).stem)}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise BadDocument(f"{file} ends neither with .py nor with .yaml", None, "no job")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        line = error.lineno if isinstance(error, SyntaxError) else _line_in(spec.origin, error)
        raise WrongJobFile(file, [Finding(line or 1, f"{type(error).__name__}: {error}")]) from error
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # PySpark has no types for it
    jobs = [each for each in vars(module).values() if isinstance(each, Job)]
    if len(jobs) != 1:
        names = f"{len(jobs)} jobs" if jobs else "no job"
        raise WrongJobFile(file, [Finding(1, f"one function with @job is expected; there is {names}")])
    return replace(jobs[0], run=partial(_run_job_of, file, spec.origin, jobs[0].run))


def _run_job_of(
    file: str, origin: str | None, function: Callable[..., None], run: Run, options: msgspec.Struct
) -> None:
    """Run a file's function; raise `Failed` with its line for a mistake in it, which is none of ours."""
    try:
        function(run, options)
    except (AmsError, PySparkException, Py4JError, Stopped):
        raise
    except Exception as error:
        line = _line_in(origin, error)
        if line is None:
            raise
        raise Failed(f"{file}:{line}: {type(error).__name__}: {error}") from error


def _line_in(origin: str | None, error: Exception) -> int | None:
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == origin]
    return lines[-1] if lines else None


def _plan_of_yaml(file: str, settings: Sequence[str]) -> RunPlan:
    findings: list[Finding] = []

    @contextmanager
    def finding(value: Value) -> Iterator[None]:
        try:
            yield
        except BadDocument as error:
            findings.append(Finding(error.line or value.place.line, error.reason))
        except WrongOption as error:
            findings.append(Finding(value.place.line, error.reason))

    root = read_tree(file)
    said: dict[str, Value] = {}
    if root is not None:
        with finding(root):
            said = root.mapping(("name", "job", "options"))
    name, job, options = "", None, None
    if "job" in said:
        with finding(said["job"]):
            job = load(said["job"].text())
            name = job.name
    elif not findings:
        findings.append(Finding(1, "job must be said: the name of a built-in job"))
    if "name" in said:
        with finding(said["name"]):
            name = _read_name(said["name"])
    if job is not None:
        places, values = dict[str, Value](), dict[str, Any]()
        if "options" in said:
            with finding(said["options"]):
                places = said["options"].mapping()
        for each, value in places.items():
            with finding(value):
                values[each] = _read_value(value, job, each)
        options, wrong = read_options(job.options, {**values, **_read_settings(job, settings)})
        for error in wrong:
            place = places.get(error.option, said.get("options", said["job"])).place
            findings.append(Finding(place.line, f"option {error.option}: {error.reason}"))
    if findings or job is None or options is None:
        raise WrongJobFile(file, sorted(set(findings), key=lambda each: each.line))
    return RunPlan(job, name, options)


def _read_name(value: Value) -> str:
    name = value.text()
    if not _NAME.fullmatch(name):
        raise bad(value.place, f"{name[:64]!r} is no name: letters, digits, - and _, 64 of them at most")
    return name


def _read_value(value: Value, job: Job[Any], name: str) -> Any:
    is_scalar = isinstance(value.node, yaml.ScalarNode) and not value.is_null
    return value.text() if is_scalar and takes_text(job.options, name) else value.plain()


def _read_settings(job: Job[Any], settings: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in settings:
        name, equals, text = each.partition("=")
        if not equals:
            raise WrongOption("--set", f"{each!r} must look like KEY=VALUE")
        try:
            if takes_text(job.options, name):
                found[name] = text
            else:
                tree = parse_tree(text, f"--set {name}")
                found[name] = tree.plain() if tree else None
        except BadDocument as error:
            raise WrongOption(name, error.reason) from None
    return found
