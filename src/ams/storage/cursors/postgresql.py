"""The cursor store of clusters: all state is in PostgreSQL, none in memory that other nodes need.

One connection reads and one writes, so that reads do not wait for commits. A third writes acknowledgements of parallel
subscriptions. All cursors requested in one turn of the event loop are read by one statement. Hand-outs are in the row,
so one node may pull and another acknowledge, and a restart loses nothing. A cursor beyond the end of its topic (after
the restore of an older log) stays there: pulls are empty until the topic reaches it or a seek moves it. `ams doctor`
reports it.

Updates are batched, with optimistic locking: all calls of one turn of the event loop become one statement. A call is a
function of a cursor (`ams.storage.cursors.base`) or of a parallel subscription's acknowledgements
(`ams.storage.cursors.postgresql_rows`); each kind has a mover of its own. The call is computed on the cached row,
several calls for one cursor in order. The write succeeds if the row's version is unchanged. Otherwise the row is read
and the call computed again. An answer without a write, also an error, comes from a row read after the call began.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Generic, NamedTuple, Self, TypeVar

import structlog
from pyroaring import BitMap64

from ams.core.clock import Milliseconds, SystemClock
from ams.core.coalescing import BatchedRequest, answer_future
from ams.core.errors import OUTCOME_UNKNOWN, AmsError, CursorsUnavailable, SubscriptionGone, TopicGone, Unusable
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.storage import postgresql
from ams.storage.cursors import acks, base
from ams.storage.cursors import postgresql_rows as rows
from ams.storage.cursors.acks import AckProgress, AckUpdate
from ams.storage.cursors.base import NO_HAND_OUT, Cursor, Oldest, Outstanding, Position, TopicOffset
from ams.storage.cursors.postgresql_rows import CursorStanding, DatabaseTime, Moves, TableRow, TableRows
from ams.storage.postgresql import Connection, Interrupted, ReconnectingConnection

T = TypeVar("T")
V = TypeVar("V")
log = structlog.get_logger("ams.cursors")
Exists = Callable[[TopicId], Awaitable[bool]]
Step = Callable[[V], tuple[V, Any]]  # returns the moved cursor and the answer, or raises an `AmsError`
StandingStep = Callable[[CursorStanding], tuple[CursorStanding, T]]
Read = Callable[[Connection, DatabaseTime, Iterable[SubscriptionId]], Awaitable[TableRows[V]]]
# Writes rows whose versions are unchanged, within a number of seconds; returns the written rows.
Write = Callable[[Connection, DatabaseTime, Moves[V], float], Awaitable[TableRows[V]]]
MAX_SEEN = 20_000  # cached rows; the whole cache is cleared when it is full
MIN_OWN_MOVES = 4  # consecutive moves without another writer, after which the cached cursor is trusted


@dataclass(slots=True, eq=False)
class CursorCall(Generic[V]):
    """One call that waits for its answer."""

    step: Step[V]
    give_up: float  # event loop time
    answer: asyncio.Future[Any]
    series: int | None = None  # first version written by this call: after a lost answer, the row shows its success
    found: Callable[[V], Any] = lambda _: True  # the answer in that case
    refused: Any = None  # the answer "nothing was written", which an unsure call must not give
    unsure: bool = False
    """The answer of the database was lost. The retry always writes, because reads may show an older state."""


Calls = Mapping[SubscriptionId, Sequence[CursorCall[V]]]


class AppliedCalls(NamedTuple, Generic[V]):
    """The result of a cursor's calls, in order; valid if the row is unchanged when it is written."""

    before: TableRow[V]
    after: TableRow[V]
    calls: Sequence[CursorCall[V]]
    outcomes: Sequence[Any]

    @property
    def moves(self) -> bool:
        """True if there is a row to write."""
        return self.after is not self.before

    def finish(self) -> None:
        """Answer all calls."""
        for call, outcome in zip(self.calls, self.outcomes, strict=True):
            answer_future(call.answer, outcome)


def apply_calls(row: TableRow[V], calls: Sequence[CursorCall[V]]) -> AppliedCalls[V]:
    """Compute calls on a row, in order."""
    after, outcomes = row, []
    for call in calls:
        after, outcome = _apply(after, call)
        outcomes.append(outcome)
    return AppliedCalls(row, after, calls, outcomes)


