"""Bindings of HTTP requests to methods, as in Google's API (`google.api.http`).

Routes, the methods of gRPC and the discovery document are made from this table. A method has one binding; methods of
IAM have one for each kind of resource.
"""

import functools
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor

from ams.pubsub import protos as pb
from ams.pubsub.fields import SCHEMAS, SNAPSHOTS, SUBSCRIPTIONS, TOPICS, PubsubName, name_at, read_name
from ams.pubsub.protos import Message

_TOPIC, _SUBSCRIPTION = "projects/*/topics/*", "projects/*/subscriptions/*"
_SNAPSHOT, _SCHEMA, _PROJECT = "projects/*/snapshots/*", "projects/*/schemas/*", "projects/*"
WHOLE = "*"  # the body is the request
_FIELD = re.compile(r"\{([a-z_.]+)=([^}]+)\}")
_IAM_KINDS = (TOPICS, SUBSCRIPTIONS, SNAPSHOTS, SCHEMAS)
_UNAUDITED = ("", "topics:publish", "subscriptions:pull", "subscriptions:acknowledge", "schemas:validateMessage")


class RouteBinding(NamedTuple):
    """HTTP route of a method."""

    rpc: str
    action: str | Callable[[Message], str]  # action to authorise; empty: the method checks by itself
    http: str  # the method of HTTP
    template: str  # of the path behind `/v1/`, with the field of the request that a part of it is
    request: Message  # type of the request
    answer: Message  # type of the answer
    body: str  # `WHOLE`, the field that the body is, or empty: there is none
    field: str  # the field of the request that is in the path: the name of its resource
    pattern: str  # the part of the path that is that field, a `*` for each name
    shape: str  # the whole path, a `*` for each name
    about: Callable[[Message], PubsubName]  # reads the resource of a request; raises `InvalidInput`

    @property
    def is_change(self) -> bool:
        """True if its calls are audited."""
        return self.http != "GET" and self.action not in _UNAUDITED

    @property
    def only_reads(self) -> bool:
        """True if repeating the call is harmless."""
        return isinstance(self.action, str) and self.action.endswith((":show", ":list", ":listByTopic"))


def _bind(
    rpc: str, action: str | Callable[[Message], str], http: str, template: str, answer: Message = None,
    request: Message = None, *, body: str | None = None, about: Callable[[Message], PubsubName] | None = None,
) -> RouteBinding:  # fmt: skip
    """Return a binding; without `about` the field in its path names the resource."""
    before, field, pattern, after = _FIELD.split(template)
    kinds = pattern.split("/")[2::2]  # `projects` comes first
    usual_body = WHOLE if http in ("POST", "PUT", "PATCH") else ""
    return RouteBinding(
        rpc, action, http, template, request or getattr(pb, f"{rpc}Request"),
        answer or getattr(pb, f"{rpc}Response", pb.Empty), usual_body if body is None else body, field, pattern,
        before + pattern + after, about or name_at(field, *kinds),
    )  # fmt: skip


def _bind_all(
    rpc: str, http: str, answer: Message = None, actions: Mapping[str, str] | None = None
) -> Iterator[RouteBinding]:
    """Return the bindings of a method of IAM; `actions` by kind of resource."""
    about, verb = name_at("resource", *_IAM_KINDS), rpc[0].lower() + rpc[1:]
    action = "" if actions is None else lambda request: actions[about(request).kind]
    for kind in _IAM_KINDS:
        yield _bind(rpc, action, http, f"{{resource=projects/*/{kind}/*}}:{verb}", answer, about=about)


def _new_subscription(asked: Message) -> PubsubName:
    """Return the name of a new subscription; a random one if the request has none."""
    if asked.name:
        return read_name(asked.name, SUBSCRIPTIONS)
    return read_name(asked.topic, TOPICS)._replace(kind=SUBSCRIPTIONS, leaf=f"sub-{secrets.token_hex(8)}")


def _new_snapshot(request: Message) -> PubsubName:
    if request.name:
        return read_name(request.name, SNAPSHOTS)
    subscription = read_name(request.subscription, SUBSCRIPTIONS)
    return subscription._replace(kind=SNAPSHOTS, leaf=f"snap-{secrets.token_hex(8)}")


def _new_schema(request: Message) -> PubsubName:
    return read_name(f"{request.parent}/{SCHEMAS}/{request.schema_id}", SCHEMAS)


def _schema(request: Message) -> PubsubName:
    return read_name(request.name.partition("@")[0], SCHEMAS)


