"""Single flight: one task for all who want the same. A caller that stops waiting does not end it for the others."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Shared(Generic[Key, Result]):
    """Running tasks, by their key."""

    def __init__(self) -> None:
        self._going_on: dict[Key, asyncio.Task[Result]] = {}

    async def result(self, key: Key, begin: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result of the task for `key`, or raise its error; `begin` it if there is none."""
        return await asyncio.shield(self.start(key, begin))

    def start(self, key: Key, begin: Callable[[], Coroutine[Any, Any, Result]]) -> "asyncio.Task[Result]":
        """Return the task for `key`, without waiting for it; `begin` it if there is none."""
        task = self._going_on.get(key)
        if task is None:
            task = self._going_on[key] = asyncio.create_task(begin())
            task.add_done_callback(lambda done: self._end(key, done))
        return task

    def __contains__(self, key: Key) -> bool:
        return key in self._going_on

    async def close(self) -> None:
        """End all of them."""
        tasks = list(self._going_on.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, key: Key, task: "asyncio.Task[Result]") -> None:
        self._going_on.pop(key, None)
        if not task.cancelled():
            task.exception()  # looked at, so that an error which is not waited for is not logged
