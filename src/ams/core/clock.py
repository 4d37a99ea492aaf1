"""Time, injectable: wall time for stamps people see, monotonic time for deadlines and waits."""

import functools
import re
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NewType, Protocol

Milliseconds = NewType("Milliseconds", int)  # a duration, or a time since the epoch in UTC

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"))
_SECONDS = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
DAY = 86_400_000  # milliseconds of a day
_EPOCH = date(1970, 1, 1).toordinal()


class Clock(Protocol):
    """Source of wall time and monotonic time."""

    def wall(self) -> Milliseconds:
        """Return the time of day: milliseconds since the epoch. May step, also backwards."""

    def monotonic(self) -> Milliseconds:
        """Return a time that never goes backwards. Only differences are meaningful."""


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The clocks of the machine."""

    def wall(self) -> Milliseconds:
        """Return the machine's time of day."""
        return Milliseconds(time.time_ns() // 1_000_000)

    def monotonic(self) -> Milliseconds:
        """Return the machine's monotonic clock."""
        return Milliseconds(time.monotonic_ns() // 1_000_000)


def publish_time(moment: Milliseconds) -> str:
    """Write a publish time as the contract says (section 2): UTC, trailing zeros of the fraction cut.

    >>> publish_time(Milliseconds(1456314909780))
    '2016-02-24T11:55:09.78Z'
    >>> publish_time(Milliseconds(1456314909000))
    '2016-02-24T11:55:09Z'
    """
    seconds, milliseconds = divmod(moment, 1000)
    fraction = f".{milliseconds:03d}".rstrip("0") if milliseconds else ""
    return f"{_to_the_second(seconds)}{fraction}Z"


@functools.lru_cache(maxsize=1024)  # asked for each run of messages that is delivered
def _to_the_second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def resource_date(moment: Milliseconds) -> str:
    """Write the date of a resource: whole seconds, UTC (contract 2).

    >>> resource_date(Milliseconds(1456314909786))
    '2016-02-24T11:55:09Z'
    """
    return f"{datetime.fromtimestamp(moment // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def optional_date(moment: Milliseconds | None) -> str:
    """Write the date of a resource, empty where there is none."""
    return "" if moment is None else resource_date(moment)


def utc_text(text: str) -> str:
    """Convert an ISO 8601 date or time to UTC text. Raises `ValueError` with a message for the user.

    >>> utc_text("2016-02-24"), utc_text("2016-02-24T12:55:09+01:00")
    ('2016-02-24T00:00:00Z', '2016-02-24T11:55:09Z')
    """
    try:
        read = datetime.fromisoformat(text)
        read = read if read.tzinfo else read.replace(tzinfo=UTC)
        return f"{read.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time such as 2030-05-01 or 2030-05-01T12:00:00Z") from None


def span_text(span: Milliseconds) -> str:
    """Write a duration for people: one decimal of the largest unit that fits. Units are those of settings.

    >>> span_text(Milliseconds(3_200)), span_text(Milliseconds(5_400_000)), span_text(Milliseconds(604_800_000))
    ('3.2s', '1.5h', '7d')
    """
    size, unit = next((each for each in _UNITS if span >= each[0]), (1000, "s"))
    return f"{span / size:.1f}".removesuffix(".0") + unit


def seconds_span(text: str) -> Milliseconds:
    """Parse a duration of protobuf JSON, rounded up to milliseconds. Raises `ValueError`.

    >>> seconds_span("10s"), seconds_span("0.5s")
    (10000, 500)
    """
    if (found := _SECONDS.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is no span such as 10s or 0.5s")
    fraction = (found[2] or "").ljust(9, "0")
    return Milliseconds(int(found[1]) * 1000 - -int(fraction) // 1_000_000)


def seconds_text(span: Milliseconds) -> str:
    """Write a duration as protobuf JSON.

    >>> seconds_text(Milliseconds(10_000)), seconds_text(Milliseconds(500))
    ('10s', '0.500s')
    """
    seconds, milliseconds = divmod(span, 1000)
    return f"{seconds}.{milliseconds:03d}s" if milliseconds else f"{seconds}s"


def day_of(moment: Milliseconds) -> int:
    """Return the UTC day a moment lies in, as days since the epoch."""
    return moment // DAY


def day_number(day: date) -> int:
    """Return a date as days since the epoch; below 0 before 1970."""
    return day.toordinal() - _EPOCH


def day_text(number: int) -> str:
    """Write a day, given as days since the epoch, as `YYYY-MM-DD`.

    >>> day_text(day_of(Milliseconds(1456314909786)))
    '2016-02-24'
    """
    return date.fromordinal(_EPOCH + number).isoformat()
