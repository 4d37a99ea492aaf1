"""Names and identities: what may be called how, and how references to resources are written and read.

The rules are those of the HTTP contract, section 2: `is_name` for all that the HTTP API makes, `is_resource_name` for
what it finds, as clients of Google's may name topics, subscriptions, snapshots and schemas by a wider rule. A name is
what people see and may change; an identity (uuid) is
what logs, cursors and access lists are keyed by, so a rename or a delete-and-create-again never mixes two things up.
"""

import functools
import re
import uuid
from collections.abc import Sequence
from hashlib import blake2b
from typing import NewType

from ams.core.errors import InvalidInput

ProjectName = NewType("ProjectName", str)
TopicName = NewType("TopicName", str)
SubscriptionName = NewType("SubscriptionName", str)
SnapshotName = NewType("SnapshotName", str)
UserName = NewType("UserName", str)
SchemaName = NewType("SchemaName", str)
TokenName = NewType("TokenName", str)
BindingName = NewType("BindingName", str)
IssuerName = NewType("IssuerName", str)

ProjectId = NewType("ProjectId", str)  # lower-case uuid text of a project; never shown to clients
UserId = NewType("UserId", str)  # lower-case uuid text of a user
SubscriptionId = NewType("SubscriptionId", str)  # lower-case uuid text of a subscription; the key of its cursor
RegistrationId = NewType("RegistrationId", str)  # lower-case uuid text of a registration
SchemaId = NewType("SchemaId", str)  # lower-case uuid text of a schema; stays when the schema is renamed
TokenId = NewType("TokenId", str)  # lower-case uuid text of a named token
TopicId = NewType("TopicId", bytes)  # the 16 bytes of a topic's uuid; the key of its log
Offset = NewType("Offset", int)  # place of a message in its topic, from 0; the message id is this number in decimal

SCHEMA_NAME_ATTRIBUTE, SCHEMA_ENCODING_ATTRIBUTE = "googclient_schemaname", "googclient_schemaencoding"
SCHEMA_REVISION_ATTRIBUTE = "googclient_schemarevisionid"
"""Attributes that say which schema a message keeps, where a client of Google's Pub/Sub attached it."""
MAX_NAME = 255
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_GOOGLE_NAME = re.compile(r"(?![gG][oO][oO][gG])[a-zA-Z][a-zA-Z0-9._~+%-]{2,254}")
RESOURCE_NAME = f"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}|{_GOOGLE_NAME.pattern}"  # `is_resource_name` as a regular expression
_MAX_INT64 = 2**63 - 1
_FEW = 4  # ack ids that are read one by one in less time than all at once


def is_name(text: str) -> bool:
    """Return whether `text` may name what the HTTP API makes: projects, users, topics and so on (contract 2)."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def is_google_name(text: str) -> bool:
    """Return whether a client of Google's may give `text` to a topic, subscription, snapshot or schema it makes."""
    return _GOOGLE_NAME.fullmatch(text) is not None


def is_resource_name(text: str) -> bool:
    """Return whether a topic, subscription, snapshot or schema may be called so, whoever made it (contract 2)."""
    return is_name(text) or is_google_name(text)


@functools.lru_cache(maxsize=10_000)  # asked for each name of each request; keeps good ones only, of MAX_NAME
def checked_name(kind: str, text: str) -> str:
    """Return `text` if it is a name; raise `InvalidInput` "Invalid KIND name" if not."""
    if not is_name(text):
        raise InvalidInput(f"Invalid {kind} name")
    return text


@functools.lru_cache(maxsize=10_000)
def checked_resource_name(kind: str, text: str) -> str:
    """Return `text` if something of this kind may be called so; raise `InvalidInput` "Invalid KIND name" if not."""
    if not is_resource_name(text):
        raise InvalidInput(f"Invalid {kind} name")
    return text


def new_uuid() -> str:
    """Return a random uuid as lower-case text of 36 characters."""
    return str(uuid.uuid4())


def is_uuid(text: str) -> bool:
    """Return whether `text` is a uuid as `new_uuid` writes them."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def new_topic_id() -> TopicId:
    """Return a fresh identity for a topic."""
    return TopicId(uuid.uuid4().bytes)


def topic_id_text(topic: TopicId) -> str:
    """Write a topic's identity as uuid text."""
    return str(uuid.UUID(bytes=bytes(topic)))


