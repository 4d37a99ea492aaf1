"""A pool of worker processes shared by all projects, each started when first needed.

The queue is fair: each project has at most one task in it, so a project with many tasks waits for itself. Tasks that
may take seconds are called long. They never occupy all workers, and a project's long tasks do not delay its other ones.
"""

import asyncio
import contextlib
import mmap
import os
import sys
from collections.abc import AsyncIterator, Hashable, Sequence
from weakref import WeakValueDictionary

import msgspec
import structlog

from ams.core import errors
from ams.core.errors import AmsError
from ams.workers.program import LENGTH, READY, SHARED_BYTES, Job, JobAnswer, Part, frame, name_of, parts_in

MAX_WORKERS = 4
MAX_JOB_BYTES = SHARED_BYTES // 4  # larger tasks are not worth a worker; leaves room for a larger result
_RESTART_SECONDS = 5.0  # pause after a failed start of a worker
_IDLE_SECONDS = 600.0  # idle workers end after it, except the last one: the next task need not wait for a start
_ATTEMPTS = 2  # a second one on another worker, as a process may have been killed from outside
_START_SECONDS = 30.0
_PASSED_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")  # no others: they may be secrets
_KEPT_MEMORY_BYTES = 2**24  # shared memory that a worker keeps; the rest is freed after a large task
_COPY_BYTES = 2**20  # bytes copied before yielding to the event loop
_decode = msgspec.msgpack.Decoder(JobAnswer).decode
_encode = msgspec.msgpack.Encoder().encode
logger = structlog.get_logger("ams.workers")


class NoWorker(Exception):
    """No worker can be started now, or the pool is closed; nothing was done."""


class TaskFailed(Exception):
    """A task exceeded its time or memory, or its processes were killed."""


