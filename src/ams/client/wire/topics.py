"""Calls about topics, publishing (contract 8 and 12), reading, and schemas (contract 15 and beside it)."""

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from types import NoneType
from typing import Any

import msgspec

from ams.client.wire.call import Call, call_of, check_name, non_empty, page
from ams.client.wire.subscriptions import zulu
from ams.wire.messages import Message, Published, ReadMessage
from ams.wire.projects import *
from ams.wire.subscriptions import OffsetAt

Rules = Mapping[str, Any] | None  # of a schema
_read = msgspec.json.Decoder(ReadMessage).decode_lines


get_topic = partial(call_of, "topics:show", Topic)
detach_schema = partial(call_of, "topics:detachSchema", NoneType)
"""Detach the schema of a topic: any message may be published from then on."""
delete_topic = partial(call_of, "topics:delete", NoneType)
"""Remove a topic and its messages; its subscriptions stay."""
list_topic_subscriptions = partial(call_of, "subscriptions:listByTopic", SubscriptionNames)
"""Ask which subscriptions a topic has."""
get_topic_acl = partial(call_of, "topics:acl", Acl)
"""Get the users who may publish."""
list_schemas = partial(call_of, "schemas:list", Schemas)
"""Ask for all schemas of a project, oldest first."""
get_schema = partial(call_of, "schemas:show", Schema)
list_revisions = partial(call_of, "schemas:revisions", Revisions)
"""Get all revisions of a schema, newest first."""
delete_schema = partial(call_of, "schemas:delete", NoneType)
"""Remove a schema; its topics take any message from then on."""


def list_topics(project: str, *, page_size: int = 0, page_token: str = "") -> Call[Topics]:
    """Ask for the topics of a project that the caller may see."""
    return call_of("topics:list", Topics, project, query=page(page_size, page_token))


def create_topic(project: str, topic: str, *, schema: str = "") -> Call[Topic]:
    """Make a topic, with a schema attached if one is named; `AlreadyExists` when the name is taken."""
    body = SchemaReference(schema_name(project, schema)) if schema else None
    return call_of("topics:create", Topic, project, topic, body=body)


def attach_schema(project: str, topic: str, schema: str) -> Call[None]:
    """Attach a schema to a topic, replacing the previous one; it checks new messages."""
    body = SchemaReference(schema_name(project, schema))
    return call_of("topics:attachSchema", NoneType, project, topic, body=body)


def modify_topic_acl(project: str, topic: str, users: Sequence[str]) -> Call[None]:
    """Set the users who may publish; replaces the list, and an empty one closes the topic to publishers."""
    return call_of("topics:modifyAcl", NoneType, project, topic, body=NewAccessList(list(users)))


def change_topic_acl(project: str, topic: str, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Call[Acl]:
    """Add users to those who may publish and remove others; returns the list."""
    body = AccessListChange(list(add), list(remove))
    return call_of("topics:changeAcl", Acl, project, topic, body=body, repeatable=True)


def modify_topic_retention(project: str, topic: str, seconds: int) -> Call[Topic]:
    """Set a topic's retention, at most a year; 0: the project's."""
    return call_of("topics:modifyRetention", Topic, project, topic, body=NewRetention(seconds))


def get_topic_offsets(project: str, topic: str, *, subscription: str = "") -> Call[TopicOffsets]:
    """Ask for the bounds of a topic; a consumer names a subscription to it."""
    return call_of("topics:offsets", TopicOffsets, project, topic, query=non_empty(subscription=subscription))


def topic_time_to_offset(project: str, topic: str, moment: datetime, *, subscription: str = "") -> Call[OffsetAt]:
    """Ask where a read of what was published at `moment` (with a time zone) or later begins: perhaps the end.

    A consumer names a subscription to the topic.
    """
    query = {"time": zulu(moment)} | non_empty(subscription=subscription)
    return call_of("topics:timeToOffset", OffsetAt, project, topic, query=query)


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
    query |= non_empty(subscription=subscription)
    return dataclasses.replace(call_of("topics:read", list[ReadMessage], project, topic, query=query), read=_read)


def publish(project: str, topic: str, messages: Sequence[Message], *, key: str = "") -> Call[Published]:
    """Store messages, all or none, in this order.

    With a `key`, of at most 255 characters, the call is repeatable: a service that supports idempotency keys answers
    the same messages under the same key with the ids of the first time and stores nothing; other messages are a
    `Conflict`.
    """
    return publish_encoded(project, topic, msgspec.json.encode({"messages": list(messages)}), key=key)


def publish_encoded(project: str, topic: str, body: bytes, *, key: str = "") -> Call[Published]:
    """Publish an encoded body, as `publish` would encode it."""
    headers = {"Idempotency-Key": key} if key else {}
    return call_of("topics:publish", Published, project, topic, body=body, headers=headers, repeatable=bool(key))


def create_schema(
    project: str, schema: str, content: Rules = None, *, kind: str = "json", attributes: Rules = None
) -> Call[Schema]:
    """Make a schema; `content` says what payloads must be, `kind` in which language (`json`, `avro` or `protobuf`).

    `attributes` says what attributes must be. One of the two is needed. `AlreadyExists` when the name is taken.
    """
    body = SchemaBody(type=kind, schema=_optional_dict(content), attributes=_optional_dict(attributes))
    return call_of("schemas:create", Schema, project, schema, body=body)


def update_schema(
    project: str, schema: str, content: Rules = None, *, name: str = "", kind: str = "", attributes: Rules = None
) -> Call[Schema]:
    """Rename or change a schema; absent parts stay, empty `attributes` remove that part."""
    reference = schema_name(project, name) if name else None
    body = SchemaBody(
        name=reference, type=kind or None, schema=_optional_dict(content), attributes=_optional_dict(attributes)
    )
    return call_of("schemas:update", Schema, project, schema, body=body)


def validate_document(project: str, schema: str, document: bytes) -> Call[Validated]:
    """Validate a payload by a schema of type json. `InvalidInput` has the errors."""
    return call_of("schemas:validateMessage", Validated, project, schema, body=document)


def validate_datum(project: str, schema: str, datum: bytes) -> Call[Validated]:
    """Validate a payload by a schema of type avro or protobuf. `InvalidInput` has the errors."""
    body = CandidateBody(base64.b64encode(datum).decode("ascii"))
    return call_of("schemas:validateMessage", Validated, project, schema, body=body)


def validate_message(project: str, schema: str, message: Message) -> Call[Validated]:
    """Validate a whole message by a schema with attributes. `InvalidInput` has the errors."""
    body = CandidateBody(message.data, dict(message.attributes))
    return call_of("schemas:validateMessage", Validated, project, schema, body=body)


def dry_run(project: str, schema: str, topic: str, messages: int = 100) -> Call[DryRun]:
    """Ask which of the newest messages of a topic a schema would refuse; nothing changes."""
    reference = f"projects/{check_name('project', project)}/topics/{check_name('topic', topic)}"
    return call_of("schemas:dryRun", DryRun, project, schema, body=DryRunBody(reference, messages))


def schema_name(project: str, schema: str) -> str:
    """Return the resource name of a schema. Raises `InvalidInput` as the service would."""
    return f"projects/{check_name('project', project)}/schemas/{check_name('schema', schema)}"


def _optional_dict(part: Rules) -> dict[str, Any] | None:
    return None if part is None else dict(part)
