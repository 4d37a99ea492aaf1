"""Errors of pipelines, all below `PipelineError`; `ams.cli.exit_codes` has their exit codes.

No error text holds a token, a password or a payload. `Broken` is separate: it sets one message aside and never ends a
run.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ams.core.errors import AmsError
from ams.tables import StoreFailed as StoreFailed  # runs raise the errors of tables unchanged
from ams.tables import WrongTable as WrongTable


class PipelineError(AmsError):
    """Base class of all errors that the pipeline raises."""


class MissingDependency(PipelineError):
    """A dependency is not installed; the message says what to install."""


class WrongOption(PipelineError):
    """An option has an invalid value."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option, self.reason = option, reason

    def __reduce__(self) -> tuple[type["WrongOption"], tuple[str, str]]:
        return type(self), (self.option, self.reason)


class Finding(NamedTuple):
    """One error in a file, with its line from 1."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.line}: {self.reason}"


class WrongJobFile(PipelineError):
    """A file of a job or its options is invalid."""

    def __init__(self, file: str, findings: Sequence[Finding]) -> None:
        super().__init__("\n".join(f"{file}:{each}" for each in findings))
        self.file = file
        self.findings = tuple(findings)


class ChangedJob(PipelineError):
    """The checkpoint belongs to another job; the message says what to do."""


class DataLoss(PipelineError):
    """Unread messages expired."""


class CheckFailed(PipelineError):
    """A check found errors; they were printed before."""


class WrongRow(PipelineError):
    """A row cannot be published: no topic, no content, or out of order."""


class StaleCheckpoint(PipelineError):
    """An unfinished batch is too old to publish again: messages could be stored twice."""


class Busy(PipelineError):
    """Another run uses the folder."""


class Interrupted(PipelineError):
    """A signal to the process group ended Spark and the run; the next run continues."""


class Failed(PipelineError):
    """Spark gave up; the message is the root cause in one line."""


class Broken(ValueError):
    """A message or record is invalid; the text says why and never quotes a payload."""