def _apply(row: TableRow[V], call: CursorCall[V]) -> tuple[TableRow[V], Any]:
    if call.unsure and call.series is not None and row.stems_from(call.series):
        value, outcome = row.value, call.found(row.value)
    else:
        try:
            value, outcome = call.step(row.value)
        except AmsError as error:
            return row, error
    if call.unsure and call.refused is not None and outcome == call.refused:
        return row, CursorsUnavailable(OUTCOME_UNKNOWN)
    if value is not row.value and call.series is not None:
        return TableRow(value, call.series), outcome
    if value is not row.value or call.unsure:
        return TableRow(value, row.version + 1), outcome
    return row, outcome


class Mover(Generic[V]):
    """Group commit of calls: collects them while one group is being written, then sends the next."""

    def __init__(
        self, connection: ReconnectingConnection, time: DatabaseTime, read: Read[V], write: Write[V], max_seen: int
    ) -> None:
        self._connection, self._time, self._read = connection, time, read
        self._write_rows, self._max_seen = write, max_seen
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[SubscriptionId, list[CursorCall[V]]] = {}
        self._seen: dict[SubscriptionId, TableRow[V]] = {}
        self._own_moves: dict[SubscriptionId, int] = {}  # in a row, of cursors in `_seen`
        self._running: asyncio.Task[None] | None = None

    async def move(self, subscription: SubscriptionId, step: Callable[[V], tuple[V, T]], **options: Any) -> T:
        """Do one atomic step; return its answer when the move is stored. `CursorCall` explains the options."""
        give_up = self._loop.time() + postgresql.CALL_SECONDS
        call = CursorCall(step, give_up, self._loop.create_future(), **options)
        self._waiting.setdefault(subscription, []).append(call)
        if self._running is None:
            self._running = asyncio.create_task(self._send_waiting(), name="ams-cursors-move")
        answer: T = await call.answer
        return answer

    def note_row(self, subscription: SubscriptionId, row: TableRow[V]) -> None:
        """Cache a row that was read, unless the cached one is newer."""
        known = self._seen.get(subscription)
        if known is None or not known.stems_from(row.version):
            self._own_moves.pop(subscription, None)
            self._remember(subscription, row)

    def expected_value(self, subscription: SubscriptionId) -> V | None:
        """Return the cached cursor if lately no other process moved it, else None."""
        if self._own_moves.get(subscription, 0) < MIN_OWN_MOVES:
            return None
        return self._seen[subscription].value

    def _remember(self, subscription: SubscriptionId, row: TableRow[V]) -> None:
        if len(self._seen) >= self._max_seen:
            self._seen.clear()
            self._own_moves.clear()
        self._seen[subscription] = row

    def forget(self, subscription: SubscriptionId) -> None:
        """Remove a cursor from the cache."""
        self._seen.pop(subscription, None)
        self._own_moves.pop(subscription, None)

    async def close(self) -> None:
        """Finish the accepted calls."""
        if self._running is not None:
            await asyncio.wait((self._running,))

    async def _send_waiting(self) -> None:
        while self._waiting:
            calls, self._waiting = self._waiting, {}
            try:
                await self._send(calls)
            except Interrupted:
                self._retry(calls)
            except CursorsUnavailable as error:
                for call in chain.from_iterable(calls.values()):
                    answer_future(call.answer, CursorsUnavailable(OUTCOME_UNKNOWN) if call.unsure else error)
            except Exception:  # a defect: waiting callers must get an answer
                log.exception("cursors.failed")
                for call in chain.from_iterable(calls.values()):
                    answer_future(call.answer, CursorsUnavailable())
        self._running = None

    async def _send(self, calls: Calls[V]) -> None:
        give_up = min(call.give_up for each in calls.values() for call in each)
        moving = {each: made for each, made in _fold_calls(calls, self._seen).items() if made.moves}
        doubtful = {each: waiting for each, waiting in calls.items() if each not in moving}
        if doubtful:  # calls that write nothing need a fresh row
            known = await self._connection.run(lambda link, _: self._read(link, self._time, doubtful), give_up)
            for subscription in doubtful.keys() - known.keys():
                self.forget(subscription)
                for call in calls[subscription]:
                    answer_future(call.answer, SubscriptionGone())
            for subscription, made in _fold_calls(doubtful, known).items():
                self.note_row(subscription, made.before)
                if made.moves:
                    moving[subscription] = made
                else:
                    made.finish()
        if moving:
            await self._write(moving, give_up)

    async def _write(self, moving: Mapping[SubscriptionId, AppliedCalls[V]], give_up: float) -> None:
        moves, put = {each: (made.before, made.after) for each, made in moving.items()}, self._write_rows
        try:
            written = await self._connection.run(lambda link, left: put(link, self._time, moves, left), give_up)
        except Interrupted:
            for made in moving.values():
                for call in made.calls:
                    call.unsure = True
            raise
        for subscription, made in moving.items():
            if subscription in written:
                is_own = self._seen.get(subscription) is made.before
                self._remember(subscription, written[subscription])
                self._own_moves[subscription] = self._own_moves.get(subscription, 0) + 1 if is_own else 0
                made.finish()
            else:
                self._retry({subscription: made.calls})

    def _retry(self, calls: Calls[V]) -> None:
        """Queue calls again, before newer ones; their rows are read anew."""
        for subscription, each in calls.items():
            self.forget(subscription)
            left = [call for call in each if not call.answer.done()]
            if left:
                self._waiting[subscription] = left + self._waiting.get(subscription, [])


