"""Arguments and options that several commands have, and durations and times as a command line says them.

Names are completed from the service.
"""

import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer

from ams.cli.completing import (
    Complete,
    member_names,
    project_names,
    resource_names,
    schema_names,
    subscription_names,
    topic_names,
    user_names,
)
from ams.cli.exits import Usage
from ams.cli.output import Format
from ams.core import settings
from ams.core.clock import utc_text
from ams.core.settings import duration_seconds, duration_text

T = TypeVar("T")


def argument(metavar: str, text: str, complete: Complete | None = None) -> Any:
    """Return a positional argument with its help, completed by `complete`."""
    return typer.Argument(metavar=metavar, help=text, show_default=False, autocompletion=complete)


def option(text: str, *names: str, complete: Complete | None = None, **more: Any) -> Any:
    """Return an option with its help, under its own names if there are any; `more` is what Typer takes besides."""
    return typer.Option(*names, help=text, autocompletion=complete, **more)


ProjectName = Annotated[str, argument("PROJECT", "Name of the project.", project_names)]
TopicName = Annotated[str, argument("TOPIC", "Name of the topic.", topic_names)]
SubscriptionName = Annotated[str, argument("SUB", "Name of the subscription.", subscription_names)]
SchemaName = Annotated[str, argument("SCHEMA", "Name of the schema.", schema_names)]
UserName = Annotated[str, argument("USER", "Name of the user.", user_names)]
MemberName = Annotated[str, argument("USER", "Name of the member.", member_names)]
MemberNames = Annotated[list[str], argument("USER...", "Names of members.", member_names)]
Resource = Annotated[str, argument("RESOURCE", "topics/TOPIC or subs/SUB.", resource_names)]

AttributePairs = Annotated[list[str] | None, option("Attribute; may be repeated.", "--attr", metavar="NAME=VALUE")]
DataFolder = Annotated[str, option("The data folder.", "--data", envvar="AMS_DATA")]
"""Its default is `DATA_FOLDER`."""
Output = Annotated[Format, option("For people or for programs.", "--output", "-o")]
"""Its default is `Format.TABLE`."""

DATA_FOLDER = "./ams-data"


def pairs(texts: Sequence[str] | None, name: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """Read what an option that may be repeated says, each in this form; raise `Usage` for what is not."""
    for each in texts or ():
        if "=" not in each:
            raise Usage(f"{name} {each!r} must look like {form}")
    return dict(each.split("=", 1) for each in texts or ())


Duration = Annotated[str, argument("DURATION", "Such as 7d or 12h, or default.")]
"""How long messages are kept; `retention_seconds` reads it."""


def retention_seconds(text: str) -> int:
    """Read a duration in whole seconds, `default` as 0; raise `Usage`, also for more than a year."""
    return _or_usage(settings.retention_seconds, text)


def retention_text(seconds: int) -> str:
    """Write a duration; empty where there is none."""
    return duration_text(seconds) if seconds else ""


def whole_seconds(text: str) -> int | None:
    """Read a duration of whole seconds; None for what is none."""
    read = seconds_said(text)
    return int(read) if read is not None and read % 1 == 0 else None


def seconds_said(text: str) -> float | None:
    """Read a duration; None for what is none."""
    with contextlib.suppress(ValueError, KeyError):
        return duration_seconds(text)
    return None


def time_of(text: str) -> datetime:
    """Read a time: ISO 8601, a day alone is its midnight, without a zone it is UTC; raise `ValueError`."""
    read = datetime.fromisoformat(text)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def time_text(text: str) -> str:
    """Read a time as people write it and write it as the service does, in UTC and whole seconds; raise `Usage`."""
    return _or_usage(utc_text, text)


def _or_usage(read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise Usage(str(error)) from None
