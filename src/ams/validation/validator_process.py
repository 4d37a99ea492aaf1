"""The validator process: what may take long is checked in a process of its own, in limited time and memory.

One process, begun when it is first needed. Tasks wait in turn: each project has one task in the queue, so that
a project with many waits for itself.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import dataclass, field

import msgspec

from ams.core.errors import InvalidInput, Overloaded
from ams.validation.worker import LENGTH, READY, Refusal, Task, frame

SECONDS = 5.0
"""For one task."""
_START_SECONDS = 30.0
MAX_WAITING = 8
"""Tasks of one project that wait; more are refused."""
_LARGEST = 2**26
"""Bytes of an answer that are taken before they are read."""
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
"""No secret of the service is known to the process."""
_decode = msgspec.msgpack.Decoder(list[Refusal]).decode
_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class _Turn:
    """A project's place in the queue."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    tasks: int = 0


class ValidatorProcess:
    """The process, and the queue before it."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._process: asyncio.subprocess.Process | None = None
        self._turns: dict[Hashable, _Turn] = {}
        self._free = asyncio.Lock()
        self._closed = False

    async def check(self, project: Hashable, task: Task) -> Sequence[Refusal]:
        """Return the pieces of a task that are refused; the first only, unless all are asked for.

        Raises `InvalidInput` when that takes too long or too much memory, `Overloaded` when the project has too many
        tasks, when no process can be begun, and after `close`.
        """
        async with self._turn(project), self._free:
            return await self._ask(task)

    async def close(self) -> None:
        """End the process and with it the task under way."""
        self._closed = True
        await self._end()

    @contextlib.asynccontextmanager
    async def _turn(self, project: Hashable) -> AsyncIterator[None]:
        turn = self._turns.setdefault(project, _Turn())
        if turn.tasks > MAX_WAITING:
            raise Overloaded("Too many messages of this project wait for a long check")
        turn.tasks += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.tasks -= 1
            if not turn.tasks:
                del self._turns[project]

    async def _ask(self, task: Task) -> Sequence[Refusal]:
        if self._process is not None:
            with contextlib.suppress(EOFError, OSError):  # it was ended, perhaps long ago, from outside
                return await self._answer(self._process, task)
            await self._end()
        try:
            return await self._answer(await self._begin(), task)
        except (EOFError, OSError):
            await self._end()
            raise self._failure(task) from None

    async def _answer(self, process: asyncio.subprocess.Process, task: Task) -> Sequence[Refusal]:
        try:
            async with asyncio.timeout(self._seconds):
                return _decode(await _exchange(process, _encode(task)))
        except TimeoutError:
            await self._end()
            raise self._failure(task) from None
        except asyncio.CancelledError:  # the answer is no longer wanted
            await self._end()
            raise

    def _failure(self, task: Task) -> InvalidInput | Overloaded:
        return Overloaded("The service is stopping") if self._closed else InvalidInput(_too_long(task))

    async def _begin(self) -> asyncio.subprocess.Process:
        if self._closed:
            raise Overloaded("The service is stopping")
        try:
            self._process = await _begun()
            async with asyncio.timeout(_START_SECONDS):
                assert await _read(self._process) == READY
        except (OSError, EOFError, TimeoutError):
            await self._end()
            raise Overloaded("Messages that need a long check cannot be checked now") from None
        except asyncio.CancelledError:
            await self._end()
            raise
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(asyncio.ensure_future(_reaped(process)))


async def _begun() -> asyncio.subprocess.Process:
    known = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "ams.validation.worker", stdin=pipe, stdout=pipe, stderr=nowhere, env=known,
        limit=_LARGEST,
    )  # fmt: skip


async def _exchange(process: asyncio.subprocess.Process, content: bytes) -> bytes:
    assert process.stdin is not None
    process.stdin.writelines(frame(content))
    await process.stdin.drain()
    return await _read(process)


async def _read(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    length = int.from_bytes(await process.stdout.readexactly(LENGTH), "big")
    return await process.stdout.readexactly(length)


async def _reaped(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a process, and close what led to it."""
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()


def _too_long(task: Task) -> str:
    first, last = task.pieces[0].index, task.pieces[-1].index
    if first == last:
        return f"Message {first} takes too long or too much memory to check against the schema"
    return f"Messages {first} to {last} take too long or too much memory to check against the schema"
