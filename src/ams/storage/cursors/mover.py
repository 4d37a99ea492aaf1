"""Moving cursors: all calls of one turn of the event loop go as one statement, whichever cursors they move.

A call that moves is a function of a cursor (`ams.storage.cursors.base`), or of what is done of a parallel subscription
(`ams.storage.cursors.postgresql_rows`), which has a mover of its own. It is computed on the row last seen here,
several calls for one cursor one after the other, and what comes of it is true if the row is still the same when it is
written. A call that finds it changed reads it again and computes again. An answer without a write, an
error too, is given only from a row that was read after the call came.
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
from ams.storage.cursors.postgresql_rows import DatabaseTime, Moves, Row
from ams.storage.postgresql import Connection, Interrupted, ReconnectingConnection

T = TypeVar("T")
V = TypeVar("V")
log = structlog.get_logger("ams.cursors")
Step = Callable[[V], tuple[V, Any]]  # moves a cursor and gives the answer, or raises an `AmsError`
Read = Callable[[Connection, DatabaseTime, Iterable[SubscriptionId]], Awaitable[Mapping[SubscriptionId, Row[V]]]]
Write = Callable[
    [Connection, DatabaseTime, Moves[V], float], Awaitable[Mapping[SubscriptionId, Row[V]]]
    # Writes rows within seconds, where those that were read are still the same; returns those that it wrote.
]
MAX_SEEN = 20_000  # rows remembered: a shortcut, so when there are more all are forgotten
LEFT_ALONE = 4  # moves in a row that found a cursor as this process had left it, after which the next is expected to


@dataclass(slots=True, eq=False)
class Call(Generic[V]):
    """One call that waits for its answer."""

    step: Step[V]
    give_up: float  # in the time of the event loop
    answer: asyncio.Future[Any]
    series: int | None = None  # first version if this call moves the cursor: when it is unsure, the row shows by it
    found: Callable[[V], Any] = lambda _: True  # the answer when it shows
    refused: Any = None  # the answer that says that nothing was ever written, which an unsure call cannot know
    unsure: bool = False
    """It was sent without an answer. Something is then written in any case: reads may show an older state."""

    def finish(self, outcome: Any) -> None:
        """Answer, unless the caller has left."""
        if self.answer.done():
            return
        if isinstance(outcome, AmsError):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


Calls = Mapping[SubscriptionId, Sequence[Call[V]]]


class AppliedCalls(NamedTuple, Generic[V]):
    """The result of a cursor's calls, one after the other, and their answers if the row is still the same."""

    before: Row[V]
    after: Row[V]
    calls: Sequence[Call[V]]
    outcomes: Sequence[Any]

    @property
    def moves(self) -> bool:
        """Return whether there is something to write."""
        return self.after is not self.before

    def finish(self) -> None:
        """Answer all calls."""
        for call, outcome in zip(self.calls, self.outcomes, strict=True):
            call.finish(outcome)


def fold(row: Row[V], calls: Sequence[Call[V]]) -> AppliedCalls[V]:
    """Compute calls on a row, one after the other."""
    after, outcomes = row, []
    for call in calls:
        after, outcome = _apply(after, call)
        outcomes.append(outcome)
    return AppliedCalls(row, after, calls, outcomes)


def _apply(row: Row[V], call: Call[V]) -> tuple[Row[V], Any]:
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
        return Row(value, call.series), outcome
    if value is not row.value or call.unsure:
        return Row(value, row.version + 1), outcome
    return row, outcome


class Mover(Generic[V]):
    """Gathers calls while the last group is on its way, and sends the next."""

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
        self._waiting: dict[SubscriptionId, list[Call[V]]] = {}
        self._seen: dict[SubscriptionId, Row[V]] = {}
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
        """Do one atomic step; its answer is given when the move is stored. `Call` explains the other arguments."""
        give_up = self._loop.time() + postgresql.CALL_SECONDS
        call: Call[V] = Call(step, give_up, self._loop.create_future(), series, refused=refused)
        if found is not None:
            call.found = found
        self._waiting.setdefault(subscription, []).append(call)
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="ams-cursors-move")
        answer: T = await call.answer
        return answer

    def saw(self, subscription: SubscriptionId, row: Row[V]) -> None:
        """Remember a row that was read, unless a later one is known."""
        known = self._seen.get(subscription)
        if known is not None and known.stems_from(row.version):
            return
        self._own_moves.pop(subscription, None)
        self._remember(subscription, row)

    def left_alone(self, subscription: SubscriptionId) -> V | None:
        """Return a cursor as this process left it, if it found it so the last few times; else None."""
        if self._own_moves.get(subscription, 0) < LEFT_ALONE:
            return None
        return self._seen[subscription].value

    def _remember(self, subscription: SubscriptionId, row: Row[V]) -> None:
        if len(self._seen) >= self._max_seen:
            self._seen.clear()
            self._own_moves.clear()
        self._seen[subscription] = row

    def forget(self, subscription: SubscriptionId) -> None:
        """Remove a cursor from memory."""
        self._seen.pop(subscription, None)
        self._own_moves.pop(subscription, None)

    async def close(self) -> None:
        """Finish what was accepted."""
        if self._running is not None:
            await asyncio.wait((self._running,))

    async def _run(self) -> None:
        while self._waiting:
            calls, self._waiting = self._waiting, {}
            try:
                await self._send(calls)
            except Interrupted:
                self._again(calls)
            except CursorsUnavailable as error:
                for call in chain.from_iterable(calls.values()):
                    call.finish(CursorsUnavailable(OUTCOME_UNKNOWN) if call.unsure else error)
            except Exception:  # a defect: those who wait must get an answer
                log.exception("cursors.failed")
                _finish(chain.from_iterable(calls.values()), CursorsUnavailable())
        self._running = None

    async def _send(self, calls: Calls[V]) -> None:
        give_up = min(call.give_up for each in calls.values() for call in each)
        moving = {each: made for each, made in _folded(calls, self._seen).items() if made.moves}
        doubtful = {each: waiting for each, waiting in calls.items() if each not in moving}
        if doubtful:  # a row that is read now answers the calls that write nothing
            ask = self._read
            known = await self._connection.run(lambda link, _: ask(link, self._time, doubtful), give_up)
            for subscription in doubtful.keys() - known.keys():
                self.forget(subscription)
                _finish(calls[subscription], SubscriptionGone())
            for subscription, made in _folded(doubtful, known).items():
                self.saw(subscription, made.before)
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
                self._again({subscription: made.calls})

    def _again(self, calls: Calls[V]) -> None:
        """Compute calls again, on rows read anew, before those that came meanwhile."""
        for subscription, each in calls.items():
            self.forget(subscription)
            left = [call for call in each if not call.answer.done()]
            if left:
                self._waiting[subscription] = left + self._waiting.get(subscription, [])


def _folded(calls: Calls[V], known: Mapping[SubscriptionId, Row[V]]) -> dict[SubscriptionId, AppliedCalls[V]]:
    return {each: fold(known[each], waiting) for each, waiting in calls.items() if each in known}


def _finish(calls: Iterable[Call[V]], outcome: object) -> None:
    for call in calls:
        call.finish(outcome)
