"""Batched updates of cursors in PostgreSQL, with optimistic locking.

All calls of one turn of the event loop become one statement. A call is a function of a cursor
(`ams.storage.cursors.base`) or of a parallel subscription's acknowledgements (`ams.storage.cursors.postgresql_rows`);
each kind has a mover of its own. The call is computed on the cached row, several calls for one cursor in order. The
write succeeds if the row's version is unchanged. Otherwise the row is read and the call computed again. An answer
without a write, also an error, always comes from a row read after the call began.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import structlog

from ams.core.errors import OUTCOME_UNKNOWN, AmsError, CursorsUnavailable, SubscriptionGone
from ams.core.names import SubscriptionId
from ams.storage import postgresql
from ams.storage.cursors.postgresql_rows import DatabaseTime, Moves, TableRow
from ams.storage.postgresql import Connection, Interrupted, ReconnectingConnection

T = TypeVar("T")
V = TypeVar("V")
log = structlog.get_logger("ams.cursors")
Step = Callable[[V], tuple[V, Any]]  # returns the moved cursor and the answer, or raises an `AmsError`
Read = Callable[[Connection, DatabaseTime, Iterable[SubscriptionId]], Awaitable[Mapping[SubscriptionId, TableRow[V]]]]
Write = Callable[
    [Connection, DatabaseTime, Moves[V], float], Awaitable[Mapping[SubscriptionId, TableRow[V]]]
    # Writes rows whose versions are unchanged, within a number of seconds; returns the written rows.
]
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

    def finish(self, outcome: Any) -> None:
        """Answer, unless the caller was cancelled."""
        if self.answer.done():
            return
        if isinstance(outcome, AmsError):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


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
            call.finish(outcome)


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
        self,
        connection: ReconnectingConnection,
        time: DatabaseTime,
        read: Read[V],
        write: Write[V],
        max_seen: int = MAX_SEEN,
    ) -> None:
        self._connection, self._time, self._read = connection, time, read
        self._write_rows, self._max_seen = write, max_seen
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[SubscriptionId, list[CursorCall[V]]] = {}
        self._seen: dict[SubscriptionId, TableRow[V]] = {}
        self._own_moves: dict[SubscriptionId, int] = {}  # in a row, of cursors in `_seen`
        self._running: asyncio.Task[None] | None = None

    async def move(
        self,
        subscription: SubscriptionId,
        step: Callable[[V], tuple[V, T]],
        *,
        series: int | None = None,
        found: Callable[[V], T] | None = None,
        refused: T | None = None,
    ) -> T:
        """Do one atomic step; return its answer when the move is stored. `CursorCall` explains the other arguments."""
        give_up = self._loop.time() + postgresql.CALL_SECONDS
        call: CursorCall[V] = CursorCall(step, give_up, self._loop.create_future(), series, refused=refused)
        if found is not None:
            call.found = found
        self._waiting.setdefault(subscription, []).append(call)
        if self._running is None:
            self._running = asyncio.create_task(self._send_waiting(), name="ams-cursors-move")
        answer: T = await call.answer
        return answer

    def note_row(self, subscription: SubscriptionId, row: TableRow[V]) -> None:
        """Cache a row that was read, unless the cached one is newer."""
        known = self._seen.get(subscription)
        if known is not None and known.stems_from(row.version):
            return
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
                    call.finish(CursorsUnavailable(OUTCOME_UNKNOWN) if call.unsure else error)
            except Exception:  # a defect: waiting callers must get an answer
                log.exception("cursors.failed")
                _finish(chain.from_iterable(calls.values()), CursorsUnavailable())
        self._running = None

    async def _send(self, calls: Calls[V]) -> None:
        give_up = min(call.give_up for each in calls.values() for call in each)
        moving = {each: made for each, made in _fold_calls(calls, self._seen).items() if made.moves}
        doubtful = {each: waiting for each, waiting in calls.items() if each not in moving}
        if doubtful:  # calls that write nothing need a fresh row
            ask = self._read
            known = await self._connection.run(lambda link, _: ask(link, self._time, doubtful), give_up)
            for subscription in doubtful.keys() - known.keys():
                self.forget(subscription)
                _finish(calls[subscription], SubscriptionGone())
            for subscription, made in _fold_calls(doubtful, known).items():
                self.note_row(subscription, made.before)
                if made.moves:
                    moving[subscription] = made
                else:
                    made.finish()
        if moving:
            await self._write(moving, give_up)

    async def _write(self, moving: Mapping[SubscriptionId, AppliedCalls[V]], give_up: float) -> None:
        moves = {each: (made.before, made.after) for each, made in moving.items()}
        try:
            put = self._write_rows
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


def _fold_calls(calls: Calls[V], known: Mapping[SubscriptionId, TableRow[V]]) -> dict[SubscriptionId, AppliedCalls[V]]:
    return {each: apply_calls(known[each], waiting) for each, waiting in calls.items() if each in known}


def _finish(calls: Iterable[CursorCall[V]], outcome: object) -> None:
    for call in calls:
        call.finish(outcome)
