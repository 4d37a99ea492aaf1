"""Names, identities and references of resources (HTTP contract 2).

`is_name` is the rule for everything that the HTTP API creates. `is_resource_name` is the wider rule for everything that
it finds, as Google's clients may choose other names for topics, subscriptions, snapshots and schemas. People see names
and can change them. Logs, cursors and access lists are keyed by identity (uuid), so a rename or a deletion and new
creation never confuses two resources.
"""

import functools
import re
import uuid
from collections.abc import Sequence
from hashlib import blake2b
from typing import NewType

from ams.core.errors import refuse_if

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
"""Attributes that name the schema of a message; only for schemas attached by clients of Google's Pub/Sub."""
MAX_NAME = 255
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_GOOGLE_NAME = re.compile(r"(?![gG][oO][oO][gG])[a-zA-Z][a-zA-Z0-9._~+%-]{2,254}")
RESOURCE_NAME = f"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}|{_GOOGLE_NAME.pattern}"  # `is_resource_name` as a regular expression
_MAX_INT64 = 2**63 - 1


def is_name(text: str) -> bool:
    """Return whether the HTTP API accepts `text` as a new name of a project, user, topic and so on (contract 2)."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def is_google_name(text: str) -> bool:
    """Return whether Google's clients may give this name to a new topic, subscription, snapshot or schema."""
    return _GOOGLE_NAME.fullmatch(text) is not None


def is_resource_name(text: str) -> bool:
    """Return whether a topic, subscription, snapshot or schema may have this name, whoever created it (contract 2)."""
    return is_name(text) or is_google_name(text)


@functools.lru_cache(maxsize=10_000)  # hot path; caches valid names only, of MAX_NAME characters at most
def checked_name(kind: str, text: str) -> str:
    """Return `text` if it is a valid name. Raises `InvalidInput` "Invalid KIND name"."""
    refuse_if(not is_name(text), f"Invalid {kind} name")
    return text


@functools.lru_cache(maxsize=10_000)
def checked_resource_name(kind: str, text: str) -> str:
    """Return `text` if it is a valid resource name. Raises `InvalidInput` "Invalid KIND name"."""
    refuse_if(not is_resource_name(text), f"Invalid {kind} name")
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
    """Parse a topic's identity from uuid text."""
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
    """Parse `projects/P/topics/T`; P must be `project` (contract 9.3, A7). Raises `InvalidInput`."""
    parts = reference.split("/")
    refuse_if(len(parts) != 4 or parts[:3] != ["projects", project, "topics"], "Invalid Topic name")
    return TopicName(checked_resource_name("Topic", parts[3]))


def subscription_reference(project: str, reference: str) -> SubscriptionName:
    """Parse a name, or `projects/P/subscriptions/S` of this project. Raises `InvalidInput`."""
    name = reference.removeprefix("/").removeprefix(f"projects/{project}/subscriptions/")
    return SubscriptionName(checked_resource_name("Subscription", name))


def snapshot_reference(project: str, reference: str) -> SnapshotName:
    """Parse a name, or `projects/P/snapshots/N` of this project. Raises `InvalidInput`."""
    name = reference.removeprefix("/").removeprefix(f"projects/{project}/snapshots/")
    return SnapshotName(checked_resource_name("Snapshot", name))


def schema_path(project: str, schema: str) -> str:
    """Return the resource name of a schema; it never has a leading slash (contract 2)."""
    return f"projects/{project}/schemas/{schema}"


def revision_id(schema: SchemaId, revision: int) -> str:
    """Return the revision id for Google's clients: 8 hex digits, stable."""
    return blake2b(f"{schema}/{revision}".encode(), digest_size=4).hexdigest()


def schema_reference(project: str, reference: str) -> SchemaName:
    """Parse `projects/P/schemas/X`; P must be `project` (contract 8). Raises `InvalidInput`."""
    parts = reference.split("/")
    refuse_if(len(parts) != 4 or parts[:3] != ["projects", project, "schemas"], "wrong schema name declaration")
    return SchemaName(parts[3])


def ack_prefix(project: str, subscription: str) -> str:
    """Return the prefix of all ack ids of a subscription, including the colon."""
    return f"projects/{project}/subscriptions/{subscription}:"


def ack_offset(prefix: str, ack_id: str) -> int:
    """Parse the offset of an ack id that begins with `prefix`. Raises `InvalidInput` "Invalid ack id"."""
    digits = ack_id[len(prefix) :]
    if digits.isascii() and digits.isdigit() and len(digits) < 19 and ack_id.startswith(prefix):  # the usual case
        return int(digits)
    sign_free = digits[1:] if digits[:1] in ("-", "+") else digits
    is_number = ack_id.startswith(prefix) and sign_free.isascii() and sign_free.isdigit() and len(sign_free) <= 19
    refuse_if(not is_number or not -_MAX_INT64 - 1 <= int(digits) <= _MAX_INT64, "Invalid ack id")
    return int(digits)


def ack_offsets(prefix: str, ack_ids: Sequence[str]) -> list[int]:
    """Parse the offsets of ack ids, as `ack_offset` does; fast for thousands of ids."""
    # Parsing few one by one is faster. If the smallest and the largest begin with the prefix, all do.
    if len(ack_ids) > 4 and min(ack_ids).startswith(prefix) and max(ack_ids).startswith(prefix):
        digits = [each[len(prefix) :] for each in ack_ids]
        lengths, together = [*map(len, digits)], "".join(digits)
        if min(lengths) > 0 and max(lengths) < 19 and together.isascii() and together.isdigit():
            return list(map(int, digits))
    return [ack_offset(prefix, each) for each in ack_ids]
