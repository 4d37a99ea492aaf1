"""Dry runs and other long work of a request: one at a time for each project, ended when its client has gone."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ams.core.errors import Conflict, Overloaded
from ams.core.names import ProjectId

T = TypeVar("T")


class DryRuns:
    """What runs now."""

    def __init__(self) -> None:
        self._running: dict[ProjectId, asyncio.Task[Any]] = {}
        self._stopping = False

    def __len__(self) -> int:
        return len(self._running)

    async def run(
        self, project: ProjectId, work: Coroutine[Any, Any, T], gone: "asyncio.Future[None] | None" = None
    ) -> T:
        """Do the work and return what it returns.

        Raises `Conflict` while the project has another under way, `Overloaded` at a stop, and is cancelled itself when
        `gone` is done first.
        """
        if self._stopping or project in self._running:
            work.close()
            raise self._refusal()
        task = asyncio.ensure_future(work)
        self._running[project] = task
        if gone is not None:
            gone.add_done_callback(lambda _: task.cancel())
        try:
            return await task
        except asyncio.CancelledError:
            if self._stopping:
                raise self._refusal() from None
            raise
        finally:
            del self._running[project]

    def stop(self) -> None:
        """End all; from now on none begins."""
        self._stopping = True
        for task in self._running.values():
            task.cancel()

    def _refusal(self) -> Conflict | Overloaded:
        if self._stopping:
            return Overloaded("The service is stopping")
        return Conflict("Another dry run of this project is under way")
