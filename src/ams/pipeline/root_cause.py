"""Finds the root cause of an error that Spark raised, in one line."""

import re
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ams.client import errors as client
from ams.pipeline import errors
from ams.pipeline.errors import Broken, Failed

_DOMAIN_ERRORS = client.ClientError | errors.PipelineError | errors.WrongTable | errors.StoreFailed
_CAUSE_CHARACTERS = 500  # of a cause in an error
_OUR_ERROR = re.compile(r"^\s*(?:ams|pyspark_ams)\.[\w.]*\b(?P<kind>[A-Z]\w+): (?P<text>.*)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?P<kind>[A-Z]\w*(?:Error|Exception|Warning)): (?P<text>.*)$", re.MULTILINE)
_JAVA = re.compile(r"^Caused by: (?:[\w.$]+\.)?(?P<kind>[A-Z]\w+)(?:: (?P<text>.*))?$", re.MULTILINE)
_CODES = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE: \w+")
_REMOVED = re.compile(r"Application has been killed\. Reason: (?P<text>.+)$|cluster scheduler: (?P<raised>.+)$", re.M)


def root_cause(error: BaseException) -> Exception:
    """Return the root cause of an error of Spark or a batch; a bug in a job is returned unchanged."""
    chain: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in chain:
        if isinstance(each, _DOMAIN_ERRORS):
            return each
        chain.append(each)
        each = each.__cause__ or each.__context__
    if isinstance(error, Exception) and not isinstance(error, PySparkException | Py4JError | OSError):
        return error
    text = _text(error)
    return _of_ours(text) or Failed(f"Spark gave up: {_cause(text)}")


def why_removed(log: Path, error: BaseException) -> str | None:
    """Return why a cluster's master removed the application, from Spark's log or the error; None if it did not."""
    try:
        said = log.read_text(errors="replace")
    except OSError:  # Spark logs elsewhere
        said = ""
    found = _REMOVED.search(f"{said}\n{error}\n{_text(error)}")
    return _shorten(found["text"] or found["raised"]) if found else None


def _text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    return f"{error}\n{java}" if java is not None else str(error)


def _of_ours(text: str) -> Exception | None:
    matches = list(_OUR_ERROR.finditer(text))
    if not matches:
        return None
    kind, said = matches[-1]["kind"], _shorten(matches[-1]["text"])
    if kind == Broken.__name__:
        return Failed(f"a message could not be read, and was not set aside: {said}")
    if kind == errors.WrongOption.__name__:
        option, _, reason = said.removeprefix("option ").partition(": ")
        return errors.WrongOption(option, reason)
    class_ = getattr(client, kind, None) or getattr(errors, kind, None)
    return class_(said) if isinstance(class_, type) and issubclass(class_, _DOMAIN_ERRORS) else None


def _cause(text: str) -> str:
    """Return the best line: the last error of a Python worker, else Java's innermost, else the first line."""
    for pattern in (_PYTHON, _JAVA):
        matches = [each for each in pattern.finditer(text) if each["text"]]
        if matches:
            return _shorten(f"{matches[-1]['kind']}: {matches[-1]['text']}")
    lines = [line for line in text.splitlines() if line.strip()]
    return _shorten(lines[0]) if lines else "no reason was told"


def _shorten(text: str) -> str:
    line = _CODES.sub("", text.strip())
    return line if len(line) <= _CAUSE_CHARACTERS else line[:_CAUSE_CHARACTERS] + "..."
