"""Rounds that do not go by the time, so that tests do not either."""

import asyncio

from ams.http.rounds import Rounds


def at_once() -> Rounds:
    """Return rounds in which no turn of the event loop is ever over, so that nothing waits."""
    return Rounds(lambda: 0.0)


class AllWaits(Rounds):
    """Rounds in which everything waits for its turn."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)

    @property
    def free(self) -> int:
        """Nothing is done at once."""
        return 0

    @free.setter
    def free(self, _: int) -> None:
        pass

    def is_over(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Let this wait too."""
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._go_on, loop)
        return True
