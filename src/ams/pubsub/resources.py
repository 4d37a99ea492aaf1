"""Topics, subscriptions and snapshots as answers show them, and as requests ask for them.

All defaults are filled in in every answer: clients compare what a create returned with what a get returns later.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

from ams.core.ack_ids import MAX_ACK_DEADLINE, MIN_ACK_DEADLINE
from ams.core.clock import DAY, Milliseconds
from ams.core.errors import InvalidInput
from ams.core.names import ProjectName, revision_id
from ams.core.parallel_options import (
    DEFAULT_ATTEMPTS,
    DEFAULT_MAXIMUM,
    DEFAULT_MINIMUM,
    MAX_ATTEMPTS,
    MAX_RETENTION,
    MIN_ATTEMPTS,
    MIN_RETENTION,
    Changes,
    DeadLetterPolicy,
    ParallelOptions,
    RetryPolicy,
)
from ams.pubsub import fields, protos
from ams.pubsub.names import DELETED_SCHEMA, DELETED_TOPIC, SCHEMAS, SNAPSHOTS, SUBSCRIPTIONS, TOPICS, Name, in_project
from ams.pubsub.protos import Message
from ams.pubsub.push import show_push
from ams.storage.registry.records import AttachedSchema, Snapshot, Subscription, Topic

USUAL_TTL, USUAL_RETENTION = Milliseconds(31 * DAY), Milliseconds(7 * DAY)

TOPIC_FIELDS = frozenset(protos.Topic.DESCRIPTOR.fields_by_name)
TOPIC_CHANGES = frozenset({"labels", "message_retention_duration", "schema_settings", "message_storage_policy",
                           "ingestion_data_source_settings", "message_transforms"})  # fmt: skip
TOPIC_REFUSED = {
    "message_storage_policy": "messages are kept where the service runs",
    "kms_key_name": "messages are not encrypted by keys of others",
    "ingestion_data_source_settings": "nothing is fetched from other services",
    "message_transforms": "programs of others are not run here",
}
SUBSCRIPTION_FIELDS = frozenset(protos.Subscription.DESCRIPTOR.fields_by_name)
SUBSCRIPTION_CHANGES = frozenset({
    "push_config", "bigquery_config", "cloud_storage_config", "bigtable_config", "ack_deadline_seconds",
    "retain_acked_messages", "message_retention_duration", "labels", "expiration_policy", "dead_letter_policy",
    "retry_policy", "enable_exactly_once_delivery", "message_transforms",
})  # fmt: skip
SUBSCRIPTION_REFUSED = {
    "bigquery_config": "messages are not written to other services; the data pipeline writes them to tables",
    "cloud_storage_config": "messages are not written to other services; the data pipeline writes them to files",
    "bigtable_config": "messages are not written to other services",
    "message_transforms": "programs of others are not run here",
}


def shown_topic(project: str, topic: Topic) -> Message:
    """Show a topic."""
    shown = protos.Topic(name=Name(project, TOPICS, topic.name).path, labels=topic.labels, state="ACTIVE")
    if topic.retention is not None:
        shown.message_retention_duration.CopyFrom(fields.duration(topic.retention))
    if topic.schema is not None:
        shown.schema_settings.CopyFrom(_shown_settings(project, topic.schema))
    elif topic.deleted_schema:
        shown.schema_settings.CopyFrom(protos.SchemaSettings(schema=DELETED_SCHEMA, encoding=topic.deleted_schema))
    return shown


def _shown_settings(project: str, attached: AttachedSchema) -> Message:
    return protos.SchemaSettings(
        schema=Name(project, SCHEMAS, attached.name).path,
        encoding=attached.encoding or 0,
        **{
            f"{end}_revision_id": revision_id(attached.id, number)
            for end, number in (("first", attached.first_revision), ("last", attached.last_revision))
            if number is not None
        },
    )


def asked_topic_retention(topic: Message) -> Milliseconds | None:
    """Return how long a request wants a topic's messages kept, None: as usual; raise `InvalidInput`."""
    if not topic.HasField("message_retention_duration"):
        return None
    return _retention(topic)


def shown_subscription(project: str, subscription: Subscription, topic: Topic | None) -> Message:
    """Show a subscription; `topic` is None when that is gone."""
    options = subscription.parallel or ParallelOptions()
    shown = protos.Subscription(
        name=Name(project, SUBSCRIPTIONS, subscription.name).path,
        topic=Name(project, TOPICS, topic.name).path if topic else DELETED_TOPIC,
        ack_deadline_seconds=min(max(subscription.ack_deadline_seconds, MIN_ACK_DEADLINE), MAX_ACK_DEADLINE),
        retain_acked_messages=options.retain_acked_messages,
        message_retention_duration=fields.duration(options.message_retention or USUAL_RETENTION),
        labels=subscription.labels,
        enable_message_ordering=options.enable_message_ordering,
        filter=options.filter,
        detached=options.detached,
        enable_exactly_once_delivery=options.enable_exactly_once_delivery,
        state="ACTIVE",
    )
    show_push(shown.push_config, subscription.push)
    shown.expiration_policy.SetInParent()
    if options.expiration_ttl is not None:
        shown.expiration_policy.ttl.CopyFrom(fields.duration(options.expiration_ttl))
    if options.dead_letter_policy is not None:
        shown.dead_letter_policy.dead_letter_topic = Name(project, TOPICS, options.dead_letter_policy.topic).path
        shown.dead_letter_policy.max_delivery_attempts = options.dead_letter_policy.max_attempts
    if options.retry_policy is not None:
        shown.retry_policy.minimum_backoff.CopyFrom(fields.duration(options.retry_policy.minimum_backoff))
        shown.retry_policy.maximum_backoff.CopyFrom(fields.duration(options.retry_policy.maximum_backoff))
    if topic is not None and topic.retention is not None:
        shown.topic_message_retention_duration.CopyFrom(fields.duration(topic.retention))
    return shown


