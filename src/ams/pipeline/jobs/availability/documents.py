"""JSON files that say what is monitored and how it counts, checked before anything is computed.

A file holds a list, or what the monitoring API answers: an object whose `data` is the list. Fields that a computation
does not need may be there and are not looked at.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ams.pipeline.errors import WrongOption

T = TypeVar("T")
R = TypeVar("R")

_WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


def listed(option: str, file: str, item: type[T]) -> list[T]:
    """Read a file of items.

    Args:
        option: the job's option that named the file.
        file: its path; empty for an option that was not given, which is an empty list.
        item: the Struct an item must fit.

    Raises:
        WrongOption: the file cannot be read, or a field is not what it must be; names file and field.
    """
    # mypy knows no types that are made at run time
    return _read(option, file, lambda found: msgspec.convert(found, list[item])) if file else []  # type: ignore[valid-type]


def single(option: str, file: str, item: type[T]) -> T:
    """Read a file of exactly one item, alone or as a list of one; raises as `listed` does."""
    if not file:
        raise WrongOption(option, "is needed: the path of a JSON file")
    return _read(option, file, lambda found: msgspec.convert(_alone(found), item))


def _read(option: str, file: str, fit: Callable[[Any], R]) -> R:
    try:
        found = msgspec.json.decode(Path(file).read_bytes())
        return fit(found["data"] if isinstance(found, dict) and "data" in found else found)
    except OSError as error:
        raise WrongOption(option, f"{file}: {error.strerror or error}") from error
    except ValueError as error:
        raise WrongOption(option, f"{file}: {error}") from error


def _alone(found: Any) -> Any:
    if not isinstance(found, list):
        return found
    if len(found) != 1:
        raise ValueError(f"one profile is needed, not {len(found)}")
    return found[0]


def moment(text: str) -> int:
    """Read a time in UTC, `2024-03-05T10:20:30Z`, as seconds since 1970.

    Raises:
        ValueError: it is written otherwise, or there is no such time.
    """
    if not _WRITTEN.fullmatch(text):
        raise ValueError("a time is written as 2024-03-05T10:20:30Z")
    return int(datetime.fromisoformat(text).timestamp())


def written(seconds: int) -> str:
    """Write seconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
