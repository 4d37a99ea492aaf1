"""Calls about topics, publishing (contract 8 and 12), reading, and schemas (contract 15 and beside it)."""

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ams.client.wire.call import Call, given, json_body, nothing, page, reader, schemas_path, segment, topics_path
from ams.client.wire.subscriptions import zulu
from ams.wire.messages import Message, Published, ReadMessage
from ams.wire.projects import (
    AccessListChange,
    Acl,
    CandidateBody,
    DryRun,
    DryRunBody,
    NewAccessList,
    NewRetention,
    Revisions,
    Schema,
    SchemaBody,
    SchemaReference,
    Schemas,
    SubscriptionNames,
    Topic,
    TopicOffsets,
    Topics,
    Validated,
)
from ams.wire.subscriptions import OffsetAt

_read = msgspec.json.Decoder(ReadMessage).decode_lines


def list_topics(project: str, *, page_size: int = 0, page_token: str = "") -> Call[Topics]:
    """Ask for the topics of a project that the caller may see."""
    return Call("GET", topics_path(project), reader(Topics), query=page(page_size, page_token))


def get_topic(project: str, topic: str) -> Call[Topic]:
    """Ask for one topic."""
    return Call("GET", topics_path(project, topic), reader(Topic))


def create_topic(project: str, topic: str, *, schema: str = "") -> Call[Topic]:
    """Make a topic, with a schema attached if one is named; `AlreadyExists` when the name is taken."""
    body = json_body(SchemaReference(schema_name(project, schema))) if schema else None
    return Call("PUT", topics_path(project, topic), reader(Topic), body)


def attach_schema(project: str, topic: str, schema: str) -> Call[None]:
    """Let a schema check what is published from then on, instead of the one there was."""
    body = json_body(SchemaReference(schema_name(project, schema)))
    return Call("POST", topics_path(project, topic, "attachSchema"), nothing, body)


def detach_schema(project: str, topic: str) -> Call[None]:
    """Let any message be published from then on."""
    return Call("POST", topics_path(project, topic, "detachSchema"), nothing)


def delete_topic(project: str, topic: str) -> Call[None]:
    """Remove a topic and its messages; its subscriptions stay."""
    return Call("DELETE", topics_path(project, topic), nothing)


def list_topic_subscriptions(project: str, topic: str) -> Call[SubscriptionNames]:
    """Ask which subscriptions a topic has."""
    return Call("GET", f"{topics_path(project, topic)}/subscriptions", reader(SubscriptionNames))


def get_topic_acl(project: str, topic: str) -> Call[Acl]:
    """Get the users who may publish."""
    return Call("GET", topics_path(project, topic, "acl"), reader(Acl))


def modify_topic_acl(project: str, topic: str, users: Sequence[str]) -> Call[None]:
    """Set the users who may publish; replaces the list, and an empty one closes the topic to publishers."""
    return Call("POST", topics_path(project, topic, "modifyAcl"), nothing, json_body(NewAccessList(list(users))))


