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
    body: str = ""  # `WHOLE`, the field that the body is, or empty: there is none

    @property
    def field(self) -> str:
        """The field of the request that is in the path."""
        return self._parts[1]

    @property
    def pattern(self) -> str:
        """The part of the path that is that field, a `*` for each name."""
        return self._parts[2]

    @property
    def shape(self) -> str:
        """The whole path, a `*` for each name."""
        return "".join((self._parts[0], *self._parts[2:]))

    @property
    def _parts(self) -> Sequence[str]:
        return _FIELD.split(self.template)


def _of_resource(rpc: str, http: str, verb: str, answer: Message, body: str = "") -> Iterator[Binding]:
    for kind in (_TOPIC, _SUBSCRIPTION, _SNAPSHOT, _SCHEMA):
        yield Binding(rpc, http, f"{{resource={kind}}}:{verb}", answer, body)


BINDINGS: Sequence[Binding] = (
    Binding("CreateTopic", "PUT", f"{{name={_TOPIC}}}", pb.Topic, WHOLE),
    Binding("UpdateTopic", "PATCH", f"{{topic.name={_TOPIC}}}", pb.Topic, WHOLE),
    Binding("Publish", "POST", f"{{topic={_TOPIC}}}:publish", pb.PublishResponse, WHOLE),
    Binding("GetTopic", "GET", f"{{topic={_TOPIC}}}", pb.Topic),
    Binding("ListTopics", "GET", f"{{project={_PROJECT}}}/topics", pb.ListTopicsResponse),
    Binding("ListTopicSubscriptions", "GET", f"{{topic={_TOPIC}}}/subscriptions", pb.ListTopicSubscriptionsResponse),
    Binding("ListTopicSnapshots", "GET", f"{{topic={_TOPIC}}}/snapshots", pb.ListTopicSnapshotsResponse),
    Binding("DeleteTopic", "DELETE", f"{{topic={_TOPIC}}}", pb.Empty),
    Binding("DetachSubscription", "POST", f"{{subscription={_SUBSCRIPTION}}}:detach", pb.DetachSubscriptionResponse),
    Binding("CreateSubscription", "PUT", f"{{name={_SUBSCRIPTION}}}", pb.Subscription, WHOLE),
    Binding("GetSubscription", "GET", f"{{subscription={_SUBSCRIPTION}}}", pb.Subscription),
    Binding("UpdateSubscription", "PATCH", f"{{subscription.name={_SUBSCRIPTION}}}", pb.Subscription, WHOLE),
    Binding("ListSubscriptions", "GET", f"{{project={_PROJECT}}}/subscriptions", pb.ListSubscriptionsResponse),
    Binding("DeleteSubscription", "DELETE", f"{{subscription={_SUBSCRIPTION}}}", pb.Empty),
    Binding("ModifyAckDeadline", "POST", f"{{subscription={_SUBSCRIPTION}}}:modifyAckDeadline", pb.Empty, WHOLE),
    Binding("Acknowledge", "POST", f"{{subscription={_SUBSCRIPTION}}}:acknowledge", pb.Empty, WHOLE),
    Binding("Pull", "POST", f"{{subscription={_SUBSCRIPTION}}}:pull", pb.PullResponse, WHOLE),
    Binding("ModifyPushConfig", "POST", f"{{subscription={_SUBSCRIPTION}}}:modifyPushConfig", pb.Empty, WHOLE),
    Binding("Seek", "POST", f"{{subscription={_SUBSCRIPTION}}}:seek", pb.SeekResponse, WHOLE),
    Binding("CreateSnapshot", "PUT", f"{{name={_SNAPSHOT}}}", pb.Snapshot, WHOLE),
    Binding("GetSnapshot", "GET", f"{{snapshot={_SNAPSHOT}}}", pb.Snapshot),
    Binding("UpdateSnapshot", "PATCH", f"{{snapshot.name={_SNAPSHOT}}}", pb.Snapshot, WHOLE),
    Binding("ListSnapshots", "GET", f"{{project={_PROJECT}}}/snapshots", pb.ListSnapshotsResponse),
    Binding("DeleteSnapshot", "DELETE", f"{{snapshot={_SNAPSHOT}}}", pb.Empty),
    Binding("CreateSchema", "POST", f"{{parent={_PROJECT}}}/schemas", pb.Schema, "schema"),
    Binding("GetSchema", "GET", f"{{name={_SCHEMA}}}", pb.Schema),
    Binding("ListSchemas", "GET", f"{{parent={_PROJECT}}}/schemas", pb.ListSchemasResponse),
    Binding("ListSchemaRevisions", "GET", f"{{name={_SCHEMA}}}:listRevisions", pb.ListSchemaRevisionsResponse),
    Binding("CommitSchema", "POST", f"{{name={_SCHEMA}}}:commit", pb.Schema, WHOLE),
    Binding("RollbackSchema", "POST", f"{{name={_SCHEMA}}}:rollback", pb.Schema, WHOLE),
    Binding("DeleteSchemaRevision", "DELETE", f"{{name={_SCHEMA}}}:deleteRevision", pb.Schema),
    Binding("DeleteSchema", "DELETE", f"{{name={_SCHEMA}}}", pb.Empty),
    Binding("ValidateSchema", "POST", f"{{parent={_PROJECT}}}/schemas:validate", pb.ValidateSchemaResponse, WHOLE),
    Binding(
        "ValidateMessage", "POST", f"{{parent={_PROJECT}}}/schemas:validateMessage", pb.ValidateMessageResponse, WHOLE
    ),
    *_of_resource("GetIamPolicy", "GET", "getIamPolicy", pb.Policy),
    *_of_resource("SetIamPolicy", "POST", "setIamPolicy", pb.Policy, WHOLE),
    *_of_resource("TestIamPermissions", "POST", "testIamPermissions", pb.TestIamPermissionsResponse, WHOLE),
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