def _fold_calls(calls: Calls[V], known: TableRows[V]) -> dict[SubscriptionId, AppliedCalls[V]]:
    return {each: apply_calls(known[each], waiting) for each, waiting in calls.items() if each in known}


class PostgresCursors:
    """Implements `ams.storage.cursors.acks.CursorStore` with a PostgreSQL database shared by several nodes."""

    def __init__(self, conninfo: str, time: DatabaseTime, exists: Exists | None) -> None:
        self._time, self._exists = time, exists
        self._reading = ReconnectingConnection(conninfo, partial(rows.ask_time, time=time))
        self._moving = ReconnectingConnection(conninfo, self._begin_moving)
        self._settling = ReconnectingConnection(conninfo, self._begin_moving)
        self._rows: BatchedRequest[SubscriptionId, TableRow[Cursor]] = BatchedRequest(self._read_rows, MAX_SEEN)
        self._mover = Mover(self._moving, time, rows.read_cursors, rows.write_cursors, MAX_SEEN)
        self._settler = Mover(self._settling, time, rows.read_standings, rows.write_standings, rows.MAX_STANDINGS_SEEN)
        self._asking: set[asyncio.Task[Any]] = set()

    @classmethod
    async def open(
        cls, url: str, *, password: str = "", time: DatabaseTime | None = None, exists: Exists | None = None
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
        cursors = cls(conninfo, time or DatabaseTime(SystemClock()), exists)
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

    async def places(self) -> Mapping[SubscriptionId, TopicOffset]:
        async def attempt(connection: Connection, _: float) -> list[tuple[Any, ...]]:
            return await (await connection.execute('SELECT subscription, topic, "offset" FROM cursors')).fetchall()

        found = await self._ask(self._reading.insist(attempt))
        return {subscription: TopicOffset(TopicId(topic.bytes), offset) for subscription, topic, offset in found}

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
        return await self._ask(self._reading.insist(lambda link, _: rows.lost_in_all(link, self._time, oldest, least)))

    async def retain(self, subscription: SubscriptionId, generation: int, oldest: Offset) -> Position:
        def step(standing: CursorStanding) -> tuple[CursorStanding, Position]:
            moved = rows.raise_floor(standing, oldest) if standing.progress.epoch == generation else standing
            return moved, Position(moved.progress.floor, moved.progress.epoch, moved.lost)

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

    async def restore(self, subscription: SubscriptionId, topic: TopicId, floor: Offset, done: BitMap64) -> int | None:

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

    async def _settle(self, subscription: SubscriptionId, step: StandingStep[T], **more: Any) -> T:
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
