"""Dead letters: messages that failed too often are stored in another topic, so that the others continue.

No transaction spans log and cursors: a message is stored first, then acknowledged. Its idempotency key is made of
subscription, topic and offset, so a retry after a crash stores nothing twice. For a parallel subscription the key also
has the epoch, which only a seek changes.

Dead letters count for the project's quota of bytes (`StoredBytes`). Over the quota, the message stays in the
subscription and is retried.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from ams.access.admission import Caller
from ams.core.clock import publish_time
from ams.core.errors import Conflict, InvalidInput, KeyReused, QuotaExceeded, RateLimited, TooLarge, TopicGone
from ams.core.messages import Message, Stored, batch_of, message, parse
from ams.core.names import Offset, SubscriptionName, TopicId, TopicName, topic_id_text
from ams.push.upstream import Verdict
from ams.service.lookup import OWN_TOPIC, find_listed_subscription, no_topic_is_a_conflict, require_found, topic_of
from ams.service.stored_bytes import REQUEST_BYTES, StoredBytes
from ams.service.tallies import Counts
from ams.storage.cursors.base import NO_DEADLINE, Cursors
from ams.storage.log.base import Log
from ams.storage.registry.records import Subscription, Topic
from ams.storage.registry.registry import Registry

SUBSCRIPTION, REASON = "deadLetterSubscription", "deadLetterReason"  # two of the attributes added to a dead letter
MAX_REASON = 1024  # characters of a reason that are kept
NO_TOPIC = "Dead letter topic doesn't exist"
NOT_ACKNOWLEDGED = "not acknowledged"
logger = structlog.get_logger("ams.dead_letters")


class NotNext(Conflict):
    """The message is not the next one: the subscription was moved, and must be pulled again."""

    default_message = "Message is not the next one of the subscription"


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Stores dead letters."""

    registry: Registry
    log: Log
    cursors: Cursors
    counts: Counts
    stored: StoredBytes

    async def dead_letter_for(self, caller: Caller, name: SubscriptionName, offset: Offset, verdict: Verdict) -> None:
        """Call `dead_letter` for a worker elsewhere. Also raises `NotFound`, and `NotAllowed` as for a pull."""
        subscription = await find_listed_subscription(self.registry, caller, name)
        await self.dead_letter(subscription, caller.here.name, offset, verdict)

    async def dead_letter(self, subscription: Subscription, project: str, offset: Offset, verdict: Verdict) -> None:
        """Dead-letter the next message of a subscription of `project`, and acknowledge it. Idempotent.

        Does nothing if it is acknowledged already. Raises `Conflict` without a dead letter topic; `NotNext` if it is
        not the next message, or the subscription moved; `TooLarge` with the added attributes; `QuotaExceeded`,
        `RateLimited`; `Unavailable` if log or cursors cannot store now. After an error it is not acknowledged.
        """
        target = await self._target(subscription)
        source = await topic_of(self.registry, subscription)
        with no_topic_is_a_conflict:
            found = await self._hand_out(subscription, source.id, offset)
        if found is None:
            return
        added = _attributes(project, subscription, found, verdict)
        await self._append(target, parse(found.fragment), added, _key(subscription, source.id, offset))
        try:
            await self.cursors.acknowledge(subscription.id, offset, NO_DEADLINE)
        except InvalidInput:  # a seek took the hand-out away
            raise NotNext from None
        self.counts.note_acknowledgement(subscription.id)
        logger.info("message.buried", subscription=added[SUBSCRIPTION], offset=offset, status=verdict.status)

    async def put(
        self, subscription: Subscription, project: str, source: TopicId, offset: Offset, verdict: Verdict, *, epoch: int
    ) -> None:
        """Store a message of a parallel subscription, if it is there, once per `epoch`. Raises as `dead_letter`."""
        target = await self._target(subscription)
        found = await self.log.read(source, offset, max_messages=1, max_bytes=1)
        if not found or found[0].offset != offset:
            return
        added = _attributes(project, subscription, found[0], verdict)
        await self._append(target, parse(found[0].fragment), added, f"{_key(subscription, source, offset)} {epoch}")
        logger.info("message.put_aside", subscription=added[SUBSCRIPTION], offset=offset, attempts=verdict.attempts)

    async def _target(self, subscription: Subscription) -> Topic:
        if subscription.parallel is not None:
            policy = subscription.parallel.dead_letter_policy
            name = policy.topic if policy else ""
        else:
            name = subscription.push.dead_letter_topic if subscription.push else ""
            if name and name == subscription.topic:  # an ordered one would never get past them
                raise Conflict(OWN_TOPIC)
        if not name:
            raise Conflict("Subscription has no dead letter topic")
        topic = await self.registry.topics.find(subscription.project_id, TopicName(name))
        return require_found(topic, Conflict(NO_TOPIC))

    async def _hand_out(self, subscription: Subscription, topic: TopicId, offset: Offset) -> Stored | None:
        """Hand out the message, so that it can be acknowledged; None: it is acknowledged already."""
        position = await self.cursors.position(subscription.id, topic)
        if offset < position.offset:
            return None
        read = await self.log.read(topic, position.offset, max_messages=1, max_bytes=1)
        is_next = read and read[0].offset == offset == position.offset
        if is_next and await self.cursors.hand_out(subscription.id, position.generation, Offset(offset + 1)):
            return read[0]
        raise NotNext

    async def _append(self, topic: Topic, letter: Message, added: Mapping[str, str], key: str) -> None:
        """Store a dead letter, without the reason if it is too large; skip it if its key is stored already."""
        try:
            try:
                await self._store(topic, letter, added, key)
            except TooLarge:
                without = {name: value for name, value in added.items() if name != REASON}
                await self._store(topic, letter, without, key)
        except KeyReused:
            # It is stored already, with another verdict: after a crash before the acknowledgement, or a seek.
            return
        except TooLarge:
            raise TooLarge("Message is too large for the dead letter topic") from None
        except TopicGone:
            raise Conflict(NO_TOPIC) from None

    async def _store(self, topic: Topic, letter: Message, added: Mapping[str, str], key: str) -> None:
        sent = batch_of([message(letter.data, {**letter.attributes, **added}, letter.ordering_key)])
        size = sent.size + REQUEST_BYTES
        try:
            self.stored.take(topic, size)
        except (QuotaExceeded, RateLimited):
            if await self.log.earlier_answer(topic.id, sent, key) is None:
                raise
            return
        try:
            appended = await self.log.append(topic.id, sent, key=key)
        except BaseException:
            self.stored.give_back(topic, size)
            self.counts.note_attempt(topic)
            raise
        self.counts.note_publish(topic, appended)


