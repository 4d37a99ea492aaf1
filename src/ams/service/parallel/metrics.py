"""Metrics and findings of the parallel subscriptions that are open on this node."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import structlog

from ams.core.clock import Clock, Milliseconds
from ams.core.names import SubscriptionId
from ams.core.supervisor import Ticker
from ams.core.telemetry import Figure, figure
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.parallel.backlog import MAX_HELD_BACK, MAX_OUT, MAX_OUT_BYTES, MAX_SPAN, Backlog
from ams.service.parallel.open_subscriptions import OpenSubscription
from ams.service.retention import oldest_time
from ams.storage.log.base import Log
from ams.wire.service import Finding

LOOK_SECONDS = 15.0
MANY_MESSAGES = 1000  # so many messages blocked by one other are a finding
MANY_FAILURES = 5  # so many failures of one message are a finding
SHOWN_HOLDERS = 10
logger = structlog.get_logger("ams.parallel")


def messages_text(count: int) -> str:
    """Return a number of messages in words."""
    return "1 message" if count == 1 else f"{count} messages"


def findings(opened: OpenSubscription, *, names_holders: bool, streams: int = 0) -> Iterator[Finding]:
    """Yield findings. `names_holders`: the caller may know the consumers. `streams`: number of open streams."""
    backlog = opened.backlog
    if streams:
        yield Finding(False, f"{streams} stream{'s are' if streams != 1 else ' is'} open to consumers.")
    if opened.large is not None and opened.large[0] not in backlog.done:
        offset, size = opened.large
        text = (
            f"Message {offset} has {size} bytes on a stream, and is not acknowledged: some clients take no more than"
            " 4 MiB, end their stream upon it, and get it again. Acknowledge it by a pull, or publish less at a time."
        )
        yield Finding(True, text)
    if backlog.leases:
        yield Finding(False, _holders_text(backlog, names_holders=names_holders))
    yield from _room_findings(backlog)
    yield from _floor_findings(backlog, names_holders=names_holders)
    yield from _failure_findings(opened)
    if (blocking := backlog.keys.largest_blocker()) is not None:
        offset, key, count = blocking
        text = f"Message {offset} blocks {messages_text(count)} of its ordering key {key}."
        yield Finding(count >= MANY_MESSAGES, text)


def _holders_text(backlog: Backlog, *, names_holders: bool) -> str:
    leased = messages_text(len(backlog.leases))
    found = sorted(backlog.leases.holders.items(), key=lambda each: -each[1])
    if not names_holders:
        return f"{leased} on lease, to {len(found)} consumer{'s' if len(found) != 1 else ''}."
    shown = ", ".join(f"{name or 'the service token'} has {count}" for name, count in found[:SHOWN_HOLDERS])
    more = f", and {len(found) - SHOWN_HOLDERS} more" if len(found) > SHOWN_HOLDERS else ""
    return f"{leased} on lease: {shown}{more}."


def _room_findings(backlog: Backlog) -> Iterator[Finding]:
    most_waits = max(backlog.leases.waits_of.values(), default=0)
    until = "pulls wait until some are acknowledged or their leases end."
    if backlog.out >= MAX_OUT:
        yield Finding(True, f"Its room is used up, {messages_text(MAX_OUT)} are out: {until}")
    elif backlog.leases.bytes >= MAX_OUT_BYTES:
        yield Finding(True, f"Its room is used up, {MAX_OUT_BYTES} bytes of messages are out: {until}")
    if backlog.held_back >= MAX_HELD_BACK:
        text = f"{messages_text(MAX_HELD_BACK)} are to be given again or blocked"
        yield Finding(True, f"{text}: no new ones before some are done.")
    elif most_waits >= MAX_HELD_BACK - backlog.held_back:
        text = f"{messages_text(most_waits)} wait to be given again that failed with one consumer"
        yield Finding(True, f"{text}: it gets no new ones before.")
    if backlog.done.scan - backlog.done.floor >= MAX_SPAN:
        text = f"Message {backlog.done.floor} is {MAX_SPAN} behind the newest that was given"
        yield Finding(True, f"{text}: no new ones before it is done.")


def _floor_findings(backlog: Backlog, *, names_holders: bool) -> Iterator[Finding]:
    if not backlog.done.above:
        return
    floor, lease = backlog.done.floor, backlog.leases.get(backlog.done.floor)
    above, failed = messages_text(backlog.done.above), backlog.failures.counts[floor]
    state = "waits to be given"
    if lease is not None:
        state = f"is on lease to {lease.holder or 'the service token'}" if names_holders else "is on lease"
    often = f", and failed {failed} times" if failed else ""
    done = "is" if backlog.done.above == 1 else "are"
    yield Finding(
        backlog.done.above >= MANY_MESSAGES,
        f"Message {floor} is the oldest that is not acknowledged, while {above} after it {done}: it {state}{often}.",
    )


def _failure_findings(opened: OpenSubscription) -> Iterator[Finding]:
    offset, count = max(opened.backlog.failures.counts.items(), key=lambda each: each[1], default=(0, 0))
    if count < MANY_FAILURES:
        return
    policy = opened.options.dead_letter_policy
    remedy = f"it is put aside after {policy.max_attempts}" if policy else "a deadLetterPolicy would put it aside"
    if policy and opened.kept_because:
        remedy = f"what failed {policy.max_attempts} times could not be put aside, {opened.kept_because}"
    yield Finding(True, f"Message {offset} failed {count} times, and comes again and again: {remedy}.")


class ParallelMetrics:
    """Metrics of all open parallel subscriptions. Ages are read from the log every `LOOK_SECONDS`."""

    def __init__(self, working: ParallelSubscriptions, log: Log, clock: Clock, *, by_name: bool) -> None:
        """`by_name`: with labels for each subscription."""
        self._working, self._log, self._clock, self._by_name = working, log, clock, by_name
        self._oldest: dict[SubscriptionId, Milliseconds] = {}
        self.rounds = Ticker("ages of messages", LOOK_SECONDS, self.look, partial(logger.warning, "ages.put_off"))

    async def look(self) -> None:
        """Read the ages of the oldest messages. Raises what the log raises."""
        found = {}
        for each in list(self._working.opened.all()):
            if (time := await oldest_time(self._log, each.topic, each.backlog.done.floor)) is not None:
                found[each.subscription.id] = time
        self._oldest = found

    def gauges(self) -> Iterator[Figure]:
        """Yield gauges."""
        opened, now = list(self._working.opened.all()), self._clock.wall()

        def gauge(name: str, text: str, values: Sequence[float], together: Callable[..., float] = sum) -> Figure:
            if not self._by_name:
                return figure(name, text, together(values) if values else 0)
            labels = [{"project": each.project, "subscription": each.subscription.name} for each in opened]
            return Figure(name, text, list(zip(labels, values, strict=True)))

        backlogs = [each.backlog for each in opened]
        leased, waiting = [len(each.leases) for each in backlogs], [each.waiting for each in backlogs]
        blocked = [each.keys.blocked_messages for each in backlogs]
        yield figure("ams_parallel_subscriptions", "Parallel subscriptions that this node works on.", len(opened))
        yield gauge("ams_parallel_leased", "Messages that consumers have on lease.", leased)
        yield gauge("ams_parallel_waiting", "Messages that failed and are to be given again.", waiting)
        yield gauge("ams_parallel_blocked", "Messages blocked by one of their ordering key.", blocked)
        ages = [max(now - self._oldest.get(each.subscription.id, now), 0) / 1000 for each in opened]
        yield gauge("ams_parallel_oldest_seconds", "Age of the oldest message that is not acknowledged.", ages, max)

    def counters(self) -> Iterator[Figure]:
        """Yield counters since the start."""
        failures, dead_letters = self._working.storer.failures, self._working.sweeper.dead_letters
        yield figure("ams_parallel_failures", "Deliveries that failed: given back, or not in time.", failures)
        yield figure("ams_parallel_dead_letters", "Messages put aside after their last attempt.", dead_letters)
