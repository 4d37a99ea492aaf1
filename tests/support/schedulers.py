"""Fair schedulers independent of the time, for deterministic tests."""

import asyncio

from ams.web.fair_scheduler import FairScheduler


def at_once() -> FairScheduler:
    """Return one whose event loop iterations never end, so that nothing waits."""
    return FairScheduler(lambda: 0.0)


class AllWaits(FairScheduler):
    """A scheduler that makes everything wait for its turn."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)

    @property
    def free(self) -> int:
        return 0

    @free.setter
    def free(self, _: int) -> None:
        pass

    def must_wait(self, loop: asyncio.AbstractEventLoop) -> bool:
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._go_on, loop)
        return True