BINDINGS: Sequence[RouteBinding] = (
    _bind("CreateTopic", "topics:create", "PUT", f"{{name={_TOPIC}}}", pb.Topic, pb.Topic),
    _bind("UpdateTopic", "topics:modifyRetention", "PATCH", f"{{topic.name={_TOPIC}}}", pb.Topic),
    _bind("Publish", "topics:publish", "POST", f"{{topic={_TOPIC}}}:publish"),
    _bind("GetTopic", "topics:show", "GET", f"{{topic={_TOPIC}}}", pb.Topic),
    _bind("ListTopics", "topics:list", "GET", f"{{project={_PROJECT}}}/topics"),
    _bind("ListTopicSubscriptions", "subscriptions:listByTopic", "GET", f"{{topic={_TOPIC}}}/subscriptions"),
    _bind("ListTopicSnapshots", "snapshots:list", "GET", f"{{topic={_TOPIC}}}/snapshots"),
    _bind("DeleteTopic", "topics:delete", "DELETE", f"{{topic={_TOPIC}}}"),
    _bind("DetachSubscription", "subscriptions:detach", "POST", f"{{subscription={_SUBSCRIPTION}}}:detach", body=""),
    _bind("CreateSubscription", "subscriptions:create", "PUT", f"{{name={_SUBSCRIPTION}}}", pb.Subscription,
          pb.Subscription, about=_new_subscription),
    _bind("GetSubscription", "subscriptions:show", "GET", f"{{subscription={_SUBSCRIPTION}}}", pb.Subscription),
    _bind("UpdateSubscription", "subscriptions:update", "PATCH", f"{{subscription.name={_SUBSCRIPTION}}}",
          pb.Subscription),
    _bind("ListSubscriptions", "subscriptions:list", "GET", f"{{project={_PROJECT}}}/subscriptions"),
    _bind("DeleteSubscription", "subscriptions:delete", "DELETE", f"{{subscription={_SUBSCRIPTION}}}"),
    _bind("ModifyAckDeadline", "subscriptions:acknowledge", "POST",
          f"{{subscription={_SUBSCRIPTION}}}:modifyAckDeadline"),
    _bind("Acknowledge", "subscriptions:acknowledge", "POST", f"{{subscription={_SUBSCRIPTION}}}:acknowledge"),
    _bind("Pull", "subscriptions:pull", "POST", f"{{subscription={_SUBSCRIPTION}}}:pull"),
    _bind("ModifyPushConfig", "subscriptions:modifyPushConfig", "POST",
          f"{{subscription={_SUBSCRIPTION}}}:modifyPushConfig"),
    _bind("Seek", "subscriptions:seek", "POST", f"{{subscription={_SUBSCRIPTION}}}:seek"),
    _bind("CreateSnapshot", "snapshots:create", "PUT", f"{{name={_SNAPSHOT}}}", pb.Snapshot, about=_new_snapshot),
    _bind("GetSnapshot", "snapshots:show", "GET", f"{{snapshot={_SNAPSHOT}}}", pb.Snapshot),
    _bind("UpdateSnapshot", "snapshots:create", "PATCH", f"{{snapshot.name={_SNAPSHOT}}}", pb.Snapshot),
    _bind("ListSnapshots", "snapshots:list", "GET", f"{{project={_PROJECT}}}/snapshots"),
    _bind("DeleteSnapshot", "snapshots:delete", "DELETE", f"{{snapshot={_SNAPSHOT}}}"),
    _bind("CreateSchema", "schemas:create", "POST", f"{{parent={_PROJECT}}}/schemas", pb.Schema, body="schema",
          about=_new_schema),
    _bind("GetSchema", "schemas:show", "GET", f"{{name={_SCHEMA}}}", pb.Schema, about=_schema),
    _bind("ListSchemas", "schemas:list", "GET", f"{{parent={_PROJECT}}}/schemas"),
    _bind("ListSchemaRevisions", "schemas:show", "GET", f"{{name={_SCHEMA}}}:listRevisions", about=_schema),
    _bind("CommitSchema", "schemas:update", "POST", f"{{name={_SCHEMA}}}:commit", pb.Schema, about=_schema),
    _bind("RollbackSchema", "schemas:update", "POST", f"{{name={_SCHEMA}}}:rollback", pb.Schema, about=_schema),
    _bind("DeleteSchemaRevision", "schemas:update", "DELETE", f"{{name={_SCHEMA}}}:deleteRevision", pb.Schema,
          about=_schema),
    _bind("DeleteSchema", "schemas:delete", "DELETE", f"{{name={_SCHEMA}}}", about=_schema),
    _bind("ValidateSchema", "schemas:validateMessage", "POST", f"{{parent={_PROJECT}}}/schemas:validate"),
    _bind("ValidateMessage", "schemas:validateMessage", "POST", f"{{parent={_PROJECT}}}/schemas:validateMessage"),
    *_bind_all("GetIamPolicy", "GET", pb.Policy, {
        TOPICS: "topics:acl", SUBSCRIPTIONS: "subscriptions:acl", SNAPSHOTS: "snapshots:show", SCHEMAS: "schemas:show",
    }),
    *_bind_all("SetIamPolicy", "POST", pb.Policy, {
        TOPICS: "topics:modifyAcl", SUBSCRIPTIONS: "subscriptions:modifyAcl", SNAPSHOTS: "snapshots:create",
        SCHEMAS: "schemas:update",
    }),
    *_bind_all("TestIamPermissions", "POST"),
)  # fmt: skip

