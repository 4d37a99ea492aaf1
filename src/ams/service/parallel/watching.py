"""What is under way of parallel subscriptions on this node: figures for those who watch, findings for those who ask.

What another node works on is known there alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import structlog

from ams.core.clock import Clock, Milliseconds
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.core.observing import Figure, figure
from ams.core.supervisor import Rounds
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.opened import Open
from ams.service.parallel.shares import MAX_HELD_BACK, MAX_OUT, MAX_OUT_BYTES, MAX_SPAN
from ams.service.parallel.working import Working
from ams.storage.log.base import Log
from ams.wire.service import Finding

LOOK_SECONDS = 15.0
MANY = 1000
"""Messages that one other holds up, of its key or above where the subscription stands, before that is wrong."""
OFTEN = 5
"""Failures of one message before that is wrong."""
SHOWN_HOLDERS = 10

logger = structlog.get_logger("ams.parallel")


class Underway(NamedTuple):
    """What is under way of one subscription, in messages."""

    acknowledged: int
    """Above where it stands; also what the filter passed over."""
    leased: int
    waiting: int
    """Failed, to be given again."""
    blocked: int
    """By an earlier one of their key."""
    failed: int
    """Not done, and failed at least once."""
    holders: Mapping[str, int]
    """How many each consumer has on lease."""
    failures: int
    """Deliveries that failed since this node works on it."""
    dead_letters: int
    """Put aside since then."""


def underway(opened: Open) -> Underway:
    """Return what is under way of a subscription."""
    backlog = opened.backlog
    return Underway(
        backlog.done.above, len(backlog.leases), backlog.waiting, backlog.keys.blocked, len(backlog.failures.counts),
        dict(backlog.leases.holders), opened.failures, opened.dead_letters,
    )  # fmt: skip


def findings(opened: Open, *, names_holders: bool, streams: int = 0) -> Iterator[Finding]:
    """Yield what is to be said of what is under way; consumers are named if the caller may know them.

    `streams` is how many streams consumers have open.
    """
    backlog = opened.backlog
    if streams:
        yield Finding(False, f"{streams} stream{'s are' if streams != 1 else ' is'} open to consumers.")
    yield from _of_large(opened)
    if backlog.leases:
        yield Finding(False, _holders(backlog, names_holders=names_holders))
    yield from _of_room(backlog)
    yield from _of_floor(backlog, names_holders=names_holders)
    yield from _of_failures(opened)
    blocking = backlog.keys.blocks_most()
    if blocking is not None:
        offset, key, count = blocking
        yield Finding(count >= MANY, f"Message {offset} blocks {_messages(count)} of its ordering key {key}.")


def _holders(backlog: Backlog, *, names_holders: bool) -> str:
    leased, found = _messages(len(backlog.leases)), sorted(backlog.leases.holders.items(), key=lambda each: -each[1])
    if not names_holders:
        return f"{leased} on lease, to {len(found)} consumer{'s' if len(found) != 1 else ''}."
    shown = ", ".join(f"{name or 'the service token'} has {count}" for name, count in found[:SHOWN_HOLDERS])
    more = f", and {len(found) - SHOWN_HOLDERS} more" if len(found) > SHOWN_HOLDERS else ""
    return f"{leased} on lease: {shown}{more}."


def _of_room(backlog: Backlog) -> Iterator[Finding]:
    until = "pulls wait until some are acknowledged or their leases end."
    if backlog.out >= MAX_OUT:
        yield Finding(True, f"Its room is used up, {_messages(MAX_OUT)} are out: {until}")
    elif backlog.leases.bytes >= MAX_OUT_BYTES:
        yield Finding(True, f"Its room is used up, {MAX_OUT_BYTES} bytes of messages are out: {until}")
    if backlog.held_back >= MAX_HELD_BACK:
        text = f"{_messages(MAX_HELD_BACK)} are to be given again or blocked: no new ones before some are done."
        yield Finding(True, text)
    elif backlog.leases.most_waits >= MAX_HELD_BACK - backlog.held_back:
        most = _messages(backlog.leases.most_waits)
        text = f"{most} wait to be given again that failed with one consumer: it gets no new ones before."
        yield Finding(True, text)
    if backlog.scan - backlog.floor >= MAX_SPAN:
        text = f"Message {backlog.floor} is {MAX_SPAN} behind the newest that was given: no new ones before it is done."
        yield Finding(True, text)


def _of_floor(backlog: Backlog, *, names_holders: bool) -> Iterator[Finding]:
    """Yield what the oldest message that is not done holds up: the subscription stands there, and stores the rest."""
    if not backlog.done.above:
        return
    floor, holder = backlog.floor, backlog.leases.holder_of(backlog.floor)
    above, failed = _messages(backlog.done.above), backlog.failures.of(floor)
    state = "waits to be given"
    if holder is not None:
        state = f"is on lease to {holder or 'the service token'}" if names_holders else "is on lease"
    often = f", and failed {failed} times" if failed else ""
    done = "is" if backlog.done.above == 1 else "are"
    yield Finding(
        backlog.done.above >= MANY,
        f"Message {floor} is the oldest that is not acknowledged, while {above} after it {done}: it {state}{often}.",
    )


def _of_large(opened: Open) -> Iterator[Finding]:
    if opened.large is None or opened.large[0] in opened.backlog.done:
        return
    offset, size = opened.large
    yield Finding(
        True,
        f"Message {offset} has {size} bytes on a stream, and is not acknowledged: some clients take no more than 4 MiB,"
        " end their stream upon it, and get it again. Acknowledge it by a pull, or publish less at a time.",
    )


def _of_failures(opened: Open) -> Iterator[Finding]:
    failures = opened.backlog.failures.counts
    if not failures:
        return
    offset, count = max(failures.items(), key=lambda each: each[1])
    if count < OFTEN:
        return
    policy = opened.options.dead_letter_policy
    remedy = f"it is put aside after {policy.max_attempts}" if policy else "a deadLetterPolicy would put it aside"
    if policy and opened.kept_because:
        remedy = f"what failed {policy.max_attempts} times could not be put aside, {opened.kept_because}"
    yield Finding(True, f"Message {offset} failed {count} times, and comes again and again: {remedy}.")


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


_GAUGES: Sequence[tuple[str, str, Callable[[Backlog], float]]] = (
    ("ams_parallel_leased", "Messages that consumers have on lease.", lambda backlog: len(backlog.leases)),
    ("ams_parallel_waiting", "Messages that failed and are to be given again.", lambda backlog: backlog.waiting),
    ("ams_parallel_blocked", "Messages blocked by one of their ordering key.", lambda backlog: backlog.keys.blocked),
)


class Watched:
    """Figures of all that this node works on; ages of messages are looked up every quarter of a minute."""

    def __init__(self, working: Working, log: Log, clock: Clock, *, by_name: bool) -> None:
        """`by_name`: with labels for each subscription."""
        self._working = working
        self._log = log
        self._clock = clock
        self._by_name = by_name
        self._oldest: dict[SubscriptionId, Milliseconds] = {}
        """When the oldest message was published that is not acknowledged."""
        self.rounds = Rounds("ages of messages", LOOK_SECONDS, self.look, partial(logger.warning, "ages.put_off"))

    async def look(self) -> None:
        """Look up how old the oldest messages are. Raises what the log raises."""
        found = {}
        for each in list(self._working.opened.all()):
            published = await oldest_time(self._log, each.topic, each.backlog.floor)
            if published is not None:
                found[each.subscription.id] = published
        self._oldest = found

    def gauges(self) -> Iterator[Figure]:
        """Yield what goes up and down."""
        opened = list(self._working.opened.all())
        yield figure("ams_parallel_subscriptions", "Parallel subscriptions that this node works on.", len(opened))
        for name, text, value in _GAUGES:
            yield self._figure(name, text, opened, [value(each.backlog) for each in opened], sum)
        ages = [self._age(each.subscription.id) for each in opened]
        text = "Age of the oldest message that is not acknowledged."
        yield self._figure("ams_parallel_oldest_seconds", text, opened, ages, max)

    def _figure(
        self,
        name: str,
        text: str,
        opened: Sequence[Open],
        values: Sequence[float],
        together: Callable[[Sequence[float]], float],
    ) -> Figure:
        """Return values by subscription, or what they are together."""
        if not self._by_name:
            return figure(name, text, together(values) if values else 0)
        labels = [{"project": each.project, "subscription": each.subscription.name} for each in opened]
        return Figure(name, text, list(zip(labels, values, strict=True)))

    def counters(self) -> Iterator[Figure]:
        """Yield what only grows while the service runs."""
        working = self._working
        yield figure(
            "ams_parallel_failures", "Deliveries that failed: given back, or not in time.", working.storer.failures
        )
        yield figure(
            "ams_parallel_dead_letters", "Messages put aside after their last attempt.", working.sweeper.dead_letters
        )

    def _age(self, subscription: SubscriptionId) -> float:
        published = self._oldest.get(subscription)
        return 0.0 if published is None else max(self._clock.wall() - published, 0) / 1000


async def oldest_time(log: Log, topic: TopicId, floor: Offset) -> Milliseconds | None:
    """Return when the first message at or after `floor` was published; None without one."""
    found = await log.read(topic, floor, max_messages=1, max_bytes=1)
    return found[0].time if found else None
