"""Settles leased messages by their ack ids: acknowledge, nack, extend, give back.

Each id is settled independently. An error names the late ones; the others are settled.

No `asyncio.timeout`, `TaskGroup` or `current_task` before the first wait: `ams.http.fast_lane` runs it without a task.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ams.access.admission import Caller
from ams.core.ack_ids import MAX_ACK_DEADLINE, AckId, AckIds, NeverGiven, slice_ids, sort_by_hand_out
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AckTimeout, InvalidInput
from ams.core.names import SubscriptionId, SubscriptionName
from ams.push.upstream import Verdict
from ams.service.delivery import Deliverer
from ams.service.lookup import no_topic_is_a_conflict, parallel_options
from ams.service.parallel.ack_storer import MAX_TRIES, Storer, SubscriptionMoved, storing_error
from ams.service.parallel.backlog import Backlog, Settling
from ams.service.parallel.open_subscriptions import OpenSubscription, OpenSubscriptions
from ams.storage.registry.records import Subscription

SLICE = 1000  # ids looked up in one iteration of the event loop
LATE, OUT_OF_ORDER = "ack timeout", "ack out of order"
SHOWN_IDS = 100  # ids that an error names at most; clients that need all of them send fewer at a time
T = TypeVar("T")
Look = Callable[[Backlog, AckIds, Milliseconds], T]  # looks up ids in a backlog at a moment
SliceWork = Callable[[AckIds], Awaitable[Sequence[AckId]]]  # settles some ids, and returns late ones


class LateIds(AckTimeout):
    """Some ids came after their deadline, or are invalid by now. The others are settled."""

    def __init__(self, message: str, ids: Sequence[AckId], out_of_order: AbstractSet[AckId]) -> None:
        """`out_of_order`: ids to repeat when earlier messages of their keys are acknowledged."""
        super().__init__(message)
        self.ids, self.out_of_order = ids, out_of_order


@dataclass(frozen=True, slots=True)
class Settler:
    """Settles messages by their ack ids."""

    deliverer: Deliverer
    opened: OpenSubscriptions
    storer: Storer
    clock: Clock

    async def to_settle(
        self, caller: Caller, name: SubscriptionName, ids: AckIds, seconds: int | None = None
    ) -> Subscription:
        """Return what a consumer may settle. Raises `InvalidInput`, `NotFound`, `NotAllowed`, `Conflict`."""
        if not 0 <= (seconds or 0) <= MAX_ACK_DEADLINE:
            raise InvalidInput(f"Seconds should be between 0 and {MAX_ACK_DEADLINE}")
        if not ids:
            raise InvalidInput("Invalid ack id")
        subscription = await self.deliverer.to_acknowledge(caller, name)
        parallel_options(subscription.parallel)
        return subscription

    async def acknowledge(self, subscription: Subscription, ids: AckIds) -> None:
        """Acknowledge messages. Durable when it returns, except for those held behind others of their ordering keys.

        Raises `NeverGiven` or `InvalidInput` for unknown or unreadable ids; nothing is acknowledged then. Raises
        `LateIds` if some are late, or out of order with exactly-once delivery; the others are acknowledged.
        """
        out_of_order: set[AckId] = set()
        options = subscription.parallel
        if options is not None and options.enable_message_ordering and not _are_few(ids):
            ids = sort_by_hand_out(ids)  # so that no slice is out of order because of a later one
        settle = partial(self._settle, subscription, Backlog.acknowledge, out_of_order)
        late = await self._in_slices(subscription, ids, settle)
        self.deliverer.counts.note_acknowledgement(subscription.id)
        _refuse(late, out_of_order)

    async def nack(
        self, subscription: Subscription, ids: AckIds, wait: Milliseconds | None = None, verdict: Verdict | None = None
    ) -> None:
        """Count a failure; redeliver after `wait`, None: by the retry policy. Durable. Raises as `acknowledge`."""

        def nack(backlog: Backlog, ids: AckIds, now: Milliseconds) -> Settling:
            settling = backlog.nack(ids, now, wait)
            opened = self.opened.get(subscription.id)
            if verdict is not None and opened is not None:
                most = backlog.failures.rules.most_attempts
                opened.verdicts |= {each: verdict for each, count in settling.failures.items() if 0 < most <= count}
            return settling

        _refuse(await self._in_slices(subscription, ids, partial(self._settle, subscription, nack, set())))

    async def refuse(self, subscription: Subscription, ids: AckIds, wait: Milliseconds, verdict: Verdict) -> None:
        """Nack messages that an endpoint refused; `wait` applies to a subscription without a retry policy."""
        has_policy = subscription.parallel is not None and subscription.parallel.retry_policy is not None
        await self.nack(subscription, ids, None if has_policy else wait, verdict)

    async def extend(self, subscription: Subscription, ids: AckIds, seconds: int, *, holder: str) -> None:
        """Move leases to `holder`, to end in so many `seconds`; 0 is a nack. Raises as `acknowledge`."""
        if seconds == 0:
            await self.nack(subscription, ids)
            return
        length = Milliseconds(seconds * 1000)

        def extend(backlog: Backlog, ids: AckIds, now: Milliseconds) -> Sequence[AckId]:
            return backlog.extend(ids, Milliseconds(now + length), now, holder)

        async def extend_some(some: AckIds) -> Sequence[AckId]:
            opened, is_leased = await self._look_up(subscription, some, Backlog.check)
            if is_leased:
                await self.storer.extend_horizon(opened, length)
            opened, late = await self._look_up(subscription, some, extend)
            self.opened.note_due(opened)
            return late

        _refuse(await self._in_slices(subscription, ids, extend_some))

    async def give_back(self, subscription: Subscription, ids: AckIds) -> None:
        """End leases without counting a failure; nothing is stored. Raises as `acknowledge`."""

        async def release_some(some: AckIds) -> Sequence[AckId]:
            opened, late = await self._look_up(subscription, some, Backlog.release)
            opened.wake_served()
            return late

        _refuse(await self._in_slices(subscription, ids, release_some))

    def release(self, subscription: SubscriptionId, ids: AckIds) -> Sequence[AckId]:
        """Give back messages of a subscription that is open here; return late ids."""
        opened = self.opened.get(subscription)
        if opened is None:  # the leases ended with it
            return ()
        late = opened.backlog.release(ids, self.clock.monotonic())
        opened.wake_served()
        return late

    async def _in_slices(self, subscription: Subscription, ids: AckIds, work: SliceWork) -> Sequence[AckId]:
        """Settle ids in slices, with turns for others between; raise `NeverGiven` before the first. Return late ids."""
        if _are_few(ids):
            return await work(ids)
        late, never_given = list[AckId](), list[AckId]()
        for some in slice_ids(ids, SLICE):
            try:
                await self._look_up(subscription, some, Backlog.check)
            except NeverGiven as error:
                never_given += error.ids
            await asyncio.sleep(0)
        if never_given:
            raise NeverGiven(never_given)
        for some in slice_ids(ids, SLICE):
            late += await work(some)
            await asyncio.sleep(0)
        return late

    async def _settle(
        self, subscription: Subscription, settle: Look[Settling], out_of_order: set[AckId], ids: AckIds
    ) -> Sequence[AckId]:
        """Settle a few ids. Retries when the subscription moved, or while another call settles them and may fail."""
        late: list[AckId] = []
        failed: BaseException = SubscriptionMoved()
        for _ in range(MAX_TRIES):
            opened, settling = await self._look_up(subscription, ids, settle)
            out_of_order |= settling.out_of_order
            with contextlib.suppress(SubscriptionMoved):
                await self.storer.settle(opened, settling)
                late += settling.late
                if not settling.unsure:
                    return late
                ids = settling.unsure
                failed = await storing_error(opened.storing) or SubscriptionMoved()
        raise failed

    async def _look_up(self, subscription: Subscription, ids: AckIds, look: Look[T]) -> tuple[OpenSubscription, T]:
        """Open a subscription and look up ids in it; return both.

        Retries when the topic has grown: a former owner may have given the new messages. Reopens the subscription when
        another process took it over and gave the ids.
        """
        opened = await self.opened.use(subscription)
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
            stored = await self.deliverer.cursors.progress(subscription.id)
            if (stored.epoch, stored.run) == (opened.backlog.epoch, opened.backlog.run):
                raise
        if self.opened.has(opened):
            self.opened.leave(subscription.id)
        opened = await self.opened.use(subscription)  # raises `OwnedElsewhere`, as a rule
        return opened, look(opened.backlog, ids, self.clock.monotonic())


def _are_few(ids: AckIds) -> bool:
    return len(ids) <= SLICE and sum(map(len, ids.values())) <= SLICE


def _refuse(late: Sequence[AckId], out_of_order: AbstractSet[AckId] = frozenset()) -> None:
    if not late:
        return
    reason = OUT_OF_ORDER if out_of_order >= set(late) else LATE
    shown = ", ".join([f"{each.offset}-{each.hand_out}" for each in late[:SHOWN_IDS]])
    more = f" and {len(late) - SHOWN_IDS} more" if len(late) > SHOWN_IDS else ""
    raise LateIds(f"{reason}: {shown}{more}", late, out_of_order)


def holder_of(caller: Caller) -> str:
    """Return the name under which a caller holds leases."""
    return caller.name or ""
