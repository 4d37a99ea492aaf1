"""The pool: a few worker processes for all projects, each begun when it is first needed.

Tasks wait in turn: a project has one task at a time in the queue before the workers, so that a project with many waits
for itself. A task that may take seconds is called long: such tasks never have all workers at once, so that the rest
goes on, and a project's long tasks do not keep its other ones waiting.
"""

import asyncio
import contextlib
import mmap
import os
import sys
from collections.abc import AsyncIterator, Hashable, Sequence

import msgspec
import structlog

from ams.core import errors
from ams.core.errors import AmsError
from ams.workers.program import LENGTH, READY, SHARED, Answer, Job, Part, Task, frame, name_of, parts_in

MOST_WORKERS = 4
LARGEST = SHARED // 4  # bytes of a task that is better done by a worker: its result may be larger
_AGAIN_SECONDS = 5.0  # after this long it is tried again to begin a worker when one could not be begun
_IDLE_SECONDS = 600.0
"""After this long without a task a worker is ended, all but the last one: the next task would have to wait for it."""
_ATTEMPTS = 2  # a process may have been ended from outside, perhaps long ago: another one does the task then
_START_SECONDS = 30.0
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
"""No secret of the service is known to a worker."""
_KEPT_MEMORY = 2**24  # bytes of shared memory that stay with a worker; the rest of a larger task is given back
_STEP = 2**20  # bytes that are copied before other coroutines have a turn
_decode = msgspec.msgpack.Decoder(Answer).decode
_encode = msgspec.msgpack.Encoder().encode

logger = structlog.get_logger("ams.workers")


class NoWorker(Exception):
    """No process can be begun now, or the pool is closed; nothing was done."""


class TaskFailed(Exception):
    """A task took too long, or more memory than a worker has for it, or its processes were ended."""


class Worker:
    """A process, and the memory shared with it. `begun` makes one."""

    def __init__(self, process: asyncio.subprocess.Process, memory: mmap.mmap) -> None:
        self._process, self._memory = process, memory

    @classmethod
    async def begun(cls) -> "Worker":
        """Begin a process and wait until it is ready; raises `OSError`, `EOFError` or `TimeoutError`."""
        handle = os.memfd_create("ams-worker", os.MFD_CLOEXEC)
        try:
            os.ftruncate(handle, SHARED)
            memory = mmap.mmap(handle, SHARED)
            known = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
            pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "ams.workers.program", str(handle), stdin=pipe, stdout=pipe, stderr=nowhere,
                env=known, pass_fds=(handle,),
            )  # fmt: skip
            worker = cls(process, memory)
        finally:
            os.close(handle)
        try:
            async with asyncio.timeout(_START_SECONDS):
                if await worker._read() != READY:
                    raise EOFError
        except BaseException:
            await worker.end()
            raise
        return worker

    async def do(self, job: str, parts: Sequence[Part]) -> Sequence[memoryview]:
        """Return the result of a job, in memory that the next task writes over.

        Raises the `AmsError` of the job, and `EOFError` or `OSError` when the process is gone.
        """
        sizes = [len(part) for part in parts]
        await self._copy(parts)
        stdin = self._process.stdin
        assert stdin is not None
        stdin.writelines(frame(_encode(Task(job, sizes))))
        await stdin.drain()
        answer = _decode(await self._read())
        if answer.error:
            error: AmsError = getattr(errors, answer.error)(answer.message)
            raise error
        return parts_in(memoryview(self._memory), answer.sizes)

    def forget(self) -> None:
        """Give back the memory of a large task that is done."""
        self._memory.madvise(mmap.MADV_REMOVE, _KEPT_MEMORY, SHARED - _KEPT_MEMORY)

    async def ended(self) -> int:
        """Wait for the end of the process; return its exit code, a signal's number below zero."""
        return await self._process.wait()

    async def end(self) -> None:
        """End the process, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await asyncio.shield(asyncio.ensure_future(self._process.wait()))

    async def _copy(self, parts: Sequence[Part]) -> None:
        place = 0
        for part in parts:
            view = memoryview(part)
            for start in range(0, len(view), _STEP):
                if start:
                    await asyncio.sleep(0)
                piece = view[start : start + _STEP]
                self._memory[place : place + len(piece)] = piece
                place += len(piece)

    async def _read(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        length = int.from_bytes(await stdout.readexactly(LENGTH), "big")
        return await stdout.readexactly(length)


class Pool:
    """The workers, and the queue before them."""

    def __init__(self, size: int | None = None) -> None:
        """Begin nothing yet; `size` is the most workers at once, absent: by the processors there are, 2 to 4."""
        self._size = size or min(max(os.cpu_count() or 1, 2), MOST_WORKERS)
        self._long = asyncio.Semaphore(max(self._size - 1, 1))
        self._turns: dict[tuple[Hashable, bool], tuple[asyncio.Lock, int]] = {}
        """The place of each project in the queue, and how many tasks are at it."""
        self._next = asyncio.Lock()  # of the task that gets the next free worker
        self._idle: dict[Worker, asyncio.TimerHandle] = {}
        """Workers without a task, and the timer that ends each; the last one is used first."""
        self._workers: dict[Worker, asyncio.Task[None]] = {}  # all that are ready, and the task that watches each
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._not_before = 0.0
        self.is_closed = False

    def is_ready(self, size: int = 0) -> bool:
        """Return whether a worker that runs could do a task of so many bytes; if not, begin one for later."""
        if size > LARGEST:
            return False
        if not self._workers:
            self._begin_another()
        return bool(self._workers)

    @contextlib.asynccontextmanager
    async def done(
        self, project: Hashable, job: Job, parts: Sequence[Part], *, seconds: float, long: bool = False
    ) -> AsyncIterator[Sequence[memoryview]]:
        """Give the result of a job, until the block ends; cancelling ends the job.

        Raises the job's errors, `NoWorker`, and `TaskFailed`, also after so many seconds.
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
        key = (project, long)
        lock, tasks = self._turns.get(key, (asyncio.Lock(), 0))
        self._turns[key] = lock, tasks + 1
        try:
            async with lock:
                yield
        finally:
            lock, tasks = self._turns.pop(key)
            if tasks > 1:
                self._turns[key] = lock, tasks - 1

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
            self._idle[worker] = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._let_go, worker)
            self._changed.set()

    def _let_go(self, worker: Worker) -> None:
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
        loop = asyncio.get_running_loop()
        self._workers[worker] = loop.create_task(self._watch(worker))
        self._idle[worker] = loop.call_later(_IDLE_SECONDS, self._let_go, worker)

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
