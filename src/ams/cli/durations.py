"""How long messages are kept, as a command line says it."""

import contextlib
from typing import Annotated

import typer

from ams.cli.exits import Usage
from ams.core.settings import MAX_RETENTION_SECONDS, duration_seconds, duration_text

DEFAULT = "default"

Duration = Annotated[str, typer.Argument(metavar="DURATION", help="Such as 7d or 12h, or default.", show_default=False)]


def seconds(text: str) -> int:
    """Read a duration in whole seconds, `default` as 0; raise `Usage`, also for more than a year."""
    if text == DEFAULT:
        return 0
    with contextlib.suppress(ValueError, KeyError):
        read = duration_seconds(text)
        if read > MAX_RETENTION_SECONDS:
            raise Usage(f"{text!r} is too long: messages are kept for at most {duration_text(MAX_RETENTION_SECONDS)}")
        if read >= 1 and read % 1 == 0:
            return int(read)
    raise Usage(f"{text!r} is no duration of whole seconds such as 7d, 12h or 90s, nor {DEFAULT!r}")


def shown(seconds: int) -> str:
    """Write a duration; empty where there is none."""
    return duration_text(seconds) if seconds else ""
