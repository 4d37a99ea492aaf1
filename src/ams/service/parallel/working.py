"""Working on a parallel subscription: pull, acknowledge, nack, extend.

A subscription that is used is open: its `Backlog` is in memory, of one process at a time (`ownership`). What consumers
settle is stored by `Acks` before they are answered; leases are not stored. A keeper looks after what is due: leases
that ended, waits that are over, messages that have failed too often.

What runs up to the first wait may be driven without a task (`ams.http.lane`): no `asyncio.timeout`, `TaskGroup` or
`current_task` there.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import structlog

from ams.core.ack_ids import AckId, AckIds, slices_of
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AckTimeout, AmsError, InvalidInput, NotFound, Overloaded
from ams.core.messages import Stored
from ams.core.names import Offset, ProjectName, SubscriptionId, TopicId
from ams.core.offsets import Range
from ams.core.runs import sizes
from ams.core.supervisor import Supervisor
from ams.push.upstream import Verdict
from ams.service.dead_letters import NOT_ACKNOWLEDGED, DeadLetters
from ams.service.delivering import Deliverer, Gone
from ams.service.lookup import no_topic_is_a_conflict, topic_of
from ams.service.parallel.backlog import Backlog, Settling
from ams.service.parallel.finding import Finder, offsets_of
from ams.service.parallel.leases import SLOT, Window
from ams.service.parallel.opened import Open, Waiting, opened_by
from ams.service.parallel.ownership import Alone, Ownership
from ams.storage.cursors.acks import Change, CursorStore, Horizon, Progress, ended, farther
from ams.storage.registry.records import Subscription

HORIZON_AHEAD = 10_000
"""Offsets by which more may be out than is, so that it is stored seldom."""
TRIES = 5
"""Of storing what a subscription settles that is moved meanwhile."""
PASSED_STORED = 1000
"""Milliseconds after which it is stored what was passed over."""
LOOK = 60_000
"""Milliseconds between two looks at a subscription of which nothing is due, as retention may have passed it."""
IDLE = Milliseconds(600_000)
"""A subscription that was not used for so long, and has nothing out, is not kept in memory."""
SLICE = 1000
"""Ids that are looked up in one turn of the event loop."""
LATE = "ack timeout"
SHOWN_IDS = 100
"""Ids that an error names at most: who wants to know of each asks for no more at a time, as the client does."""

logger = structlog.get_logger("ams.parallel")

T = TypeVar("T")


class Lot(NamedTuple):
    """Messages of an answer that have one hand-out."""

    hand_out: str
    """The text of their ids behind the dash."""
    attempt: int
    """The number of this delivery of each of them: how often it has failed, and one more."""
    messages: Sequence[Stored]


class _Taker(NamedTuple):
    """Who gets messages, and how."""

    holder: str
    held_for: str | None
    length: Milliseconds
    """Of a lease."""
    window: Window | None

    @property
    def held_by(self) -> tuple[str, Window | None]:
        """Who has the leases."""
        return self.holder, self.window


class LateIds(AckTimeout):
    """Some ids came after their deadline, or count no more; what was asked for the others is done."""

    def __init__(self, message: str, ids: Sequence[AckId]) -> None:
        super().__init__(message)
        self.ids = ids


class Moved(Overloaded):
    """The subscription was sought, or another process works on it now: the same may be asked again."""

    def __init__(self) -> None:
        super().__init__("Subscription was moved")


class Working:
    """What consumers do with parallel subscriptions."""

    def __init__(
        self,
        deliverer: Deliverer,
        cursors: CursorStore,
        dead_letters: DeadLetters,
        clock: Clock,
        ownership: Ownership | None = None,
    ) -> None:
        """`deliverer` has the limits that both types share, and knows who waits.

        `ownership` says what this process may work on; absent: everything. Where it may not, what consumers ask for
        raises `OwnedElsewhere`, and nothing was done.
        """
        self._deliverer = deliverer
        self._ownership = ownership or Alone()
        self._is_alone = isinstance(self._ownership, Alone)
        self._ends: Mapping[TopicId, Offset] | None = None
        """Where topics ended when this process began, which works alone; None: that is not known."""
        self._began = clock.monotonic()
        self._worked_on: set[SubscriptionId] = set()
        """What this process has opened since it began; what it was not given before that is known by `_ends`."""
        self._registry, self._log, self._cursors = deliverer.registry, deliverer.log, cursors
        self._dead_letters = dead_letters
        self._clock = clock
        self._finder = Finder(deliverer.log, cursors, clock)
        self._open: dict[SubscriptionId, Open] = {}
        self._opening: dict[SubscriptionId, asyncio.Lock] = {}
        self._sooner = asyncio.Event()
        """Something is due sooner than the keeper knows."""
        self._looks_at = Milliseconds(0)
        self._keeper: asyncio.Task[None] | None = None
        self.failures = self.dead_letters = 0
        """Deliveries that failed, and messages put aside, since the start."""
        self.streams: Counter[SubscriptionId] = Counter()
        """How many streams consumers have open here; those who have them count them."""

    async def start(self, supervisor: Supervisor) -> None:
        """Look after leases in the background, until `close`."""
        await self._note_ends()
        await self._ownership.start(supervisor, self._forget_all)
        self._keeper = supervisor.task("leases of messages", self._keep(supervisor))

    async def _note_ends(self) -> None:
        """Note where topics end before anything is published: what comes later, no process before this one gave."""
        if self._is_alone:
            with contextlib.suppress(AmsError):
                self._ends = {topic: bounds.end for topic, bounds in (await self._log.all_bounds()).items()}

    async def close(self) -> None:
        """End the background work, let what is being stored be stored, and let go of everything."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait((self._keeper,))
        await self._stored_all()
        await self._ownership.close()

    async def hand_over(self) -> None:
        """Let other nodes have everything, after what is being stored: this one stops soon."""
        await self._stored_all()
        self._forget_all()
        await self._ownership.leave()

    async def _stored_all(self) -> None:
        storing = [task for opened in self._open.values() for task in opened.storing]
        if storing:
            await asyncio.wait(storing)

    # What consumers ask for

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

        `max_bytes` takes the place of the service's own limit. `window` is that of the stream they go to, which may
        get no more than is free of it. With `wait` an empty pull is not over: call the method
        `wait` then. `holder` names the consumer, whose share is bounded; `held_for` is the project for which the answer
        is counted in the memory of unread answers, as in `Deliverer.pull`.
        """
        limit = max_bytes or self._deliverer.max_bytes
        length = Milliseconds((seconds or subscription.ack_deadline_seconds) * 1000)
        taker = _Taker(holder, held_for, length, window)
        with no_topic_is_a_conflict:
            while True:
                opened = await self._opened(subscription, project)
                with contextlib.suppress(Moved):  # then it is not open any more
                    async with opened.giving:
                        if self._open.get(subscription.id) is opened:
                            lots = await self._give(opened, most, taker, limit)
                            break
        if not (lots or wait):
            self._deliverer.counts.note_pull(subscription.id)
        return lots

    async def wait(
        self, subscription: Subscription, project: ProjectName, holder: str, until: float, left: Gone | None = None
    ) -> bool:
        """Wait after an empty pull as `Deliverer.wait` does; return whether to pull again."""
        loop = asyncio.get_running_loop()
        with no_topic_is_a_conflict:
            opened = await self._opened(subscription, project)
            if until > loop.time() and opened.backlog.room(holder) and opened.backlog.is_again_ready:
                return True
            return await self._deliverer.wait_for(
                subscription.id, lambda seconds: self._change(opened, holder, seconds), until, left
            )

    async def acknowledge(self, subscription: Subscription, project: ProjectName, ids: AckIds) -> None:
        """Acknowledge each of these; durable when it returns.

        Raises `InvalidInput` "Invalid ack id" for ids that were never given, and nothing is done. Raises `AckTimeout`,
        naming them, when some came after their deadline: the others are acknowledged.
        """
        late = await self._settled(subscription, project, ids, Backlog.acknowledge)
        self._deliverer.counts.note_acknowledgement(subscription.id)
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
            if verdict is not None:
                self._open[subscription.id].note(verdict, settling)
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
            opened = await self._opened(subscription, project)
            if await self._looked_up(opened, partial(opened.backlog.check, some, self._clock.monotonic())):
                await self._reach(opened, opened.backlog.scan, length)
            now = self._clock.monotonic()
            until = Milliseconds(now + length)
            late += await self._looked_up(opened, partial(opened.backlog.extend, some, until, now, holder))
            self._note_due(opened)
        _refuse_late(late)

    async def give_back(self, subscription: Subscription, project: ProjectName, ids: AckIds) -> None:
        """Let messages be given again that nobody has worked on: at once, and without counting a failure.

        Nothing is stored. Raises as `acknowledge`.
        """
        late: list[AckId] = []
        async for some in self._in_turns(subscription, project, ids):
            opened = await self._opened(subscription, project)
            late += await self._looked_up(opened, partial(self.release, subscription.id, some))
        _refuse_late(late)

    def release(self, subscription: SubscriptionId, ids: AckIds) -> Sequence[AckId]:
        """Do what `give_back` does, of a subscription that is used here; return the ids that count no more."""
        opened = self._open.get(subscription)
        if opened is None:  # whoever opens it finds them
            return ()
        late = opened.backlog.release(ids, self._clock.monotonic())
        opened.wake_served()
        return late

    def forget(self, subscription: SubscriptionId) -> None:
        """Let go of a subscription that was sought, deleted, or changed: who uses it opens it anew."""
        opened = self._open.pop(subscription, None)
        if opened is not None:
            opened.wake()

    async def own(self, subscription: SubscriptionId, *, seizes: bool = False) -> None:
        """See that this process owns a subscription, for what has to be done where its leases are.

        With `seizes` it is taken from any other node, which then can store nothing of it any more: for who delivers it
        by push, which one process does at a time. Raises `OwnedElsewhere`, `SubscriptionGone`.
        """
        if seizes or not self._ownership.holds(subscription):
            self.forget(subscription)  # what is known of it may be from before another node had it
            await self._ownership.claim(subscription, seizes=seizes)

    async def here(self, subscription: SubscriptionId) -> Open | None:
        """Return a subscription that this process works on, None when nobody does; raise `OwnedElsewhere`."""
        if self._ownership.holds(subscription):
            return self._open.get(subscription)
        await self._ownership.look(subscription)
        return None

    async def followed(self, subscription: SubscriptionId) -> Open | None:
        """Return what `here` does, after it has followed what retention took."""
        opened = await self.here(subscription)
        if opened is not None:
            await self._finder.retain(opened)
        return opened

    async def cover(self, subscription: Subscription, project: ProjectName) -> None:
        """Store what may be out, for a subscription that is to have exactly-once delivery from now on.

        What is given from now on is covered as well, although it does not hold yet. Raises as `pull`.
        """
        if await self._registry.topics.find(subscription.project_id, subscription.topic) is None:
            return
        for _ in range(TRIES):
            with no_topic_is_a_conflict:
                opened = await self._opened(subscription, project)
            with contextlib.suppress(Moved):
                async with opened.giving:  # so that no pull is about to give what it has found
                    if self._open.get(subscription.id) is opened:
                        await self._cover(opened)
                        return
        raise Moved

    async def _cover(self, opened: Open) -> None:
        opened.is_covered = True
        now = self._clock.monotonic()
        found = opened.backlog.may_be_out(now)
        if found is None:
            return
        below, until = found
        horizon = Horizon(below, Milliseconds(self._clock.wall() + until - now))
        try:
            await self._store(opened, Settling(), horizon)
        except BaseException:
            opened.is_covered = False
            raise
        opened.horizon = farther(opened.horizon, horizon)

    def leave(self, subscription: SubscriptionId) -> None:
        """Let go of a subscription, so that another node may have it, or as it was deleted."""
        self.forget(subscription)
        self._ownership.release(subscription)

    def opened(self, subscription: SubscriptionId) -> Open | None:
        """Return a subscription that this process works on."""
        return self._open.get(subscription)

    def all_opened(self) -> Collection[Open]:
        """Return all subscriptions that this process works on."""
        return self._open.values()

    def _forget_all(self) -> None:
        for subscription in list(self._open):
            self.forget(subscription)

    def coming(self, subscription: SubscriptionId, seconds: float, *, holder: str) -> Coroutine[Any, Any, None] | None:
        """Return what ends when a consumer may lease something, and raises `TimeoutError` after a while.

        None when this process does not work on the subscription.
        """
        opened = self._open.get(subscription)
        return self._come(opened, holder, seconds) if opened and self._ownership.holds(subscription) else None

    async def _come(self, opened: Open, holder: str, seconds: float) -> None:
        backlog = opened.backlog
        is_ready = backlog.room(holder) and backlog.is_again_ready
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

    # Opening

    async def _opened(self, subscription: Subscription, project: ProjectName) -> Open:
        opened = self._open.get(subscription.id)
        topic = await topic_of(self._registry, subscription)
        if opened is not None and opened.topic == topic.id and self._ownership.holds(subscription.id):
            if opened.subscription is not subscription:
                opened.follow(subscription)
            opened.used = self._clock.monotonic()
            return opened
        await self.own(subscription.id)
        async with self._opening.setdefault(subscription.id, asyncio.Lock()):
            await self.own(subscription.id)  # again, should it have taken long to get here
            opened = self._open.get(subscription.id)
            if opened is not None and opened.topic == topic.id:
                return opened
            self.forget(subscription.id)
            progress, end = await self._taken_over(subscription, topic.id)
            end, since = self._given_before(subscription.id, topic.id, progress, end)
            opened = opened_by(subscription, project, topic.id, progress, end, since, self._clock)
            await self._finder.retain(opened)
            self._open[subscription.id] = opened
            self._worked_on.add(subscription.id)
        self._opening.pop(subscription.id, None)
        return opened

    async def _taken_over(self, subscription: Subscription, topic: TopicId) -> tuple[Progress, Offset]:
        """Return what is stored, and the end of the topic.

        What is stored beyond that end is of a log that was put back to an older state: what is published there next is
        not done.
        """
        progress = await self._cursors.take_over(subscription.id, topic)
        end = (await self._log.bounds(topic)).end
        kept = ended(progress, end)
        if kept is not progress:
            logger.warning("parallel.past_the_end", subscription=subscription.name, end=end)
            await self._cursors.restore(subscription.id, topic, kept.floor, kept.done)
            progress = await self._cursors.take_over(subscription.id, topic)
        return progress, end

    def _given_before(
        self, subscription: SubscriptionId, topic: TopicId, progress: Progress, end: Offset
    ) -> tuple[Offset, Milliseconds]:
        """Return below which offset, and until when, others may have given what this process takes over at `end`.

        Nothing from there on is done or has failed: what a snapshot of another subscription brought may be above where
        the topic ended at the start.
        """
        if self._ends is None or subscription in self._worked_on:
            return end, self._clock.monotonic()
        known = max(progress.failures, default=-1)
        if progress.done:
            known = max(known, progress.done.max())
        return min(max(self._ends.get(topic, Offset(0)), Offset(known + 1)), end), self._began

    # Giving

    async def _give(self, opened: Open, most: int, taker: "_Taker", max_bytes: int) -> Sequence[Lot]:
        await self._expire(opened)
        most = min(most, self._deliverer.max_messages, opened.backlog.room(taker.holder))
        if taker.window is not None:
            most, max_bytes = min(most, taker.window.messages), min(max_bytes, taker.window.bytes)
        max_bytes = min(max_bytes, opened.backlog.room_bytes(taker.holder))
        if most <= 0 or max_bytes <= 0:
            return ()
        messages = await self._finder.find(opened, most, max_bytes, taker.holder)
        if opened.backlog.dead:
            self._note_due(opened)
        return await self._lease(opened, messages, taker)

    async def _lease(self, opened: Open, messages: Sequence[Stored], taker: "_Taker") -> Sequence[Lot]:
        """Lease messages that are free, as many as there is memory for."""
        if not messages:
            return ()
        backlog = opened.backlog
        try:
            await self._reach(opened, backlog.scan, taker.length)
            kept = await self._afforded(opened.subscription.id, messages, taker.held_for)
        except BaseException:
            backlog.give_back(offsets_of(messages))
            raise
        if len(kept) < len(messages):
            backlog.give_back(offsets_of(messages)[len(kept) :])
        taken = backlog.taken_of(offsets_of(kept)) if kept else ()
        if taken:
            kept = [each for each in kept if each.offset not in taken]
        deadline = Milliseconds(self._clock.monotonic() + taker.length)
        lots = [
            Lot(backlog.give(offsets_of(lot), attempt, sizes(lot)[0], deadline, *taker.held_by), attempt, lot)
            for attempt, lot in _by_attempt(backlog, kept)
            if lot
        ]
        self._note_due(opened)
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

    async def _reach(self, opened: Open, below: Offset, length: Milliseconds) -> None:
        """With exactly-once delivery: store that leases may be out below an offset, which last so long."""
        if not (opened.options.enable_exactly_once_delivery or opened.is_covered):
            return
        until, known = Milliseconds(self._clock.wall() + length), opened.horizon
        if not opened.is_covered:  # exactly-once delivery was switched on: leases of before may last longer
            now = self._clock.monotonic()
            until = max(until, Milliseconds(self._clock.wall() + opened.backlog.out_until(now) - now))
        elif known is not None and below <= known.below and until <= known.until:
            return
        horizon = farther(known, Horizon(Offset(below + HORIZON_AHEAD), Milliseconds(until + length // 2)))
        await self._store(opened, Settling(), horizon)
        opened.horizon, opened.is_covered = horizon, True

    # Settling

    async def _settled(
        self,
        subscription: Subscription,
        project: ProjectName,
        ids: AckIds,
        settle: Callable[[Backlog, AckIds, Milliseconds], Settling],
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
        for some in slices_of(ids, SLICE):
            opened = await self._opened(subscription, project)
            await self._looked_up(opened, partial(opened.backlog.check, some, self._clock.monotonic()))
            await asyncio.sleep(0)
        for some in slices_of(ids, SLICE):
            yield some
            await asyncio.sleep(0)

    async def _settled_at_once(
        self,
        subscription: Subscription,
        project: ProjectName,
        ids: AckIds,
        settle: Callable[[Backlog, AckIds, Milliseconds], Settling],
    ) -> Sequence[AckId]:
        """Do what `_settled` does, with a few ids.

        Again when the subscription was sought meanwhile, or taken over by another process and back; and for messages
        that another call was about to acknowledge: what it stores may fail. Raises that when it fails each time.
        """
        late: list[AckId] = []
        failed: BaseException = Moved()
        for _ in range(TRIES):
            opened = await self._opened(subscription, project)
            settling = await self._looked_up(opened, partial(settle, opened.backlog, ids, self._clock.monotonic()))
            with contextlib.suppress(Moved):
                await self._settle(opened, settling)
                late += settling.late
                if not settling.unsure:
                    return late
                ids = settling.unsure
                failed = await self._failed_of(opened.storing) or Moved()
        raise failed

    async def _failed_of(self, storing: Collection[asyncio.Task[None]]) -> BaseException | None:
        """Wait until all is stored that is on its way; return why some could not be."""
        if not storing:
            return None
        ended, _ = await asyncio.wait(set(storing))
        return next((each.exception() for each in ended if not each.cancelled() and each.exception()), None)

    async def _looked_up(self, opened: Open, look: Callable[[], T]) -> T:
        """Look ids up; again when the topic has grown, as the owner before may have given what is new and is late."""
        try:
            return look()
        except InvalidInput:
            with no_topic_is_a_conflict:
                bounds = await self._log.bounds(opened.topic)
            if not opened.backlog.grow(bounds.end):
                raise
            return look()

    async def _settle(self, opened: Open, settling: Settling) -> None:
        """Store it, also when the caller leaves."""
        if settling.is_empty:
            return
        storing = asyncio.create_task(self._store(opened, settling))
        opened.storing.add(storing)
        storing.add_done_callback(opened.storing.discard)
        await asyncio.shield(storing)

    async def _store(self, opened: Open, settling: Settling, horizon: Horizon | None = None) -> None:
        backlog, passed = opened.backlog, opened.backlog.take_passed()
        done = [*passed, *_ranges(settling.done)]
        change = Change(done, settling.failures, horizon)
        try:
            is_stored = await self._cursors.settle(opened.subscription.id, backlog.epoch, backlog.run, change)
        except BaseException:
            backlog.not_stored(settling)
            backlog.passed_again(passed)
            self._note_due(opened)  # leases of before a restart go on as well
            raise
        if not is_stored:
            if self._open.get(opened.subscription.id) is opened:
                self.leave(opened.subscription.id)  # another node may have it: who uses it claims it anew
            raise Moved
        backlog.stored(settling, self._clock.monotonic())
        opened.failures += len(settling.failures)
        self.failures += len(settling.failures)
        opened.wake_served()
        self._note_due(opened)

    # Looking after what is due

    async def _expire(self, opened: Open) -> None:
        due, now = opened.backlog.next_due(), self._clock.monotonic()
        if due is None or due > now:
            return
        settling = opened.backlog.expire(now)
        await self._settle(opened, settling)
        opened.wake_served()

    def _note_due(self, opened: Open) -> None:
        due = opened.backlog.next_due()
        if opened.backlog.dead:
            due = Milliseconds(0)
        elif due is None and opened.backlog.has_passed:
            due = Milliseconds(self._clock.monotonic() + PASSED_STORED)
        if due is not None and due < self._looks_at:
            self._sooner.set()

    async def _keep(self, supervisor: Supervisor) -> None:
        while True:
            self._looks_at = self._next_look()
            seconds = (self._looks_at - self._clock.monotonic()) / 1000
            with contextlib.suppress(TimeoutError):  # `wait_for` would forget that it is cancelled in some moments
                async with asyncio.timeout(max(seconds, 0)):
                    await self._sooner.wait()
            self._sooner.clear()
            await self.look(supervisor.survive)

    async def look(self, survive: Callable[[str], None]) -> None:
        """Look after what is due now: leases that have ended, waits that are over, messages to be put aside."""
        for opened in list(self._open.values()):
            try:
                await self._look_after(opened)
            except NotFound:  # deleted, perhaps on another node
                self.leave(opened.subscription.id)
            except AmsError as error:
                logger.warning("leases.put_off", subscription=opened.subscription.name, reason=error.message)
            except Exception:  # a defect of one must not end the looking after the others
                survive("leases of messages")

    def _next_look(self) -> Milliseconds:
        now = self._clock.monotonic()
        has_passed = any(opened.backlog.has_passed for opened in self._open.values())
        dues = [opened.backlog.next_due() for opened in self._open.values()]
        latest = Milliseconds(now + (PASSED_STORED if has_passed else LOOK))
        return Milliseconds(max(min([latest, *[each for each in dues if each is not None]]), now + SLOT))

    async def _look_after(self, opened: Open) -> None:
        if not self._ownership.holds(opened.subscription.id):
            self.forget(opened.subscription.id)
            return
        await self._finder.retain(opened)
        opened.wake_served()
        await self._expire(opened)
        if opened.backlog.dead:
            await self._put_aside(opened)
        if opened.backlog.has_passed:
            await self._store(opened, Settling())
        is_idle = self._clock.monotonic() - opened.used > IDLE and not opened.waiting
        if is_idle and not opened.backlog.out and not opened.backlog.held_back:
            self.leave(opened.subscription.id)

    async def _put_aside(self, opened: Open) -> None:
        """Put messages aside that have failed as often as they may; what cannot be put aside comes again later."""
        backlog = opened.backlog
        while backlog.dead:
            offset = backlog.dead.pop()
            verdict = opened.verdicts.pop(offset, None) or Verdict(NOT_ACKNOWLEDGED, backlog.failures_of(offset), 0)
            try:
                await self._dead_letters.put(
                    opened.subscription, opened.project, opened.topic, offset, verdict, epoch=backlog.epoch
                )
                await self._settle(opened, backlog.put_aside(offset))
                opened.dead_letters += 1
                self.dead_letters += 1
                opened.kept_because = ""
            except AmsError as error:
                name = opened.subscription.name
                logger.warning("dead_letter.put_off", subscription=name, offset=offset, reason=error.message)
                opened.kept_because = error.message
                backlog.keep(offset, self._clock.monotonic())
            except BaseException:
                backlog.dead.append(offset)
                raise


def _ranges(offsets: Sequence[Offset]) -> list[Range]:
    """Return offsets, each there once, as few ranges."""
    if not offsets:
        return []
    in_order = sorted(offsets)
    if in_order[-1] - in_order[0] + 1 == len(in_order):
        return [(in_order[0], Offset(in_order[-1] + 1))]
    begins = [each for before, each in pairwise([Offset(-2), *in_order]) if each != before + 1]
    ends = [Offset(each + 1) for each, after in pairwise([*in_order, Offset(-2)]) if after != each + 1]
    return list(zip(begins, ends, strict=True))


def _by_attempt(backlog: Backlog, messages: Sequence[Stored]) -> Iterable[tuple[int, Sequence[Stored]]]:
    """Return messages by the number of this delivery."""
    if not backlog.has_failures:
        return [(1, messages)]
    lots: dict[int, list[Stored]] = {}
    for each in messages:
        lots.setdefault(backlog.attempt_of(each.offset), []).append(each)
    return lots.items()


def _are_few(ids: AckIds) -> bool:
    """Whether ids may be looked up in one turn of the event loop."""
    return len(ids) <= SLICE and sum(map(len, ids.values())) <= SLICE


def _refuse_late(late: Sequence[AckId]) -> None:
    if not late:
        return
    shown = ", ".join([f"{each.offset}-{each.hand_out}" for each in late[:SHOWN_IDS]])
    more = f" and {len(late) - SHOWN_IDS} more" if len(late) > SHOWN_IDS else ""
    raise LateIds(f"{LATE}: {shown}{more}", late)
