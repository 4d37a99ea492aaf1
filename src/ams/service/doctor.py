"""Diagnosis of a subscription: facts, and findings in plain English.

Nothing is handed out, but a diagnosis counts as a use, which postpones the expiry of the subscription. Times are ages;
None: it never happened, or happened before the start and was not stored.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ams.access.admission import Caller
from ams.core.clock import Clock, Milliseconds, span_text
from ams.core.errors import TopicGone
from ams.core.names import Offset, SubscriptionId, SubscriptionName, TopicName, subscription_path, topic_path
from ams.core.retention_clock import RetentionClock
from ams.push.report import RETRYING, STOPPED
from ams.service.lookup import find_listed_subscription
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.parallel.metrics import findings, messages_text
from ams.service.push.configurations import INACTIVE, UNKNOWN, UNVERIFIED, PushStatus, PushWatcher
from ams.service.retention import age_of, bounds_for
from ams.service.tallies import Counting
from ams.storage.cursors.acks import CursorStore
from ams.storage.log.base import Log
from ams.storage.registry.records import Subscription, Topic
from ams.storage.registry.registry import Registry
from ams.wire.service import Diagnosis, Finding, Standing

IDLE_SECONDS = 60.0  # after so long without a pull a subscription counts as not consumed
NEARLY_LOST_PART = 0.8


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
        """Diagnose a subscription, wrong findings first. Raises `NotFound`, or `NotAllowed` outside its access list."""
        subscription = await find_listed_subscription(self.registry, caller, name)
        if subscription.is_detached:
            return _diagnosis(caller, subscription, [Finding(False, "It is detached: it gets nothing any more.")])
        self.used(subscription.id)
        topic = await self.registry.topics.find(caller.here.id, subscription.topic)
        standing = None
        with contextlib.suppress(TopicGone):  # deleted meanwhile
            standing = await self._standing(caller, subscription, topic) if topic else None
        pushed = await self.watcher.look(caller, name) if subscription.push is not None else None
        texts = self.counting.counts.not_base64_of[topic.id] if topic else 0
        said = [*(_push_findings(pushed) if pushed else ()), *_findings(subscription, standing)]
        if texts:
            verb = "is" if texts == 1 else "are"
            text = (
                f"{messages_text(texts)} published to its topic since the service started {verb}"
                " not base64: consumers get that text as it is, and data that happens to be base64 is decoded."
            )
            said.append(Finding(False, text))
        said += await self._parallel_findings(caller, subscription)
        if caller.access_lists and not subscription.authorized and subscription.push is None:
            said.append(Finding(False, "No consumer is on its access list: only administrators may pull."))
        return _diagnosis(caller, subscription, said, standing)

    async def _parallel_findings(self, caller: Caller, subscription: Subscription) -> Sequence[Finding]:
        if subscription.parallel is None:
            return ()
        letters, found = subscription.parallel.dead_letter_policy, []
        if letters and await self.registry.topics.find(caller.here.id, TopicName(letters.topic)) is None:
            text = f"Its dead letter topic {letters.topic} is gone: what failed too often comes again and again."
            found.append(Finding(True, text))
        if self.working and (opened := await self.working.opened.here(subscription.id)):
            streams = self.working.streams[subscription.id]
            found += findings(opened, names_holders=caller.sees_push_secrets, streams=streams)
        return found

    async def _standing(self, caller: Caller, subscription: Subscription, topic: Topic) -> Standing:
        parallel, acknowledged, of_backlog = subscription.parallel, None, dict[str, int]()
        position = await self.cursors.position(subscription.id, topic.id)
        bounds = await bounds_for(self.log, topic.id, subscription, self.retention_clock)
        current, end = max(position.offset, bounds.oldest), bounds.end
        hand_out = await self.cursors.newest_hand_out(subscription.id)
        handed_out = max(hand_out.end - current, 0) if hand_out else 0
        retention = topic.retention or caller.here.retention or self.default_retention
        if parallel is not None:
            retention = min(retention, parallel.message_retention or retention)
            acknowledged = len((await self.cursors.progress(subscription.id)).done)
            if self.working and (opened := await self.working.opened.here(subscription.id)):
                backlog, handed_out = opened.backlog, len(opened.backlog.leases)
                blocked, failed = backlog.keys.blocked_messages, len(backlog.failures.counts)
                of_backlog = {"leased": handed_out, "waiting": backlog.waiting, "blocked": blocked, "failed": failed}
        pulls = await self.counting.subscription(subscription.id)
        acknowledged_at = self.counting.counts.acknowledged_at.get(subscription.id)
        return Standing(
            min=bounds.oldest, max=end, current=current, backlog=max(end - current - (acknowledged or 0), 0),
            handed_out=handed_out,
            lost=position.lost + current - position.offset,  # also those that no pull has noticed yet
            retention_seconds=retention / 1000,
            handed_out_seconds_ago=_seconds(hand_out.ago if hand_out else None),
            last_pull_seconds_ago=self._seconds_since(pulls.rate.last),
            last_acknowledgement_seconds_ago=self._seconds_since(acknowledged_at),
            last_publish_seconds_ago=await self._age(topic, Offset(end - 1)) if end else None,
            oldest_waiting_seconds=await self._age(topic, current) if current < end else None,
            acknowledged=acknowledged, **of_backlog,
        )  # fmt: skip

    def _seconds_since(self, moment: Milliseconds | None) -> float | None:
        return None if moment is None else max(self.clock.wall() - moment, 0) / 1000

    async def _age(self, topic: Topic, offset: Offset) -> float | None:
        return _seconds(await age_of(self.log, topic.id, offset, self.clock))


def _seconds(span: Milliseconds | None) -> float | None:
    return None if span is None else span / 1000


def _diagnosis(
    caller: Caller, subscription: Subscription, said: Sequence[Finding], standing: Standing | None = None
) -> Diagnosis:
    push, findings = subscription.push, sorted(said, key=lambda finding: not finding.wrong)
    return Diagnosis(
        subscription=subscription_path(caller.here.name, subscription.name),
        topic=topic_path(caller.here.name, subscription.topic),
        ack_deadline_seconds=subscription.ack_deadline_seconds, push=push is not None,
        push_verified=push is not None and push.verified, healthy=not any(finding.wrong for finding in said),
        findings=findings, standing=standing,
    )  # fmt: skip


def _findings(subscription: Subscription, standing: Standing | None) -> Iterator[Finding]:
    if standing is None:
        yield Finding(True, f"Its topic {subscription.topic} is gone: make it again, or delete the subscription.")
        return
    if not standing.max:
        yield Finding(False, "Nothing was ever published to its topic.")
    elif standing.backlog:
        yield from _backlog_findings(subscription, standing)
    elif standing.last_publish_seconds_ago is None:
        yield Finding(False, "Nothing is waiting, and all messages of its topic are gone by retention.")
    else:
        ago = _span(standing.last_publish_seconds_ago)
        yield Finding(False, f"Nothing is waiting; the last message was published {ago} ago.")
    ahead = standing.current - standing.max
    if ahead > 0:  # the log has lost messages
        count = messages_text(ahead)
        yield Finding(True, f"It stands past the end of its topic and will miss the next {count}: move it to the end.")
    if standing.lost:
        yield Finding(True, f"Retention took {messages_text(standing.lost)} before they were acknowledged.")


def _push_findings(status: PushStatus) -> Iterator[Finding]:
    text = status.text.rstrip(", ")
    texts = {
        UNVERIFIED: "Its push endpoint is not verified: nothing is delivered before it is.",
        INACTIVE: "Its messages are to be pushed to an endpoint, but there is no push server.",
        RETRYING: f"Its messages do not get through, and are tried again: {text}.",
        STOPPED: f"Its messages are not pushed any more: {text}.",
        UNKNOWN: f"Of how its messages are pushed this is known: {text}.",
    }
    if status.state in texts:
        yield Finding(status.state != UNKNOWN, texts[status.state])
    yield Finding(False, "Its messages are pushed to an endpoint: only push workers and service_admins may pull.")


def _backlog_findings(subscription: Subscription, standing: Standing) -> Iterator[Finding]:
    waiting = f"{messages_text(standing.backlog)} {'waits' if standing.backlog == 1 else 'wait'}"
    if subscription.push is None:
        pulled, handed_out = standing.last_pull_seconds_ago, standing.handed_out_seconds_ago
        if pulled is None:
            yield Finding(True, f"{waiting}, and nobody has pulled since the service started.")
        elif pulled > IDLE_SECONDS:
            yield Finding(True, f"{waiting}, and the last pull was {_span(pulled)} ago.")
        if handed_out is not None and standing.handed_out:
            deadline = subscription.ack_deadline_seconds
            text = f"{messages_text(standing.handed_out)} handed out {_span(handed_out)} ago, not acknowledged"
            late = (
                f" within the deadline of {deadline}s: the next pull gets them again. Acknowledge sooner, pull"
                " fewer, or make the deadline longer."
            )
            is_late = handed_out > deadline
            yield Finding(is_late, text + (late if is_late else f" yet; the deadline is {deadline}s."))
    oldest, retention = standing.oldest_waiting_seconds, standing.retention_seconds
    if oldest is not None and oldest > NEARLY_LOST_PART * retention:
        left = _span(max(retention - oldest, 0))
        yield Finding(True, f"The oldest waiting message will be gone by retention in {left}.")


def _span(seconds: float) -> str:
    return span_text(Milliseconds(round(seconds * 1000)))
