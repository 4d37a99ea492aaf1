"""Discovery: the description of the REST API from which clients make their methods, in Google's form of it.

It is made of the table of bindings and of the descriptors of messages, so it says what is served, in the names that
clients of Google's own description know.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from ams.pubsub.bindings import BINDINGS, WHOLE, Binding

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/pubsub")
_METHODS = {"PUT": "create", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
_KINDS: Mapping[int, Mapping[str, object]] = {
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "format": "byte"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.TYPE_INT64: {"type": "string", "format": "int64"},
}
_PLAIN: Mapping[str, Mapping[str, object]] = {
    "google.protobuf.Duration": {"type": "string", "format": "google-duration"},
    "google.protobuf.Timestamp": {"type": "string", "format": "google-datetime"},
    "google.protobuf.FieldMask": {"type": "string", "format": "google-fieldmask"},
    "google.protobuf.Struct": {"type": "object", "additionalProperties": {"type": "any"}},
}
"""Types that have a form of their own in JSON."""


def describe(root: str, requests: tuple[tuple[str, Any], ...]) -> Mapping[str, object]:
    """Return the description for a service at this URL; `requests` are names of methods, with their requests' types."""
    return {**_description(requests), "rootUrl": root, "baseUrl": root}


@functools.cache
def _description(requests: tuple[tuple[str, Any], ...]) -> Mapping[str, object]:
    kinds, schemas = dict(requests), dict[str, object]()
    projects: dict[str, Any] = {}
    for each in BINDINGS:
        *outer, name = _names(each)
        inner = projects
        for resource in outer:
            inner = inner.setdefault("resources", {}).setdefault(resource, {})
        request = kinds[each.rpc].DESCRIPTOR
        inner.setdefault("methods", {})[name] = _method(each, request, ".".join((*outer, name)))
        if each.body:
            _describe_type(_body(each, request), schemas)
        _describe_type(each.answer.DESCRIPTOR, schemas)
    return {
        "kind": "discovery#restDescription",
        "discoveryVersion": "v1",
        "id": "pubsub:v1",
        "name": "pubsub",
        "version": "v1",
        "title": "Cloud Pub/Sub API",
        "description": "Google's Pub/Sub, as ARGO Messaging serves it.",
        "protocol": "rest",
        "servicePath": "",
        "batchPath": "batch",
        "parameters": {
            "$.xgafv": _query({"type": "string"}),
            "alt": _query({"type": "string", "default": "json", "enum": ["json"]}),
            "fields": _query({"type": "string"}),
            "key": _query({"type": "string"}),
            "prettyPrint": _query({"type": "boolean", "default": "true"}),
            "quotaUser": _query({"type": "string"}),
        },
        "auth": {"oauth2": {"scopes": {scope: {"description": "Use topics and subscriptions"} for scope in _SCOPES}}},
        "schemas": schemas,
        "resources": projects["resources"],
    }


def _names(binding: Binding) -> list[str]:
    """Return where a method is: its resources, from the outermost on, and its name."""
    path, _, verb = binding.shape.partition(":")
    parts = path.split("/")
    is_list = binding.http == "GET" and len(parts) % 2
    return [*parts[::2], verb or ("list" if is_list else _METHODS.get(binding.http, "get"))]


def _method(binding: Binding, request: Any, name: str) -> Mapping[str, object]:
    shown = binding.field.rpartition(".")[2]
    pattern = binding.pattern.replace("*", "[^/]+")
    in_path = {"type": "string", "location": "path", "required": True, "pattern": f"^{pattern}$"}
    in_query = {} if binding.body == WHOLE else dict(_query_fields(binding, request))
    path = binding.template.replace(f"{{{binding.field}={binding.pattern}}}", f"{{+{shown}}}")
    return {
        "id": f"pubsub.{name}",
        "path": f"v1/{path}",
        "flatPath": f"v1/{path}",
        "httpMethod": binding.http,
        "parameterOrder": [shown],
        "parameters": {shown: in_path, **in_query},
        **({"request": {"$ref": _body(binding, request).name}} if binding.body else {}),
        "response": {"$ref": binding.answer.DESCRIPTOR.name},
        "scopes": list(_SCOPES),
    }


def _body(binding: Binding, request: Any) -> Any:
    return request if binding.body == WHOLE else request.fields_by_name[binding.body].message_type


def _query_fields(binding: Binding, request: Any, before: str = "") -> Iterator[tuple[str, Mapping[str, object]]]:
    for field in request.fields:
        if not before and field.name in (binding.field, binding.body):
            continue
        name = before + field.json_name
        if field.message_type is not None and field.message_type.full_name not in _PLAIN:
            yield from _query_fields(binding, field.message_type, f"{name}.")
        else:
            yield name, _query(_described(field))


def _query(kind: Mapping[str, object]) -> Mapping[str, object]:
    return {**kind, "location": "query"}


def _describe_type(descriptor: Any, schemas: dict[str, object]) -> None:
    """Add a type, and the types in it, under the names that Google's description has: those without their packages."""
    if descriptor.name in schemas or descriptor.full_name in _PLAIN:
        return
    properties: dict[str, object] = {}
    schemas[descriptor.name] = {"id": descriptor.name, "type": "object", "properties": properties}
    for field in descriptor.fields:
        properties[field.json_name] = _described(field)
        inner = field.message_type
        if inner is not None and not inner.GetOptions().map_entry:
            _describe_type(inner, schemas)


def _described(field: Any) -> Mapping[str, object]:
    inner = field.message_type
    kind: Mapping[str, object]
    if field.type == FieldDescriptor.TYPE_ENUM:
        kind = {"type": "string", "enum": [each.name for each in field.enum_type.values]}
    elif inner is None:
        kind = _KINDS[field.type]
    elif inner.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    else:
        kind = _PLAIN.get(inner.full_name) or {"$ref": inner.name}
    return {"type": "array", "items": kind} if field.is_repeated else kind
