"""Pools of workers for tests: one that counts finished tasks, and one whose workers always fail."""

from typing import Any

from ams.workers.pool import Pool
from tests.support.waiting import wait_until_async


class CountedPool(Pool):
    """A pool of one worker that counts its finished tasks."""

    tasks = 0

    def __init__(self) -> None:
        super().__init__(1)

    def run_job(self, *args: Any, **others: Any) -> Any:
        self.tasks += 1
        return super().run_job(*args, **others)


class FailingPool(Pool):
    """A pool whose workers always fail."""

    def __init__(self, error: Exception) -> None:
        super().__init__(1)
        self._error = error

    def is_ready(self, size: int = 0) -> bool:
        return True

    def run_job(self, *_: Any, **__: Any) -> Any:
        raise self._error


async def ready_pool() -> CountedPool:
    """Return a pool whose worker has begun; the caller closes it."""
    pool = CountedPool()
    await wait_until_async(pool.is_ready)
    return pool
