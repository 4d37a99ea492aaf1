"""Shows Protocol Buffers messages as JSON if they name their schema (docs/reference/pubsub.md).

Without the right to read the schema, or without the library, users see bytes.
"""

from ams.cli.command import Session
from ams.cli.output import json_line
from ams.client import wire
from ams.client.errors import ClientError
from ams.client.wire import PulledMessage
from ams.core.errors import InvalidInput
from ams.core.names import SCHEMA_NAME_ATTRIBUTE, SCHEMA_REVISION_ATTRIBUTE
from ams.validation.protobuf import ProtobufSchema, descriptor_of

Known = dict[tuple[str, str], ProtobufSchema | None]


def json_text(session: Session, message: PulledMessage, known: Known) -> str | None:
    """Return a message as JSON on one line; None if its schema has another type or cannot be read.

    `known` caches schemas by name and revision.
    """
    name, revision = (message.attributes.get(each, "") for each in (SCHEMA_NAME_ATTRIBUTE, SCHEMA_REVISION_ATTRIBUTE))
    if (name, revision) not in known:
        known[name, revision] = _find_schema(session, name, revision)
    schema = known[name, revision]
    try:
        return None if schema is None else json_line(schema.as_dict(message.payload()))
    except ValueError:
        return None


def _find_schema(session: Session, name: str, revision: str) -> ProtobufSchema | None:
    parts = name.split("/")
    if len(parts) != 4:
        return None
    try:
        for each in session.call(wire.list_revisions(parts[1], parts[3])).revisions:
            if each.revision == revision and each.type == "protobuf":
                return ProtobufSchema(descriptor_of(each.schema))
    except (ClientError, InvalidInput):  # perhaps this user may not read it
        return None
    return None
