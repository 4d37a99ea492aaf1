"""Values of usage records, each read from what a sender wrote: text, or in JSON also a number.

Every reader raises `ValueError` with what it wanted; whoever knows the field's name tells it.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from ams.pipeline.jobs.fields import abbreviate, utc

NOTHING: Final = frozenset({"", *(each for word in ("NULL", "None") for each in (word, word.lower(), word.upper()))})
LONGEST_DURATION: Final = 10**12
"""In seconds: a million cores for eleven days; what is longer is a mistake, and would drown a month."""
LARGEST: Final = 10**18 - 1
MAX_COUNT: Final = 10**6
LONGEST_TEXT: Final = 255
LAST_SECOND: Final = 253_402_300_799

_WHOLE: Final = re.compile(r"([+-]?[0-9]{1,40})(?:\.0{0,18})?", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,40}(?:\.[0-9]{0,18})?", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?", re.ASCII)
_ISO_DURATION: Final = re.compile(
    r"P(?:([0-9]{1,9})Y)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})W)?(?:([0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,12})H)?(?:([0-9]{1,12})M)?(?:([0-9]{1,12}(?:[.,][0-9]{1,9})?)S)?)?",
    re.ASCII,
)
_LEVEL: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9_. -]{0,39}?)\s*:\s*([0-9.eE+-]+)\s*", re.ASCII)

Read = Callable[[object], Any]


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


def role(value: object) -> str | None:
    """Return a role; of `Role=production` the prefix may be in any case, and `Role=NULL` is none."""
    found = text(value)
    prefix, equals, name = found.partition("=")
    if not equals or prefix.lower() != "role":
        return found
    return f"Role={name}" if name and name.upper() != "NULL" else None


def whole(value: object) -> int:
    """Return a whole number that is not negative; nothing but zeros may stand behind its point."""
    if isinstance(value, str) and (match := _WHOLE.fullmatch(value)):
        found: object = int(match[1])
    else:
        found = int(value) if isinstance(value, float) and value.is_integer() else value
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"is not a whole number: {abbreviate(value)}")
    return _in_bounds(found, value)


def round_half_up(value: object) -> int:
    """Return a number that is not negative, as a whole one, halves rounded up: what is measured has fractions."""
    return _in_bounds(int(_exact(value).to_integral_value("ROUND_HALF_UP")), value)


def count(value: object) -> Decimal:
    """Return a number that is not negative, with three digits behind the point, the rest rounded."""
    found = _exact(value)
    if found >= MAX_COUNT:
        raise ValueError(f"is larger than can be: {abbreviate(value)}")
    return found.quantize(Decimal("0.001"))


def limit(value: object) -> int | None:
    """Return a whole number, where -1 stands for no limit."""
    return None if str(value) == "-1" else whole(value)


def _exact(value: object) -> Decimal:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18
    if not is_number and not (isinstance(value, str) and _DECIMAL.fullmatch(value)):
        raise ValueError(f"is not a number: {abbreviate(value)}")
    found = Decimal(str(value))
    if found < 0:
        raise ValueError(f"is negative: {abbreviate(value)}")
    return found


def _in_bounds(found: int, value: object) -> int:
    if found < 0:
        raise ValueError(f"is negative: {abbreviate(value)}")
    if found > LARGEST:
        raise ValueError(f"is larger than can be: {abbreviate(value)}")
    return found


def duration(value: object) -> int:
    """Return a number of seconds as a whole one, halves rounded up, up to `LONGEST_DURATION`."""
    seconds = round_half_up(value)
    if seconds > LONGEST_DURATION:
        raise ValueError(f"is longer than can be: {abbreviate(value)}")
    return seconds


def iso_duration(value: object) -> int:
    """Return an ISO 8601 duration such as `PT6704S`, in whole seconds; of months and years nobody knows the length."""
    match = _ISO_DURATION.fullmatch(text(value))
    if match is None or not any(match.groups()):
        raise ValueError(f"is not a duration: {abbreviate(value)}")
    years, months, weeks, days, hours, minutes = (int(each or 0) for each in match.groups()[:6])
    if years or months:
        raise ValueError(f"is of months or years, whose length nobody knows: {abbreviate(value)}")
    whole_seconds = ((weeks * 7 + days) * 24 + hours) * 3600 + minutes * 60
    return duration(str(whole_seconds + Decimal((match[7] or "0").replace(",", "."))))


def moment(value: object) -> datetime:
    """Return a time given as seconds since 1970, whose fractions are left out, or in ISO 8601."""
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        return iso_moment(value)
    seconds = int(_exact(value))
    if seconds > LAST_SECOND:
        raise ValueError(f"is not a time: {abbreviate(value)}")
    return datetime.fromtimestamp(seconds, UTC)


def moment_or_none(value: object) -> datetime | None:
    """Return a time given in one of these ways, where 0 stands for none."""
    return None if value in ("0", 0, "0.0") else moment(value)


def iso_moment(value: object) -> datetime:
    """Return a time given in ISO 8601, UTC where it names no zone."""
    with suppress(ValueError):
        found = utc(text(value))
        if found.year >= 1970:
            return found
    raise ValueError(f"is not a time: {abbreviate(value)}")


def number(value: object) -> float:
    """Return a number, which may have a fraction and be negative."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18:
        return float(value)
    raise ValueError(f"is not a number: {abbreviate(value)}")


def level(value: object) -> Decimal | None:
    """Return what a benchmark gave, with three digits behind the point, the rest rounded; 0 stands for none."""
    found = number(value)
    if not 0 <= found < 1e6:
        raise ValueError(f"is not a service level: {abbreviate(value)}")
    return Decimal(str(value)).quantize(Decimal("0.001")) or None


def levels(value: object) -> list[dict[str, Any]]:
    """Return the levels of a small map, `{hepspec: 11.4, HEPscore23: 15.3}`, in the order of their names."""
    found = ((name, level(each)) for name, each in _small_map(value))
    return [{"benchmark": name, "level": each} for name, each in found if each is not None]


def amounts(value: object) -> dict[str, int]:
    """Return the whole numbers of a small map by benchmark, or a plain number in HEP-SPEC06, which older texts mean."""
    pairs = _small_map(value) if isinstance(value, str) and value.startswith("{") else [("hepspec", str(value))]
    rounded = ((name, Decimal(str(number(each))).quantize(Decimal(1), "ROUND_HALF_UP")) for name, each in pairs)
    return {name: duration(int(amount)) for name, amount in rounded}


def month_of(time: datetime) -> str:
    """Return the month of a time as `2024-03`."""
    return f"{time.year:04}-{time.month:02}"


def month(year: int, number: int) -> str:
    """Return a month that was given as two numbers."""
    if not (1970 <= year <= 9999 and 1 <= number <= 12):
        raise ValueError(f"Year and Month are not a month: {year}, {number}")
    return f"{year:04}-{number:02}"


def _small_map(value: object) -> list[tuple[str, str]]:
    written = text(value)
    matches = [_LEVEL.fullmatch(each.replace('"', "")) for each in written[1:-1].split(",")]
    pairs = sorted((match[1].lower(), match[2]) for match in matches if match)
    if not (written.startswith("{") and written.endswith("}")) or len(pairs) != len(matches):
        raise ValueError(f"is not a map of benchmarks: {abbreviate(value)}")
    if len(dict(pairs)) != len(pairs):
        raise ValueError(f"names a benchmark twice: {abbreviate(value)}")
    return pairs
