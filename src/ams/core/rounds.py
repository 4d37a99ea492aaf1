"""Background work in rounds: an expected error puts a round off, a defect is survived, and the next round is tried."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from ams.core.errors import AmsError
from ams.core.supervisor import Supervisor


class Rounds:
    """One piece of work, round after round, from `start` to `close`."""

    def __init__(
        self,
        part: str,
        seconds: float,
        work: Callable[[], Awaitable[object]],
        put_off: Callable[..., object] | None = None,
        *,
        retry_seconds: float | None = None,
        has_last: bool = False,
    ) -> None:
        """`work` is one round of the `part`; `put_off` is called with the `reason` of one that an `AmsError` ended.

        Without `put_off` that is a defect too. After a round that failed the next one comes after `retry_seconds`, if
        they are given. With `has_last` the close lets a round under way end and adds a last one; without, it cancels.
        """
        self.seconds = seconds
        """From the end of a round to the next one; a round may change it."""
        self._part = part
        self._work = work
        self._put_off = put_off
        self._retry_seconds = retry_seconds
        self._has_last = has_last
        self._soon = asyncio.Event()
        self._closing = False
        self._supervisor = Supervisor()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether no round comes any more."""
        return self._closing

    async def start(self, supervisor: Supervisor) -> None:
        """Begin with the pause, or with a round if it is to come soon."""
        self._supervisor = supervisor
        self._task = supervisor.task(self._part, self._run(), may_end=self._has_last)

    def soon(self) -> None:
        """Have the next round begin at once, or after the one under way."""
        self._soon.set()

    def cancel(self) -> None:
        """End the work at once, in the middle of a round."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End the work, and return when it has ended."""
        if not self._has_last:
            self.cancel()
        self._closing = True
        self._soon.set()
        if self._task is not None:
            await asyncio.wait((self._task,))
        if self._has_last:
            await self._survive()

    async def _run(self) -> None:
        pause = self.seconds
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._soon.wait()
            if self._closing:
                return
            self._soon.clear()
            is_done = await self._survive()
            pause = self.seconds if is_done or self._retry_seconds is None else self._retry_seconds

    async def _survive(self) -> bool:
        """Do one round; return whether nothing ended it."""
        try:
            await self._work()
        except Exception as error:
            if self._put_off is not None and isinstance(error, AmsError):
                self._put_off(reason=error.message)
            else:  # a defect must not end the work for good
                self._supervisor.survive(self._part)
            return False
        return True
