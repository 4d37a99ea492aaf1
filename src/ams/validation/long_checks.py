"""Long checks: slow checks run in worker processes, with limited time and memory.

Definitions in Protocol Buffers are compiled there too. `check_pieces` and `compile_definition` run in the worker
(`ams.workers`), `LongChecks` in the service.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from ams.core.errors import InvalidInput, Overloaded, refuse_if
from ams.core.messages import parse
from ams.validation.compiled import MAX_SCHEMA_BYTES, Candidate, compile_stored
from ams.validation.cost import Budget
from ams.validation.protobuf_compiler import compile_definition
from ams.workers.pool import NoWorker, Pool, TaskFailed
from ams.workers.program import Job

TASK_SECONDS = 5.0  # for one task
COMPILE_SECONDS = 20.0  # for a definition: the first one in a worker loads the compiler; processor time is limited too
MAX_WAITING = 8  # waiting tasks of one project; more are refused
_MAX_CACHED_REVISIONS = 16  # compiled revisions cached by a worker
_NO_CHECKER_TEXT = "Messages that need a long check cannot be checked now"
_NO_COMPILER_TEXT = "A schema in Protocol Buffers cannot be compiled now"
MESSAGE, DATA, PAYLOAD = "message", "data", "payload"


class Piece(msgspec.Struct, array_like=True):
    """A message (a fragment of `ams.core.messages`), its base64 data, or its payload. `index` is for error texts."""

    index: int
    form: str
    body: bytes


class Task(msgspec.Struct, array_like=True):
    """Pieces to check against a stored revision. `all`: go on after the first refusal."""

    type: str
    payload: str | None
    attributes: str | None
    pieces: Sequence[Piece]
    all: bool
    encoding: str = ""


class InvalidPiece(NamedTuple):
    """An invalid piece and the reason."""

    number: int
    text: str


_compile = lru_cache(_MAX_CACHED_REVISIONS)(compile_stored)


def check_task(task: Task) -> list[InvalidPiece]:
    """Return the refused pieces. Caches the revisions compiled last."""
    compiled, refused = _compile(task.type, task.payload, task.attributes, task.encoding), []
    for piece in task.pieces:
        try:
            compiled.check(piece.index, _candidate(piece), Budget())
        except InvalidInput as error:
            refused.append(InvalidPiece(piece.index, error.message))
            if not task.all:
                break
    return refused


def _candidate(piece: Piece) -> Candidate:
    if piece.form == MESSAGE:
        return parse(piece.body)
    return piece.body.decode() if piece.form == DATA else piece.body


_task = msgspec.msgpack.Decoder(Task).decode
_refusals = msgspec.msgpack.Decoder(list[InvalidPiece]).decode
_encode = msgspec.msgpack.Encoder().encode


def check_pieces(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Run a task in a worker: takes a task and returns its refusals, as MessagePack."""
    [task] = parts
    return [_encode(check_task(_task(task)))]


class LongChecks:
    """Checks by workers. The pool is shared; its owner closes it."""

    def __init__(self, pool: Pool, seconds: float = TASK_SECONDS) -> None:
        self._pool, self._seconds = pool, seconds
        self._tasks: Counter[Hashable] = Counter()

    async def check(self, project: Hashable, task: Task) -> Sequence[InvalidPiece]:
        """Return the refused pieces; only the first unless `task.all`. Raises `InvalidInput`, `Overloaded`."""
        try:
            return _refusals(await self._run_job(project, check_pieces, _encode(task), self._seconds, _NO_CHECKER_TEXT))
        except TaskFailed:
            first, last = task.pieces[0].index, task.pieces[-1].index
            which = f"Message {first} takes" if first == last else f"Messages {first} to {last} take"
            raise InvalidInput(f"{which} too long or too much memory to check against the schema") from None

    async def compile(self, project: Hashable, definition: str) -> bytes:
        """Return the descriptor of a definition in Protocol Buffers. Raises `InvalidInput`, `Overloaded`."""
        encoded = definition.encode()
        refuse_if(len(encoded) > MAX_SCHEMA_BYTES, f"Schema is too large: at most {MAX_SCHEMA_BYTES} bytes")
        try:
            return await self._run_job(project, compile_definition, encoded, COMPILE_SECONDS, _NO_COMPILER_TEXT)
        except TaskFailed:
            raise InvalidInput("Schema takes too long or too much memory to compile") from None

    async def _run_job(self, project: Hashable, job: Job, part: bytes, seconds: float, unavailable: str) -> bytes:
        if self._tasks[project] > MAX_WAITING:
            raise Overloaded("Too many messages of this project wait for a long check")
        self._tasks[project] += 1
        try:
            async with self._pool.run_job(project, job, [part], seconds=seconds, long=True) as [made]:
                return bytes(made)
        except NoWorker:
            raise Overloaded("The service is stopping" if self._pool.is_closed else unavailable) from None
        finally:
            self._tasks[project] -= 1
            if not self._tasks[project]:
                del self._tasks[project]
