"""Exit codes and error lines (docs/reference/cli.md)."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from ams.client import errors
from ams.core.errors import AmsError, BadDocument, BadSettings
from ams.pipeline import errors as pipeline


class Exit(IntEnum):
    """Exit codes of `ams`; stable for scripts."""

    OK = 0
    REFUSED = 1  # the service said no, or the work could not be done
    USAGE = 2
    NOT_ALLOWED = 3  # not authenticated, or forbidden
    NOT_FOUND = 4
    CONFLICT = 5  # the name is taken, or the state does not allow this
    UNREACHABLE = 6  # no connection, no trust, no answer in time, or no AMS there
    UNAVAILABLE = 7  # the service cannot do it now; try again
    FAULT = 70  # a fault of the program itself
    INTERRUPTED = 130
    PIPE_CLOSED = 141  # the reader of the output went away


class Usage(Exception):
    """Invalid command line, variable or profile."""


@contextmanager
def file_named(path: str, kind: type[Exception] = Usage) -> Iterator[None]:
    """Turn an `OSError` on a file into an error that names it."""
    try:
        yield
    except OSError as error:
        raise kind(f"{path}: {error.strerror}") from error


class PipeClosed(Exception):
    """The reader of the output closed the pipe."""


_CODES: dict[type[BaseException], Exit] = {
    Usage: Exit.USAGE,
    PipeClosed: Exit.PIPE_CLOSED,
    AmsError: Exit.REFUSED,
    BadSettings: Exit.USAGE,
    BadDocument: Exit.USAGE,
    errors.ClientError: Exit.REFUSED,
    errors.BadConnection: Exit.USAGE,
    errors.Unreachable: Exit.UNREACHABLE,
    errors.Unusable: Exit.USAGE,
    errors.NotAuthenticated: Exit.NOT_ALLOWED,
    errors.NotAllowed: Exit.NOT_ALLOWED,
    errors.NotFound: Exit.NOT_FOUND,
    errors.Conflict: Exit.CONFLICT,
    errors.Unavailable: Exit.UNAVAILABLE,
    pipeline.PipelineError: Exit.REFUSED,
    pipeline.WrongOption: Exit.USAGE,
    pipeline.WrongJobFile: Exit.USAGE,
    pipeline.ChangedJob: Exit.CONFLICT,
    pipeline.StaleCheckpoint: Exit.CONFLICT,
    pipeline.WrongTable: Exit.CONFLICT,
    pipeline.StoreFailed: Exit.UNAVAILABLE,
    pipeline.Busy: Exit.CONFLICT,
    pipeline.Interrupted: Exit.INTERRUPTED,
    BaseException: Exit.FAULT,
}
_OF_CLICK = {"UsageError": Exit.USAGE, "ClickException": Exit.REFUSED, "Abort": Exit.REFUSED}
"""By name: `serve` uses click, the others Typer's copy of it."""


def exit_code(error: BaseException) -> Exit:
    """Return the exit code of an error, by its class or nearest ancestor."""
    known = (_CODES.get(base) or _OF_CLICK.get(base.__name__) for base in type(error).__mro__)
    return next(code for code in known if code)


def line(error: BaseException) -> str:
    """Return the error in one line."""
    code = exit_code(error)
    said = error.format_message() if hasattr(error, "format_message") else str(error)
    text = " ".join(said.split())
    if code is Exit.FAULT:
        return f"unexpected {type(error).__name__}: {text} (a fault in ams; AMS_DEBUG=1 shows where)"
    if isinstance(error, errors.NotAuthenticated) and text == "Unauthorized":
        return f"{text} (the token is missing, unknown, or has no role here)"
    return text or type(error).__name__
