"""Values of usage records, each read from what a sender wrote: text, or in JSON also a number.

Every reader raises `ValueError` with what it wanted; whoever knows the field's name tells it.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

NOTHING: Final = frozenset({"", "NULL", "None"})
"""Texts that stand for no value."""
LONGEST_DURATION: Final = 10**12
"""In seconds: a million cores for eleven days; what is longer is a mistake, and would drown a month."""
LARGEST: Final = 10**17
"""The largest whole number a record may hold: a hundred petabytes."""
LONGEST_TEXT: Final = 255
LAST_SECOND: Final = 253_402_300_799
"""The last second of the year 9999."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?", re.ASCII)
_ISO_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?", re.ASCII)
_LEVEL: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9_. -]{0,39}?)\s*:\s*([0-9.eE+-]+)\s*", re.ASCII)

Levels = list[dict[str, Any]]
"""What a benchmark says of a machine: `benchmark` in small letters and `level`, in the order of their names."""


def text(value: object) -> str:
    """Return a text as it is, of a length that names have."""
    found = long_text(value)
    if len(found) > LONGEST_TEXT:
        raise ValueError(f"is longer than {LONGEST_TEXT} characters")
    return found


def long_text(value: object) -> str:
    """Return a text as it is, of any length; nothing that keeps texts takes the character 0."""
    if not isinstance(value, str):
        raise ValueError("is not a text")
    if "\0" in value:
        raise ValueError("holds the character 0")
    return value


def whole(value: object) -> int:
    """Return a whole number that is not negative."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise ValueError(f"is not a whole number: {_shown(value)}")
    if number < 0:
        raise ValueError(f"is negative: {_shown(value)}")
    if number > LARGEST:
        raise ValueError(f"is larger than can be: {_shown(value)}")
    return number


def duration(value: object) -> int:
    """Return a duration in seconds."""
    seconds = whole(value)
    if seconds > LONGEST_DURATION:
        raise ValueError(f"is longer than can be: {_shown(value)}")
    return seconds


def iso_duration(value: object) -> int:
    """Return an ISO 8601 duration such as `PT6704S`, in whole seconds; of months and years nobody knows the length."""
    match = _ISO_DURATION.fullmatch(text(value))
    if match is None or not any(match.groups()):
        raise ValueError(f"is not a duration: {_shown(value)}")
    days, hours, minutes, seconds = (int((part or "0")[:15]) for part in match.groups())
    return duration(days * 86400 + hours * 3600 + minutes * 60 + seconds)


def moment(value: object) -> datetime:
    """Return a time given as seconds since 1970."""
    seconds = whole(value)
    if seconds > LAST_SECOND:
        raise ValueError(f"is not a time: {_shown(value)}")
    return datetime.fromtimestamp(seconds, UTC)


def moment_or_none(value: object) -> datetime | None:
    """Return a time given as seconds since 1970, where 0 stands for none."""
    return None if value in ("0", 0) else moment(value)


def iso_moment(value: object) -> datetime:
    """Return a time given in ISO 8601, UTC where it names no zone."""
    try:
        found = datetime.fromisoformat(text(value))
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"is not a time: {_shown(value)}") from None
    if found.year < 1970:
        raise ValueError(f"is not a time: {_shown(value)}")
    return found


def any_moment(value: object) -> datetime:
    """Return a time given in either way."""
    return moment(value) if isinstance(value, int) or text(value).isdigit() else iso_moment(value)


def number(value: object) -> float:
    """Return a number, which may have a fraction and be negative."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18:
        return float(value)
    raise ValueError(f"is not a number: {_shown(value)}")


def level(value: object) -> Decimal:
    """Return what a benchmark gave, with three digits behind the point, the rest rounded."""
    found = number(value)
    if not 0 < found < 1e6:
        raise ValueError(f"is not a service level: {_shown(value)}")
    return Decimal(str(value)).quantize(Decimal("0.001"))


def levels(value: object) -> Levels:
    """Return the levels of a small map, `{hepspec: 11.4, HEPscore23: 15.3}`."""
    return [{"benchmark": name, "level": level(each)} for name, each in _small_map(value)]


def amounts(value: object) -> list[dict[str, Any]]:
    """Return the whole numbers of a small map by benchmark, or a plain number in HEP-SPEC06, which older texts mean."""
    pairs = _small_map(value) if _is_map(value) else [("hepspec", str(value))]
    return [{"benchmark": name, "amount": duration(_rounded(each))} for name, each in pairs]


def one_level(benchmark: str, value: object) -> Levels:
    """Return a single level as `levels` returns several."""
    return [{"benchmark": benchmark.lower(), "level": level(value)}]


def month_of(time: datetime) -> str:
    """Return the month of a time as `2024-03`."""
    return f"{time.year:04}-{time.month:02}"


def month(year: int, number: int) -> str:
    """Return a month that was given as two numbers."""
    if not (1970 <= year <= 9999 and 1 <= number <= 12):
        raise ValueError(f"Year and Month are not a month: {year}, {number}")
    return f"{year:04}-{number:02}"


def _is_map(value: object) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, str) and value.startswith("{"))


def _small_map(value: object) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        pairs = [(str(name), str(each)) for name, each in value.items()]
    else:
        whole_map = text(value)
        if not (whole_map.startswith("{") and whole_map.endswith("}")):
            raise ValueError(f"is not a map of benchmarks: {_shown(value)}")
        matches = [_LEVEL.fullmatch(each.replace('"', "")) for each in whole_map[1:-1].split(",")]
        pairs = [(match[1], match[2]) for match in matches if match is not None]
        if len(pairs) != len(matches):
            raise ValueError(f"is not a map of benchmarks: {_shown(value)}")
    named = sorted((name.lower(), each) for name, each in pairs)
    if not named or len({name for name, _ in named}) != len(named):
        raise ValueError(f"names no benchmark, or one twice: {_shown(value)}")
    return named


def _rounded(value: str) -> int:
    return int(Decimal(str(number(value))).quantize(Decimal(1), "ROUND_HALF_UP"))


def _shown(value: object) -> str:
    """Return a short value to tell it by; never a payload."""
    return repr(value if isinstance(value, (int, float)) else str(value)[:40])[:60]
