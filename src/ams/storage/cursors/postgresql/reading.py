"""Reading cursors: all that are asked for in one turn of the event loop are read by one statement, sent after it."""

import asyncio

import structlog

from ams.core.errors import AmsError, CursorsUnavailable, SubscriptionGone
from ams.core.names import SubscriptionId
from ams.storage.cursors.postgresql import rows
from ams.storage.cursors.postgresql.line import Line
from ams.storage.cursors.postgresql.rows import Row, Rows
from ams.storage.cursors.postgresql.time import DatabaseTime

log = structlog.get_logger("ams.cursors")

Readers = dict[SubscriptionId, list[asyncio.Future[Row]]]


class Reader:
    """Tells where cursors stand now, whoever moved them."""

    def __init__(self, line: Line, time: DatabaseTime) -> None:
        self._line = line
        self._time = time
        self._loop = asyncio.get_running_loop()
        self._waiting: Readers = {}
        self._running: asyncio.Task[None] | None = None

    async def read(self, subscription: SubscriptionId) -> Row:
        """Return a cursor as it is in the database after the call came. Raises `SubscriptionGone`."""
        answer: asyncio.Future[Row] = self._loop.create_future()
        self._waiting.setdefault(subscription, []).append(answer)
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="ams-cursors-read")
        return await answer

    async def close(self) -> None:
        """Finish what was accepted."""
        if self._running is not None:
            await asyncio.wait((self._running,))

    async def _run(self) -> None:
        while self._waiting:
            readers, self._waiting = self._waiting, {}
            try:
                _tell(readers, await self._read(readers))
            except CursorsUnavailable as error:
                _fail(readers, error)
            except Exception:  # a defect: those who wait must be told
                log.exception("cursors.failed")
                _fail(readers, CursorsUnavailable())
        self._running = None

    async def _read(self, readers: Readers) -> Rows:
        return await self._line.insist(lambda connection, _: rows.read(connection, self._time, readers))


def _tell(readers: Readers, known: Rows) -> None:
    _fail({each: readers[each] for each in readers.keys() - known.keys()}, SubscriptionGone())
    for subscription, row in known.items():
        for answer in readers[subscription]:
            if not answer.done():
                answer.set_result(row)


def _fail(readers: Readers, error: AmsError) -> None:
    for answers in readers.values():
        for answer in answers:
            if not answer.done():
                answer.set_exception(error)
