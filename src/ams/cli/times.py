"""Reads and formats durations and times."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from ams.cli.exit_codes import Usage
from ams.core import settings
from ams.core.clock import utc_text
from ams.core.settings import duration_seconds, duration_text

T = TypeVar("T")


def retention_seconds(text: str) -> int:
    """Read a duration in whole seconds, `default` as 0. Raises `Usage`, also above a year."""
    return _or_usage(settings.retention_seconds, text)


def retention_text(seconds: int) -> str:
    """Format a duration; empty for 0."""
    return duration_text(seconds) if seconds else ""


def seconds_of(text: str, wrong: str) -> float:
    """Read a duration in seconds. Raises `Usage` with the text `wrong`."""
    try:
        return duration_seconds(text)
    except (ValueError, KeyError):
        raise Usage(wrong) from None


def whole_seconds(text: str, wrong: str, least: int = 1, most: float = math.inf) -> int:
    """Read a duration of whole seconds from `least` to `most`. Raises `Usage` with the text `wrong`."""
    seconds = seconds_of(text, wrong)
    if seconds % 1 or not least <= seconds <= most:
        raise Usage(wrong)
    return int(seconds)


def time_of(text: str) -> datetime:
    """Read an ISO 8601 time; a day is its midnight, no zone is UTC. Raises `ValueError`."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time such as 2030-05-01 or 2030-05-01T12:00:00Z") from None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def time_text(text: str) -> str:
    """Convert a time to the service's form, in UTC and whole seconds. Raises `Usage`."""
    return _or_usage(utc_text, text)


def _or_usage(read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise Usage(str(error)) from None
