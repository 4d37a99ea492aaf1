"""Times to keep messages for, on the command line."""

import contextlib
from typing import Annotated

import typer

from ams.cli.exits import Usage
from ams.settings import span_seconds, span_text

DEFAULT = "default"

Time = Annotated[str, typer.Argument(metavar="TIME", help="Such as 7d or 12h, or default.", show_default=False)]


def seconds(text: str) -> int:
    """Read a time in whole seconds, `default` as 0; raise `Usage`."""
    if text == DEFAULT:
        return 0
    with contextlib.suppress(ValueError, KeyError):
        read = span_seconds(text)
        if read >= 1 and read % 1 == 0:
            return int(read)
    raise Usage(f"{text!r} is no time of whole seconds such as 7d, 12h or 90s, nor {DEFAULT!r}")


def shown(seconds: int) -> str:
    """Write a time; empty where there is none."""
    return span_text(seconds) if seconds else ""