def topic_id(text: str) -> TopicId:
    """Read a topic's identity from uuid text."""
    return TopicId(uuid.UUID(text).bytes)


def topic_path(project: str, topic: str) -> str:
    """Return the resource name of a topic as answers show it, with a leading slash."""
    return f"/projects/{project}/topics/{topic}"


def subscription_path(project: str, subscription: str) -> str:
    """Return the resource name of a subscription as answers show it, with a leading slash."""
    return f"/projects/{project}/subscriptions/{subscription}"


def snapshot_path(project: str, snapshot: str) -> str:
    """Return the resource name of a snapshot as answers show it, with a leading slash."""
    return f"/projects/{project}/snapshots/{snapshot}"


def topic_reference(project: str, reference: str) -> TopicName:
    """Read `projects/P/topics/T` where P must be `project` (contract 9.3 and A7); raise `InvalidInput` otherwise."""
    parts = reference.split("/")
    if len(parts) != 4 or parts[:3] != ["projects", project, "topics"]:
        raise InvalidInput("Invalid Topic name")
    return TopicName(checked_resource_name("Topic", parts[3]))


def subscription_reference(project: str, reference: str) -> SubscriptionName:
    """Read a name, or `projects/P/subscriptions/S` of this project with or without a slash; raise `InvalidInput`."""
    name = reference.removeprefix("/").removeprefix(f"projects/{project}/subscriptions/")
    return SubscriptionName(checked_resource_name("Subscription", name))


def snapshot_reference(project: str, reference: str) -> SnapshotName:
    """Read a name, or `projects/P/snapshots/N`, likewise; raise `InvalidInput`."""
    name = reference.removeprefix("/").removeprefix(f"projects/{project}/snapshots/")
    return SnapshotName(checked_resource_name("Snapshot", name))


def schema_path(project: str, schema: str) -> str:
    """Return the resource name of a schema, which has no leading slash anywhere (contract 2)."""
    return f"projects/{project}/schemas/{schema}"


def revision_id(schema: SchemaId, revision: int) -> str:
    """Return 8 hex digits that name a revision of a schema to Google's clients, always the same."""
    return blake2b(f"{schema}/{revision}".encode(), digest_size=4).hexdigest()


def schema_reference(project: str, reference: str) -> SchemaName:
    """Read `projects/P/schemas/X` where P must be `project` (contract 8); raise `InvalidInput` otherwise."""
    parts = reference.split("/")
    if len(parts) != 4 or parts[:3] != ["projects", project, "schemas"]:
        raise InvalidInput("wrong schema name declaration")
    return SchemaName(parts[3])


def ack_prefix(project: str, subscription: str) -> str:
    """Return what every ack id of this subscription begins with, the colon included."""
    return f"projects/{project}/subscriptions/{subscription}:"


def ack_offset(prefix: str, ack_id: str) -> int:
    """Read the number of an ack id that must begin with `prefix`; raise `InvalidInput` "Invalid ack id" otherwise."""
    digits = ack_id[len(prefix) :]
    if digits.isascii() and digits.isdigit() and len(digits) < 19 and ack_id.startswith(prefix):  # as nearly all are
        return int(digits)
    sign_free = digits[1:] if digits[:1] in ("-", "+") else digits
    if not ack_id.startswith(prefix) or not sign_free.isascii() or not sign_free.isdigit() or len(sign_free) > 19:
        raise InvalidInput("Invalid ack id")
    number = int(digits)
    if not -_MAX_INT64 - 1 <= number <= _MAX_INT64:
        raise InvalidInput("Invalid ack id")
    return number


def ack_offsets(prefix: str, ack_ids: Sequence[str]) -> list[int]:
    """Read the numbers of ack ids, each as `ack_offset` does: a request may have one for each message it pulled."""
    # All begin with the prefix when the least and the greatest do.
    if len(ack_ids) > _FEW and min(ack_ids).startswith(prefix) and max(ack_ids).startswith(prefix):
        digits = [each[len(prefix) :] for each in ack_ids]
        lengths, together = [*map(len, digits)], "".join(digits)
        if min(lengths) > 0 and max(lengths) < 19 and together.isascii() and together.isdigit():
            return list(map(int, digits))
    return [ack_offset(prefix, each) for each in ack_ids]
