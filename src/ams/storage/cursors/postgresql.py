"""The cursor store of clusters: all state is in PostgreSQL, none in memory that other nodes need.

One connection reads and one writes, so that reads do not wait for commits. A third writes acknowledgements of parallel
subscriptions. All cursors requested in one turn of the event loop are read by one statement. Hand-outs are in the row,
so one node may pull and another acknowledge, and a restart loses nothing. A cursor beyond the end of its topic (after
the restore of an older log) stays there: pulls are empty until the topic reaches it or a seek moves it. `ams doctor`
reports it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import structlog

from ams.core.clock import Clock, Milliseconds, SystemClock
from ams.core.coalescing import BatchedRequest
from ams.core.errors import AmsError, CursorsUnavailable, SubscriptionGone, TopicGone, Unusable
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.storage import postgresql
from ams.storage.cursors import acks, base
from ams.storage.cursors import postgresql_rows as rows
from ams.storage.cursors.acks import AckProgress, AckUpdate
from ams.storage.cursors.base import NO_HAND_OUT, Cursor, Oldest, Outstanding, Position, TopicOffset
from ams.storage.cursors.postgresql_batches import MAX_SEEN, Mover
from ams.storage.cursors.postgresql_rows import CursorStanding, DatabaseTime, TableRow
from ams.storage.postgresql import Connection, Interrupted, ReconnectingConnection

if TYPE_CHECKING:
    from pyroaring import BitMap64

T = TypeVar("T")
Exists = Callable[[TopicId], Awaitable[bool]]
Step = Callable[[CursorStanding], tuple[CursorStanding, T]]

log = structlog.get_logger("ams.cursors")


class PostgresCursors:
    """Implements `ams.storage.cursors.acks.CursorStore` with a PostgreSQL database shared by several nodes."""

    def __init__(self, conninfo: str, time: DatabaseTime, exists: Exists | None) -> None:
        self._time, self._exists = time, exists
        self._reading = ReconnectingConnection(conninfo, partial(rows.ask_time, time=time))
        self._moving = ReconnectingConnection(conninfo, self._begin_moving)
        self._settling = ReconnectingConnection(conninfo, self._begin_moving)
        self._rows: BatchedRequest[SubscriptionId, TableRow[Cursor]] = BatchedRequest(self._read_rows, MAX_SEEN)
        self._mover = Mover(self._moving, time, rows.read_cursors, rows.write_cursors)
        self._settler = Mover(self._settling, time, rows.read_standings, rows.write_standings, rows.MAX_STANDINGS_SEEN)
        self._asking: set[asyncio.Task[Any]] = set()

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        password: str = "",
        clock: Clock | None = None,
        time: DatabaseTime | None = None,
        exists: Exists | None = None,
    ) -> Self:
        """Open or create the tables in the database at a `postgresql://` URL. `exists` tells if a topic exists now.

        Raises:
            CursorsUnavailable: the database cannot be reached now.
            Unusable: the database can never be used.
        """
        try:
            conninfo = postgresql.conninfo(url, password)
        except ValueError as error:
            raise Unusable(str(error)) from error
        cursors = cls(conninfo, time or DatabaseTime(clock or SystemClock()), exists)
        try:
            await cursors._ask(cursors._reading.insist(lambda connection, _: rows.prepare(connection)))
        except AmsError:
            await cursors.close()
            raise
        return cursors

    async def create(
        self, subscription: SubscriptionId, topic: TopicId, offset: Offset, lost: int = 0, handed: Offset = NO_HAND_OUT
    ) -> None:
        cursor = Cursor(topic, offset, lost=lost)
        row = TableRow(cursor, rows.new_series())
        unsure = False

        async def attempt(connection: Connection, seconds: float) -> None:
            nonlocal unsure
            if unsure:
                await rows.ask_time(connection, self._time)
                known = (await rows.read_cursors(connection, self._time, [subscription])).get(subscription)
                if known is not None and known.stems_from(row.version):
                    return
            unsure = True
            if not await rows.create(connection, self._time, subscription, row, seconds):
                raise Interrupted

        await self._ask(self._moving.insist(attempt, changes=True))
        self._forget(subscription)
        if handed > offset:
            await self.hand_out(subscription, cursor.generation, handed)

    async def drop(self, subscription: SubscriptionId) -> None:
        dropping = self._moving.insist(lambda link, _: link.execute(rows.DROP, (subscription,)), changes=True)
        await self._ask(dropping)
        self._forget(subscription)

    async def subscriptions(self) -> frozenset[SubscriptionId]:
        return frozenset([row[0] for row in await self._all("SELECT subscription FROM cursors")])

    async def places(self) -> Mapping[SubscriptionId, TopicOffset]:
        found = await self._all('SELECT subscription, topic, "offset" FROM cursors')
        return {subscription: TopicOffset(TopicId(topic.bytes), offset) for subscription, topic, offset in found}

    async def _all(self, statement: str) -> list[tuple[Any, ...]]:
        return await self._ask(self._reading.insist(lambda connection, _: rows.fetch(connection, statement)))

    async def position(self, subscription: SubscriptionId, topic: TopicId) -> Position:
        """Return where the cursor stands now, also if another node has just moved it.

        Raises `TopicGone` for a deleted topic: another node may have acknowledged on its successor already.
        """
        while (cursor := await self._read_cursor(subscription)).topic != topic:
            if self._exists is not None and not await self._exists(topic):
                raise TopicGone
            await self._mover.move(subscription, partial(_meet_from, before=cursor.topic, topic=topic))
        return base.position_of(cursor)

    def cached_position(self, subscription: SubscriptionId, topic: TopicId) -> Position | None:
        """Return the cached position if lately no other process moved the cursor."""
        cursor = self._mover.expected_value(subscription)
        return base.position_of(cursor) if cursor is not None and cursor.topic == topic else None

    async def lost_messages(self, subscription: SubscriptionId, oldest: Oldest) -> int:
        cursor = await self._read_cursor(subscription)
        kept_from = oldest.get(cursor.topic, Offset(0))
        if kept_from <= cursor.offset:
            return cursor.lost
        standing = await self._standing(subscription)
        return standing.lost + acks.count_lost(standing.progress, kept_from)

    async def lost_in_all(self, oldest: Oldest, least: int = 0) -> int:
        async def attempt(connection: Connection, _: float) -> int:
            found = await rows.lost_in_all(connection, self._time, oldest, least)
            if found is None:  # another node counted meanwhile
                raise Interrupted
            return found

        return await self._ask(self._reading.insist(attempt))

    async def retain(self, subscription: SubscriptionId, generation: int, oldest: Offset) -> Position:
        def step(standing: CursorStanding) -> tuple[CursorStanding, Position]:
            moved = rows.raise_floor(standing, oldest) if standing.progress.epoch == generation else standing
            return moved, rows.position_of(moved)

        return await self._settle(subscription, step)

    async def hand_out(
        self, subscription: SubscriptionId, generation: int, end: Offset, at: Offset | None = None
    ) -> bool:

        def step(cursor: Cursor) -> tuple[Cursor, bool]:
            if cursor.generation != generation or (at is not None and cursor.offset != at):
                return cursor, False
            return base.hand_out(cursor, end, self._time.now()), True

        return await self._mover.move(subscription, step)

    async def acknowledge(self, subscription: SubscriptionId, last: Offset, deadline: Milliseconds) -> None:
        """Acknowledge up to `last`. The time of the call counts: a wait for a new primary does not make it late."""
        came = self._time.moment()

        def step(cursor: Cursor) -> tuple[Cursor, None]:
            return base.acknowledge(cursor, last, deadline, self._time.at(came)), None

        await self._mover.move(subscription, step)

    async def newest_hand_out(self, subscription: SubscriptionId) -> Outstanding | None:
        handed = (await self._read_cursor(subscription)).handed
        if not handed:
            return None
        return Outstanding(handed[-1].end, Milliseconds(self._time.now() - handed[-1].time))

    async def seek(self, subscription: SubscriptionId, topic: TopicId, offset: Offset) -> bool:
        def step(cursor: Cursor) -> tuple[Cursor, bool]:
            return (base.seek(cursor, offset), True) if cursor.topic == topic else (cursor, False)

        return await self._mover.move(subscription, step, series=rows.new_series())

    async def take_over(self, subscription: SubscriptionId, topic: TopicId) -> AckProgress:
        def step(standing: CursorStanding) -> tuple[CursorStanding, AckProgress | None]:
            if standing.topic != topic:
                return standing, None
            progress = standing.progress._replace(run=standing.progress.run + 1)
            return standing._replace(progress=progress), progress

        taken = None
        while taken is None:
            await self.position(subscription, topic)
            taken = await self._settle(subscription, step)
        return acks.copy_progress(taken)

    async def progress(self, subscription: SubscriptionId) -> AckProgress:
        return acks.copy_progress((await self._standing(subscription)).progress)

    async def settle(self, subscription: SubscriptionId, epoch: int, run: int, change: AckUpdate) -> bool:
        """Store a change of this epoch and run. Without a change, still checks that the row exists."""

        def step(standing: CursorStanding) -> tuple[CursorStanding, bool]:
            progress = standing.progress
            if not run or (progress.epoch, progress.run) != (epoch, run):
                return standing, False
            return standing._replace(progress=acks.apply_update(progress, change)), True

        return await self._settle(subscription, step, refused=False)

    async def restore(
        self, subscription: SubscriptionId, topic: TopicId, floor: Offset, done: "BitMap64"
    ) -> int | None:

        def step(standing: CursorStanding) -> tuple[CursorStanding, int | None]:
            if standing.topic != topic:
                return standing, None
            progress = acks.apply_seek(standing.progress, floor, standing.progress.epoch + 1, done)
            return standing._replace(progress=progress), progress.epoch

        series = rows.new_series()
        return await self._settle(subscription, step, series=series, found=lambda found: found.progress.epoch)

    async def close(self) -> None:
        """Finish accepted calls and close the connections."""
        await self._mover.close()
        await self._settler.close()
        await self._rows.finish()
        if self._asking:
            await asyncio.wait(self._asking)
        await self._moving.close()
        await self._settling.close()
        await self._reading.close()

    async def _read_cursor(self, subscription: SubscriptionId) -> Cursor:
        row = await self._rows(subscription)
        self._mover.note_row(subscription, row)
        return row.value

    async def _settle(self, subscription: SubscriptionId, step: Step[T], **more: Any) -> T:
        return await self._settler.move(subscription, lambda standing: step(rows.check_readable(standing)), **more)

    async def _standing(self, subscription: SubscriptionId) -> CursorStanding:
        asked = self._reading.insist(lambda connection, _: rows.read_standings(connection, self._time, [subscription]))
        found = (await self._ask(asked)).get(subscription)
        if found is None:
            raise SubscriptionGone
        return rows.check_readable(found.value)

    def _forget(self, subscription: SubscriptionId) -> None:
        self._mover.forget(subscription)
        self._settler.forget(subscription)

    async def _read_rows(self, subscriptions: Sequence[SubscriptionId]) -> list[TableRow[Cursor] | AmsError]:
        """Return a row or `SubscriptionGone` each. Raises `CursorsUnavailable`, also for a defect, which is logged."""
        wanted = set(subscriptions)
        try:
            known = await self._reading.insist(lambda connection, _: rows.read_cursors(connection, self._time, wanted))
        except CursorsUnavailable:
            raise
        except Exception as error:  # a defect
            log.exception("cursors.failed")
            raise CursorsUnavailable from error
        return [known.get(each) or SubscriptionGone() for each in subscriptions]

    async def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        """Run to the end even if the caller is cancelled: a statement is never cancelled (`postgresql.limit_time`)."""
        asking = asyncio.create_task(question)
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return await asyncio.shield(asking)

    async def _begin_moving(self, connection: Connection) -> None:
        await connection.execute(rows.FIXED_LOCK_ORDER)
        await rows.ask_time(connection, self._time)


def _meet_from(cursor: Cursor, *, before: TopicId, topic: TopicId) -> tuple[Cursor, None]:
    return (base.follow_topic(cursor, topic) if cursor.topic == before else cursor), None