class WorkerProcess:
    """A worker process and its shared memory. `start` starts one."""

    def __init__(self, process: asyncio.subprocess.Process, memory: mmap.mmap) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._memory, self._stdin, self._stdout = process, memory, process.stdin, process.stdout

    @classmethod
    async def start(cls) -> "WorkerProcess":
        """Start a process and wait until it is ready. Raises `OSError`, `EOFError` or `TimeoutError`."""
        handle = os.memfd_create("ams-worker", os.MFD_CLOEXEC)
        try:
            os.ftruncate(handle, SHARED_BYTES)
            memory = mmap.mmap(handle, SHARED_BYTES)
            known = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
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
                if await worker._read_frame() != READY:
                    raise EOFError
        except BaseException:
            await worker.end()
            raise
        return worker

    async def do(self, job: str, parts: Sequence[Part]) -> Sequence[memoryview]:
        """Return a result, in memory that the next task overwrites. Raises as the job, and `EOFError` or `OSError`."""
        place = 0
        for part in parts:
            view = memoryview(part)
            for start in range(0, len(view), _COPY_BYTES):
                if start:
                    await asyncio.sleep(0)
                piece = view[start : start + _COPY_BYTES]
                self._memory[place : place + len(piece)] = piece
                place += len(piece)
        self._stdin.writelines(frame(_encode((job, [len(part) for part in parts]))))
        await self._stdin.drain()
        sizes, kind, message = _decode(await self._read_frame())
        if kind:
            error: AmsError = getattr(errors, kind)(message)
            raise error
        return parts_in(memoryview(self._memory), sizes)

    def forget(self) -> None:
        """Free the memory of a completed large task."""
        self._memory.madvise(mmap.MADV_REMOVE, _KEPT_MEMORY_BYTES, SHARED_BYTES - _KEPT_MEMORY_BYTES)

    async def end(self) -> None:
        """Kill the process."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self._stdin.close()
        await asyncio.shield(asyncio.ensure_future(self.process.wait()))

    async def _read_frame(self) -> bytes:
        length = int.from_bytes(await self._stdout.readexactly(LENGTH), "big")
        return await self._stdout.readexactly(length)


class Pool:
    """The workers and their queue."""

    def __init__(self, size: int | None = None) -> None:
        """Start no worker yet; `size` is the maximum number of workers (None: number of processors, 2 to 4)."""
        self._size = size or min(max(os.cpu_count() or 1, 2), MAX_WORKERS)
        self._long = asyncio.Semaphore(max(self._size - 1, 1))
        self._turns: WeakValueDictionary[tuple[Hashable, bool], asyncio.Lock] = WeakValueDictionary()  # by project
        self._next = asyncio.Lock()  # held by the task that gets the next free worker
        self._idle: dict[WorkerProcess, asyncio.TimerHandle] = {}  # with the timer that ends each; last in, first out
        self._workers: dict[WorkerProcess, asyncio.Task[None]] = {}  # ready workers and the task that watches each
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._not_before = 0.0
        self.is_closed = False

    def is_ready(self, size: int = 0) -> bool:
        """Return whether a running worker can do a task of `size` bytes; if there is none, start one for later."""
        if size > MAX_JOB_BYTES:
            return False
        if not self._workers:
            self._begin_another()
        return bool(self._workers)

    @contextlib.asynccontextmanager
    async def run_job(
        self, project: Hashable, job: Job, parts: Sequence[Part], *, seconds: float, long: bool = False
    ) -> AsyncIterator[Sequence[memoryview]]:
        """Run a job; its result is valid in the block. Cancelling kills it. Raises as it, `NoWorker`, `TaskFailed`."""
        if sum(map(len, parts)) > SHARED_BYTES:
            raise TaskFailed
        turn = self._turns.setdefault((project, long), asyncio.Lock())
        async with turn, self._long if long else contextlib.nullcontext():
            worker, made = await self._run_job(name_of(job), parts, seconds)
            try:
                yield made
            finally:
                for part in made:
                    part.release()
                self._give_back(worker)

    async def close(self) -> None:
        """Kill all processes and their tasks."""
        self.is_closed = True
        self._changed.set()
        for starting in list(self._starting):
            starting.cancel()
        for worker in list(self._workers):
            await self._end(worker)
        if under_way := self._starting | self._ending:
            await asyncio.wait(under_way)

    async def _run_job(
        self, job: str, parts: Sequence[Part], seconds: float
    ) -> tuple[WorkerProcess, Sequence[memoryview]]:
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
            except asyncio.CancelledError:  # the result is no longer needed
                await self._end(worker)
                raise
            except BaseException:
                self._give_back(worker)
                raise
        raise TaskFailed

    async def _take(self) -> WorkerProcess:
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

    def _give_back(self, worker: WorkerProcess) -> None:
        if worker in self._workers:
            worker.forget()
            self._idle[worker] = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._let_go, worker)
            self._changed.set()

    def _let_go(self, worker: WorkerProcess) -> None:
        if len(self._workers) > 1 and self._remove_worker(worker):
            ending = asyncio.get_running_loop().create_task(worker.end())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    def _begin_another(self) -> None:
        loop = asyncio.get_running_loop()
        begun = len(self._workers) + len(self._starting)
        if self.is_closed or begun >= self._size or loop.time() < self._not_before:
            return
        starting = loop.create_task(self._begin())
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        starting.add_done_callback(lambda _: self._changed.set())

    async def _begin(self) -> None:
        try:
            worker = await WorkerProcess.start()
        except (OSError, EOFError) as error:
            self._not_before = asyncio.get_running_loop().time() + _RESTART_SECONDS
            logger.warning("worker.not_begun", reason=str(error) or type(error).__name__)
            return
        self._workers[worker] = asyncio.get_running_loop().create_task(self._watch(worker))
        self._give_back(worker)

    async def _watch(self, worker: WorkerProcess) -> None:
        """Remove a worker that ended by itself; the next task that needs one starts another."""
        code = await worker.process.wait()
        if self._remove_worker(worker):
            logger.warning("worker.ended", reason="it ended by itself", code=code)
            await worker.end()

    async def _end(self, worker: WorkerProcess) -> None:
        if self._remove_worker(worker):
            await worker.end()

    def _remove_worker(self, worker: WorkerProcess) -> bool:
        known = self._workers.pop(worker, None) is not None
        if timer := self._idle.pop(worker, None):
            timer.cancel()
        self._changed.set()
        return known
