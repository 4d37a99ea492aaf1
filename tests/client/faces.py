"""One face for both clients: the asyncio client runs in another thread's loop, so that one suite tests both."""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

from ams.client import AsyncClient, Client

FACES = ["threads", "asyncio"]


@contextlib.contextmanager
def open_client(face: str, *args: Any, by_certificate: bool = False, **options: Any) -> Iterator[Any]:
    """Open a client of this face; the caller awaits its awaitables."""
    if face == "threads":
        with (Client.from_certificate if by_certificate else Client)(*args, **options) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        opened = AsyncClient.from_certificate if by_certificate else AsyncClient
        made: Any = opened(*args, **options)
        driven = BlockingWrapper(runner, runner.run(made) if by_certificate else made)
        try:
            yield driven
        finally:
            driven.close()


class BlockingWrapper:
    """Wraps the asyncio client: its methods are called like blocking ones."""

    def __init__(self, runner: asyncio.Runner, target: Any) -> None:
        self._runner, self._target = runner, target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return self._caller(found) if callable(found) else found

    def _caller(self, method: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            if inspect.iscoroutine(result):
                return self._runner.run(result)
            if isinstance(result, AsyncIterator):
                return self._items(result)
            return BlockingWrapper(self._runner, result)

        return call

    def _items(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(items)

        while True:
            try:
                item = self._runner.run(following())
            except StopAsyncIteration:
                return
            yield item
