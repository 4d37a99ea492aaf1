"""Calls about schemas: what messages must be (contract 15, and what is ours beside it)."""

import base64
from collections.abc import Mapping
from typing import Any

from ams.client.wire.call import Call, json_body, nothing, reader, schemas_path, segment
from ams.client.wire.values import DryRun, Message, Schema, Schemas, Validated

_schema = reader(Schema)
_schemas = reader(Schemas)
_validated = reader(Validated)
_dry_run = reader(DryRun)


def list_schemas(project: str) -> Call[Schemas]:
    """Ask for all schemas of a project, oldest first."""
    return Call("GET", schemas_path(project), _schemas)


def get_schema(project: str, schema: str) -> Call[Schema]:
    """Ask for one schema."""
    return Call("GET", schemas_path(project, schema), _schema)


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
    body = {"type": kind} | _said(content, attributes)
    return Call("POST", schemas_path(project, schema), _schema, json_body(body))


def update_schema(
    project: str,
    schema: str,
    content: Mapping[str, Any] | None = None,
    *,
    name: str = "",
    kind: str = "",
    attributes: Mapping[str, Any] | None = None,
) -> Call[Schema]:
    """Rename a schema or change what it says; what is not said stays, empty `attributes` take that part away."""
    renamed = {"name": schema_name(project, name)} if name else {}
    typed = {"type": kind} if kind else {}
    return Call("PUT", schemas_path(project, schema), _schema, json_body(renamed | typed | _said(content, attributes)))


def delete_schema(project: str, schema: str) -> Call[None]:
    """Remove a schema; its topics take any message from then on."""
    return Call("DELETE", schemas_path(project, schema), nothing)


def validate_document(project: str, schema: str, document: bytes) -> Call[Validated]:
    """Ask a schema of type json about a payload alone; `InvalidInput` says what is wrong with it."""
    return Call("POST", schemas_path(project, schema, "validate"), _validated, document)


def validate_datum(project: str, schema: str, datum: bytes) -> Call[Validated]:
    """Ask a schema of type avro about a payload alone; `InvalidInput` says what is wrong with it."""
    body = json_body({"data": base64.b64encode(datum).decode("ascii")})
    return Call("POST", schemas_path(project, schema, "validate"), _validated, body)


def validate_message(project: str, schema: str, message: Message) -> Call[Validated]:
    """Ask a schema that speaks of attributes about a whole message; `InvalidInput` says what is wrong with it."""
    body = json_body({"data": message.data, "attributes": message.attributes})
    return Call("POST", schemas_path(project, schema, "validate"), _validated, body)


def dry_run(project: str, schema: str, topic: str, messages: int = 100) -> Call[DryRun]:
    """Ask which of the newest messages of a topic a schema would refuse; nothing changes."""
    reference = f"projects/{segment('project', project)}/topics/{segment('topic', topic)}"
    body = json_body({"topic": reference, "messages": messages})
    return Call("POST", schemas_path(project, schema, "dryRun"), _dry_run, body)


def schema_name(project: str, schema: str) -> str:
    """Return the resource name of a schema; raise `InvalidInput` for what the service would refuse."""
    return f"projects/{segment('project', project)}/schemas/{segment('schema', schema)}"


def _said(content: Mapping[str, Any] | None, attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    parts = {"schema": content, "attributes": attributes}
    return {name: part for name, part in parts.items() if part is not None}
