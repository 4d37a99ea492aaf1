"""Waiting for a database that is away: every call a while, and all of them together with one who asks.

A call waits `CALL_SECONDS` in all. As soon as one meets a database that is away, only one call at a time asks for it;
when that one is answered, the others go on. So a database that is away costs no threads, however many calls wait.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ams.errors import RegistryUnavailable
from ams.postgresql import CALL_SECONDS
from ams.registry.failures import unavailable

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.2
"""Seconds between two tries of a call; random parts of them, so that calls in each other's way get out of it."""


class Passing(Exception):
    """Raised by an attempt that may well succeed in a moment; its cause says why.

    `away` says that the database did not answer, rather than that others were in the way.
    """

    def __init__(self, *, away: bool) -> None:
        super().__init__()
        self.away = away


class Patience:
    """Tries again what fails for a moment."""

    def __init__(self, seconds: float = CALL_SECONDS) -> None:
        self._seconds = seconds
        self._away = False
        self._one_asks = asyncio.Lock()

    async def keep_trying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return what `attempt` returns as soon as it does not raise `Passing`; raise `RegistryUnavailable` else."""
        pause, last = FIRST_PAUSE, Passing(away=True)
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    try:
                        return await self._ask(attempt)
                    except Passing as error:
                        last = error
                    await asyncio.sleep(random.uniform(0, pause))  # noqa: S311 - no secret
                    pause = min(2 * pause, LONGEST_PAUSE)
        except TimeoutError:
            raise unavailable(last.__cause__ or last) from last.__cause__

    async def _ask(self, attempt: Callable[[], Awaitable[T]]) -> T:
        if self._away:
            async with self._one_asks:
                if self._away:
                    return await self._answered(attempt)
        return await self._answered(attempt)

    async def _answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Note whether the database is away: anything but silence shows that it is not."""
        try:
            value = await attempt()
        except Passing as error:
            self._away = error.away
            raise
        except asyncio.CancelledError:
            raise
        except RegistryUnavailable:
            raise
        except BaseException:
            self._away = False
            raise
        self._away = False
        return value
