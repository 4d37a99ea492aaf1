"""Jobs for tests of the pool, which a worker finds by name, and the pool's processes."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from ams.core.errors import InvalidInput, TooLarge
from ams.workers.pool import Pool
from ams.workers.program import Job


def reverse(parts: Sequence[memoryview]) -> Sequence[bytes]:
    return [bytes(part)[::-1] for part in parts]


def process(_parts: Sequence[memoryview]) -> Sequence[bytes]:
    return [b"%d" % os.getpid()]


def touch_and_sleep(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Create the file named by the part, and then take a minute."""
    Path(bytes(parts[0]).decode()).touch()
    time.sleep(60)
    return []


def sleep(parts: Sequence[memoryview]) -> Sequence[bytes]:
    time.sleep(float(bytes(parts[0])))
    return []


def refuse(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Refuse every existing part with its own text; no size is too large."""
    if not parts:
        raise TooLarge
    raise InvalidInput(bytes(parts[0]).decode())


def exit_at_once(_parts: Sequence[memoryview]) -> Sequence[bytes]:
    os._exit(3)


def fail(_parts: Sequence[memoryview]) -> Sequence[bytes]:
    raise ValueError("a defect")


def take_memory(_parts: Sequence[memoryview]) -> Sequence[bytes]:
    return [bytes(2**31)]


async def run_job(
    pool: Pool, job: Job, *parts: bytes, project: str = "P", seconds: float = 60.0, long: bool = False
) -> Sequence[bytes]:
    async with pool.run_job(project, job, parts, seconds=seconds, long=long) as made:
        return [bytes(each) for each in made]


def children() -> set[int]:
    """Return this process's children, including those of other tests' services."""
    with open(f"/proc/self/task/{os.getpid()}/children") as children:
        return {int(each) for each in children.read().split()}
