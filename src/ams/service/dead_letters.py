"""Dead letters: messages that endpoints refuse are put aside into a topic, so that the others go on.

No transaction spans log and cursors, so a message is put aside first and acknowledged then. Its idempotency key is made
of subscription, topic and offset, so that a try after a crash finds it there. Of a parallel subscription the epoch is
part of the key: it is the same for every process, until a seek.

Letters are the project's bytes as what it publishes (`StoredBytes`). For one without room nothing changes: its message
stays with the subscription, and is tried again later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from ams.access.admission import Caller
from ams.access.permissions import CONSUMER
from ams.core.clock import publish_time
from ams.core.errors import Conflict, InvalidInput, KeyReused, QuotaExceeded, RateLimited, TooLarge, TopicGone
from ams.core.messages import Message, Stored, batch_of, message, parse
from ams.core.names import Offset, SubscriptionName, TopicId, TopicName, topic_id_text
from ams.push.upstream import Verdict
from ams.service.counting import Counts
from ams.service.lookup import OWN_TOPIC, find_subscription, no_topic_is_a_conflict, topic_of
from ams.service.stored_bytes import REQUEST_BYTES, StoredBytes
from ams.storage.cursors.base import NO_DEADLINE, Cursors
from ams.storage.log.base import Log
from ams.storage.registry.records import Subscription, Topic
from ams.storage.registry.registry import Registry

PREFIX = "deadLetter"  # of the names of attributes that a message is given here
GOOGLES_PREFIX = "CloudPubSubDeadLetterSource"  # of those that Google's clients look for
REASON = PREFIX + "Reason"
MAX_REASON = 1024  # characters of a reason that are kept
NO_TOPIC = "Dead letter topic doesn't exist"
NOT_ACKNOWLEDGED = "not acknowledged"

logger = structlog.get_logger("ams.dead_letters")


class NotNext(Conflict):
    """The message is not the next one: the subscription was moved, and must be pulled again."""

    def __init__(self) -> None:
        super().__init__("Message is not the next one of the subscription")


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Puts messages aside."""

    registry: Registry
    log: Log
    cursors: Cursors
    counts: Counts
    stored: StoredBytes | None = None  # limits the bytes of projects; None: there is no limit

    async def dead_letter_for(self, caller: Caller, name: SubscriptionName, offset: Offset, verdict: Verdict) -> None:
        """Do what `dead_letter` does for a worker elsewhere; first raise `NotFound`, or `NotAllowed` as for a pull."""
        subscription = await find_subscription(self.registry, caller, name)
        caller.require_listed(subscription.authorized, CONSUMER)
        await self.dead_letter(subscription, caller.here.name, offset, verdict)

    async def dead_letter(self, subscription: Subscription, project: str, offset: Offset, verdict: Verdict) -> None:
        """Put the next message of a subscription of `project` aside, once however often asked, and acknowledge it.

        One that is acknowledged already is left alone. Raises `Conflict` without a dead letter topic; `NotNext` when it
        is not the next one, or the subscription is moved meanwhile; `TooLarge` when it does not fit with the attributes
        that are added; `QuotaExceeded` and `RateLimited` when the project may not store so much, or so much now;
        `Unavailable` when log or cursors cannot store now. It is not acknowledged then.
        """
        target = await self._target(subscription)
        source = await topic_of(self.registry, subscription)
        with no_topic_is_a_conflict:
            found = await self._hand_out(subscription, source.id, offset)
        if found is None:
            return
        letter = parse(found.fragment)
        added = _attributes(project, subscription, found, verdict)
        await self._append(target, letter, added, _key(subscription, source.id, offset))
        try:
            await self.cursors.acknowledge(subscription.id, offset, NO_DEADLINE)
        except InvalidInput:  # a seek took the hand-out away
            raise NotNext from None
        self.counts.note_acknowledgement(subscription.id)
        logger.info("message.buried", subscription=added[PREFIX + "Subscription"], offset=offset, status=verdict.status)

    async def put(
        self, subscription: Subscription, project: str, source: TopicId, offset: Offset, verdict: Verdict, *, epoch: int
    ) -> None:
        """Put a message of a parallel subscription aside that has failed too often, once in an `epoch`.

        Nothing is acknowledged. A message that retention took is left alone. Raises as `dead_letter`.
        """
        target = await self._target(subscription)
        found = await self.log.read(source, offset, max_messages=1, max_bytes=1)
        if not found or found[0].offset != offset:
            return
        added = _attributes(project, subscription, found[0], verdict)
        await self._append(target, parse(found[0].fragment), added, f"{_key(subscription, source, offset)} {epoch}")
        name = added[PREFIX + "Subscription"]
        logger.info("message.put_aside", subscription=name, offset=offset, attempts=verdict.attempts)

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
        if topic is None:
            raise Conflict(NO_TOPIC)
        return topic

    async def _hand_out(self, subscription: Subscription, topic: TopicId, offset: Offset) -> Stored | None:
        """Hand the message out, so that it can be acknowledged; return None when it is acknowledged already."""
        position = await self.cursors.position(subscription.id, topic)
        if offset < position.offset:
            return None
        read = await self.log.read(topic, position.offset, max_messages=1, max_bytes=1)
        if not read or not read[0].offset == offset == position.offset:
            raise NotNext
        if not await self.cursors.hand_out(subscription.id, position.generation, Offset(offset + 1)):
            raise NotNext
        return read[0]

    async def _append(self, topic: Topic, letter: Message, added: Mapping[str, str], key: str) -> None:
        """Store a letter, without the reason if it does not fit otherwise; what is there under the key is enough."""
        try:
            try:
                await self._store(topic, _with(letter, added), key)
            except TooLarge:
                without = {name: value for name, value in added.items() if name != REASON}
                await self._store(topic, _with(letter, without), key)
        except KeyReused:
            # It was put there before, with another verdict: a crash came before the acknowledgement, or a seek after.
            return
        except TooLarge:
            raise TooLarge("Message is too large for the dead letter topic") from None
        except TopicGone:
            raise Conflict(NO_TOPIC) from None

    async def _store(self, topic: Topic, letter: Message, key: str) -> None:
        sent = batch_of([letter])
        size = sent.size + REQUEST_BYTES
        if self.stored is not None:
            try:
                self.stored.take(topic, size)
            except (QuotaExceeded, RateLimited):
                if await self.log.answered(topic.id, sent, key) is None:
                    raise
                return
        try:
            appended = await self.log.append(topic.id, sent, key=key)
        except BaseException:
            if self.stored is not None:
                self.stored.give_back(topic, size)
            self.counts.note_attempt(topic)
            raise
        self.counts.note_publish(topic, appended)


