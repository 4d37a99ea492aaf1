"""Settling leased messages by their ack ids: acknowledge, nack, extend, give back.

Each id counts for itself. Those that count no more are named in an error, and the others are settled.

Up to the first wait no `asyncio.timeout`, `TaskGroup` or `current_task`: `ams.http.lane` drives this without a task.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

from ams.access.admission import Caller
from ams.core.ack_ids import MAX_ACK_DEADLINE, AckId, AckIds, NeverGiven, in_order_of_hand_outs, slices_of
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AckTimeout, InvalidInput
from ams.core.names import ProjectName, SubscriptionId, SubscriptionName
from ams.push.upstream import Verdict
from ams.service.delivering import Deliverer
from ams.service.lookup import no_topic_is_a_conflict, parallel_options
from ams.service.parallel.backlog import Backlog, Settling
from ams.service.parallel.opening import OpenSubscription, OpenSubscriptions
from ams.service.parallel.storing import MAX_TRIES, Moved, Storer, failed_of
from ams.storage.cursors.acks import CursorStore
from ams.storage.registry.records import Subscription

SLICE = 1000
"""Ids that are looked up in one turn of the event loop."""
LATE, OUT_OF_ORDER = "ack timeout", "ack out of order"
SHOWN_IDS = 100
"""Ids that an error names at most: clients that want to know of each send no more at a time."""

T = TypeVar("T")
Look = Callable[[Backlog, AckIds, Milliseconds], T]
"""Looks ids up in a backlog at a time."""


class LateIds(AckTimeout):
    """Some ids came after their deadline, or count no more; what was asked for the others is done."""

    def __init__(self, message: str, ids: Sequence[AckId], out_of_order: AbstractSet[AckId] = frozenset()) -> None:
        """`out_of_order` are those that came too soon: they count when earlier messages of their keys are done."""
        super().__init__(message)
        self.ids, self.out_of_order = ids, out_of_order


@dataclass(frozen=True, slots=True)
class Settler:
    """Settles messages by their ack ids."""

    deliverer: Deliverer
    cursors: CursorStore
    opened: OpenSubscriptions
    storer: Storer
    clock: Clock

    async def acknowledge(self, subscription: Subscription, project: ProjectName, ids: AckIds) -> None:
        """Acknowledge each of these; durable when it returns, but for those behind others of their keys that are out.

        Raises `NeverGiven` for ids that were never given, `InvalidInput` for one that cannot be read, and nothing is
        done. Raises `LateIds`, naming them, when some came after their deadline, or with exactly-once delivery before
        those of earlier messages of their keys: the others are acknowledged.
        """
        out_of_order: set[AckId] = set()

        def acknowledge(backlog: Backlog, ids: AckIds, now: Milliseconds) -> Settling:
            settling = backlog.acknowledge(ids, now)
            out_of_order.update(settling.out_of_order)
            return settling

        options = subscription.parallel
        if options is not None and options.enable_message_ordering and not _are_few(ids):
            ids = in_order_of_hand_outs(ids)  # in parts, of which none is to be out of order for a later one
        late = await self._settled(subscription, project, ids, acknowledge)
        self.deliverer.counts.note_acknowledgement(subscription.id)
        _refuse(late, out_of_order)

    async def nack(
        self,
        subscription: Subscription,
        project: ProjectName,
        ids: AckIds,
        wait: Milliseconds | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        """Give messages back, so that they come again after `wait`, None: as the retry policy says. Durable.

        `verdict` says why, for those that become dead letters by this. Raises as `acknowledge`.
        """

        def settle(backlog: Backlog, ids: AckIds, now: Milliseconds) -> Settling:
            settling = backlog.nack(ids, now, wait)
            opened = self.opened.get(subscription.id)
            if verdict is not None and opened is not None:
                opened.note(verdict, settling)
            return settling

        _refuse(await self._settled(subscription, project, ids, settle))

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
        """Let leases end so many seconds from now, taken over by `holder`; 0 is a nack. Raises likewise."""
        if seconds == 0:
            await self.nack(subscription, project, ids)
            return
        length = Milliseconds(seconds * 1000)

        def extend(backlog: Backlog, ids: AckIds, now: Milliseconds) -> Sequence[AckId]:
            return backlog.extend(ids, Milliseconds(now + length), now, holder)

        late: list[AckId] = []
        async for some in self._in_turns(subscription, project, ids):
            opened, is_leased = await self._looked_up(subscription, project, some, Backlog.check)
            if is_leased:
                await self.storer.reach(opened, opened.backlog.scan, length)
            opened, counted_no_more = await self._looked_up(subscription, project, some, extend)
            late += counted_no_more
            self.opened.note_due(opened)
        _refuse(late)

    async def give_back(self, subscription: Subscription, project: ProjectName, ids: AckIds) -> None:
        """Let messages be given again at once, without counting a failure, storing nothing. Raises as `acknowledge`."""
        late: list[AckId] = []
        async for some in self._in_turns(subscription, project, ids):
            opened, counted_no_more = await self._looked_up(subscription, project, some, Backlog.release)
            opened.wake_served()
            late += counted_no_more
        _refuse(late)

    def release(self, subscription: SubscriptionId, ids: AckIds) -> Sequence[AckId]:
        """Do what `give_back` does, of a subscription that is used here; return the ids that count no more."""
        opened = self.opened.get(subscription)
        if opened is None:  # the next use finds them
            return ()
        late = opened.backlog.release(ids, self.clock.monotonic())
        opened.wake_served()
        return late

    async def _settled(
        self, subscription: Subscription, project: ProjectName, ids: AckIds, settle: Look[Settling]
    ) -> Sequence[AckId]:
        """Store what is to be settled; return the ids that count no more."""
        if _are_few(ids):
            return await self._settled_at_once(subscription, project, ids, settle)
        late: list[AckId] = []
        async for some in self._in_turns(subscription, project, ids):
            late += await self._settled_at_once(subscription, project, some, settle)
        return late

    async def _in_turns(self, subscription: Subscription, project: ProjectName, ids: AckIds) -> AsyncIterator[AckIds]:
        """Yield ids, many of them in slices with turns of others between; nothing is done when one was never given."""
        if _are_few(ids):
            yield ids
            return
        never_given: list[AckId] = []
        for some in slices_of(ids, SLICE):
            try:
                await self._looked_up(subscription, project, some, Backlog.check)
            except NeverGiven as error:
                never_given += error.ids
            await asyncio.sleep(0)
        if never_given:
            raise NeverGiven(never_given)
        for some in slices_of(ids, SLICE):
            yield some
            await asyncio.sleep(0)

    async def _settled_at_once(
        self, subscription: Subscription, project: ProjectName, ids: AckIds, settle: Look[Settling]
    ) -> Sequence[AckId]:
        """Settle a few ids; again when the subscription was moved, or another call, which may fail, settles them.

        Raises the error of the last try.
        """
        late: list[AckId] = []
        failed: BaseException = Moved()
        for _ in range(MAX_TRIES):
            opened, settling = await self._looked_up(subscription, project, ids, settle)
            with contextlib.suppress(Moved):
                await self.storer.settle(opened, settling)
                late += settling.late
                if not settling.unsure:
                    return late
                ids = settling.unsure
                failed = await failed_of(opened.storing) or Moved()
        raise failed

    async def _looked_up(
        self, subscription: Subscription, project: ProjectName, ids: AckIds, look: Look[T]
    ) -> tuple[OpenSubscription, T]:
        """Open a subscription and look ids up in it; returns both.

        Again when the topic has grown, as a former owner may have given late what is new. And anew when another process
        took the subscription over, and gave the ids, while this one believed that it owns it.
        """
        opened = await self.opened.use(subscription, project)
        try:
            return opened, look(opened.backlog, ids, self.clock.monotonic())
        except InvalidInput as error:
            with no_topic_is_a_conflict:
                bounds = await self.deliverer.log.bounds(opened.topic)
            if opened.backlog.restart_grace.grow(bounds.end):
                with contextlib.suppress(InvalidInput):
                    return opened, look(opened.backlog, ids, self.clock.monotonic())
            if not isinstance(error, NeverGiven):
                raise
            stored = await self.cursors.progress(subscription.id)
            if (stored.epoch, stored.run) == (opened.backlog.epoch, opened.backlog.run):
                raise
        if self.opened.has(opened):
            self.opened.leave(subscription.id)
        opened = await self.opened.use(subscription, project)  # raises `OwnedElsewhere`, as a rule
        return opened, look(opened.backlog, ids, self.clock.monotonic())


def _are_few(ids: AckIds) -> bool:
    """Return whether ids may be looked up in one turn of the event loop."""
    return len(ids) <= SLICE and sum(map(len, ids.values())) <= SLICE


def _refuse(late: Sequence[AckId], out_of_order: AbstractSet[AckId] = frozenset()) -> None:
    if not late:
        return
    reason = OUT_OF_ORDER if out_of_order >= set(late) else LATE
    shown = ", ".join([f"{each.offset}-{each.hand_out}" for each in late[:SHOWN_IDS]])
    more = f" and {len(late) - SHOWN_IDS} more" if len(late) > SHOWN_IDS else ""
    raise LateIds(f"{reason}: {shown}{more}", late, out_of_order)


@dataclass(frozen=True, slots=True)
class LeaseRequests:
    """Extends leases, and takes messages back."""

    deliverer: Deliverer
    settler: Settler

    async def extend(self, caller: Caller, name: SubscriptionName, ids: AckIds, seconds: int) -> None:
        """Let leases end so many seconds from now; 0 gives the messages back.

        Raises `InvalidInput`, `NotFound`, `NotAllowed`, `Conflict` for an ordered subscription, and as
        `Settler.extend`.
        """
        subscription = await self._to_settle(caller, name, ids, seconds)
        await self.settler.extend(subscription, caller.here.name, ids, seconds, holder=holder_of(caller))

    async def nack(self, caller: Caller, name: SubscriptionName, ids: AckIds, seconds: int | None) -> None:
        """Give messages back, to come again after so many seconds, None: as the retry policy says; raises likewise."""
        subscription = await self._to_settle(caller, name, ids, seconds or 0)
        wait = None if seconds is None else Milliseconds(seconds * 1000)
        await self.settler.nack(subscription, caller.here.name, ids, wait)

    async def give_back(self, caller: Caller, name: SubscriptionName, ids: AckIds) -> None:
        """Give messages back that nobody has worked on: they come again at once. Raises likewise."""
        subscription = await self._to_settle(caller, name, ids, 0)
        await self.settler.give_back(subscription, caller.here.name, ids)

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
        parallel_options(subscription.parallel)
        return subscription


def holder_of(caller: Caller) -> str:
    """Return the name under which a caller holds leases."""
    return caller.name or ""
