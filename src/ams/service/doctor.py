"""Diagnosis of a subscription: facts, and findings in plain English.

It only reads: nothing is handed out. Times are ages in milliseconds; None: it never happened, or happened before the
start and was not stored.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ams.access.admission import Caller
from ams.access.permissions import CONSUMER
from ams.core.clock import Clock, Milliseconds, span_text
from ams.core.errors import TopicGone
from ams.core.names import Offset, SubscriptionId, SubscriptionName, TopicName
from ams.core.retention_clock import RetentionClock
from ams.push.report import RETRYING, STOPPED
from ams.service.lookup import find_subscription
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.parallel.metrics import MessageCounts, findings, underway
from ams.service.push.configurations import INACTIVE, UNKNOWN, UNVERIFIED, PushStatus, PushWatcher
from ams.service.retention import age_of, oldest_for
from ams.service.tallies import Counting
from ams.storage.cursors.acks import CursorStore
from ams.storage.cursors.base import Outstanding, Position
from ams.storage.log.base import Bounds, Log
from ams.storage.registry.records import Subscription, Topic
from ams.storage.registry.registry import Registry
from ams.wire.service import Finding

IDLE_MS = Milliseconds(60_000)  # after so long without a pull a subscription counts as not consumed
NEARLY_LOST_PART = 0.8


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """Backlog and activity of a subscription."""

    bounds: Bounds
    position: Position
    hand_out: Outstanding | None  # the newest one that is not acknowledged
    pulled_ago: Milliseconds | None  # pulls that got nothing are known only since the service started
    acknowledged_ago: Milliseconds | None
    retention: Milliseconds
    published_ago: Milliseconds | None
    oldest_backlog_age: Milliseconds | None
    above: int = 0  # messages after the oldest that are acknowledged, of a parallel subscription
    underway: MessageCounts | None = None  # of a parallel subscription that this node works on

    @property
    def current(self) -> Offset:
        """The next message to deliver."""
        return max(self.position.offset, self.bounds.oldest)

    @property
    def backlog(self) -> int:
        """Messages that are not acknowledged."""
        return max(self.bounds.end - self.current - self.above, 0)

    @property
    def ahead(self) -> int:
        """Distance of the cursor past the end of its topic; 0 unless the log has lost messages."""
        return max(self.position.offset - self.bounds.end, 0)

    @property
    def lost_messages(self) -> int:
        """Messages that retention removed before they were acknowledged, also those that no pull has noticed yet."""
        return self.position.lost + self.current - self.position.offset

    @property
    def outstanding_messages(self) -> int:
        """Messages handed out and not acknowledged."""
        if self.underway is not None:
            return self.underway.leased
        return max(self.hand_out.end - self.current, 0) if self.hand_out else 0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Facts of a subscription, and findings, wrong ones first; `standing` is None without a topic."""

    subscription: Subscription
    standing: SubscriptionState | None
    findings: Sequence[Finding]

    @property
    def healthy(self) -> bool:
        """True if nothing is wrong."""
        return not any(finding.wrong for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Doctor:
    """Looks at subscriptions. The access list binds as for a pull."""

    registry: Registry
    log: Log
    cursors: CursorStore
    counting: Counting
    default_retention: Milliseconds
    clock: Clock
    retention_clock: RetentionClock
    watcher: PushWatcher
    working: ParallelSubscriptions | None = None
    used: Callable[[SubscriptionId], None] = lambda _: None

    async def look(self, caller: Caller, name: SubscriptionName) -> Diagnosis:
        """Diagnose a subscription. Raises `NotFound`, or `NotAllowed` outside its access list."""
        subscription = await find_subscription(self.registry, caller, name)
        caller.require_listed(subscription.authorized, CONSUMER)
        if subscription.is_detached:
            return Diagnosis(subscription, None, [Finding(False, "It is detached: it gets nothing any more.")])
        self.used(subscription.id)
        topic = await self.registry.topics.find(caller.here.id, subscription.topic)
        standing = await self._standing(caller, subscription, topic) if topic else None
        pushed = await self.watcher.look(caller, name) if subscription.push is not None else None
        texts = self.counting.not_base64.get(topic.id, 0) if topic else 0
        said = [*(_push_findings(pushed) if pushed else ()), *_findings(subscription, standing)]
        if texts:
            is_one = texts == 1
            text = (
                f"{_messages(texts)} published to its topic since the service started {'is' if is_one else 'are'} not"
                " base64: consumers get that text as it is, and data that happens to be base64 is decoded."
            )
            said.append(Finding(False, text))
        said += await self._parallel_findings(caller, subscription)
        if caller.access_lists and not subscription.authorized and subscription.push is None:
            said.append(Finding(False, "No consumer is on its access list: only administrators may pull."))
        return Diagnosis(subscription, standing, sorted(said, key=lambda finding: not finding.wrong))

    async def _parallel_findings(self, caller: Caller, subscription: Subscription) -> Sequence[Finding]:
        if subscription.parallel is None:
            return ()
        letters, found = subscription.parallel.dead_letter_policy, []
        if letters and await self.registry.topics.find(caller.here.id, TopicName(letters.topic)) is None:
            text = f"Its dead letter topic {letters.topic} is gone: what failed too often comes again and again."
            found.append(Finding(True, text))
        opened = await self.working.opened.here(subscription.id) if self.working else None
        if opened is None or self.working is None:
            return found
        streams = self.working.streams[subscription.id]
        return [*found, *findings(opened, names_holders=caller.sees_push_secrets, streams=streams)]

    async def _standing(self, caller: Caller, subscription: Subscription, topic: Topic) -> SubscriptionState | None:
        try:
            position = await self.cursors.position(subscription.id, topic.id)
            bounds = await self.log.bounds(topic.id)
            retention = topic.retention or caller.here.retention or self.default_retention
            above, opened = 0, None
            if subscription.parallel is not None:
                oldest = await oldest_for(self.log, topic.id, subscription, bounds, self.retention_clock)
                bounds = bounds._replace(oldest=oldest)
                retention = min(retention, subscription.parallel.message_retention or retention)
                above = len((await self.cursors.progress(subscription.id)).done)
                opened = await self.working.opened.here(subscription.id) if self.working else None
            pulls = await self.counting.subscription(subscription.id)
            oldest, end = max(position.offset, bounds.oldest), bounds.end
            return SubscriptionState(
                bounds,
                position,
                await self.cursors.newest_hand_out(subscription.id),
                self._ago(pulls.rate.last),
                self._ago(self.counting.acknowledged_at(subscription.id)),
                retention,
                await age_of(self.log, topic.id, Offset(end - 1), self.clock) if end else None,
                await age_of(self.log, topic.id, oldest, self.clock) if oldest < end else None,
                above,
                underway(opened) if opened else None,
            )
        except TopicGone:  # deleted meanwhile
            return None

    def _ago(self, moment: Milliseconds | None) -> Milliseconds | None:
        return None if moment is None else Milliseconds(max(self.clock.wall() - moment, 0))


def _findings(subscription: Subscription, standing: SubscriptionState | None) -> Iterator[Finding]:
    if standing is None:
        yield Finding(True, f"Its topic {subscription.topic} is gone: make it again, or delete the subscription.")
        return
    if not standing.bounds.end:
        yield Finding(False, "Nothing was ever published to its topic.")
    elif standing.backlog:
        yield from _backlog_findings(subscription, standing)
    elif standing.published_ago is None:
        yield Finding(False, "Nothing is waiting, and all messages of its topic are gone by retention.")
    else:
        ago = span_text(standing.published_ago)
        yield Finding(False, f"Nothing is waiting; the last message was published {ago} ago.")
    if standing.ahead:
        count = _messages(standing.ahead)
        yield Finding(True, f"It stands past the end of its topic and will miss the next {count}: move it to the end.")
    if standing.lost_messages:
        yield Finding(True, f"Retention took {_messages(standing.lost_messages)} before they were acknowledged.")


def _push_findings(status: PushStatus) -> Iterator[Finding]:
    text = status.text.rstrip(", ")
    if status.state == UNVERIFIED:
        yield Finding(True, "Its push endpoint is not verified: nothing is delivered before it is.")
    elif status.state == INACTIVE:
        yield Finding(True, "Its messages are to be pushed to an endpoint, but there is no push server.")
    elif status.state == RETRYING:
        yield Finding(True, f"Its messages do not get through, and are tried again: {text}.")
    elif status.state == STOPPED:
        yield Finding(True, f"Its messages are not pushed any more: {text}.")
    elif status.state == UNKNOWN:
        yield Finding(False, f"Of how its messages are pushed this is known: {text}.")
    yield Finding(False, "Its messages are pushed to an endpoint: only push workers and service_admins may pull.")


def _backlog_findings(subscription: Subscription, standing: SubscriptionState) -> Iterator[Finding]:
    waiting = f"{_messages(standing.backlog)} {'waits' if standing.backlog == 1 else 'wait'}"
    pulled = standing.pulled_ago
    if subscription.push is None and pulled is None:
        yield Finding(True, f"{waiting}, and nobody has pulled since the service started.")
    elif subscription.push is None and pulled is not None and pulled > IDLE_MS:
        yield Finding(True, f"{waiting}, and the last pull was {span_text(pulled)} ago.")
    if subscription.push is None and standing.hand_out is not None and standing.outstanding_messages:
        yield _hand_out_finding(subscription.ack_deadline_seconds, standing.hand_out.ago, standing.outstanding_messages)
    if standing.oldest_backlog_age is not None and standing.oldest_backlog_age > NEARLY_LOST_PART * standing.retention:
        left = span_text(Milliseconds(max(standing.retention - standing.oldest_backlog_age, 0)))
        yield Finding(True, f"The oldest waiting message will be gone by retention in {left}.")


def _hand_out_finding(deadline: int, ago: Milliseconds, handed: int) -> Finding:
    handed_out = f"{_messages(handed)} handed out {span_text(ago)} ago, not acknowledged"
    if ago <= deadline * 1000:
        return Finding(False, f"{handed_out} yet; the deadline is {deadline}s.")
    return Finding(
        True,
        f"{handed_out} within the deadline of {deadline}s: the next pull gets them again. Acknowledge sooner, pull"
        " fewer, or make the deadline longer.",
    )


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"
