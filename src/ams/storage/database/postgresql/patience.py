"""Waiting for a database that is away: each call for a while, and one attempt on behalf of all.

A call that met trouble has `CALL_SECONDS` in all. As soon as one meets a database that is away, only one call at a
time tries it; when that one gets an answer, the others go on. So a database that is away costs no threads, however
many calls wait; once it has been away for `CALL_SECONDS` they do not wait any more. Where it works, a call waits for
its turn as long as that takes.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ams.core.backoff import Backoff, Pauses
from ams.core.errors import RegistryUnavailable
from ams.storage.database.schema import unavailable
from ams.storage.postgresql import CALL_SECONDS

T = TypeVar("T")

BACKOFF = Backoff(0.005, 0.2, jitter=(0.0, 1.0))
"""Seconds between two tries of a call; random parts of them, so that calls in each other's way get out of it."""


class Passing(Exception):
    """Raised by an attempt that may well succeed in a moment; its cause says why."""

    def __init__(self, *, away: bool, since: float, made: bool = True) -> None:
        super().__init__("the database is away" if away else "others are in the way")
        self.made = made
        """Whether the attempt was made at all, rather than left off because of what another had met."""
        self.away = away
        """Whether the database did not answer, rather than that others were in the way."""
        self.since = since
        """When the attempt began to be made: a moment of `time.monotonic`."""


class Patience:
    """Tries again what fails for a moment."""

    def __init__(self, seconds: float = CALL_SECONDS) -> None:
        self._seconds = seconds
        self._one_asks = asyncio.Lock()
        self.away: Passing | None = None
        """What first showed that the database is away; None: as far as is known, it is not."""

    def note(self, failure: Passing) -> None:
        """Note what a failure shows; from any thread, so that those who wait for one do not fail in the same way."""
        if failure.made:
            self.away = (self.away or failure) if failure.away else None

    async def keep_trying(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """Return what `attempt` returns as soon as it does not raise `Passing`; raise `RegistryUnavailable` else.

        Its argument says whether it is the attempt for all: then it is made although the database is away.
        """
        began = time.monotonic()
        failure = self.away
        if failure is None:
            try:
                return await self._made(attempt, asks=False)
            except Passing as error:
                failure = error
        elif began - failure.since > self._seconds:
            return await self._at_once(attempt, failure)
        try:
            async with asyncio.timeout(max(began, failure.since) + self._seconds - time.monotonic()):
                return await self._try_again(attempt)
        except TimeoutError:
            failure = self.away or failure
            raise unavailable(failure.__cause__ or failure) from failure.__cause__

    async def _at_once(self, attempt: Callable[[bool], Awaitable[T]], failure: Passing) -> T:
        """Try a database that has been away for long, unless another call does; do not wait."""
        if not self._one_asks.locked():
            async with self._one_asks:
                with contextlib.suppress(Passing):
                    return await self._made(attempt, asks=True)
        raise RegistryUnavailable from failure.__cause__  # not logged: calls that waited before did it

    async def _try_again(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        pauses = Pauses(BACKOFF)
        while True:
            await asyncio.sleep(pauses.next())
            with contextlib.suppress(Passing):
                return await self._in_turn(attempt)

    async def _in_turn(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        if self.away is not None:
            async with self._one_asks:
                if self.away is not None:
                    return await self._made(attempt, asks=True)
        return await self._made(attempt, asks=False)

    async def _made(self, attempt: Callable[[bool], Awaitable[T]], *, asks: bool) -> T:
        """Make an attempt, and note its result: a database that responds, also with an error, is not away."""
        try:
            value = await attempt(asks)
        except Passing as error:
            self.note(error)
            raise
        except RegistryUnavailable:
            raise
        except Exception:
            self.away = None
            raise
        self.away = None
        return value
