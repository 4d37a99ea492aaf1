"""One question for many: as a rule, a call is answered by a question that was asked after the call began."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ams.core.errors import LogUnavailable

Key = TypeVar("Key")
Answer = TypeVar("Answer")

PATIENCE = 0.2
"""Seconds a question waits for the one before it; then it is asked beside it."""


class Shared(Generic[Key, Answer]):
    """Asks a question at most twice at a time: once for who came before it was sent, once for all who came since.

    With `join` also who came since takes the answer to the one that is out.
    """

    def __init__(self, ask: Callable[[Key], Awaitable[Answer]], *, join: bool = False) -> None:
        self._ask = ask
        self._join = join
        self._sent: dict[Key, asyncio.Task[Answer]] = {}
        self._next: dict[Key, asyncio.Task[Answer]] = {}

    async def __call__(self, key: Key) -> Answer:
        """Return the answer to a question that is asked from now on (or is out), or raise what it raised."""
        task = self._next.get(key) or (self._sent.get(key) if self._join else None)
        if task is None:
            task = self._next[key] = asyncio.create_task(self._run(key, self._sent.get(key)))
            task.add_done_callback(_looked_at)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise LogUnavailable from None
            raise

    async def close(self) -> None:
        """Ask no more; who waits for an answer gets `LogUnavailable`."""
        tasks = [*self._sent.values(), *self._next.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: Key, before: "asyncio.Task[Answer] | None") -> Answer:
        if before is not None:
            await asyncio.wait([before], timeout=PATIENCE)
        task = self._sent[key] = self._next.pop(key)
        try:
            return await self._ask(key)
        finally:
            if self._sent.get(key) is task:
                del self._sent[key]


def _looked_at(task: "asyncio.Task[Answer]") -> None:
    """Note that an error was seen, also when all who waited for it have gone."""
    if not task.cancelled():
        task.exception()
