"""Turns: what is short by itself, but may be due many times at once, is done once in each turn of the event loop."""

import asyncio
from collections import deque


class Turns:
    """Lets one of those who wait go on in each turn of the event loop, in the order they came.

    Between two of them all else goes on that is due by then, so that it waits for one of them at most. With
    `every` one goes on in so many turns, and who needs several turns waits for one of them too.
    """

    def __init__(self, every: int = 1) -> None:
        self._every = every
        self._passed = every - 1
        """Turns since one went on; no more are counted than it takes for the next."""
        self._is_due = False
        """Whether `_next` will be called."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self) -> None:
        """Return in a turn of the event loop in which nobody else does; not in this one."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._next)
        await turn

    def _next(self) -> None:
        while self._waiting and self._waiting[0].done():  # its caller was cancelled
            self._waiting.popleft()
        self._passed += 1
        if self._waiting and self._passed >= self._every:
            self._waiting.popleft().set_result(None)
            self._passed = 0
        self._is_due = bool(self._waiting) or self._passed < self._every - 1
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._next)
