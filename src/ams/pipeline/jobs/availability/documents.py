"""JSON files that say what is monitored and how it counts, checked before anything is computed.

A file holds a list, or what the monitoring API answers: an object whose `data` is the list. Fields that a computation
does not need may be there and are not looked at.
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ams.pipeline.errors import WrongOption

T = TypeVar("T")

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
    if not file:
        return []
    try:
        found = msgspec.json.decode(Path(file).read_bytes())
        return msgspec.convert(_data(found), list[item])  # type: ignore[valid-type]  # a type made at run time
    except OSError as error:
        raise WrongOption(option, f"{file}: {error.strerror or error}") from error
    except ValueError as error:
        raise WrongOption(option, f"{file}: {error}") from error


def single(option: str, file: str, item: type[T]) -> T:
    """Read a file of exactly one item, alone or as a list of one; raises as `listed` does."""
    if not file:
        raise WrongOption(option, "is needed: the path of a JSON file")
    try:
        found = msgspec.json.decode(Path(file).read_bytes())
        return msgspec.convert(_alone(_data(found)), item)
    except OSError as error:
        raise WrongOption(option, f"{file}: {error.strerror or error}") from error
    except ValueError as error:
        raise WrongOption(option, f"{file}: {error}") from error


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


def _data(found: Any) -> Any:
    return found["data"] if isinstance(found, dict) and "data" in found else found


def _alone(found: Any) -> Any:
    if not isinstance(found, list):
        return found
    if len(found) != 1:
        raise ValueError(f"one profile is needed, not {len(found)}")
    return found[0]
