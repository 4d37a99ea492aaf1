"""Pulls from parallel subscriptions: finds messages, leases them to a consumer, and waits when there are none.

No `asyncio.timeout`, `TaskGroup` or `current_task` before the first wait: `ams.http.fast_lane` runs it without a task.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import structlog
from pyroaring import BitMap64

from ams.core.clock import Clock, Milliseconds
from ams.core.messages import Stored, attributes_of, ordering_key_of
from ams.core.names import Offset, SubscriptionId
from ams.core.offsets import ranges_of
from ams.core.runs import runs_of, sizes
from ams.service.delivery import Deliverer, Gone
from ams.service.lookup import no_topic_is_a_conflict
from ams.service.parallel.ack_storer import Storer, SubscriptionMoved
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.message_state import FlowWindow, KeyConsumer
from ams.service.parallel.open_subscriptions import OpenSubscription, OpenSubscriptions
from ams.storage.registry.records import Subscription

MAX_READ_MESSAGES = 1000  # messages per read after an empty first read, unless the pull asks for more
MAX_READ_BYTES = 2**22
GROWTH_FACTOR = 8
MAX_SCAN_MS = 1000  # a pull scans messages that are not for it, such as filtered ones, for this time
logger = structlog.get_logger("ams.parallel")


def offsets_of(messages: Sequence[Stored]) -> list[Offset]:
    """Return the offsets of messages that are in offset order."""
    return [Offset(each) for run in runs_of(messages) for each in range(run.first, run.end)]


class LeaseBatch(NamedTuple):
    """Messages of a pull that are leased together: their ack ids share the part behind the dash."""

    hand_out: str  # part of the ack ids behind the dash
    attempt: int  # delivery attempt of each message, from 1
    messages: Sequence[Stored]


class _Consumer(NamedTuple):
    holder: str
    held_for: str | None
    lease_ms: Milliseconds
    window: FlowWindow | None
    keys: KeyConsumer | None  # ordering keys are bound to it; None: it takes one message of each key


class Puller:
    """Leases messages to consumers."""

    def __init__(self, deliverer: Deliverer, opened: OpenSubscriptions, storer: Storer, clock: Clock) -> None:
        self._deliverer, self._log, self._opened = deliverer, deliverer.log, opened
        self._storer, self._clock = storer, clock

    async def pull(
        self, subscription: Subscription, most: int, *, holder: str, held_for: str | None = None, wait: bool = False,
        max_bytes: int | None = None, seconds: int | None = None, window: FlowWindow | None = None,
        one_of_each_key: bool = False,
    ) -> Sequence[LeaseBatch]:  # fmt: skip
        """Lease up to `most` messages to a consumer for so many `seconds`; None: for the subscription's deadline.

        `window` is the flow control of the stream they go to. A stream gets more messages of an ordering key while it
        has some; any other pull gets none before those are settled. `holder` names the consumer, for its fair share.
        `held_for` is the `project` of `Deliverer.pull`; `wait` and `max_bytes` are as there.
        """
        limit = max_bytes or self._deliverer.max_bytes
        length = Milliseconds((seconds or subscription.ack_deadline_seconds) * 1000)
        has_keys = subscription.parallel is not None and subscription.parallel.enable_message_ordering
        keys = window or (KeyConsumer() if has_keys and not one_of_each_key else None)
        consumer = _Consumer(holder, held_for, length, window, keys)
        with no_topic_is_a_conflict:
            while True:
                opened = await self._opened.use(subscription)
                with contextlib.suppress(SubscriptionMoved):  # then it is not open any more
                    async with opened.giving:
                        if self._opened.has(opened):
                            lots = await self._give(opened, most, consumer, limit)
                            break
        if not (lots or wait):
            self._deliverer.counts.note_pull(subscription.id)
        return lots

    async def _find(self, opened: OpenSubscription, most: int, max_bytes: int, consumer: _Consumer) -> Sequence[Stored]:
        """Return messages to give, in offset order: those to be redelivered, then as many new ones as fit.

        One call per subscription at a time. At least one message, or at most `max_bytes`. Empty if the backlog is
        empty, or the filter passed over all of it for `MAX_SCAN_MS`: the next call goes on there.
        """
        keys = consumer.keys
        has_ready = opened.backlog.has_ready or (keys is not None and keys.ready)
        ready_messages = await self._read_ready(opened, most, max_bytes, keys) if has_ready else []
        left = max_bytes - sizes(ready_messages)[0]
        if ready_messages and (len(ready_messages) == most or left <= 0):
            return ready_messages
        try:
            new = await self._read_new(opened, most - len(ready_messages), left, consumer)
        except BaseException:
            opened.backlog.give_back(offsets_of(ready_messages))
            raise
        if not ready_messages:
            return new
        if sizes(new)[0] > left:  # one at least was read
            opened.backlog.give_back(offsets_of(new))
            return ready_messages
        return [*ready_messages, *new]

    async def _read_ready(
        self, opened: OpenSubscription, most: int, max_bytes: int, keys: KeyConsumer | None
    ) -> list[Stored]:
        backlog, found = opened.backlog, []
        offsets = backlog.ready_messages(most, keys)
        left = max_bytes
        try:
            for begin, end in ranges_of(BitMap64(offsets)):
                read = await self._log.read(opened.topic, begin, max_messages=end - begin, max_bytes=left)
                last = read[-1].offset + 1 if read else (await self._log.bounds(opened.topic)).oldest
                here = {each.offset for each in read}
                lost = [each for each in map(Offset, range(begin, min(end, last))) if each not in here]
                if lost:  # retention took them, or they are damaged
                    name = opened.subscription.name
                    logger.warning("subscription.lost", subscription=name, first=lost[0], messages=len(lost))
                    backlog.note_lost(lost)
                found += [each for each in read if each.offset < end]
                left -= sizes(read)[0]
                if left <= 0:
                    break
        except BaseException:
            backlog.give_back(offsets)
            raise
        taken = {each.offset for each in found}
        backlog.give_back([each for each in offsets if each not in taken])
        return found

    async def _read_new(
        self, opened: OpenSubscription, most: int, max_bytes: int, consumer: _Consumer
    ) -> Sequence[Stored]:
        backlog, until = opened.backlog, self._clock.monotonic() + MAX_SCAN_MS
        many, room = most, max_bytes
        while backlog.may_scan(consumer.holder):
            start = backlog.done.scan
            read = await self._log.read(opened.topic, start, max_messages=many, max_bytes=room)
            if not read and not await self._is_hole(opened, start):
                break
            found = self._choose(opened, read, most, max_bytes, consumer.keys)
            if found or self._clock.monotonic() >= until:
                return found
            many, room = max(most, min(GROWTH_FACTOR * many, MAX_READ_MESSAGES)), max(max_bytes, MAX_READ_BYTES)
            await asyncio.sleep(0)  # for the other requests
        return ()

    def _choose(
        self, opened: OpenSubscription, read: Sequence[Stored], most: int, max_bytes: int, keys: KeyConsumer | None
    ) -> Sequence[Stored]:
        """Return the read messages that may be given, as many as fit; the scan stops behind the last one."""
        backlog, now = opened.backlog, self._clock.monotonic()
        looks = opened.filter is not None or opened.options.enable_message_ordering
        runs = runs_of(read)
        fits = len(read) <= most and sum([run.size for run in runs]) <= max_bytes
        takes_all = bool(runs) and fits and not looks and backlog.may_give_all(runs[0].first, runs[-1].end)
        chosen: list[Stored] = []
        left = max_bytes
        for run in runs:
            if run.first > backlog.done.scan:  # damaged, or left out when the topic was loaded
                backlog.done.pass_over(backlog.done.scan, run.first)
            for each in () if takes_all else run.messages:
                if chosen and (len(chosen) == most or len(each.fragment) > left):
                    return chosen
                if self._may_give(opened, each, now, keys):
                    chosen.append(each)
                    left -= len(each.fragment)
                backlog.done.note_scanned(Offset(each.offset + 1))
            backlog.done.note_scanned(run.end)
        return read if takes_all else chosen

    def _may_give(self, opened: OpenSubscription, message: Stored, now: Milliseconds, keys: KeyConsumer | None) -> bool:
        backlog, (offset, _, fragment) = opened.backlog, message
        if offset in backlog.done:
            return False
        if opened.filter is not None and not opened.filter(attributes_of(fragment)):
            backlog.done.pass_over(offset, Offset(offset + 1))
            return False
        key = ordering_key_of(fragment) if opened.options.enable_message_ordering else ""
        return backlog.may_give(offset, key, now, keys)

    async def _is_hole(self, opened: OpenSubscription, start: Offset) -> bool:
        bounds = await self._log.bounds(opened.topic)
        if bounds.end <= start:
            return False
        await self._opened.retain(opened)
        # Read again: messages published since the last read are no hole.
        late = await self._log.read(opened.topic, start, max_messages=1, max_bytes=1)
        if not late and opened.backlog.done.scan == start:
            logger.warning("parallel.hole", subscription=opened.subscription.name, offset=start)
            opened.backlog.done.pass_over(start, bounds.end)
            opened.backlog.done.note_scanned(bounds.end)
        return True

    async def _give(
        self, opened: OpenSubscription, most: int, consumer: _Consumer, max_bytes: int
    ) -> Sequence[LeaseBatch]:
        await self._storer.expire(opened)
        most = min(most, self._deliverer.max_messages, opened.backlog.room(consumer.holder))
        if consumer.window is not None:
            most, max_bytes = min(most, consumer.window.messages), min(max_bytes, consumer.window.bytes)
        max_bytes = min(max_bytes, opened.backlog.room_bytes(consumer.holder))
        if most <= 0 or max_bytes <= 0:
            return ()
        messages = await self._find(opened, most, max_bytes, consumer)
        if opened.backlog.failures.dead:
            self._opened.note_due(opened)
        return await self._lease(opened, messages, consumer)

    async def _lease(
        self, opened: OpenSubscription, messages: Sequence[Stored], consumer: _Consumer
    ) -> Sequence[LeaseBatch]:
        if not messages:
            return ()
        backlog = opened.backlog
        kept: Sequence[Stored] = ()
        try:
            await self._storer.extend_horizon(opened, consumer.lease_ms)
            kept = await self._limit_to_memory(opened.subscription.id, messages, consumer.held_for)
        finally:
            if len(kept) < len(messages):
                backlog.give_back(offsets_of(messages)[len(kept) :])
        if kept and (taken := backlog.find_taken(offsets_of(kept))):
            kept = [each for each in kept if each.offset not in taken]
        deadline = Milliseconds(self._clock.monotonic() + consumer.lease_ms)
        lots = []
        for attempt, lot in _by_attempt(backlog, kept):
            if lot:
                offsets, size = offsets_of(lot), sizes(lot)[0]
                hand_out = backlog.give(offsets, attempt, size, deadline, consumer.holder, consumer.window)
                lots.append(LeaseBatch(hand_out, attempt, lot))
        self._opened.note_due(opened)
        return lots

    async def _limit_to_memory(
        self, subscription: SubscriptionId, messages: Sequence[Stored], held_for: str | None
    ) -> Sequence[Stored]:
        """Return as many of the first messages as fit the memory for unread answers, at this answer's turn."""
        unread = self._deliverer.unread
        messages, size, data_bytes = unread.fit(held_for, messages)
        with unread.hold_answer(held_for, size):
            await self._deliverer.turn(size, held_for)
        self._deliverer.counts.note_pull(subscription, len(messages), data_bytes)
        return messages

    async def wait(self, subscription: Subscription, holder: str, until: float, left: Gone | None = None) -> bool:
        """Wait after an empty pull, as `Deliverer.wait`; return whether to pull again."""
        loop = asyncio.get_running_loop()
        with no_topic_is_a_conflict:
            opened = await self._opened.use(subscription)
            if until > loop.time() and opened.backlog.room(holder) and opened.backlog.has_ready:
                return True
            return await self._deliverer.wait_for(
                subscription.id, lambda seconds: self._change(opened, holder, seconds), until, left
            )

    def message_waiter(
        self, subscription: SubscriptionId, seconds: float, *, holder: str
    ) -> Coroutine[Any, Any, None] | None:
        """Return a coroutine that waits for messages or raises `TimeoutError`; None: not open here."""
        opened = self._opened.get(subscription)
        if opened is None or not self._opened.holds(subscription):
            return None

        async def wait_for_messages() -> None:
            is_ready = opened.backlog.room(holder) and opened.backlog.has_ready
            if not (is_ready or await self._change(opened, holder, seconds)):
                raise TimeoutError

        return wait_for_messages()

    async def _change(self, opened: OpenSubscription, holder: str, seconds: float) -> bool:
        """Wait for a ready message, for room, or for growth of the topic; return whether any came."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        has_room = bool(opened.backlog.room(holder)) and opened.backlog.may_scan(holder)
        kind = holder, not has_room
        opened.waiting.setdefault(kind, set()).add(woken)
        waits: set[asyncio.Future[Any]] = {woken}
        if has_room:
            waits.add(asyncio.ensure_future(self._log.wait(opened.topic, opened.backlog.done.scan, seconds)))
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
    attempt_of = backlog.failures.attempt_of
    if backlog.keys:  # they are answered in order
        return [(attempt, [*some]) for attempt, some in groupby(messages, lambda each: attempt_of(each.offset))]
    lots: dict[int, list[Stored]] = {}
    for each in messages:
        lots.setdefault(attempt_of(each.offset), []).append(each)
    return lots.items()
