"""Calls that only `apply` makes: about schemas (contract 8 and 15)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ams.client.wire.call import (
    Call,
    Json,
    json_body,
    nothing,
    projects_path,
    reader,
    segment,
    topics_path,
)


class Schema(msgspec.Struct, frozen=True):
    """A schema (contract 15)."""

    name: str
    type: str
    schema: Json
    attributes: Json = {}


class Schemas(msgspec.Struct, frozen=True):
    """All schemas of a project."""

    schemas: list[Schema]


def schemas_path(project: str, schema: str | None = None) -> str:
    """Return the path of a schema, or of all schemas of a project."""
    collection = f"{projects_path(project)}/schemas"
    return f"{collection}/{segment('schema', schema)}" if schema else collection


def list_schemas(project: str) -> Call[Schemas]:
    """Ask for the schemas of a project."""
    return Call("GET", schemas_path(project), reader(Schemas))


def create_schema(project: str, schema: str, kind: str, content: Json, *, attributes: Json) -> Call[Schema]:
    """Make a schema."""
    body = {"type": kind, "schema": content} | ({"attributes": attributes} if attributes else {})
    return Call("POST", schemas_path(project, schema), reader(Schema), json_body(body))


def update_schema(project: str, schema: str, fields: Mapping[str, Any]) -> Call[Schema]:
    """Change a schema."""
    return Call("PUT", schemas_path(project, schema), reader(Schema), json_body(fields))


def delete_schema(project: str, schema: str) -> Call[None]:
    """Remove a schema."""
    return Call("DELETE", schemas_path(project, schema), nothing)


def attach_schema(project: str, topic: str, schema: str) -> Call[None]:
    """Attach a schema to a topic."""
    body = json_body({"schema": f"projects/{project}/schemas/{segment('schema', schema)}"})
    return Call("POST", topics_path(project, topic, "attachSchema"), nothing, body)


def detach_schema(project: str, topic: str) -> Call[None]:
    """Detach the schema of a topic."""
    return Call("POST", topics_path(project, topic, "detachSchema"), nothing)