BY_RPC: Mapping[str, RouteBinding] = {each.rpc: each for each in BINDINGS}
ROUTES: Mapping[str, Mapping[str, RouteBinding]] = {
    shape: {each.http: each for each in BINDINGS if each.shape == shape} for shape in {each.shape for each in BINDINGS}
}  # by the shape of the path, and the method of HTTP


def shape_of(path: str) -> str:
    """Return the shape of a path behind `/v1/`: every second part is a name, and a verb may follow the last part."""
    parts = path.split("/")
    last, colon, verb = parts[-1].rpartition(":") if ":" in parts[-1] else (parts[-1], "", "")
    parts[-1] = last
    return "/".join("*" if at % 2 else part for at, part in enumerate(parts)) + colon + verb


def field_in(binding: RouteBinding, path: str) -> str:
    """Return the field that is in a path of this binding's shape."""
    names = path.rpartition(":")[0] if ":" in binding.shape else path
    return "/".join(names.split("/")[: binding.pattern.count("/") + 1])


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
}  # types with a special form in JSON


def describe(root: str) -> Mapping[str, object]:
    """Return the discovery document for a service at this URL."""
    return {**_description(), "rootUrl": root, "baseUrl": root}


@functools.cache
def _description() -> Mapping[str, object]:
    schemas: dict[str, object] = {}
    projects: dict[str, Any] = {}
    for each in BINDINGS:
        *outer, name = _names(each)
        inner = projects
        for resource in outer:
            inner = inner.setdefault("resources", {}).setdefault(resource, {})
        inner.setdefault("methods", {})[name] = _method(each, ".".join((*outer, name)))
        if each.body:
            _describe_type(_body(each), schemas)
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


def _names(binding: RouteBinding) -> list[str]:
    """Return the place of a method: its resources, outermost first, and its name."""
    path, _, verb = binding.shape.partition(":")
    parts = path.split("/")
    is_list = binding.http == "GET" and len(parts) % 2
    return [*parts[::2], verb or ("list" if is_list else _METHODS.get(binding.http, "get"))]


def _method(binding: RouteBinding, name: str) -> Mapping[str, object]:
    shown = binding.field.rpartition(".")[2]
    pattern = binding.pattern.replace("*", "[^/]+")
    in_path = {"type": "string", "location": "path", "required": True, "pattern": f"^{pattern}$"}
    in_query = {} if binding.body == WHOLE else dict(_query_fields(binding, binding.request.DESCRIPTOR))
    path = binding.template.replace(f"{{{binding.field}={binding.pattern}}}", f"{{+{shown}}}")
    return {
        "id": f"pubsub.{name}",
        "path": f"v1/{path}",
        "flatPath": f"v1/{path}",
        "httpMethod": binding.http,
        "parameterOrder": [shown],
        "parameters": {shown: in_path, **in_query},
        **({"request": {"$ref": _body(binding).name}} if binding.body else {}),
        "response": {"$ref": binding.answer.DESCRIPTOR.name},
        "scopes": list(_SCOPES),
    }


def _body(binding: RouteBinding) -> Any:
    request = binding.request.DESCRIPTOR
    return request if binding.body == WHOLE else request.fields_by_name[binding.body].message_type


def _query_fields(binding: RouteBinding, request: Any, before: str = "") -> Iterator[tuple[str, Mapping[str, object]]]:
    for field in request.fields:
        if not before and field.name in (binding.field, binding.body):
            continue
        name = before + field.json_name
        if field.message_type is not None and field.message_type.full_name not in _PLAIN:
            yield from _query_fields(binding, field.message_type, f"{name}.")
        else:
            yield name, _query(_describe_field(field))


def _query(kind: Mapping[str, object]) -> Mapping[str, object]:
    return {**kind, "location": "query"}


def _describe_type(descriptor: Any, schemas: dict[str, object]) -> None:
    """Add a type and its nested types, under their names without packages, as Google's document has them."""
    if descriptor.name in schemas or descriptor.full_name in _PLAIN:
        return
    properties: dict[str, object] = {}
    schemas[descriptor.name] = {"id": descriptor.name, "type": "object", "properties": properties}
    for field in descriptor.fields:
        properties[field.json_name] = _describe_field(field)
        inner = field.message_type
        if inner is not None and not inner.GetOptions().map_entry:
            _describe_type(inner, schemas)


def _describe_field(field: Any) -> Mapping[str, object]:
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
