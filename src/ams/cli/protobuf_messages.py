"""Binary messages in Protocol Buffers as JSON: those that say which schema they keep (docs/reference/pubsub.md).

Who may not read the schema sees them as bytes, and so does who has no library that reads them.
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
    """Return a message as JSON on one line; None where its schema is of another type, or cannot be read.

    `known` are schemas that were asked for, by name and revision.
    """
    name, revision = (message.attributes.get(each, "") for each in (SCHEMA_NAME_ATTRIBUTE, SCHEMA_REVISION_ATTRIBUTE))
    if (name, revision) not in known:
        known[name, revision] = _asked(session, name, revision)
    schema = known[name, revision]
    try:
        return None if schema is None else json_line(schema.as_dict(message.payload()))
    except ValueError:
        return None


def _asked(session: Session, name: str, revision: str) -> ProtobufSchema | None:
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
