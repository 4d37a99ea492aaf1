"""Request coalescing: thousands of callers cost a broker or a database a few requests.

`SharedRequest` sends one request for all callers of a key. `BatchedRequest` sends one request for many items.
`SingleFlight` runs one task per key, which continues when one of its callers is cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Any, Generic, TypeVar

from ams.core.errors import LogUnavailable

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
Answer = TypeVar("Answer")
Item = TypeVar("Item")
MAX_ITEMS = 200  # of one batched request
PATIENCE = 0.2  # seconds that a request waits for the previous one before both run in parallel


class SharedRequest(Generic[Key, Answer]):
    """At most two requests at a time per key: one for callers before it was sent, one for later callers.

    With `join` later callers share the first request.
    """

    def __init__(self, ask: Callable[[Key], Awaitable[Answer]], *, join: bool = False) -> None:
        self._ask, self._join = ask, join
        self._sent: dict[Key, asyncio.Task[Answer]] = {}
        self._next: dict[Key, asyncio.Task[Answer]] = {}

    async def __call__(self, key: Key) -> Answer:
        """Return the answer to a request sent after this call (with `join` also a running one). Raises its error."""
        task = self._next.get(key) or (self._sent.get(key) if self._join else None)
        if task is None:
            task = self._next[key] = asyncio.create_task(self._send(key, self._sent.get(key)))
            task.add_done_callback(mark_seen)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise LogUnavailable from None
            raise

    async def close(self) -> None:
        """Ask no more; callers that wait for an answer get `LogUnavailable`."""
        await _cancel([*self._sent.values(), *self._next.values()])

    async def _send(self, key: Key, before: "asyncio.Task[Answer] | None") -> Answer:
        if before is not None:
            await asyncio.wait([before], timeout=PATIENCE)
        task = self._sent[key] = self._next.pop(key)
        try:
            return await self._ask(key)
        finally:
            if self._sent.get(key) is task:
                del self._sent[key]


def mark_seen(task: "asyncio.Task[Any]") -> None:
    """Mark a task's error as seen, so that asyncio does not log it when no caller waits any more."""
    if not task.cancelled():
        task.exception()


async def _cancel(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class BatchedRequest(Generic[Item, Answer]):
    """One request at a time for many items. The answer of an item is a result, or an error to raise."""

    def __init__(
        self, ask: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception]]], at_once: int = MAX_ITEMS
    ) -> None:
        self._ask, self._at_once = ask, at_once
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Answer:
        """Return the answer for an item. Raises its error, or that of the request."""
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._task is None:
            self._task = asyncio.create_task(self._send())
        return await done

    async def finish(self) -> None:
        """Wait until all items are answered."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def close(self) -> None:
        """Ask no more; callers that wait for an answer get `LogUnavailable`."""
        if self._task is not None:
            await _cancel([self._task])
        self._give_up([])  # a task cancelled before it first runs does not do it

    async def _send(self) -> None:
        part: list[tuple[Item, asyncio.Future[Answer]]] = []
        try:
            while self._waiting:
                part, self._waiting = self._waiting[: self._at_once], self._waiting[self._at_once :]
                try:
                    answers = await self._ask([item for item, _ in part])
                except Exception as error:
                    answers = [error] * len(part)
                _deliver(part, answers)
        finally:
            self._task = None
            self._give_up(part)

    def _give_up(self, part: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        left, self._waiting = part + self._waiting, []
        _deliver(left, [LogUnavailable()] * len(left))


def _deliver(asked: Sequence[tuple[Item, "asyncio.Future[Answer]"]], answers: Sequence[Answer | Exception]) -> None:
    for (_, done), answer in zip(asked, answers, strict=True):
        answer_future(done, answer)


def answer_future(future: "asyncio.Future[Any]", outcome: object) -> None:
    """Give a future its result, or its error if the outcome is an exception, unless its caller left."""
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


class SingleFlight(Generic[Key, Result]):
    """Running tasks, by their key."""

    def __init__(self) -> None:
        self._going_on: dict[Key, asyncio.Task[Result]] = {}

    async def result(self, key: Key, begin: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result of the task for `key`, started by `begin` if there is none. Raises the task's error."""
        return await asyncio.shield(self.start(key, begin))

    def start(self, key: Key, begin: Callable[[], Coroutine[Any, Any, Result]]) -> "asyncio.Task[Result]":
        """Return the task for `key`, started by `begin` if there is none."""
        task = self._going_on.get(key)
        if task is None:
            task = self._going_on[key] = asyncio.create_task(begin())
            task.add_done_callback(lambda _: self._going_on.pop(key, None))
            task.add_done_callback(mark_seen)
        return task

    def __contains__(self, key: Key) -> bool:
        return key in self._going_on

    async def close(self) -> None:
        """Cancel all tasks."""
        await _cancel(list(self._going_on.values()))
