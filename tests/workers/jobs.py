"""Jobs for tests of the pool; a worker finds them by name."""

import os
import time
from collections.abc import Sequence

from ams.core.errors import InvalidInput, TooLarge


def reverse(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Return each part, its bytes the other way round."""
    return [bytes(part)[::-1] for part in parts]


def process(_parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Return which process this is."""
    return [b"%d" % os.getpid()]


def sleep(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Take as many seconds as the part says."""
    time.sleep(float(bytes(parts[0])))
    return []


def refuse(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Refuse what there is with its own text; nothing is too large."""
    if not parts:
        raise TooLarge
    raise InvalidInput(bytes(parts[0]).decode())


def exit_at_once(_parts: Sequence[memoryview]) -> Sequence[bytes]:
    """End the process."""
    os._exit(3)


def fail(_parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Raise what no job raises on purpose."""
    raise ValueError("a defect")


def take_memory(_parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Take more memory than a worker may have."""
    return [bytes(2**31)]
