"""Converts topics, subscriptions, push configurations and snapshots of requests and answers.

Every answer has all defaults, as clients compare the results of create and get. A push configuration made by AMS's API
shows only its endpoint; one made here delivers in Google's form.
"""

import re
from collections.abc import Collection
from typing import cast

from ams.access.admission import Caller
from ams.access.permissions import SERVICE_ADMIN
from ams.core import parallel_options as limits
from ams.core.ack_ids import MAX_ACK_DEADLINE, MIN_ACK_DEADLINE
from ams.core.clock import DAY, Milliseconds
from ams.core.errors import InvalidInput, NotAllowed
from ams.core.names import ProjectName, revision_id
from ams.core.parallel_options import Changes, DeadLetterPolicy, ParallelOptions, RetryPolicy
from ams.core.push_config import GOOGLE_VERSION, HTTP_ENDPOINT, AskedPush, GoogleForm, PushConfig, google_version
from ams.pubsub import fields, protos
from ams.pubsub.fields import DELETED_SCHEMA, DELETED_TOPIC, SCHEMAS, SNAPSHOTS, SUBSCRIPTIONS, TOPICS, PubsubName
from ams.pubsub.protos import Message
from ams.storage.registry.records import Snapshot, Subscription, Topic

EXACTLY_ONCE = "Exactly-once delivery is for pull subscriptions only: enable_exactly_once_delivery and push_config."
ORDERED = "An ordered subscription of AMS gets its push configuration from the AMS API."
_ACCOUNT = re.compile(r"[^@\s]+@([^@\s.]+)\.iam\.gserviceaccount\.com")
USUAL_RETENTION = Milliseconds(7 * DAY)

TOPIC_CHANGES = frozenset({"labels", "message_retention_duration", "schema_settings", "message_storage_policy",
                           "ingestion_data_source_settings", "message_transforms"})  # fmt: skip
TOPIC_REFUSED = {
    "message_storage_policy": "messages are kept where the service runs",
    "kms_key_name": "messages are not encrypted by keys of others",
    "ingestion_data_source_settings": "nothing is fetched from other services",
    "message_transforms": "programs of others are not run here",
}
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


def topic_message(project: str, topic: Topic) -> Message:
    """Show a topic."""
    shown = protos.Topic(name=PubsubName(project, TOPICS, topic.name).path, labels=topic.labels, state="ACTIVE")
    if topic.retention is not None:
        shown.message_retention_duration.FromMilliseconds(topic.retention)
    settings = shown.schema_settings
    if attached := topic.schema:
        settings.schema = PubsubName(project, SCHEMAS, attached.name).path
        settings.MergeFrom(protos.SchemaSettings(encoding=attached.encoding or 0))
        if attached.first_revision is not None:
            settings.first_revision_id = revision_id(attached.id, attached.first_revision)
        if attached.last_revision is not None:
            settings.last_revision_id = revision_id(attached.id, attached.last_revision)
    elif topic.deleted_schema:
        settings.CopyFrom(protos.SchemaSettings(schema=DELETED_SCHEMA, encoding=topic.deleted_schema))
    return shown


def subscription_message(project: str, subscription: Subscription, topic: Topic | None) -> Message:
    """Show a subscription; `topic` is None when that is gone."""
    options = subscription.parallel or ParallelOptions()
    shown = protos.Subscription(
        name=PubsubName(project, SUBSCRIPTIONS, subscription.name).path,
        topic=PubsubName(project, TOPICS, topic.name).path if topic else DELETED_TOPIC,
        ack_deadline_seconds=min(max(subscription.ack_deadline_seconds, MIN_ACK_DEADLINE), MAX_ACK_DEADLINE),
        retain_acked_messages=options.retain_acked_messages,
        labels=subscription.labels,
        enable_message_ordering=options.enable_message_ordering,
        filter=options.filter,
        detached=options.detached,
        enable_exactly_once_delivery=options.enable_exactly_once_delivery,
        state="ACTIVE",
    )
    shown.message_retention_duration.FromMilliseconds(options.message_retention or USUAL_RETENTION)
    show_push(shown.push_config, subscription.push)
    shown.expiration_policy.SetInParent()
    if options.expiration_ttl is not None:
        shown.expiration_policy.ttl.FromMilliseconds(options.expiration_ttl)
    if options.dead_letter_policy is not None:
        shown.dead_letter_policy.dead_letter_topic = PubsubName(project, TOPICS, options.dead_letter_policy.topic).path
        shown.dead_letter_policy.max_delivery_attempts = options.dead_letter_policy.max_attempts
    if options.retry_policy is not None:
        shown.retry_policy.minimum_backoff.FromMilliseconds(options.retry_policy.minimum_backoff)
        shown.retry_policy.maximum_backoff.FromMilliseconds(options.retry_policy.maximum_backoff)
    if topic is not None and topic.retention is not None:
        shown.topic_message_retention_duration.FromMilliseconds(topic.retention)
    return shown


# Options that have another name than their fields.
_OPTIONS = {"expiration_policy": "expiration_ttl", "message_retention_duration": "message_retention"}


def changed_options(options: ParallelOptions, changed: Collection[str]) -> Changes:
    """Return the options of these fields only: other stored options may differ from their shown defaults."""
    named = {_OPTIONS.get(field, field) for field in changed} & Changes.__annotations__.keys()
    return cast("Changes", {option: getattr(options, option) for option in named})


