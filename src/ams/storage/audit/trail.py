"""Recording: what services tell the audit log.

An event is a line of the file before `record` returns. The table gets it from there, in batches and in the order of
the file, whenever the database can take it: what is in the table is always a beginning of the file. So a start finds
what is missing by looking back from the end of the file for a line that the table has.
"""

import asyncio
import contextlib
import os
from collections import deque
from typing import Protocol

import structlog

from ams.core.clock import DAY, Clock, Milliseconds
from ams.core.errors import AmsError
from ams.core.supervisor import Supervisor
from ams.storage.audit.event import AuditEvent, fitting
from ams.storage.audit.lines import LineFile, portions_from_the_end, rotated
from ams.storage.audit.records import AuditRecords

BATCH_SECONDS = 1.0
"""How often the table is written to, at most, while there is something new."""
PRUNE_SECONDS = 3600.0
AT_THE_END_SECONDS = 2.0
"""How long a stop waits for the database; the next start brings in what is left."""
TABLE, PRUNING = "audit table", "pruning of the audit table"
UNWRITTEN = 1000
"""Most events kept for the table alone while the file cannot be written."""

logger = structlog.get_logger("ams.audit")


class Trail(Protocol):
    """Where events are recorded."""

    async def record(self, event: AuditEvent) -> None:
        """Record an event: when this returns, its line is in the file. Never raises; what goes wrong is logged."""
        ...


class FileTrail:
    """A trail of a file and the table that follows it. `days` is how long the table keeps events; 0 is for ever."""

    def __init__(self, path: str, records: AuditRecords, clock: Clock, *, days: int = 0) -> None:
        self._path = path
        self._lines = LineFile(path)
        self._records = records
        self._clock = clock
        self._days = days
        self._news = asyncio.Event()
        self._unwritten: deque[AuditEvent] = deque(maxlen=UNWRITTEN)
        self._tasks: list[asyncio.Task[None]] = []
        self.failures = 0
        """Events whose line could not be written."""

    async def start(self, supervisor: Supervisor | None = None) -> None:
        """Begin to bring events into the table; first those that a stop or a crash left in the file alone."""
        try:
            await self._open()
        except OSError as error:
            await logger.aerror("audit.file_failed", path=self._path, reason=error.strerror)
        self._news.set()
        watched = supervisor or Supervisor()
        self._tasks = [
            watched.task(TABLE, self._follow(watched)),
            watched.task(PRUNING, self._prune(watched), may_end=True),
        ]

    async def record(self, event: AuditEvent) -> None:
        """Write the line of an event; see `Trail`."""
        event = fitting(event)
        try:
            self._lines.append(event)
        except OSError as error:
            self.failures += 1
            self._unwritten.append(event)
            await logger.aerror("audit.not_written", path=self._path, reason=error.strerror or str(error), id=event.id)
        self._news.set()

    async def close(self) -> None:
        """Bring in what is new, if the database takes it soon, and let go of the file."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError, AmsError, OSError):
            async with asyncio.timeout(AT_THE_END_SECONDS):
                await self.bring_in()
        self._lines.close()

    async def bring_in(self) -> None:
        """Bring all into the table that is only in the file. Raises `RegistryUnavailable` and `OSError`."""
        await self._sync()
        while events := self._lines.unread():
            await self._records.add(events)
            self._lines.have_read()
        while self._unwritten:
            waiting = list(self._unwritten)
            await self._records.add(waiting)
            added = {event.id for event in waiting}  # by then the oldest may have made room for others
            self._unwritten = deque((each for each in self._unwritten if each.id not in added), UNWRITTEN)

    async def _follow(self, supervisor: Supervisor) -> None:
        is_behind = False
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.bring_in()
                is_behind = False
            except (AmsError, OSError) as error:
                if not is_behind:  # once, however long it lasts
                    await logger.awarning("audit.table_behind", reason=str(error))
                is_behind = True
                self._news.set()
            except Exception:  # a defect must not end the following for good
                supervisor.survive(TABLE)
                self._news.set()
            await asyncio.sleep(BATCH_SECONDS)

    async def _prune(self, supervisor: Supervisor) -> None:
        while self._days:
            now = self._clock.wall()
            try:
                gone = await self._records.prune(Milliseconds(max(now - self._days * DAY, 0)), now)
                if gone:
                    await logger.ainfo("audit.pruned", events=gone, older_than_days=self._days)
            except AmsError as error:
                await logger.awarning("audit.not_pruned", reason=str(error))
            except Exception:  # a defect must not end the pruning for good
                supervisor.survive(PRUNING)
            await asyncio.sleep(PRUNE_SECONDS)

    async def _sync(self) -> None:
        handle = self._lines.duplicate()
        if handle is not None:
            await asyncio.to_thread(_sync_and_close, handle)

    async def _open(self) -> None:
        """Open the file where the table's events end; if none of it is there, after what the file before holds."""
        position = await self._end_in_table(self._path)
        if position == 0:
            await self._bring_in_before()
        self._lines.open(position)

    async def _bring_in_before(self) -> None:
        """Bring in the rest of a file that was turned over since the table was written to."""
        path = rotated(self._path)
        if path is None:
            return
        try:
            position = await self._end_in_table(path)
            before = LineFile(path)
            before.open(position)
            while events := before.unread():
                await self._records.add(events)
                before.have_read()
            before.close()
        except (AmsError, OSError) as error:
            await logger.aerror("audit.file_failed", path=path, reason=str(error))

    async def _end_in_table(self, path: str) -> int:
        """Return where the first portion begins, from the end, whose first event the table has; 0 if none has."""
        for position, events in portions_from_the_end(path):
            try:
                if events and await self._records.holds(events[:1]):
                    return position
            except AmsError:
                return 0  # all of it is offered again, and what is there is passed by
        return 0


def _sync_and_close(handle: int) -> None:
    try:
        os.fdatasync(handle)
    finally:
        os.close(handle)
