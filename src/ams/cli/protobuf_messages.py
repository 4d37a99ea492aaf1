"""Binary messages in Protocol Buffers as JSON: those that say which schema they keep (docs/reference/pubsub.md).

Who may not read the schema sees them as bytes, and so does who has no library that reads them.
"""

from functools import lru_cache

from ams.cli.command import Session
from ams.cli.output import json_line
from ams.client import wire
from ams.client.errors import ClientError
from ams.client.wire import PulledMessage
from ams.core.errors import InvalidInput
from ams.core.names import SCHEMA_NAME_ATTRIBUTE, SCHEMA_REVISION_ATTRIBUTE
from ams.validation.protobuf import ProtobufSchema, descriptor_of


def json_text(session: Session, message: PulledMessage) -> str | None:
    """Return a message as JSON on one line; None where its schema is another one, or cannot be read."""
    name, revision = (message.attributes.get(each, "") for each in (SCHEMA_NAME_ATTRIBUTE, SCHEMA_REVISION_ATTRIBUTE))
    schema = _schema(session, name, revision)
    try:
        return None if schema is None else json_line(schema.as_dict(message.payload()))
    except ValueError:
        return None


@lru_cache
def _schema(session: Session, name: str, revision: str) -> ProtobufSchema | None:
    match name.split("/"):
        case ["projects", project, "schemas", schema]:
            pass
        case _:
            return None
    try:
        found = session.call(wire.list_revisions(project, schema)).revisions
        each = next(each for each in found if each.revision == revision and each.type == "protobuf")
        return ProtobufSchema(descriptor_of(each.schema))
    except (ClientError, InvalidInput, StopIteration):
        return None
