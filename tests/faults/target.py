"""The service under fire: a real process that is killed and started again on the same folder."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.service import LiveService, live_service

SMALL = {
    "AMS_MIN_FREE_BYTES": "0",
    "AMS_RESERVE_BYTES": "0",
    "AMS_SEGMENT_BYTES": "1MiB",
    "AMS_PULL_WAIT": "300ms",
    "AMS_LOG_LEVEL": "warning",
}
"""Settings for short lives: segments are sealed and indexed often, waiting pulls end soon."""


class Target:
    def __init__(self, data: Path, environment: Mapping[str, str] = SMALL, *, program: str = "ams.cli.main") -> None:
        self.data = data
        self.up = asyncio.Event()
        self.deaths = 0
        self.starts: list[float] = []
        self.restarts: list[float] = []
        self._environment = dict(environment)
        self._program = program
        self._stack = contextlib.ExitStack()
        self._live: LiveService | None = None

    @property
    def live(self) -> LiveService:
        assert self._live is not None
        return self._live

    def told(self, line: str) -> int:
        return (self.data.parent / f"{self.data.name}.stderr").read_text().splitlines().count(line)

    async def start(self) -> None:
        began = time.perf_counter()
        manager = live_service(self.data, environment=self._environment, program=self._program)
        self._live = await asyncio.to_thread(self._stack.enter_context, manager)
        self.starts.append(time.perf_counter() - began)
        if self.deaths:
            self.restarts.append(time.monotonic())
        self.up.set()

    async def kill(self) -> None:
        """SIGKILL it now; returns when it is gone."""
        self.up.clear()
        self.deaths += 1
        self.live.process.kill()
        await self.stop()

    async def terminate(self) -> int:
        """SIGTERM it now; returns its exit code when it is gone."""
        self.up.clear()
        self.deaths += 1
        code = await asyncio.to_thread(self.live.stop)
        await self.stop()
        return code

    async def stop(self) -> None:
        self.up.clear()
        await asyncio.to_thread(self._stack.close)
