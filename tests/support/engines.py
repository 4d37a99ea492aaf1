"""The real embedded engines in one folder, for tests of the layers above."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from ams.access.admission import Caller
from ams.core.supervisor import Supervisor
from ams.service.projects import Projects
from ams.service.push.configurations import Pushing
from ams.service.retention import Retention
from ams.service.stored_bytes import StoredBytes
from ams.service.subscriptions import Subscriptions
from ams.service.tallies import Counting, Counts
from ams.service.topics import Topics
from ams.storage.cursors.embedded import EmbeddedCursors
from ams.storage.files import Disk
from ams.storage.log.embedded import EmbeddedLog, LogOptions
from ams.storage.registry.registry import Registry
from tests.support.administration import open_registry, service
from tests.support.clock import ManualClock


@dataclass(frozen=True)
class Engines:
    """Engines and the use cases over them."""

    clock: ManualClock
    log: EmbeddedLog
    registry: Registry
    cursors: EmbeddedCursors
    counts: Counts
    counting: Counting
    retention: Retention

    @property
    def projects(self) -> Projects:
        return Projects(self.registry, self.log, self.cursors)

    @property
    def stored(self) -> StoredBytes:
        """Bytes of projects, without a limit."""
        return StoredBytes(self.registry, self.log, self.clock)

    @property
    def topics(self) -> Topics:
        return Topics(self.registry, self.log, self.counting, self.retention)

    @property
    def subscriptions(self) -> Subscriptions:
        return Subscriptions(self.registry, self.log, self.cursors, Pushing(self.registry))

    async def caller(self, project: str | None = "P") -> Caller:
        return await service(self.registry, project)


@contextlib.asynccontextmanager
async def open_engines(
    folder: Path, options: LogOptions | None = None, *, clock: ManualClock | None = None, files: Disk | None = None
) -> AsyncIterator[Engines]:
    """Open the engines in a folder, and close them at the end; `files` is the disk under the log."""
    clock = clock or ManualClock()
    async with contextlib.AsyncExitStack() as stack:
        options = options or LogOptions(min_free_bytes=0, reserve_bytes=0)
        log = await EmbeddedLog.open(str(folder / "log"), files=files, clock=clock, options=options)
        stack.push_async_callback(log.close)
        registry = await stack.enter_async_context(open_registry(folder, clock))
        ends = {topic: (await log.bounds(topic)).end for topic in await log.topics()}
        cursors = await EmbeddedCursors.open(log.journal, ends, clock, Supervisor())
        stack.push_async_callback(cursors.close)
        counts = Counts(clock)
        yield Engines(clock, log, registry, cursors, counts, Counting(registry, log, counts), Retention(registry, log))