def read_subscription(project: ProjectName, asked: Message) -> tuple[int, ParallelOptions]:
    """Return deadline and options of a subscription in a request, with Google's defaults. Raises `InvalidInput`."""
    seconds = asked.ack_deadline_seconds
    if seconds:
        fields.check_ack_deadline(seconds)
    ttl = _ttl(asked)
    usual_retention = USUAL_RETENTION if ttl is None else min(ttl, USUAL_RETENTION)
    options = ParallelOptions(
        retry_policy=_retry(asked),
        dead_letter_policy=_dead_letters(project, asked),
        filter=asked.filter,
        enable_message_ordering=asked.enable_message_ordering,
        enable_exactly_once_delivery=asked.enable_exactly_once_delivery,
        retain_acked_messages=asked.retain_acked_messages,
        expiration_ttl=ttl,
        message_retention=read_retention(asked) or usual_retention,
    )
    return seconds or MIN_ACK_DEADLINE, options


def _ttl(asked: Message) -> Milliseconds | None:
    if not asked.HasField("expiration_policy"):
        return Milliseconds(31 * DAY)
    if not asked.expiration_policy.HasField("ttl"):
        return None
    found = fields.span(asked.expiration_policy.ttl)
    if found < DAY:
        raise InvalidInput("The value for expiration duration is too small. It must be at least 86400s.")
    return found


def read_retention(asked: Message) -> Milliseconds | None:
    """Return the retention that a topic or subscription of a request asks for; None: the default."""
    if not asked.HasField("message_retention_duration"):
        return None
    found = fields.span(asked.message_retention_duration)
    if not limits.MIN_RETENTION <= found <= limits.MAX_RETENTION:
        raise InvalidInput(
            "The value for message retention duration is out of bounds. It must be between 600s and 2678400s."
        )
    return found


def _retry(asked: Message) -> RetryPolicy | None:
    if not asked.HasField("retry_policy"):
        return None
    policy = asked.retry_policy
    return RetryPolicy(
        fields.span(policy.minimum_backoff) if policy.HasField("minimum_backoff") else limits.DEFAULT_MINIMUM,
        fields.span(policy.maximum_backoff) if policy.HasField("maximum_backoff") else limits.DEFAULT_MAXIMUM,
    )


def _dead_letters(project: ProjectName, asked: Message) -> DeadLetterPolicy | None:
    if not asked.HasField("dead_letter_policy"):
        return None
    policy = asked.dead_letter_policy
    topic = fields.name_in(policy.dead_letter_topic, project, TOPICS)
    attempts = policy.max_delivery_attempts or limits.DEFAULT_ATTEMPTS
    if not limits.MIN_ATTEMPTS <= attempts <= limits.MAX_ATTEMPTS:
        size = "small" if attempts < limits.MIN_ATTEMPTS else "large"
        raise InvalidInput(
            f"The value for max_delivery_attempts is too {size}. You passed {attempts} in the request, but it must be"
            f" between {limits.MIN_ATTEMPTS} and {limits.MAX_ATTEMPTS}."
        )
    return DeadLetterPolicy(topic, attempts)


def snapshot_message(project: str, snapshot: Snapshot) -> Message:
    """Show a snapshot."""
    return protos.Snapshot(
        name=PubsubName(project, SNAPSHOTS, snapshot.name).path,
        topic=PubsubName(project, TOPICS, snapshot.topic).path,
        expire_time=fields.timestamp(snapshot.expires_on),
        labels=snapshot.labels,
    )


def read_push(config: Message, *, exactly_once: bool) -> AskedPush | None:
    """Read a push configuration of a request; None: pull. Raises `InvalidInput`."""
    if not config.ListFields():
        return None
    if not config.push_endpoint:
        raise InvalidInput("Invalid push endpoint given (endpoint=). A push_config that is not empty needs one.")
    if exactly_once:
        raise InvalidInput(EXACTLY_ONCE)
    token = config.oidc_token
    if config.HasField("oidc_token") and not token.service_account_email:
        raise InvalidInput("Invalid oidc_token given: it has no service_account_email.")
    form = GoogleForm(
        is_wrapped=not config.HasField("no_wrapper"),
        write_metadata=config.no_wrapper.write_metadata,
        service_account=token.service_account_email,
        audience=token.audience,
        version=google_version(config.attributes),
    )
    return AskedPush(HTTP_ENDPOINT, config.push_endpoint, google=form)


def require_account(caller: Caller, project: ProjectName, asked: AskedPush, before: PushConfig | None = None) -> None:
    """Raise `NotAllowed` unless the caller may use the service account for deliveries.

    Accounts of the project are allowed to all who may configure push there; other accounts to service_admins only, or
    a receiver could take deliveries of one project for another's. An account that is set already may stay.
    """
    account = asked.google.service_account if asked.google else ""
    kept = before.google.service_account if before and before.google else ""
    if account in ("", kept) or SERVICE_ADMIN in caller.roles:
        return
    found = _ACCOUNT.fullmatch(account)
    if found is None or found[1] != project:
        raise NotAllowed(f"The service account must be one of the project: NAME@{project}.iam.gserviceaccount.com.")


def show_push(shown: Message, config: PushConfig | None) -> None:
    """Fill the push configuration of a subscription that is shown; it stays empty for a pull subscription."""
    shown.SetInParent()
    if config is None:
        return
    shown.push_endpoint = config.endpoint
    form = config.google
    if form is None:
        return
    if form.version:
        shown.attributes[GOOGLE_VERSION] = form.version
    if form.service_account:
        shown.oidc_token.service_account_email = form.service_account
        shown.oidc_token.audience = form.audience
    if not form.is_wrapped:
        shown.no_wrapper.SetInParent()
        shown.no_wrapper.write_metadata = form.write_metadata
