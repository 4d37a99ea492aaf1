"""Timer for lease expiry: wakes the sweeper when the next lease or retry is due."""

import asyncio
import contextlib
from collections.abc import Collection

from ams.core.clock import Clock, Milliseconds
from ams.service.parallel.lease_table import SLOT
from ams.service.parallel.opened import Open

PASSED_STORED = 1000
"""Milliseconds after which it is stored what was passed over."""
LOOK = 60_000
"""Milliseconds between two looks at a subscription of which nothing is due, as retention may have passed it."""


class ExpiryTimer:
    """The time of the next look."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sooner = asyncio.Event()
        """Something is due sooner than the next look."""
        self._looks_at = Milliseconds(0)

    def note(self, opened: Open) -> None:
        """Take note that something was given, stored, or passed over."""
        due = opened.backlog.next_due()
        if opened.backlog.failures.dead:
            due = Milliseconds(0)
        elif due is None and opened.backlog.done.has_passed:
            due = Milliseconds(self._clock.monotonic() + PASSED_STORED)
        if due is not None and due < self._looks_at:
            self.look_now()

    def look_now(self) -> None:
        """Let the next look be at once."""
        self._sooner.set()

    async def wait(self, opened: Collection[Open]) -> None:
        """Wait until something is due of these, or of one that is noted meanwhile."""
        self._looks_at = self._next_look(opened)
        seconds = (self._looks_at - self._clock.monotonic()) / 1000
        with contextlib.suppress(TimeoutError):  # `wait_for` would forget that it is cancelled in some moments
            async with asyncio.timeout(max(seconds, 0)):
                await self._sooner.wait()
        self._sooner.clear()

    def _next_look(self, opened: Collection[Open]) -> Milliseconds:
        now = self._clock.monotonic()
        has_passed = any(each.backlog.done.has_passed for each in opened)
        dues = [each.backlog.next_due() for each in opened]
        latest = Milliseconds(now + (PASSED_STORED if has_passed else LOOK))
        return Milliseconds(max(min([latest, *[each for each in dues if each is not None]]), now + SLOT))
