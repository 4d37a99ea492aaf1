"""A parallel subscription that this process works on, and how it begins to."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.core.ack_ids import MAX_ACK_DEADLINE, identity_of
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import InvalidInput
from ams.core.filters import Filter, parse
from ams.core.names import Offset, ProjectName, TopicId
from ams.core.parallel_options import ParallelOptions
from ams.push.upstream import Verdict
from ams.service.parallel import shares
from ams.service.parallel.backlog import Backlog, Settling
from ams.service.parallel.message_state import Rules
from ams.storage.cursors.acks import Horizon, Progress
from ams.storage.registry.records import Subscription

LONGEST_LEASE = Milliseconds(MAX_ACK_DEADLINE * 1000)


class Waiting(NamedTuple):
    """What a pull waits for."""

    holder: str
    for_room: bool
    """Whether it is for room; else for something to be ready again, as its consumer has room."""


@dataclass(slots=True, eq=False)
class Open:
    """A subscription that is used."""

    subscription: Subscription
    options: ParallelOptions
    project: ProjectName
    topic: TopicId
    backlog: Backlog
    filter: Filter | None
    horizon: Horizon | None
    used: Milliseconds
    is_covered: bool
    """Whether the stored horizon covers all that is out: with exactly-once delivery, or just before it is switched on.

    Not where it was switched on, and this process has only heard of it.
    """
    failures: int = 0
    """Deliveries that failed since it was opened."""
    dead_letters: int = 0
    """Messages put aside since it was opened."""
    large: tuple[Offset, int] | None = None
    """The last message that was too large for some clients of streams, and its bytes."""
    giving: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one pull that is served at a time."""
    waiting: dict[Waiting, set[asyncio.Future[None]]] = field(default_factory=dict)
    """Pulls that wait."""
    storing: set[asyncio.Task[None]] = field(default_factory=set)
    verdicts: dict[Offset, Verdict] = field(default_factory=dict)
    """Why messages are put aside, of those that are about to be, where their consumer said it."""
    kept_because: str = ""
    """Why the last message that should be put aside could not be; empty: it could."""

    def wake(self) -> None:
        """Let all pulls that wait look again."""
        self._wake(list(self.waiting))

    def wake_served(self) -> None:
        """Let those pulls look again that may find something: of many that wait, an acknowledgement wakes none."""
        if self.waiting:
            is_ready = self.backlog.is_again_ready
            self._wake([each for each in self.waiting if self._may_find(each, is_ready=is_ready)])

    def _may_find(self, each: Waiting, *, is_ready: bool) -> bool:
        if not (is_ready or each.for_room) or not shares.room(self.backlog, each.holder):
            return False
        return is_ready or shares.may_scan(self.backlog, each.holder)

    def _wake(self, some: Iterable[Waiting]) -> None:
        for each in some:
            for woken in self.waiting.pop(each):
                if not woken.done():
                    woken.set_result(None)

    def note(self, verdict: Verdict, settling: Settling) -> None:
        """Note why messages failed, of those that failed as often as they may."""
        most = self.backlog.failures.rules.most_attempts
        dead = [each for each, failures in settling.failures.items() if 0 < most <= failures]
        self.verdicts.update(dict.fromkeys(dead, verdict))

    def follow(self, subscription: Subscription) -> None:
        """Go by the options as they are now; leases that were given stay as they were."""
        before, self.options = self.options, options_of(subscription)
        self.subscription = subscription
        if before.enable_exactly_once_delivery and not self.options.enable_exactly_once_delivery:
            self.is_covered = False
        self.backlog.go_by(_rules(subscription))


def opened_by(
    subscription: Subscription,
    project: ProjectName,
    topic: TopicId,
    progress: Progress,
    end: Offset,
    since: Milliseconds,
    clock: Clock,
) -> Open:
    """Return a subscription that this process has taken over: what is on disk, and leases that others may have given.

    They gave nothing at or above the offset `end`, and nothing after `since`, a time of the monotonic clock.
    """
    now, options, horizon = clock.monotonic(), options_of(subscription), progress.horizon
    left = subscription.ack_deadline_seconds * 1000
    if options.enable_exactly_once_delivery:
        left = max(horizon.until - clock.wall(), 0) if horizon is not None else 0
    until = Milliseconds(now + left)
    backlog = Backlog(
        progress,
        identity_of(subscription.id),
        _rules(subscription),
        end=end,
        grace_until=until,
        longest_until=Milliseconds(since + LONGEST_LEASE),
    )
    if horizon is not None and options.enable_exactly_once_delivery:
        backlog.restart_grace.withhold(min(horizon.below, end), until)
    filter_ = parse(options.filter) if options.filter else None
    is_covered = options.enable_exactly_once_delivery
    return Open(subscription, options, project, topic, backlog, filter_, horizon, now, is_covered)


def options_of(subscription: Subscription) -> ParallelOptions:
    """Return its options; raise `InvalidInput` when an ordered one took its place while the request came."""
    if subscription.parallel is None:
        raise InvalidInput("Invalid ack id")
    return subscription.parallel


def _rules(subscription: Subscription) -> Rules:
    options = options_of(subscription)
    retry, dead = options.retry_policy, options.dead_letter_policy
    return Rules(
        retry.minimum_backoff if retry else Milliseconds(0),
        retry.maximum_backoff if retry else Milliseconds(0),
        dead.max_attempts if dead else 0,
        options.enable_exactly_once_delivery,
    )
