"""The pool: a few worker processes for all projects, each begun when it is first needed.

Tasks wait in turn: a project has one task at a time in the queue before the workers, so that a project with many waits
for itself. What may take seconds is called long: it is never done by all workers at once, so that the rest goes on, and
a project's long tasks do not keep its other ones waiting.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import dataclass, field

import structlog

from ams.workers.program import SHARED, Job, Part, name_of
from ams.workers.worker import Worker

MOST_WORKERS = 4
_AGAIN_SECONDS = 5.0
"""After this long it is tried again to begin a worker when one could not be begun."""
_IDLE_SECONDS = 600.0
"""After this long without a task a worker is ended, all but the last one: who comes next would have to wait for it."""
LARGEST = SHARED // 4
"""Bytes of a task that is better done by a worker: what comes of it may be larger."""
_ATTEMPTS = 2
"""A process may have been ended from outside, perhaps long ago: another one does the task then."""

logger = structlog.get_logger("ams.workers")


class NoWorker(Exception):
    """No process can be begun now, or the pool is closed; nothing was done."""


class TaskFailed(Exception):
    """A task took too long, or more memory than a worker has for it, or its processes were ended."""


@dataclass(slots=True)
class _Turn:
    """A project's place in the queue."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    tasks: int = 0


class Pool:
    """The workers, and the queue before them."""

    def __init__(self, size: int | None = None) -> None:
        """Begin nothing yet; `size` is the most workers at once, absent: by the processors there are, 2 to 4."""
        self._size = size or min(max(os.cpu_count() or 1, 2), MOST_WORKERS)
        self._long = asyncio.Semaphore(max(self._size - 1, 1))
        self._turns: dict[tuple[Hashable, bool], _Turn] = {}
        self._next = asyncio.Lock()
        """Of the task that gets the next free worker."""
        self._idle: dict[Worker, asyncio.TimerHandle] = {}
        """Who has nothing to do, and when it is ended; the last one is used first."""
        self._workers: dict[Worker, asyncio.Task[None]] = {}
        """All that are ready, and who watches each."""
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._not_before = 0.0
        self.is_closed = False

    def is_ready(self, size: int = 0) -> bool:
        """Whether a worker could do a task of so many bytes without being begun first; if not, begin one for later."""
        if size > LARGEST:
            return False
        if not self._workers:
            self._begin_another()
        return bool(self._workers)

    @contextlib.asynccontextmanager
    async def done(
        self, project: Hashable, job: Job, parts: Sequence[Part], *, seconds: float, long: bool = False
    ) -> AsyncIterator[Sequence[memoryview]]:
        """Give what a job makes of the parts; it is gone when the block ends, and so is the project's turn.

        `seconds` are allowed for the job. Raises what the job does, `NoWorker`, and `TaskFailed`. Who is cancelled ends
        the job.
        """
        if sum(map(len, parts)) > SHARED:
            raise TaskFailed
        async with self._turn(project, long), self._long if long else contextlib.nullcontext():
            worker, made = await self._made(name_of(job), parts, seconds)
            try:
                yield made
            finally:
                for part in made:
                    part.release()
                self._give_back(worker)

    async def close(self) -> None:
        """End all processes, and with them the tasks under way."""
        self.is_closed = True
        self._changed.set()
        for starting in list(self._starting):
            starting.cancel()
        for worker in list(self._workers):
            await self._end(worker)
        if under_way := self._starting | self._ending:
            await asyncio.wait(under_way)

    @contextlib.asynccontextmanager
    async def _turn(self, project: Hashable, long: bool) -> AsyncIterator[None]:
        turn = self._turns.setdefault((project, long), _Turn())
        turn.tasks += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.tasks -= 1
            if not turn.tasks:
                del self._turns[project, long]

    async def _made(self, job: str, parts: Sequence[Part], seconds: float) -> tuple[Worker, Sequence[memoryview]]:
        for _ in range(_ATTEMPTS):
            worker = await self._take()
            try:
                async with asyncio.timeout(seconds):
                    return worker, await worker.do(job, parts)
            except (EOFError, OSError) as error:
                await self._end(worker)
                if self.is_closed:
                    raise NoWorker from None
                if isinstance(error, TimeoutError):
                    logger.warning("worker.ended", job=job, reason="it took too long", seconds=seconds)
                    raise TaskFailed from None
            except asyncio.CancelledError:  # what it does is no longer wanted
                await self._end(worker)
                raise
            except BaseException:
                self._give_back(worker)
                raise
        raise TaskFailed

    async def _take(self) -> Worker:
        async with self._next:
            while not self._idle:
                self._begin_another()
                if self.is_closed or not (self._workers or self._starting):
                    raise NoWorker
                self._changed.clear()
                await self._changed.wait()
            worker, timer = self._idle.popitem()
            timer.cancel()
            return worker

    def _give_back(self, worker: Worker) -> None:
        if worker in self._workers:
            worker.forget()
            self._rest(worker)
            self._changed.set()

    def _rest(self, worker: Worker) -> None:
        self._idle[worker] = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._let_go, worker)

    def _let_go(self, worker: Worker) -> None:
        """End a worker that was idle for long, unless it is the last one."""
        if len(self._workers) > 1 and self._strike(worker):
            ending = asyncio.get_running_loop().create_task(worker.end())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    def _begin_another(self) -> None:
        """Begin one more worker in the background, if there may be one more."""
        loop = asyncio.get_running_loop()
        begun = len(self._workers) + len(self._starting)
        if self.is_closed or begun >= self._size or loop.time() < self._not_before:
            return
        starting = loop.create_task(self._begin())
        self._starting.add(starting)
        starting.add_done_callback(self._begun)

    async def _begin(self) -> None:
        try:
            worker = await Worker.begun()
        except (OSError, EOFError) as error:
            self._not_before = asyncio.get_running_loop().time() + _AGAIN_SECONDS
            logger.warning("worker.not_begun", reason=str(error) or type(error).__name__)
            return
        self._workers[worker] = asyncio.get_running_loop().create_task(self._watch(worker))
        self._rest(worker)

    def _begun(self, starting: "asyncio.Task[None]") -> None:
        self._starting.discard(starting)
        self._changed.set()

    async def _watch(self, worker: Worker) -> None:
        """Strike a worker off that ended by itself; the next task that needs it has another begun."""
        code = await worker.ended()
        if self._strike(worker):
            logger.warning("worker.ended", reason="it ended by itself", code=code)
            await worker.end()

    async def _end(self, worker: Worker) -> None:
        if self._strike(worker):
            await worker.end()

    def _strike(self, worker: Worker) -> bool:
        """Forget a worker; return whether it was known."""
        known = self._workers.pop(worker, None) is not None
        if timer := self._idle.pop(worker, None):
            timer.cancel()
        self._changed.set()
        return known
