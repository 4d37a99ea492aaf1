"""A cursor store under test that can be closed and opened again, and shared test helpers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from ams.core.clock import Milliseconds
from ams.core.names import Offset, TopicId
from ams.core.supervisor import Supervisor
from ams.storage.cursors.acks import AckProgress, AckUpdate, CursorStore
from ams.storage.cursors.embedded import EmbeddedCursors
from ams.storage.cursors.postgresql import PostgresCursors
from ams.storage.cursors.postgresql_rows import DatabaseTime
from ams.storage.log.embedded import EmbeddedLog
from tests.storage.log.engines import Embedded
from tests.support.clock import ManualClock

SUB = "sub-1"
TOPIC = b"t" * 16
OTHER_TOPIC = b"o" * 16
DEADLINE = 10_000
END = 1_000
SteadyNodes = tuple[asyncio.Runner, ManualClock, list[PostgresCursors]]
Nodes = list[PostgresCursors]


class Store:
    """A store under test that can be closed and opened again."""

    def __init__(self, opener: Callable[[ManualClock], Awaitable[CursorStore]]) -> None:
        self.clock = ManualClock()
        self._opener = opener
        self.cursors: CursorStore

    async def open(self) -> CursorStore:
        self.cursors = await self._opener(self.clock)
        return self.cursors

    async def restart(self) -> CursorStore:
        await self.cursors.close()
        return await self.open()


class CursorsInLog(EmbeddedCursors):
    """Cursors with their own log, which closes with them."""

    log: EmbeddedLog

    async def close(self) -> None:
        await super().close()
        await self.log.close()


async def cursors_in(engine: Embedded, ends: Mapping[TopicId, Offset]) -> CursorsInLog:
    log = await engine.open()
    try:
        cursors = await CursorsInLog.open(log.journal, ends, engine.clock, Supervisor())
    except BaseException:
        await log.close()
        raise
    cursors.log = log
    return cursors


class StandingTime(DatabaseTime):
    """A clock of ours for deadlines, as the database's cannot be moved."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._passing = clock

    def now(self) -> Milliseconds:
        return self._passing.monotonic()

    def at(self, moment: Milliseconds) -> Milliseconds:
        return moment


def make_change(*ranges: tuple[int, int]) -> AckUpdate:
    return AckUpdate([(begin, end) for begin, end in ranges])


async def settle(cursors: CursorStore, taken: AckProgress, change: AckUpdate) -> bool:
    return await cursors.settle(SUB, taken.epoch, taken.run, change)
