"""Many things in one question: what is asked for while a question is under way goes into the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from ams.core.errors import LogUnavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")

AT_ONCE = 200
"""Things in one question."""


class Together(Generic[Item, Answer]):
    """Asks about many things at a time, one question after the other; an answer is a result, or an error to raise."""

    def __init__(self, ask: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception]]]) -> None:
        self._ask = ask
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Answer:
        """Return the answer for one thing, or raise its error, or the one of the question as a whole."""
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await done

    async def close(self) -> None:
        """Ask no more; who waits for an answer gets `LogUnavailable`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        part: list[tuple[Item, asyncio.Future[Answer]]] = []
        try:
            while self._waiting:
                part, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
                _tell(part, await self._answers([item for item, _ in part]))
        finally:
            self._task = None
            left, self._waiting = part + self._waiting, []
            _tell(left, [LogUnavailable()] * len(left))

    async def _answers(self, items: Sequence[Item]) -> Sequence[Answer | Exception]:
        try:
            return await self._ask(items)
        except Exception as error:
            return [error] * len(items)


def _tell(asked: Sequence[tuple[Item, "asyncio.Future[Answer]"]], answers: Sequence[Answer | Exception]) -> None:
    for (_, done), answer in zip(asked, answers, strict=True):
        if done.done():  # told already, or its caller left
            continue
        if isinstance(answer, Exception):
            done.set_exception(answer)
        else:
            done.set_result(answer)
