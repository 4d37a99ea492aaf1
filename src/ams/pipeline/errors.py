"""What may go wrong in a pipeline, as one tree below `PipelineError`; `ams.cli.exits` has the exit code of each.

No text of these holds a token, a password or a payload. `Broken` stands apart: it is about one message, which is set
aside, and never ends a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ams.core.errors import AmsError
from ams.tables import StoreFailed as StoreFailed  # those of tables are raised by runs as they are
from ams.tables import WrongTable as WrongTable


class PipelineError(AmsError):
    """The root of everything the pipeline raises on purpose."""


class Unavailable(PipelineError):
    """Something the pipeline stands on is not installed; the message says what to install."""


class WrongOption(PipelineError):
    """An option says what cannot be."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option, self.reason = option, reason

    def __reduce__(self) -> tuple[type["WrongOption"], tuple[str, str]]:
        return type(self), (self.option, self.reason)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong in a file; lines and columns count from 1. A column is known within expressions."""

    line: int
    reason: str
    column: int | None = None

    def __str__(self) -> str:
        column = "" if self.column is None else f"{self.column}:"
        return f"{self.line}:{column} {self.reason}"


class WrongDefinition(PipelineError):
    """A definition file says what cannot be."""

    def __init__(self, file: str, findings: Sequence[Finding]) -> None:
        super().__init__("\n".join(f"{file}:{each}" for each in findings))
        self.file = file
        self.findings = tuple(findings)


class ChangedDefinition(PipelineError):
    """A checkpoint was made by another definition; the message says what to do."""


class DataLoss(PipelineError):
    """Messages that were to be read are kept no longer."""


class CheckFailed(PipelineError):
    """What was to be checked is not as it should be; the findings were told before."""


class WrongRow(PipelineError):
    """A row that was to be published is no message: no topic, no content, or out of order."""


class StaleCheckpoint(PipelineError):
    """A batch was begun and not finished so long ago that publishing it again could store messages twice."""


class Busy(PipelineError):
    """Another run works in the same folder."""


class Interrupted(PipelineError):
    """A signal to the whole process group ended Spark together with the run; the next run goes on behind it."""


class Failed(PipelineError):
    """Spark gave up; the message is the root cause in one line."""


class Broken(ValueError):
    """A message, or one record of it, is not what it should be; the text says why and never quotes a payload."""