def _attributes(project: str, subscription: Subscription, stored: Stored, verdict: Verdict) -> Mapping[str, str]:
    # one line of text that can be stored: some reasons are an endpoint's own words
    reason = " ".join(verdict.reason[: 4 * MAX_REASON].split())[:MAX_REASON].encode("utf-8", "replace").decode()
    moment = datetime.fromtimestamp(stored.time / 1000, UTC)
    return {
        SUBSCRIPTION: f"projects/{project}/subscriptions/{subscription.name}",
        "deadLetterSourceTopic": f"projects/{project}/topics/{subscription.topic}",
        "deadLetterMessageId": str(stored.offset),
        "deadLetterPublishTime": publish_time(stored.time),
        REASON: reason,
        "deadLetterAttempts": str(verdict.attempts),
        "deadLetterStatus": str(verdict.status),
        # what Google's clients expect
        "CloudPubSubDeadLetterSourceDeliveryCount": str(verdict.attempts),
        "CloudPubSubDeadLetterSourceSubscription": subscription.name,
        "CloudPubSubDeadLetterSourceSubscriptionProject": project,
        "CloudPubSubDeadLetterSourceTopicPublishTime": moment.isoformat(timespec="milliseconds"),
    }


def _key(subscription: Subscription, topic: TopicId, offset: Offset) -> str:
    """Return an idempotency key that no publisher can use: theirs are visible ASCII."""
    return f"\0dead letter {subscription.id} {topic_id_text(topic)} {offset}"
