"""Retention classes: topics that are kept about as long share segments, so that no topic pins another's space."""

from typing import NamedTuple

from ams.core.clock import Milliseconds

_HOUR = 3_600_000
_DAY = 24 * _HOUR


class RetentionClass(NamedTuple):
    """Segments whose messages may go when the newest of them is older than `age`."""

    code: int
    """The number written in headers."""
    name: str
    """The folder of its segments."""
    age: Milliseconds


CLASSES = (
    RetentionClass(0, "1h", Milliseconds(_HOUR)),
    RetentionClass(1, "1d", Milliseconds(_DAY)),
    RetentionClass(2, "7d", Milliseconds(7 * _DAY)),
    RetentionClass(3, "30d", Milliseconds(30 * _DAY)),
    RetentionClass(4, "1y", Milliseconds(365 * _DAY)),
)

SEAL_PART = 8
"""A segment is sealed when its first record is 1/8 of its class's age old, so space is freed at most 1/8 late."""


def class_of(retention: Milliseconds) -> RetentionClass:
    """Return the class with the smallest age that covers `retention`; nothing longer than the last can be set."""
    return next((each for each in CLASSES if each.age >= retention), CLASSES[-1])
