"""One connection to the database that comes back by itself."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import psycopg
import structlog

from ams.core.backoff import Backoff, Pauses
from ams.core.errors import OUTCOME_UNKNOWN, CursorsUnavailable
from ams.storage import postgresql

if TYPE_CHECKING:
    from ams.storage.postgresql import Connection

T = TypeVar("T")

BACKOFF = Backoff(0.1, 1.0)
"""Seconds between two tries to connect."""
LEAST_SECONDS = 0.5
"""Less time than this is not worth a statement: it would be cut off and take the connection with it."""

log = structlog.get_logger("ams.cursors")


class Interrupted(Exception):
    """What was asked may have been done or not: the connection was lost, or the database wants it asked again."""


class Line:
    """Runs statements one after the other; while the connection is lost, one task tries to get another.

    Calls wait for it until they give up; once it has been away for `CALL_SECONDS` they fail at once.
    """

    def __init__(self, conninfo: str, greet: Callable[["Connection"], Awaitable[None]]) -> None:
        self._conninfo = conninfo
        self._greet = greet
        """What is done first on each new connection."""
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._lost_since = self._loop.time()
        self._connecting: asyncio.Task[Connection] | None = None
        self._cause: BaseException | None = None
        """Why there is no connection."""

    async def run(self, work: Callable[["Connection", float], Awaitable[T]], give_up: float) -> T:
        """Do some work on the connection, which is told how many seconds it may take at most.

        `give_up` is in the time of the event loop. Raises `Interrupted` when the work must be asked again,
        `CursorsUnavailable` when the time is over or the database refuses for good.
        """
        async with self._turn:
            connection = await self._connected(give_up)
            began = self._loop.time()
            seconds = min(postgresql.STATEMENT_SECONDS, give_up - began)
            if seconds < LEAST_SECONDS:
                raise CursorsUnavailable from self._cause
            try:
                with postgresql.limited(connection, seconds):
                    return await work(connection, seconds)
            except psycopg.Error as error:
                if not postgresql.is_passing(error):
                    log.error("cursors.refused", reason=postgresql.reason(error))
                    raise CursorsUnavailable from error
                self._cause = error
                if not postgresql.keeps_connection(error):
                    await self._lose(began, error)
                raise Interrupted from error

    async def insist(self, work: Callable[["Connection", float], Awaitable[T]], *, changes: bool = False) -> T:
        """Do some work that may be done twice, again until there is an answer; for `CALL_SECONDS` in all.

        Raises `CursorsUnavailable`, which says so when work that `changes` something may have been done.
        """
        give_up = self._loop.time() + postgresql.CALL_SECONDS
        unsure = False
        while True:
            try:
                return await self.run(work, give_up)
            except Interrupted:
                unsure = changes
            except CursorsUnavailable as error:
                if not unsure:
                    raise
                raise CursorsUnavailable(OUTCOME_UNKNOWN) from error

    async def close(self) -> None:
        """Let the connection go."""
        if self._connecting is not None:
            self._connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self._connection = await self._connecting
        if self._connection is not None:
            await self._connection.close()

    async def _connected(self, give_up: float) -> "Connection":
        if self._connection is not None:
            return self._connection
        if self._connecting is None:  # nobody asked before
            self._lost_since = self._loop.time()
            self._connecting = asyncio.create_task(self._connect(), name="ams-cursors-connect")
        seconds = min(give_up, self._lost_since + postgresql.CALL_SECONDS) - self._loop.time()
        await asyncio.wait((self._connecting,), timeout=max(seconds, 0))
        if not self._connecting.done():
            raise CursorsUnavailable from self._cause
        connecting, self._connecting = self._connecting, None  # whatever came of it: the next call tries again
        self._connection = connecting.result()
        return self._connection

    async def _lose(self, began: float, error: psycopg.Error) -> None:
        lost, self._connection = self._connection, None
        self._lost_since = began
        log.warning("cursors.connection_lost", reason=postgresql.reason(error))
        if lost is not None:
            await lost.close()
        self._connecting = asyncio.create_task(self._connect(), name="ams-cursors-connect")

    async def _connect(self) -> "Connection":
        pauses, said = Pauses(BACKOFF), False
        while True:
            try:
                return await self._attempt(said)
            except psycopg.Error as error:
                self._cause = error
                if not said:
                    log.warning("cursors.not_connected", reason=postgresql.reason(error))
                    said = True
                await asyncio.sleep(pauses.next())

    async def _attempt(self, was_away: bool) -> "Connection":
        connection = await postgresql.connect(self._conninfo)
        try:
            with postgresql.limited(connection, postgresql.CONNECT_SECONDS):
                await self._greet(connection)
        except BaseException:
            await connection.close()
            raise
        if was_away:
            log.info("cursors.connected")
        return connection
