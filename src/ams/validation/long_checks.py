"""Long checks: what may take long is checked by worker processes, in limited time and memory."""

from collections import Counter
from collections.abc import Hashable, Sequence

import msgspec

from ams.core.errors import InvalidInput, Overloaded
from ams.validation.checker import Refusal, Task, check_pieces
from ams.workers import NoWorker, Pool, TaskFailed

SECONDS = 5.0
"""For one task."""
MAX_WAITING = 8
"""Tasks of one project that wait; more are refused."""
_decode = msgspec.msgpack.Decoder(list[Refusal]).decode
_encode = msgspec.msgpack.Encoder().encode


class LongChecks:
    """Checks that workers do. The pool is shared with others, and closed by whom it belongs to."""

    def __init__(self, pool: Pool, seconds: float = SECONDS) -> None:
        self._pool = pool
        self._seconds = seconds
        self._tasks: Counter[Hashable] = Counter()

    async def check(self, project: Hashable, task: Task) -> Sequence[Refusal]:
        """Return the pieces of a task that are refused; the first only, unless all are asked for.

        Raises `InvalidInput` when that takes too long or too much memory, `Overloaded` when the project has too many
        tasks, when no process can be begun, and when the pool is closed.
        """
        if self._tasks[project] > MAX_WAITING:
            raise Overloaded("Too many messages of this project wait for a long check")
        self._tasks[project] += 1
        try:
            return await self._check(project, task)
        except NoWorker:
            raise Overloaded(self._why_not()) from None
        except TaskFailed:
            raise InvalidInput(_too_long(task)) from None
        finally:
            self._tasks[project] -= 1
            if not self._tasks[project]:
                del self._tasks[project]

    async def _check(self, project: Hashable, task: Task) -> Sequence[Refusal]:
        parts = [_encode(task)]
        async with self._pool.done(project, check_pieces, parts, seconds=self._seconds, long=True) as [refused]:
            return _decode(refused)

    def _why_not(self) -> str:
        if self._pool.is_closed:
            return "The service is stopping"
        return "Messages that need a long check cannot be checked now"


def _too_long(task: Task) -> str:
    first, last = task.pieces[0].index, task.pieces[-1].index
    if first == last:
        return f"Message {first} takes too long or too much memory to check against the schema"
    return f"Messages {first} to {last} take too long or too much memory to check against the schema"
