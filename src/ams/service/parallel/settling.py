"""Settling what consumers have on lease, by its ids: acknowledge, nack, extend, give back.

Each id counts for itself. Those that count no more are told, and what was asked for the others is done.

What runs up to the first wait may be driven without a task (`ams.http.lane`): no `asyncio.timeout`, `TaskGroup` or
`current_task` there.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TypeVar

from ams.core.ack_ids import AckId, AckIds, NeverGiven, slices_of
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AckTimeout, InvalidInput
from ams.core.names import ProjectName, SubscriptionId
from ams.push.upstream import Verdict
from ams.service.delivering import Deliverer
from ams.service.lookup import no_topic_is_a_conflict
from ams.service.parallel.backlog import Backlog, Settling
from ams.service.parallel.covering import Coverer
from ams.service.parallel.due import Due
from ams.service.parallel.opened import Open
from ams.service.parallel.opening import OpenSubscriptions
from ams.service.parallel.storing import Moved, Storer, failed_of
from ams.storage.registry.records import Subscription

TRIES = 5
"""Of storing what a subscription settles that is moved meanwhile."""
SLICE = 1000
"""Ids that are looked up in one turn of the event loop."""
LATE = "ack timeout"
SHOWN_IDS = 100
"""Ids that an error names at most: who wants to know of each asks for no more at a time, as the client does."""

T = TypeVar("T")
Settle = Callable[[Backlog, AckIds, Milliseconds], Settling]
"""What is done with ids at a time: it says what is to be stored."""


class LateIds(AckTimeout):
    """Some ids came after their deadline, or count no more; what was asked for the others is done."""

    def __init__(self, message: str, ids: Sequence[AckId]) -> None:
        super().__init__(message)
        self.ids = ids


class Settler:
    """Does what consumers ask for by ids."""

    def __init__(
        self, deliverer: Deliverer, opened: OpenSubscriptions, storer: Storer, coverer: Coverer, due: Due, clock: Clock
    ) -> None:
        """`deliverer` counts acknowledgements."""
        self._log, self._counts = deliverer.log, deliverer.counts
        self._opened = opened
        self._storer = storer
        self._coverer = coverer
        self._due = due
        self._clock = clock

    async def acknowledge(self, subscription: Subscription, project: ProjectName, ids: AckIds) -> None:
        """Acknowledge each of these; durable when it returns.

        Raises `NeverGiven` for ids that were never given, `InvalidInput` for one that cannot be read, and nothing is
        done. Raises `LateIds`, naming them, when some came after their deadline: the others are acknowledged.
        """
        late = await self._settled(subscription, project, ids, Backlog.acknowledge)
        self._counts.note_acknowledgement(subscription.id)
        _refuse_late(late)

    async def nack(
        self,
        subscription: Subscription,
        project: ProjectName,
        ids: AckIds,
        wait: Milliseconds | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        """Give messages back, so that they come again after `wait`, None: as the retry policy says.

        That they failed is durable when it returns. `verdict` is what is said of those that are put aside as dead
        letters now. Raises as `acknowledge`.
        """

        def settle(backlog: Backlog, ids: AckIds, now: Milliseconds) -> Settling:
            settling = backlog.nack(ids, now, wait)
            opened = self._opened.get(subscription.id)
            if verdict is not None and opened is not None:
                opened.note(verdict, settling)
            return settling

        _refuse_late(await self._settled(subscription, project, ids, settle))

    async def refuse(
        self, subscription: Subscription, project: ProjectName, ids: AckIds, wait: Milliseconds, verdict: Verdict
    ) -> None:
        """Let messages fail that an endpoint refused; `wait` is for a subscription without a retry policy."""
        options = subscription.parallel
        own = None if options is not None and options.retry_policy is not None else wait
        await self.nack(subscription, project, ids, own, verdict)

    async def extend(
        self, subscription: Subscription, project: ProjectName, ids: AckIds, seconds: int, *, holder: str
    ) -> None:
        """Let the leases of these end so many seconds from now; 0 gives them back. Raises as `acknowledge`.

        `holder` names the consumer, who has those leases again that are from before a restart.
        """
        if seconds == 0:
            await self.nack(subscription, project, ids)
            return
        length, late = Milliseconds(seconds * 1000), []
        async for some in self._in_turns(subscription, project, ids):
            opened = await self._opened.use(subscription, project)
            if await self._looked_up(opened, partial(opened.backlog.check, some, self._clock.monotonic())):
                await self._coverer.reach(opened, opened.backlog.scan, length)
            now = self._clock.monotonic()
            until = Milliseconds(now + length)
            late += await self._looked_up(opened, partial(opened.backlog.extend, some, until, now, holder))
            self._due.note(opened)
        _refuse_late(late)

    async def give_back(self, subscription: Subscription, project: ProjectName, ids: AckIds) -> None:
        """Let messages be given again that nobody has worked on: at once, and without counting a failure.

        Nothing is stored. Raises as `acknowledge`.
        """
        late: list[AckId] = []
        async for some in self._in_turns(subscription, project, ids):
            opened = await self._opened.use(subscription, project)
            late += await self._looked_up(opened, partial(self.release, subscription.id, some))
        _refuse_late(late)

    def release(self, subscription: SubscriptionId, ids: AckIds) -> Sequence[AckId]:
        """Do what `give_back` does, of a subscription that is used here; return the ids that count no more."""
        opened = self._opened.get(subscription)
        if opened is None:  # whoever opens it finds them
            return ()
        late = opened.backlog.release(ids, self._clock.monotonic())
        opened.wake_served()
        return late

    # How it is done

    async def _settled(
        self, subscription: Subscription, project: ProjectName, ids: AckIds, settle: Settle
    ) -> Sequence[AckId]:
        """Store what is to be settled; return the ids that count no more."""
        if _are_few(ids):
            return await self._settled_at_once(subscription, project, ids, settle)
        late: list[AckId] = []
        async for some in self._in_turns(subscription, project, ids):
            late += await self._settled_at_once(subscription, project, some, settle)
        return late

    async def _in_turns(self, subscription: Subscription, project: ProjectName, ids: AckIds) -> AsyncIterator[AckIds]:
        """Yield ids to be settled, many of them in slices between which other requests have a turn.

        All are looked up before, as nothing is to be done when one of them was never given.
        """
        if _are_few(ids):
            yield ids
            return
        never_given: list[AckId] = []
        for some in slices_of(ids, SLICE):
            opened = await self._opened.use(subscription, project)
            try:
                await self._looked_up(opened, partial(opened.backlog.check, some, self._clock.monotonic()))
            except NeverGiven as error:
                never_given += error.ids
            await asyncio.sleep(0)
        if never_given:
            raise NeverGiven(never_given)
        for some in slices_of(ids, SLICE):
            yield some
            await asyncio.sleep(0)

    async def _settled_at_once(
        self, subscription: Subscription, project: ProjectName, ids: AckIds, settle: Settle
    ) -> Sequence[AckId]:
        """Do what `_settled` does, with a few ids.

        Again when the subscription was sought meanwhile, or taken over by another process and back; and for messages
        that another call was about to acknowledge: what it stores may fail. Raises that when it fails each time.
        """
        late: list[AckId] = []
        failed: BaseException = Moved()
        for _ in range(TRIES):
            opened = await self._opened.use(subscription, project)
            settling = await self._looked_up(opened, partial(settle, opened.backlog, ids, self._clock.monotonic()))
            with contextlib.suppress(Moved):
                await self._storer.settle(opened, settling)
                late += settling.late
                if not settling.unsure:
                    return late
                ids = settling.unsure
                failed = await failed_of(opened.storing) or Moved()
        raise failed

    async def _looked_up(self, opened: Open, look: Callable[[], T]) -> T:
        """Look ids up; again when the topic has grown, as the owner before may have given what is new and is late."""
        try:
            return look()
        except InvalidInput:
            with no_topic_is_a_conflict:
                bounds = await self._log.bounds(opened.topic)
            if not opened.backlog.before.grow(bounds.end):
                raise
            return look()


def _are_few(ids: AckIds) -> bool:
    """Whether ids may be looked up in one turn of the event loop."""
    return len(ids) <= SLICE and sum(map(len, ids.values())) <= SLICE


def _refuse_late(late: Sequence[AckId]) -> None:
    if not late:
        return
    shown = ", ".join([f"{each.offset}-{each.hand_out}" for each in late[:SHOWN_IDS]])
    more = f" and {len(late) - SHOWN_IDS} more" if len(late) > SHOWN_IDS else ""
    raise LateIds(f"{LATE}: {shown}{more}", late)
