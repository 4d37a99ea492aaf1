"""The only way for tests to wait for an event of another thread, task or process."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from subprocess import Popen
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 60.0  # long: it is only reached when something is broken, so a busy machine makes no test fail
_FIRST_PAUSE_SECONDS = 0.001
_LONGEST_PAUSE_SECONDS = 0.05


def wait_until(check: Callable[[], T], seconds: float = PATIENCE_SECONDS, *, process: Popen[Any] | None = None) -> T:
    """Wait until a condition is true and return its value.

    Args:
        check: Called repeatedly; its exceptions are not caught.
        seconds: When to give up.
        process: Fail at once when this process ends before the condition is true.

    Raises:
        AssertionError: The condition did not become true.
    """
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE_SECONDS
    while not (found := check()):
        assert process is None or process.poll() is None, f"the process ended with {process and process.returncode}"
        assert time.monotonic() < deadline, f"not true within {seconds} s; the last value was {found!r}"
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
    return found


async def wait_until_async(check: Callable[[], T] | Callable[[], Awaitable[T]], seconds: float = PATIENCE_SECONDS) -> T:
    """Wait on the event loop until a condition, plain or async, is true and return its value.

    The first fifty looks are one loop iteration apart, so what is ready takes no time.

    Raises:
        AssertionError: The condition did not become true.
    """
    deadline = time.monotonic() + seconds
    looks = 0
    while True:
        found = check()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found  # type: ignore[return-value]  # one of the two kinds of callables
        assert time.monotonic() < deadline, f"not true within {seconds} s; the last value was {found!r}"
        looks += 1
        await asyncio.sleep(0 if looks < 50 else min(_FIRST_PAUSE_SECONDS * (looks - 49), _LONGEST_PAUSE_SECONDS))


async def some_turns() -> None:
    """Let all woken tasks run, and those that they wake."""
    for _ in range(20):
        await asyncio.sleep(0)
