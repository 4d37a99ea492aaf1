"""A backlog in memory as what workers lease messages from; waits take no time but on a clock."""

import asyncio
from collections.abc import Callable, Sequence

from pyroaring import BitMap64

from ams.core.clock import ManualClock, Milliseconds
from ams.core.names import Offset
from ams.push.upstream import HandOut, NotTaken, Pulled, Target, UpstreamError, Verdict
from ams.service.parallel.backlog import Backlog, Settling
from ams.service.parallel.message_state import Rules
from ams.storage.cursors.acks import Progress
from tests.push.keepers import pulled

NO_KEY: Callable[[int], str] = lambda _: ""  # noqa: E731


class BacklogHandOuts:
    """Leases messages of a backlog; what dies is in `dead`."""

    def __init__(
        self, messages: int, clock: ManualClock, key: Callable[[int], str] = NO_KEY, *, attempts: int = 0
    ) -> None:
        self.key, self.clock = key, clock
        self.messages = messages
        rules = Rules(most_attempts=attempts)
        progress = Progress(Offset(0), 1, 1, BitMap64(), {}, None)
        self.backlog = Backlog(progress, "abcdef", rules, end=Offset(0), grace_until=Milliseconds(0))
        self.dead: dict[int, Verdict] = {}
        self.waits: list[int] = []
        """What messages that failed were told to wait."""
        self.failing: dict[str, list[UpstreamError]] = {"lease": [], "acknowledge": []}
        """What the next calls raise."""
        self._waiting = 0
        self._changed = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether a worker waits for messages that may never come."""
        return self._waiting > 0 and not self._changed.is_set()

    def append(self, count: int = 1) -> None:
        self.messages += count
        self._changed.set()

    async def lease(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[HandOut]:
        """Lease what is to be given again, and what is new behind it."""
        if self.failing["lease"]:
            raise self.failing["lease"].pop(0)
        self._stored(self.backlog.expire(self.clock.monotonic()))
        offsets = self.backlog.again(max_messages)
        offsets += self._new(max_messages - len(offsets))
        by_attempt: dict[int, list[Offset]] = {}
        for each in offsets:
            by_attempt.setdefault(self.backlog.failures.attempt_of(each), []).append(each)
        return [self._given(attempt, group) for attempt, group in by_attempt.items()]

    def _new(self, most: int) -> list[Offset]:
        found: list[Offset] = []
        while self.backlog.scan < self.messages and len(found) < most:
            offset = self.backlog.scan
            self.backlog.done.scanned(Offset(offset + 1))
            if self.backlog.may_give(offset, self.key(offset), self.clock.monotonic()):
                found.append(offset)
        return found

    def _given(self, attempt: int, offsets: list[Offset]) -> HandOut:
        deadline = Milliseconds(self.clock.monotonic() + 10_000)
        text = self.backlog.give(offsets, attempt, 10 * len(offsets), deadline, "push")
        return HandOut(text, attempt, [self.message(each) for each in offsets])

    def message(self, offset: int) -> Pulled:
        return pulled(offset, key=self.key(offset))

    async def wait(self, target: Target) -> None:
        """Let time go by until a message comes again, if one does."""
        await asyncio.sleep(0)
        if self.backlog.is_again_ready or self.backlog.scan < self.messages:
            return
        due = self.backlog.next_due()
        if due is not None and not self.backlog.out:
            self.clock.advance(max(due - self.clock.monotonic(), 0))
            return
        self._changed.clear()
        self._waiting += 1
        try:
            await self._changed.wait()
        finally:
            self._waiting -= 1

    async def extend(self, target: Target, hand_out: HandOut, seconds: int) -> None:
        now = self.clock.monotonic()
        _taken(self.backlog.extend(_ids(hand_out), Milliseconds(now + 1000 * seconds), now))

    async def acknowledge(self, target: Target, hand_out: HandOut) -> None:
        await asyncio.sleep(0)
        if self.failing["acknowledge"]:
            raise self.failing["acknowledge"].pop(0)
        settling = self.backlog.acknowledge(_ids(hand_out), self.clock.monotonic())
        self._stored(settling)
        _taken(settling.late)

    async def fail(self, target: Target, hand_out: HandOut, wait: Milliseconds, verdict: Verdict) -> None:
        self.waits.append(wait)
        settling = self.backlog.nack(_ids(hand_out), self.clock.monotonic(), wait)
        self._stored(settling)
        for each in self.backlog.failures.dead:
            self.dead[each] = verdict
            self._stored(self.backlog.put_aside(each))
        self.backlog.failures.dead = []
        _taken(settling.late)

    def release(self, target: Target, hand_out: HandOut) -> None:
        self.backlog.release(_ids(hand_out), self.clock.monotonic())
        self._changed.set()

    def failures(self) -> dict[int, int]:
        """Return how often messages have failed that are not done."""
        return {each: count for each in range(self.messages) if (count := self.backlog.failures.of(Offset(each)))}

    def _stored(self, settling: Settling) -> None:
        self.backlog.stored(settling, self.clock.monotonic())
        self._changed.set()


def _ids(hand_out: HandOut) -> dict[str, list[Offset]]:
    return {hand_out.text: [Offset(each.offset) for each in hand_out.messages]}


def _taken(late: Sequence[object]) -> None:
    if late:
        raise NotTaken("ack timeout")
