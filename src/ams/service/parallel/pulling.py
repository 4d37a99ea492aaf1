"""Pulling from a parallel subscription: messages are leased to a consumer, and one that got none may wait.

What runs up to the first wait may be driven without a task (`ams.http.lane`): no `asyncio.timeout`, `TaskGroup` or
`current_task` there.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

from ams.core.clock import Clock, Milliseconds
from ams.core.messages import Stored
from ams.core.names import ProjectName, SubscriptionId
from ams.core.runs import sizes
from ams.service.delivering import Deliverer, Gone
from ams.service.lookup import no_topic_is_a_conflict
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.finding import Finder, offsets_of
from ams.service.parallel.message_state import Window
from ams.service.parallel.opening import Open, OpenSubscriptions, Waiting
from ams.service.parallel.storing import Coverer, Moved, Storer
from ams.storage.registry.records import Subscription


class Lot(NamedTuple):
    """A part of what a pull returns: messages leased together, whose ack ids have the same text behind the dash."""

    hand_out: str
    """That text."""
    attempt: int
    """Number of this delivery of each of them: one more than it has failed."""
    messages: Sequence[Stored]


class _Taker(NamedTuple):
    holder: str
    held_for: str | None
    lease_ms: Milliseconds
    window: Window | None


class Puller:
    """Leases messages to consumers."""

    def __init__(
        self,
        deliverer: Deliverer,
        opened: OpenSubscriptions,
        finder: Finder,
        storer: Storer,
        coverer: Coverer,
        clock: Clock,
    ) -> None:
        """`deliverer` has the limits that both types share, and the pulls that wait."""
        self._deliverer, self._log = deliverer, deliverer.log
        self._opened = opened
        self._finder = finder
        self._storer = storer
        self._coverer = coverer
        self._clock = clock

    async def pull(
        self,
        subscription: Subscription,
        most: int,
        *,
        project: ProjectName,
        holder: str,
        held_for: str | None = None,
        wait: bool = False,
        max_bytes: int | None = None,
        seconds: int | None = None,
        window: Window | None = None,
    ) -> Sequence[Lot]:
        """Lease up to `most` messages to a consumer for so many `seconds`, None: for the subscription's deadline.

        `window` is that of the stream they go to. `holder` names the consumer, whose share is bounded; `held_for` is
        the `project` of `Deliverer.pull`, and `wait` and `max_bytes` are as there.
        """
        limit = max_bytes or self._deliverer.max_bytes
        length = Milliseconds((seconds or subscription.ack_deadline_seconds) * 1000)
        taker = _Taker(holder, held_for, length, window)
        with no_topic_is_a_conflict:
            while True:
                opened = await self._opened.use(subscription, project)
                with contextlib.suppress(Moved):  # then it is not open any more
                    async with opened.giving:
                        if self._opened.has(opened):
                            lots = await self._give(opened, most, taker, limit)
                            break
        if not (lots or wait):
            self._deliverer.counts.note_pull(subscription.id)
        return lots

    # Giving

    async def _give(self, opened: Open, most: int, taker: _Taker, max_bytes: int) -> Sequence[Lot]:
        await self._storer.expire(opened)
        most = min(most, self._deliverer.max_messages, opened.backlog.room(taker.holder))
        if taker.window is not None:
            most, max_bytes = min(most, taker.window.messages), min(max_bytes, taker.window.bytes)
        max_bytes = min(max_bytes, opened.backlog.room_bytes(taker.holder))
        if most <= 0 or max_bytes <= 0:
            return ()
        messages = await self._finder.find(opened, most, max_bytes, taker.holder)
        if opened.backlog.failures.dead:
            self._opened.due.note(opened)
        return await self._lease(opened, messages, taker)

    async def _lease(self, opened: Open, messages: Sequence[Stored], taker: _Taker) -> Sequence[Lot]:
        if not messages:
            return ()
        backlog = opened.backlog
        try:
            await self._coverer.reach(opened, backlog.scan, taker.lease_ms)
            kept = await self._afforded(opened.subscription.id, messages, taker.held_for)
        except BaseException:
            backlog.give_back(offsets_of(messages))
            raise
        if len(kept) < len(messages):
            backlog.give_back(offsets_of(messages)[len(kept) :])
        taken = backlog.taken_of(offsets_of(kept)) if kept else ()
        if taken:
            kept = [each for each in kept if each.offset not in taken]
        deadline = Milliseconds(self._clock.monotonic() + taker.lease_ms)
        lots = [
            Lot(
                backlog.give(offsets_of(lot), attempt, sizes(lot)[0], deadline, taker.holder, taker.window),
                attempt,
                lot,
            )
            for attempt, lot in _by_attempt(backlog, kept)
            if lot
        ]
        self._opened.due.note(opened)
        return lots

    async def _afforded(
        self, subscription: SubscriptionId, messages: Sequence[Stored], held_for: str | None
    ) -> Sequence[Stored]:
        """Return as many of the first messages as there is memory for, when it is the turn of their answer."""
        unread = self._deliverer.unread
        size, data_bytes = sizes(messages)
        if held_for is not None and size > unread.left(held_for):
            messages = unread.within(held_for, messages)
            size, data_bytes = sizes(messages)
        with unread.held(held_for, size):
            await self._deliverer.turn(size)
        self._deliverer.counts.note_pull(subscription, len(messages), data_bytes)
        return messages

    # Waiting

    async def wait(
        self, subscription: Subscription, project: ProjectName, holder: str, until: float, left: Gone | None = None
    ) -> bool:
        """Wait after an empty pull as `Deliverer.wait` does; return whether to pull again."""
        loop = asyncio.get_running_loop()
        with no_topic_is_a_conflict:
            opened = await self._opened.use(subscription, project)
            if until > loop.time() and opened.backlog.room(holder) and opened.backlog.is_again_ready:
                return True
            return await self._deliverer.wait_for(
                subscription.id, lambda seconds: self._change(opened, holder, seconds), until, left
            )

    def coming(self, subscription: SubscriptionId, seconds: float, *, holder: str) -> Coroutine[Any, Any, None] | None:
        """Return a wait for messages that raises `TimeoutError`; None if the subscription is not open here."""
        opened = self._opened.get(subscription)
        return self._come(opened, holder, seconds) if opened and self._opened.holds(subscription) else None

    async def _come(self, opened: Open, holder: str, seconds: float) -> None:
        is_ready = opened.backlog.room(holder) and opened.backlog.is_again_ready
        if not (is_ready or await self._change(opened, holder, seconds)):
            raise TimeoutError

    async def _change(self, opened: Open, holder: str, seconds: float) -> bool:
        """Wait until something is to be given again, there is room again, or the topic has grown; return whether."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        has_room = bool(opened.backlog.room(holder)) and opened.backlog.may_scan(holder)
        kind = Waiting(holder, for_room=not has_room)
        opened.waiting.setdefault(kind, set()).add(woken)
        waits: set[asyncio.Future[Any]] = {woken}
        if has_room:
            waits.add(asyncio.ensure_future(self._log.wait(opened.topic, opened.backlog.scan, seconds)))
        try:
            over, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return any(each is woken or each.exception() is not None or each.result() for each in over)
        finally:
            others = opened.waiting.get(kind, set())
            others.discard(woken)
            if not others:
                opened.waiting.pop(kind, None)
            for each in waits:
                each.cancel()


def _by_attempt(backlog: Backlog, messages: Sequence[Stored]) -> Iterable[tuple[int, Sequence[Stored]]]:
    if not backlog.failures.counts:
        return [(1, messages)]
    lots: dict[int, list[Stored]] = {}
    for each in messages:
        lots.setdefault(backlog.failures.attempt_of(each.offset), []).append(each)
    return lots.items()
