"""Failures inside Spark as what they are: one error of ours with one line, instead of two hundred lines of Java."""

import re
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ams.client import errors as client
from ams.pipeline import errors
from ams.pipeline.errors import Broken

_KNOWN = client.ClientError | errors.PipelineError | errors.WrongTable | errors.StoreFailed
KILLED = "KILLED"
"""How the reason ends with which a master removes an application that somebody ended there."""
_LONGEST = 500
"""Characters of a cause that are shown."""
_OURS = re.compile(r"^\s*(?:ams|pyspark_ams)\.[\w.]*\b(?P<kind>[A-Z]\w+): (?P<text>.*)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?P<kind>[A-Z]\w*(?:Error|Exception|Warning)): (?P<text>.*)$", re.MULTILINE)
_JAVA = re.compile(r"^Caused by: (?:[\w.$]+\.)?(?P<kind>[A-Z]\w+)(?:: (?P<text>.*))?$", re.MULTILINE)
_CODE = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_REMOVED = re.compile(r"Application has been killed\. Reason: (?P<text>.+)$|cluster scheduler: (?P<raised>.+)$", re.M)
_STATE = re.compile(r"\s*SQLSTATE: \w+")


def explained(error: BaseException) -> Exception:
    """Return the error to tell of what Spark or a batch raised: its root cause; a fault of a job stays what it is."""
    known = next((each for each in _chain(error) if isinstance(each, _KNOWN)), None)
    if known is not None:
        return known
    if isinstance(error, Exception) and not isinstance(error, PySparkException | Py4JError | OSError):
        return error
    text = _text(error)
    return _of_ours(text) or errors.Failed(f"Spark gave up: {_cause(text)}")


def why_removed(log: Path, error: BaseException) -> str | None:
    """Return why the master of a cluster ended the application, as Spark's log or the error says; None: it did not."""
    try:
        said = log.read_text(errors="replace")
    except OSError:  # Spark talks elsewhere
        said = ""
    found = _REMOVED.search(f"{said}\n{error}\n{_text(error)}")
    return _shortened(found["text"] or found["raised"]) if found else None


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    return f"{error}\n{java}" if java is not None else str(error)


def _of_ours(text: str) -> Exception | None:
    """Find an error of ours that was raised in another process and came back as text."""
    matches = list(_OURS.finditer(text))
    if not matches:
        return None
    kind, said = matches[-1]["kind"], _shortened(matches[-1]["text"])
    if kind == Broken.__name__:
        return errors.Failed(f"a message could not be read, and was not set aside: {said}")
    if kind == errors.WrongOption.__name__:
        option, _, reason = said.removeprefix("option ").partition(": ")
        return errors.WrongOption(option, reason)
    class_ = getattr(client, kind, None) or getattr(errors, kind, None)
    return class_(said) if isinstance(class_, type) and issubclass(class_, _KNOWN) else None


def _cause(text: str) -> str:
    """Return the line that says most: the last error of a Python worker, else Java's innermost, else the first."""
    for pattern in (_PYTHON, _JAVA):
        matches = [each for each in pattern.finditer(text) if each["text"]]
        if matches:
            return _shortened(f"{matches[-1]['kind']}: {matches[-1]['text']}")
    lines = [line for line in text.splitlines() if line.strip()]
    return _shortened(lines[0]) if lines else "no reason was told"


def _shortened(text: str) -> str:
    line = _STATE.sub("", _CODE.sub("", text.strip()))
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."