def _attributes(project: str, subscription: Subscription, stored: Stored, verdict: Verdict) -> Mapping[str, str]:
    # one line of text that can be stored: some reasons are an endpoint's own words
    reason = " ".join(verdict.reason[: 4 * MAX_REASON].split())[:MAX_REASON].encode("utf-8", "replace").decode()
    said = {
        "Subscription": f"projects/{project}/subscriptions/{subscription.name}",
        "SourceTopic": f"projects/{project}/topics/{subscription.topic}",
        "MessageId": str(stored.offset),
        "PublishTime": publish_time(stored.time),
        "Reason": reason,
        "Attempts": str(verdict.attempts),
        "Status": str(verdict.status),
    }
    googles = {
        "DeliveryCount": str(verdict.attempts),
        "Subscription": subscription.name,
        "SubscriptionProject": project,
        "TopicPublishTime": datetime.fromtimestamp(stored.time / 1000, UTC).isoformat(timespec="milliseconds"),
    }
    return {PREFIX + name: value for name, value in said.items()} | {
        GOOGLES_PREFIX + name: value for name, value in googles.items()
    }


def _with(letter: Message, added: Mapping[str, str]) -> Message:
    return message(letter.data, {**letter.attributes, **added}, letter.ordering_key)


def _key(subscription: Subscription, topic: TopicId, offset: Offset) -> str:
    """Return a key no publisher can take before us: theirs are visible ASCII."""
    return f"\0dead letter {subscription.id} {topic_id_text(topic)} {offset}"
