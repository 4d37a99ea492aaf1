"""Moving cursors: all calls of one turn of the event loop go as one statement, whichever cursors they move.

A call is a function of the pure state (`ams.storage.cursors.state`). It is computed on the row last seen here, several
calls for one cursor one after the other, and what comes of it is true if the row is still the same when it is written.
Who finds it changed reads it again and computes again. What would be answered without a write, an error too, is
answered only from a row that was read after the call came.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import structlog

from ams.core.errors import OUTCOME_UNKNOWN, AmsError, CursorsUnavailable, SubscriptionGone
from ams.core.names import SubscriptionId
from ams.storage import postgresql
from ams.storage.cursors.postgresql import rows
from ams.storage.cursors.postgresql.line import Interrupted, Line
from ams.storage.cursors.postgresql.rows import Row, Rows
from ams.storage.cursors.postgresql.time import DatabaseTime
from ams.storage.cursors.state import Cursor

Step = Callable[[Cursor], tuple[Cursor, Any]]
"""Moves a cursor and gives the answer, or raises an `AmsError`."""

MAX_SEEN = 20_000
"""Rows remembered: a shortcut, so when there are more all are forgotten."""

log = structlog.get_logger("ams.cursors")


@dataclass(slots=True, eq=False)
class Call:
    """One call that waits for its answer."""

    step: Step
    give_up: float
    """In the time of the event loop."""
    answer: asyncio.Future[Any]
    run: int | None = None
    """What the versions begin at if this call moves the cursor: when it is unsure, the row tells by it."""
    unsure: bool = False
    """Whether it was sent and no answer came. Something is then written even if there is nothing to change any more:
    what is read after a crash may not be on the standby yet, what is written is."""

    def finish(self, outcome: Any) -> None:
        """Answer, unless whoever asked has left."""
        if self.answer.done():
            return
        if isinstance(outcome, AmsError):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


Calls = Mapping[SubscriptionId, Sequence[Call]]


class Fold(NamedTuple):
    """What comes of a cursor's calls, one after the other, and what each is answered if the row is still the same."""

    before: Row
    after: Row
    calls: Sequence[Call]
    outcomes: Sequence[Any]

    @property
    def moves(self) -> bool:
        """Whether there is something to write."""
        return self.after is not self.before

    def finish(self) -> None:
        """Answer all calls."""
        for call, outcome in zip(self.calls, self.outcomes, strict=True):
            call.finish(outcome)


def fold(row: Row, calls: Sequence[Call]) -> Fold:
    """Compute calls on a row, one after the other."""
    after, outcomes = row, []
    for call in calls:
        after, outcome = _apply(after, call)
        outcomes.append(outcome)
    return Fold(row, after, calls, outcomes)


def _apply(row: Row, call: Call) -> tuple[Row, Any]:
    if call.unsure and call.run is not None and row.stems_from(call.run):
        cursor, outcome = row.cursor, True
    else:
        try:
            cursor, outcome = call.step(row.cursor)
        except AmsError as error:
            return row, error
    if cursor is not row.cursor and call.run is not None:
        return Row(cursor, call.run), outcome
    if cursor is not row.cursor or call.unsure:
        return Row(cursor, row.version + 1), outcome
    return row, outcome


class Mover:
    """Gathers calls while the last group is on its way, and sends the next."""

    def __init__(self, line: Line, time: DatabaseTime) -> None:
        self._line = line
        self._time = time
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[SubscriptionId, list[Call]] = {}
        self._seen: dict[SubscriptionId, Row] = {}
        self._running: asyncio.Task[None] | None = None

    async def move(self, subscription: SubscriptionId, step: Step, *, run: int | None = None) -> Any:
        """Do one atomic step; its answer is given when what it moved is stored."""
        call = Call(step, self._loop.time() + postgresql.CALL_SECONDS, self._loop.create_future(), run)
        self._waiting.setdefault(subscription, []).append(call)
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="ams-cursors-move")
        return await call.answer

    def saw(self, subscription: SubscriptionId, row: Row) -> None:
        """Remember a row that was read, unless a later one is known."""
        known = self._seen.get(subscription)
        if known is not None and known.stems_from(row.version):
            return
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        self._seen[subscription] = row

    def forget(self, subscription: SubscriptionId) -> None:
        """Remember a cursor no more."""
        self._seen.pop(subscription, None)

    async def close(self) -> None:
        """Finish what was accepted."""
        if self._running is not None:
            await asyncio.wait((self._running,))

    async def _run(self) -> None:
        while self._waiting:
            calls, self._waiting = self._waiting, {}
            try:
                await self._try_to_send(calls)
            except CursorsUnavailable as error:
                for call in chain.from_iterable(calls.values()):
                    call.finish(CursorsUnavailable(OUTCOME_UNKNOWN) if call.unsure else error)
            except Exception:  # a defect: those who wait must be told
                log.exception("cursors.failed")
                _finish(chain.from_iterable(calls.values()), CursorsUnavailable())
        self._running = None

    async def _try_to_send(self, calls: Calls) -> None:
        try:
            await self._send(calls)
        except Interrupted:
            self._again(calls)

    async def _send(self, calls: Calls) -> None:
        give_up = min(call.give_up for each in calls.values() for call in each)
        moving = {each: made for each, made in _folded(calls, self._seen).items() if made.moves}
        doubtful = {each: waiting for each, waiting in calls.items() if each not in moving}
        if doubtful:
            known = await self._line.run(lambda connection, _: rows.read(connection, self._time, doubtful), give_up)
            moving |= self._answer_unmoved(doubtful, known)
        if moving:
            await self._write(moving, give_up)

    def _answer_unmoved(self, calls: Calls, known: Rows) -> dict[SubscriptionId, Fold]:
        """Answer what rows that were just read answer by themselves; return what is to be written."""
        moving: dict[SubscriptionId, Fold] = {}
        for subscription in calls.keys() - known.keys():
            self.forget(subscription)
            _finish(calls[subscription], SubscriptionGone())
        for subscription, made in _folded(calls, known).items():
            self.saw(subscription, made.before)
            if made.moves:
                moving[subscription] = made
            else:
                made.finish()
        return moving

    async def _write(self, moving: Mapping[SubscriptionId, Fold], give_up: float) -> None:
        moves = {each: (made.before, made.after) for each, made in moving.items()}
        try:
            written = await self._line.run(
                lambda connection, seconds: rows.write(connection, self._time, moves, seconds), give_up
            )
        except Interrupted:
            for made in moving.values():
                for call in made.calls:
                    call.unsure = True
            raise
        for subscription, made in moving.items():
            if subscription in written:
                self.saw(subscription, made.after)
                made.finish()
            else:
                self._again({subscription: made.calls})

    def _again(self, calls: Calls) -> None:
        """Compute calls again, on rows read anew, before those that came meanwhile."""
        for subscription, each in calls.items():
            self.forget(subscription)
            left = [call for call in each if not call.answer.done()]
            if left:
                self._waiting[subscription] = left + self._waiting.get(subscription, [])


def _folded(calls: Calls, known: Rows) -> dict[SubscriptionId, Fold]:
    return {each: fold(known[each], waiting) for each, waiting in calls.items() if each in known}


def _finish(calls: Iterable[Call], outcome: object) -> None:
    for call in calls:
        call.finish(outcome)
