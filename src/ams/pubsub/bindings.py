"""Bindings: which HTTP request is which method, as Google's API says it (`google.api.http`).

Routes and the description for clients (`ams.pubsub.discovery`) are made of this table. A method has one binding, of
IAM one for each kind of resource.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ams.pubsub import protos as pb
from ams.pubsub.protos import Message

_TOPIC, _SUBSCRIPTION = "projects/*/topics/*", "projects/*/subscriptions/*"
_SNAPSHOT, _SCHEMA, _PROJECT = "projects/*/snapshots/*", "projects/*/schemas/*", "projects/*"
WHOLE = "*"  # the body is the request
_FIELD = re.compile(r"\{([a-z_.]+)=([^}]+)\}")


class Binding(NamedTuple):
    """How one method is asked for."""

    rpc: str
    http: str  # the method of HTTP
    template: str  # of the path behind `/v1/`, with the field of the request that a part of it is
    answer: Message  # type of the answer
    body: str  # `WHOLE`, the field that the body is, or empty: there is none
    field: str  # the field of the request that is in the path
    pattern: str  # the part of the path that is that field, a `*` for each name
    shape: str  # the whole path, a `*` for each name


def _bind(rpc: str, http: str, template: str, answer: Message, body: str = "") -> Binding:
    before, field, pattern, after = _FIELD.split(template)
    return Binding(rpc, http, template, answer, body, field, pattern, before + pattern + after)


def _bind_all(rpc: str, http: str, verb: str, answer: Message, body: str = "") -> Iterator[Binding]:
    for kind in (_TOPIC, _SUBSCRIPTION, _SNAPSHOT, _SCHEMA):
        yield _bind(rpc, http, f"{{resource={kind}}}:{verb}", answer, body)


BINDINGS: Sequence[Binding] = (
    _bind("CreateTopic", "PUT", f"{{name={_TOPIC}}}", pb.Topic, WHOLE),
    _bind("UpdateTopic", "PATCH", f"{{topic.name={_TOPIC}}}", pb.Topic, WHOLE),
    _bind("Publish", "POST", f"{{topic={_TOPIC}}}:publish", pb.PublishResponse, WHOLE),
    _bind("GetTopic", "GET", f"{{topic={_TOPIC}}}", pb.Topic),
    _bind("ListTopics", "GET", f"{{project={_PROJECT}}}/topics", pb.ListTopicsResponse),
    _bind("ListTopicSubscriptions", "GET", f"{{topic={_TOPIC}}}/subscriptions", pb.ListTopicSubscriptionsResponse),
    _bind("ListTopicSnapshots", "GET", f"{{topic={_TOPIC}}}/snapshots", pb.ListTopicSnapshotsResponse),
    _bind("DeleteTopic", "DELETE", f"{{topic={_TOPIC}}}", pb.Empty),
    _bind("DetachSubscription", "POST", f"{{subscription={_SUBSCRIPTION}}}:detach", pb.DetachSubscriptionResponse),
    _bind("CreateSubscription", "PUT", f"{{name={_SUBSCRIPTION}}}", pb.Subscription, WHOLE),
    _bind("GetSubscription", "GET", f"{{subscription={_SUBSCRIPTION}}}", pb.Subscription),
    _bind("UpdateSubscription", "PATCH", f"{{subscription.name={_SUBSCRIPTION}}}", pb.Subscription, WHOLE),
    _bind("ListSubscriptions", "GET", f"{{project={_PROJECT}}}/subscriptions", pb.ListSubscriptionsResponse),
    _bind("DeleteSubscription", "DELETE", f"{{subscription={_SUBSCRIPTION}}}", pb.Empty),
    _bind("ModifyAckDeadline", "POST", f"{{subscription={_SUBSCRIPTION}}}:modifyAckDeadline", pb.Empty, WHOLE),
    _bind("Acknowledge", "POST", f"{{subscription={_SUBSCRIPTION}}}:acknowledge", pb.Empty, WHOLE),
    _bind("Pull", "POST", f"{{subscription={_SUBSCRIPTION}}}:pull", pb.PullResponse, WHOLE),
    _bind("ModifyPushConfig", "POST", f"{{subscription={_SUBSCRIPTION}}}:modifyPushConfig", pb.Empty, WHOLE),
    _bind("Seek", "POST", f"{{subscription={_SUBSCRIPTION}}}:seek", pb.SeekResponse, WHOLE),
    _bind("CreateSnapshot", "PUT", f"{{name={_SNAPSHOT}}}", pb.Snapshot, WHOLE),
    _bind("GetSnapshot", "GET", f"{{snapshot={_SNAPSHOT}}}", pb.Snapshot),
    _bind("UpdateSnapshot", "PATCH", f"{{snapshot.name={_SNAPSHOT}}}", pb.Snapshot, WHOLE),
    _bind("ListSnapshots", "GET", f"{{project={_PROJECT}}}/snapshots", pb.ListSnapshotsResponse),
    _bind("DeleteSnapshot", "DELETE", f"{{snapshot={_SNAPSHOT}}}", pb.Empty),
    _bind("CreateSchema", "POST", f"{{parent={_PROJECT}}}/schemas", pb.Schema, "schema"),
    _bind("GetSchema", "GET", f"{{name={_SCHEMA}}}", pb.Schema),
    _bind("ListSchemas", "GET", f"{{parent={_PROJECT}}}/schemas", pb.ListSchemasResponse),
    _bind("ListSchemaRevisions", "GET", f"{{name={_SCHEMA}}}:listRevisions", pb.ListSchemaRevisionsResponse),
    _bind("CommitSchema", "POST", f"{{name={_SCHEMA}}}:commit", pb.Schema, WHOLE),
    _bind("RollbackSchema", "POST", f"{{name={_SCHEMA}}}:rollback", pb.Schema, WHOLE),
    _bind("DeleteSchemaRevision", "DELETE", f"{{name={_SCHEMA}}}:deleteRevision", pb.Schema),
    _bind("DeleteSchema", "DELETE", f"{{name={_SCHEMA}}}", pb.Empty),
    _bind("ValidateSchema", "POST", f"{{parent={_PROJECT}}}/schemas:validate", pb.ValidateSchemaResponse, WHOLE),
    _bind(
        "ValidateMessage", "POST", f"{{parent={_PROJECT}}}/schemas:validateMessage", pb.ValidateMessageResponse, WHOLE
    ),
    *_bind_all("GetIamPolicy", "GET", "getIamPolicy", pb.Policy),
    *_bind_all("SetIamPolicy", "POST", "setIamPolicy", pb.Policy, WHOLE),
    *_bind_all("TestIamPermissions", "POST", "testIamPermissions", pb.TestIamPermissionsResponse, WHOLE),
)


ROUTES: Mapping[str, Mapping[str, Binding]] = {
    shape: {each.http: each for each in BINDINGS if each.shape == shape} for shape in {each.shape for each in BINDINGS}
}
"""Bindings by the shape of their paths and the method of HTTP."""


def shape_of(path: str) -> str:
    """Return the shape of a path behind `/v1/`: every second part is a name, and a verb may follow the last part."""
    parts = path.split("/")
    last, colon, verb = parts[-1].rpartition(":") if ":" in parts[-1] else (parts[-1], "", "")
    parts[-1] = last
    return "/".join("*" if at % 2 else part for at, part in enumerate(parts)) + colon + verb


def field_in(binding: Binding, path: str) -> str:
    """Return the field that is in a path of this binding's shape."""
    names = path.rpartition(":")[0] if ":" in binding.shape else path
    return "/".join(names.split("/")[: binding.pattern.count("/") + 1])
