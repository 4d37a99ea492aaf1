"""One worker process, as the service sees it: begun, asked for one thing at a time, ended."""

import asyncio
import contextlib
import mmap
import os
import sys
from collections.abc import Sequence

import msgspec

from ams.core import errors
from ams.core.errors import AmsError
from ams.workers.program import LENGTH, READY, SHARED, Answer, Part, Task, frame, parts_in

_START_SECONDS = 30.0
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
"""No secret of the service is known to the process."""
_KEPT_MEMORY = 2**24
"""Bytes of shared memory that stay with a worker; what a larger task took is given back."""
_STEP = 2**20
"""Bytes that are copied between two looks at what else is to be done."""
_decode = msgspec.msgpack.Decoder(Answer).decode
_encode = msgspec.msgpack.Encoder().encode


class Worker:
    """A process, and the memory shared with it. `begun` makes one."""

    def __init__(self, process: asyncio.subprocess.Process, memory: mmap.mmap) -> None:
        self._process = process
        self._memory = memory

    @classmethod
    async def begun(cls) -> "Worker":
        """Begin a process and wait until it is ready; raises `OSError`, `EOFError` or `TimeoutError`."""
        handle = os.memfd_create("ams-worker", os.MFD_CLOEXEC)
        try:
            os.ftruncate(handle, SHARED)
            memory = mmap.mmap(handle, SHARED)
            worker = cls(await _begun(handle), memory)
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
        """Return what a job makes of the parts, of `SHARED` bytes at most, in memory that the next task writes over.

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
            raise _error(answer)
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
        await asyncio.shield(asyncio.ensure_future(self._reaped()))

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

    async def _reaped(self) -> None:
        """Wait for the end of the process, and close what led to it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()


async def _begun(handle: int) -> asyncio.subprocess.Process:
    known = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "ams.workers.program", str(handle), stdin=pipe, stdout=pipe, stderr=nowhere,
        env=known, pass_fds=(handle,),
    )  # fmt: skip


def _error(answer: Answer) -> AmsError:
    made: AmsError = getattr(errors, answer.error)(answer.message)
    return made
