"""Calls about topics, and publishing (contract 8 and 12)."""

from collections.abc import Sequence

import msgspec

from ams.client.wire.call import Call, json_body, nothing, page, reader, topics_path
from ams.client.wire.schemas import schema_name
from ams.client.wire.values import (
    Acl,
    Message,
    Published,
    ReadMessage,
    SubscriptionNames,
    Topic,
    TopicOffsets,
    Topics,
)

_acl = reader(Acl)
_published = reader(Published)
_subscription_names = reader(SubscriptionNames)
_read = msgspec.json.Decoder(ReadMessage).decode_lines
_topic = reader(Topic)
_topic_offsets = reader(TopicOffsets)
_topics = reader(Topics)


def list_topics(project: str, *, page_size: int = 0, page_token: str = "") -> Call[Topics]:
    """Ask for the topics of a project that the caller may see."""
    return Call("GET", topics_path(project), _topics, query=page(page_size, page_token))


def get_topic(project: str, topic: str) -> Call[Topic]:
    """Ask for one topic."""
    return Call("GET", topics_path(project, topic), _topic)


def create_topic(project: str, topic: str, *, schema: str = "") -> Call[Topic]:
    """Make a topic, with a schema attached if one is named; `AlreadyExists` when the name is taken."""
    body = json_body({"schema": schema_name(project, schema)}) if schema else None
    return Call("PUT", topics_path(project, topic), _topic, body)


def attach_schema(project: str, topic: str, schema: str) -> Call[None]:
    """Let a schema check what is published from then on, instead of the one there was."""
    body = json_body({"schema": schema_name(project, schema)})
    return Call("POST", topics_path(project, topic, "attachSchema"), nothing, body)


def detach_schema(project: str, topic: str) -> Call[None]:
    """Let any message be published from then on."""
    return Call("POST", topics_path(project, topic, "detachSchema"), nothing)


def delete_topic(project: str, topic: str) -> Call[None]:
    """Remove a topic and its messages; its subscriptions stay."""
    return Call("DELETE", topics_path(project, topic), nothing)


def list_topic_subscriptions(project: str, topic: str) -> Call[SubscriptionNames]:
    """Ask which subscriptions a topic has."""
    return Call("GET", f"{topics_path(project, topic)}/subscriptions", _subscription_names)


def get_topic_acl(project: str, topic: str) -> Call[Acl]:
    """Ask who may publish."""
    return Call("GET", topics_path(project, topic, "acl"), _acl)


def modify_topic_acl(project: str, topic: str, users: Sequence[str]) -> Call[None]:
    """Say who may publish; replaces the list, and an empty one closes the topic to publishers."""
    return Call("POST", topics_path(project, topic, "modifyAcl"), nothing, json_body({"authorized_users": list(users)}))


def modify_topic_retention(project: str, topic: str, seconds: int) -> Call[Topic]:
    """Say how long a topic's messages are kept, at most a year; 0: as the project says."""
    body = json_body({"retentionSeconds": seconds})
    return Call("POST", topics_path(project, topic, "modifyRetention"), _topic, body)


def get_topic_offsets(project: str, topic: str, *, subscription: str = "") -> Call[TopicOffsets]:
    """Ask for the bounds of a topic; a consumer names a subscription to it."""
    return Call("GET", topics_path(project, topic, "offsets"), _topic_offsets, query=_named(subscription=subscription))


def read_topic(
    project: str,
    topic: str,
    *,
    start: int | None = None,
    stop: int | None = None,
    most: int | None = None,
    subscription: str = "",
) -> Call[list[ReadMessage]]:
    """Ask for messages by their ids, moving no subscription: from `start` (absent: the oldest) on, before `stop`.

    At most `most` (absent: 10000); the whole answer is held in memory. A consumer names a subscription to the topic.
    """
    numbers = {"from": start, "to": stop, "max": most}
    query = {name: str(number) for name, number in numbers.items() if number is not None}
    return Call("GET", topics_path(project, topic, "read"), _read, query=query | _named(subscription=subscription))


def _named(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def publish(project: str, topic: str, messages: Sequence[Message], *, key: str = "") -> Call[Published]:
    """Store messages, all or none, in this order.

    With a `key`, of at most 255 characters, the call is repeatable: a service that knows idempotency keys answers the
    same messages under the same key with the ids of the first time and stores nothing; other messages are a `Conflict`.
    """
    return publish_encoded(project, topic, json_body({"messages": list(messages)}), key=key)


def publish_encoded(project: str, topic: str, body: bytes, *, key: str = "") -> Call[Published]:
    """Store the messages of a body that is written already, as `publish` would write it."""
    headers = {"Idempotency-Key": key} if key else {}
    return Call("POST", topics_path(project, topic, "publish"), _published, body, headers=headers, repeatable=bool(key))