_OPTIONS = {"expiration_policy": "expiration_ttl", "message_retention_duration": "message_retention"}
"""Options that have another name than their fields."""


@dataclass(frozen=True, slots=True)
class AskedSubscription:
    """What a request says of a subscription."""

    ack_deadline_seconds: int
    options: ParallelOptions

    def changes(self, changed: Collection[str]) -> Changes:
        """Return the options behind these fields: others stay, which can be other than as they are shown."""
        named = {_OPTIONS.get(field, field) for field in changed} & Changes.__annotations__.keys()
        return cast("Changes", {option: getattr(self.options, option) for option in named})


def asked_subscription(project: ProjectName, asked: Message) -> AskedSubscription:
    """Return what a request says of a subscription of a project, with Google's defaults; raise `InvalidInput`."""
    ttl = USUAL_TTL if not asked.HasField("expiration_policy") else _ttl(asked.expiration_policy)
    options = ParallelOptions(
        retry_policy=_retry(asked),
        dead_letter_policy=_dead_letters(project, asked),
        filter=asked.filter,
        enable_message_ordering=asked.enable_message_ordering,
        enable_exactly_once_delivery=asked.enable_exactly_once_delivery,
        retain_acked_messages=asked.retain_acked_messages,
        expiration_ttl=ttl,
        message_retention=_subscription_retention(asked, ttl),
    )
    return AskedSubscription(_ack_deadline(asked.ack_deadline_seconds), options)


def _ack_deadline(seconds: int) -> int:
    if seconds and not MIN_ACK_DEADLINE <= seconds <= MAX_ACK_DEADLINE:
        raise InvalidInput(
            f"Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between"
            f" {MIN_ACK_DEADLINE} and {MAX_ACK_DEADLINE} seconds."
        )
    return seconds or MIN_ACK_DEADLINE


def _ttl(policy: Message) -> Milliseconds | None:
    if not policy.HasField("ttl"):
        return None
    found = fields.span(policy.ttl)
    if found < DAY:
        raise InvalidInput("The value for expiration duration is too small. It must be at least 86400s.")
    return found


def _subscription_retention(asked: Message, ttl: Milliseconds | None) -> Milliseconds:
    if not asked.HasField("message_retention_duration"):
        return USUAL_RETENTION if ttl is None else min(ttl, USUAL_RETENTION)
    return _retention(asked)


def _retention(asked: Message) -> Milliseconds:
    found = fields.span(asked.message_retention_duration)
    if not MIN_RETENTION <= found <= MAX_RETENTION:
        raise InvalidInput(
            "The value for message retention duration is out of bounds. It must be between 600s and 2678400s."
        )
    return found


def _retry(asked: Message) -> RetryPolicy | None:
    if not asked.HasField("retry_policy"):
        return None
    policy = asked.retry_policy
    return RetryPolicy(
        fields.span(policy.minimum_backoff) if policy.HasField("minimum_backoff") else DEFAULT_MINIMUM,
        fields.span(policy.maximum_backoff) if policy.HasField("maximum_backoff") else DEFAULT_MAXIMUM,
    )


def _dead_letters(project: ProjectName, asked: Message) -> DeadLetterPolicy | None:
    if not asked.HasField("dead_letter_policy"):
        return None
    policy = asked.dead_letter_policy
    topic = in_project(policy.dead_letter_topic, project, TOPICS)
    attempts = policy.max_delivery_attempts or DEFAULT_ATTEMPTS
    if not MIN_ATTEMPTS <= attempts <= MAX_ATTEMPTS:
        size = "small" if attempts < MIN_ATTEMPTS else "large"
        raise InvalidInput(
            f"The value for max_delivery_attempts is too {size}. You passed {attempts} in the request, but it must be"
            f" between {MIN_ATTEMPTS} and {MAX_ATTEMPTS}."
        )
    return DeadLetterPolicy(topic, attempts)


def shown_snapshot(project: str, snapshot: Snapshot) -> Message:
    """Show a snapshot."""
    return protos.Snapshot(
        name=Name(project, SNAPSHOTS, snapshot.name).path,
        topic=Name(project, TOPICS, snapshot.topic).path,
        expire_time=fields.timestamp(snapshot.expires_on),
        labels=snapshot.labels,
    )
