"""Turns: what is short by itself, but may be due many times at once, is done once in each turn of the event loop."""

import asyncio
from collections import deque


class Turns:
    """Lets one of those who wait go on in each turn of the event loop, in the order they came.

    Between two of them all else goes on that is due by then, so that it waits for one of them at most.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self) -> None:
        """Return in a turn of the event loop in which nobody else does; not in this one."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._next)
        await turn

    def _next(self) -> None:
        while self._waiting and self._waiting[0].done():  # its caller was cancelled
            self._waiting.popleft()
        if not self._waiting:
            return
        # It stays the first until its turn is over, so that who comes meanwhile does not call this once more.
        self._waiting[0].set_result(None)
        asyncio.get_running_loop().call_soon(self._next)