def change_topic_acl(project: str, topic: str, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Call[Acl]:
    """Add users to those who may publish and remove others; returns the list."""
    body = json_body(AccessListChange(list(add), list(remove)))
    return Call("POST", topics_path(project, topic, "changeAcl"), reader(Acl), body, repeatable=True)


def modify_topic_retention(project: str, topic: str, seconds: int) -> Call[Topic]:
    """Say how long a topic's messages are kept, at most a year; 0: as the project says."""
    body = json_body(NewRetention(seconds))
    return Call("POST", topics_path(project, topic, "modifyRetention"), reader(Topic), body)


def get_topic_offsets(project: str, topic: str, *, subscription: str = "") -> Call[TopicOffsets]:
    """Ask for the bounds of a topic; a consumer names a subscription to it."""
    query = given(subscription=subscription)
    return Call("GET", topics_path(project, topic, "offsets"), reader(TopicOffsets), query=query)


def topic_time_to_offset(project: str, topic: str, moment: datetime, *, subscription: str = "") -> Call[OffsetAt]:
    """Ask where a read of what was published at `moment` (with a time zone) or later begins: perhaps the end.

    A consumer names a subscription to the topic.
    """
    query = {"time": zulu(moment)} | given(subscription=subscription)
    return Call("GET", topics_path(project, topic, "timeToOffset"), reader(OffsetAt), query=query)


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
    return Call("GET", topics_path(project, topic, "read"), _read, query=query | given(subscription=subscription))


def publish(project: str, topic: str, messages: Sequence[Message], *, key: str = "") -> Call[Published]:
    """Store messages, all or none, in this order.

    With a `key`, of at most 255 characters, the call is repeatable: a service that supports idempotency keys answers
    the same messages under the same key with the ids of the first time and stores nothing; other messages are a
    `Conflict`.
    """
    return publish_encoded(project, topic, json_body({"messages": list(messages)}), key=key)


def publish_encoded(project: str, topic: str, body: bytes, *, key: str = "") -> Call[Published]:
    """Store the messages of a body that is written already, as `publish` would write it."""
    headers = {"Idempotency-Key": key} if key else {}
    return Call(
        "POST", topics_path(project, topic, "publish"), reader(Published), body, headers=headers, repeatable=bool(key)
    )


def list_schemas(project: str) -> Call[Schemas]:
    """Ask for all schemas of a project, oldest first."""
    return Call("GET", schemas_path(project), reader(Schemas))


def get_schema(project: str, schema: str) -> Call[Schema]:
    """Ask for one schema."""
    return Call("GET", schemas_path(project, schema), reader(Schema))


def list_revisions(project: str, schema: str) -> Call[Revisions]:
    """Ask for all that a schema has said, the newest first."""
    return Call("GET", schemas_path(project, schema, "revisions"), reader(Revisions))


def create_schema(
    project: str,
    schema: str,
    content: Mapping[str, Any] | None = None,
    *,
    kind: str = "json",
    attributes: Mapping[str, Any] | None = None,
) -> Call[Schema]:
    """Make a schema; `content` says what payloads must be, `kind` in which language (`json` or `avro`).

    `attributes` says what attributes must be. One of the two is needed. `AlreadyExists` when the name is taken.
    """
    body = SchemaBody(type=kind, schema=_known(content), attributes=_known(attributes))
    return Call("POST", schemas_path(project, schema), reader(Schema), json_body(body))


def update_schema(
    project: str,
    schema: str,
    content: Mapping[str, Any] | None = None,
    *,
    name: str = "",
    kind: str = "",
    attributes: Mapping[str, Any] | None = None,
) -> Call[Schema]:
    """Rename a schema or change what it says; what is not given stays, empty `attributes` take that part away."""
    reference = schema_name(project, name) if name else None
    body = SchemaBody(name=reference, type=kind or None, schema=_known(content), attributes=_known(attributes))
    return Call("PUT", schemas_path(project, schema), reader(Schema), json_body(body))


def delete_schema(project: str, schema: str) -> Call[None]:
    """Remove a schema; its topics take any message from then on."""
    return Call("DELETE", schemas_path(project, schema), nothing)


def validate_document(project: str, schema: str, document: bytes) -> Call[Validated]:
    """Ask a schema of type json about a payload alone; `InvalidInput` says what is wrong with it."""
    return Call("POST", schemas_path(project, schema, "validate"), reader(Validated), document)


def validate_datum(project: str, schema: str, datum: bytes) -> Call[Validated]:
    """Ask a schema of type avro about a payload alone; `InvalidInput` says what is wrong with it."""
    body = json_body(CandidateBody(base64.b64encode(datum).decode("ascii")))
    return Call("POST", schemas_path(project, schema, "validate"), reader(Validated), body)


def validate_message(project: str, schema: str, message: Message) -> Call[Validated]:
    """Ask a schema that speaks of attributes about a whole message; `InvalidInput` says what is wrong with it."""
    body = json_body(CandidateBody(message.data, dict(message.attributes)))
    return Call("POST", schemas_path(project, schema, "validate"), reader(Validated), body)


def dry_run(project: str, schema: str, topic: str, messages: int = 100) -> Call[DryRun]:
    """Ask which of the newest messages of a topic a schema would refuse; nothing changes."""
    reference = f"projects/{segment('project', project)}/topics/{segment('topic', topic)}"
    body = json_body(DryRunBody(reference, messages))
    return Call("POST", schemas_path(project, schema, "dryRun"), reader(DryRun), body)


def schema_name(project: str, schema: str) -> str:
    """Return the resource name of a schema; raise `InvalidInput` for what the service would refuse."""
    return f"projects/{segment('project', project)}/schemas/{segment('schema', schema)}"


def _known(part: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if part is None else dict(part)
