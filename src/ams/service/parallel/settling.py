"""Settling what consumers have on lease, by its ids: acknowledge, nack, extend, give back.

Each id counts for itself. Those that count no more are told, and what was asked for the others is done.

What runs up to the first wait may be driven without a task (`ams.http.lane`): no `asyncio.timeout`, `TaskGroup` or
`current_task` there.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ams.access.admission import Caller
from ams.core.ack_ids import MAX_ACK_DEADLINE, AckId, AckIds, NeverGiven, slices_of
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AckTimeout, Conflict, InvalidInput
from ams.core.names import ProjectName, SubscriptionId, SubscriptionName
from ams.push.upstream import Verdict
from ams.service.delivering import Deliverer
from ams.service.lookup import NOT_PARALLEL, no_topic_is_a_conflict
from ams.service.parallel.backlog import Backlog, Settling
from ams.service.parallel.expiry_timer import ExpiryTimer
from ams.service.parallel.opened import Open
from ams.service.parallel.opening import OpenSubscriptions
from ams.service.parallel.storing import Coverer, Moved, Storer, failed_of
from ams.storage.cursors.acks import CursorStore
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
Look = Callable[[Backlog, Milliseconds], T]
"""Looks ids up at a time."""


class LateIds(AckTimeout):
    """Some ids came after their deadline, or count no more; what was asked for the others is done."""

    def __init__(self, message: str, ids: Sequence[AckId]) -> None:
        super().__init__(message)
        self.ids = ids


class Settler:
    """Does what consumers ask for by ids."""

    def __init__(
        self,
        deliverer: Deliverer,
        cursors: CursorStore,
        opened: OpenSubscriptions,
        storer: Storer,
        coverer: Coverer,
        due: ExpiryTimer,
        clock: Clock,
    ) -> None:
        """`deliverer` counts acknowledgements."""
        self._log, self._cursors, self._counts = deliverer.log, cursors, deliverer.counts
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
        length = Milliseconds(seconds * 1000)
        late: list[AckId] = []
        async for some in self._in_turns(subscription, project, ids):
            opened, is_leased = await self._looked_up(subscription, project, partial(_checked, some))
            if is_leased:
                await self._coverer.reach(opened, opened.backlog.scan, length)

            def extend(backlog: Backlog, now: Milliseconds, some: AckIds = some) -> Sequence[AckId]:
                return backlog.extend(some, Milliseconds(now + length), now, holder)

            opened, counted_no_more = await self._looked_up(subscription, project, extend)
            late += counted_no_more
            self._due.note(opened)
        _refuse_late(late)

    async def give_back(self, subscription: Subscription, project: ProjectName, ids: AckIds) -> None:
        """Let messages be given again that nobody has worked on: at once, and without counting a failure.

        Nothing is stored. Raises as `acknowledge`.
        """
        late: list[AckId] = []
        async for some in self._in_turns(subscription, project, ids):
            opened, counted_no_more = await self._looked_up(subscription, project, partial(_released, some))
            opened.wake_served()
            late += counted_no_more
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
            try:
                await self._looked_up(subscription, project, partial(_checked, some))
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
            opened, settling = await self._looked_up(subscription, project, partial(_settled, settle, ids))
            with contextlib.suppress(Moved):
                await self._storer.settle(opened, settling)
                late += settling.late
                if not settling.unsure:
                    return late
                ids = settling.unsure
                failed = await failed_of(opened.storing) or Moved()
        raise failed

    async def _looked_up(self, subscription: Subscription, project: ProjectName, look: Look[T]) -> tuple[Open, T]:
        """Open a subscription and look ids up in it; returns both.

        Again when the topic has grown, as the owner before may have given what is new and is late. And anew when
        another process has taken the subscription over, which gave the ids: this one went on believing that it owns it.
        """
        opened = await self._opened.use(subscription, project)
        try:
            return opened, look(opened.backlog, self._clock.monotonic())
        except InvalidInput as error:
            with no_topic_is_a_conflict:
                bounds = await self._log.bounds(opened.topic)
            if opened.backlog.restart_grace.grow(bounds.end):
                with contextlib.suppress(InvalidInput):
                    return opened, look(opened.backlog, self._clock.monotonic())
            if not (isinstance(error, NeverGiven) and await self._is_overtaken(opened)):
                raise
        if self._opened.has(opened):
            self._opened.leave(subscription.id)
        opened = await self._opened.use(subscription, project)  # raises `OwnedElsewhere`, as a rule
        return opened, look(opened.backlog, self._clock.monotonic())

    async def _is_overtaken(self, opened: Open) -> bool:
        """Return whether another process has begun a run since this one did, or the subscription was sought there."""
        stored = await self._cursors.progress(opened.subscription.id)
        return (stored.epoch, stored.run) != (opened.backlog.epoch, opened.backlog.run)


def _checked(ids: AckIds, backlog: Backlog, now: Milliseconds) -> bool:
    return backlog.check(ids, now)


def _released(ids: AckIds, backlog: Backlog, now: Milliseconds) -> Sequence[AckId]:
    return backlog.release(ids, now)


def _settled(settle: Settle, ids: AckIds, backlog: Backlog, now: Milliseconds) -> Settling:
    return settle(backlog, ids, now)


def _are_few(ids: AckIds) -> bool:
    """Whether ids may be looked up in one turn of the event loop."""
    return len(ids) <= SLICE and sum(map(len, ids.values())) <= SLICE


def _refuse_late(late: Sequence[AckId]) -> None:
    if not late:
        return
    shown = ", ".join([f"{each.offset}-{each.hand_out}" for each in late[:SHOWN_IDS]])
    more = f" and {len(late) - SHOWN_IDS} more" if len(late) > SHOWN_IDS else ""
    raise LateIds(f"{LATE}: {shown}{more}", late)


@dataclass(frozen=True, slots=True)
class LeaseRequests:
    """Extends leases, and takes messages back."""

    deliverer: Deliverer
    settler: Settler

    async def extend(self, caller: Caller, name: SubscriptionName, ids: AckIds, seconds: int) -> None:
        """Let leases end so many seconds from now; 0 gives the messages back.

        Raises `InvalidInput` outside 0 to 600 or without ids, `NotFound`, `NotAllowed`, `Conflict` for an ordered
        subscription, what `Settler.extend` does.
        """
        subscription = await self._to_settle(caller, name, ids, seconds)
        await self.settler.extend(subscription, caller.here.name, ids, seconds, holder=holder_of(caller))

    async def nack(self, caller: Caller, name: SubscriptionName, ids: AckIds, seconds: int | None) -> None:
        """Give messages back, to come again after so many seconds, None: as the retry policy says; raises likewise."""
        subscription = await self._to_settle(caller, name, ids, seconds or 0)
        wait = None if seconds is None else Milliseconds(seconds * 1000)
        await self.settler.nack(subscription, caller.here.name, ids, wait)

    async def give_back(self, caller: Caller, name: SubscriptionName, ids: AckIds) -> None:
        """Give messages back that nobody has worked on: they come again at once, and have not failed.

        Raises likewise.
        """
        subscription = await self._to_settle(caller, name, ids, 0)
        await self.settler.give_back(subscription, caller.here.name, ids)

    async def is_parallel(self, caller: Caller, name: SubscriptionName) -> bool:
        """Whether a subscription that is there is parallel."""
        return await self.deliverer.is_parallel(caller, name)

    async def refuse(
        self, caller: Caller, name: SubscriptionName, ids: AckIds, wait: Milliseconds, verdict: Verdict
    ) -> None:
        """Let messages fail that an endpoint refused, as `Settler.refuse` does; raises likewise."""
        subscription = await self._to_settle(caller, name, ids, 0)
        await self.settler.refuse(subscription, caller.here.name, ids, wait, verdict)

    async def _to_settle(self, caller: Caller, name: SubscriptionName, ids: AckIds, seconds: int) -> Subscription:
        if not 0 <= seconds <= MAX_ACK_DEADLINE:
            raise InvalidInput(f"Seconds should be between 0 and {MAX_ACK_DEADLINE}")
        if not ids:
            raise InvalidInput("Invalid ack id")
        subscription = await self.deliverer.to_acknowledge(caller, name)
        if subscription.parallel is None:
            raise Conflict(NOT_PARALLEL)
        return subscription


def holder_of(caller: Caller) -> str:
    """Return the name under which a caller holds leases."""
    return caller.name or ""
