"""Declarations as values: resources, their fields, where a file says so, and the steps of a plan.

A resource is a key and its fields. Declared fields are those that are named, the others are left as they are; fields of
what exists are all that were read. Both spell values alike, so that equal means nothing to do:

    user          email, first_name, last_name, organization, description: text; service_roles: sorted names
    project       description: text; retention: seconds, 0 = the service's; quotas: its own, by name;
                  strictData: whether data that is not base64 is refused
    member        roles: sorted names
    schema        type: json, avro or protobuf; schema, attributes: JSON objects
    topic         schema: name, "" = none; retention: seconds, 0 = the project's; access: sorted names
    subscription  topic: name; ackDeadline: seconds; push: fields of pushConfig, {} = pull; access: sorted names;
                  type: ordered or parallel; options as in the API, nothing is {} or ""
    issuer        url, jwks_url, introspect, introspection_url, client_id: text; audiences, clients, entitlement_claims:
                  sorted texts; client_secret: where it is; create_users: switch; roles: sorted PROJECT=ROLE=ENTITLEMENT
    identity      issuer, subject: text; of a user
    token         expires_on: time, "" = never; rights: sorted ACTION=RESOURCE, or "all"; token_file: name
    service type  hosts, auth_types: sorted names; auth_method, type: text; verify_client_host: switch
    auth method   port: number; access_key: where its value is; headers: names, and where their values are
    binding       service_type, host, auth_type, unique_key: text; auth_identifier, issuer: normal form; user: name

Files say all of an access list. Provisioning says entries of lists that others change too:

    publishers    users: names that are on the list of a topic of that name
    consumers     users: names that are on the list of a subscription
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from ams.client.wire import Call
from ams.core.yaml_tree import FileLine

Fields = Mapping[str, Any]

Ask = Callable[[Call[Any]], Any]  # sends a call to the service it is for and returns its answer; raises a `ClientError`
Note = Callable[[str], None]  # shows progress to people


class ResourceKind(StrEnum):
    """Kinds of resources, in order of dependency."""

    USER = "user"
    PROJECT = "project"
    MEMBER = "member"
    SCHEMA = "schema"
    TOPIC = "topic"
    PUBLISHERS = "publishers"
    SUBSCRIPTION = "subscription"
    CONSUMERS = "consumers"
    ISSUER = "issuer"
    IDENTITY = "identity"  # of a user: its binding to an identity at an issuer, unlike those of the certificate service
    TOKEN = "token"  # noqa: S105  # the name of a kind
    SERVICE_TYPE = "service type"
    AUTH_METHOD = "auth method"
    BINDING = "binding"

    def key(self, name: str, parent: str = "") -> "ResourceKey":
        """Return the key of a resource of this kind."""
        return ResourceKey(self, parent, name)


AUTHN_KINDS = frozenset({ResourceKind.SERVICE_TYPE, ResourceKind.AUTH_METHOD, ResourceKind.BINDING})
"""Kinds of the certificate service; after those of AMS, because bindings name AMS users."""


class ResourceKey(NamedTuple):
    """Names a resource. `project` is its parent: a project, service type or user; empty for one without."""

    kind: ResourceKind
    project: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.project}/{self.name}" if self.project else f"{self.kind} {self.name}"


class Reference(NamedTuple):
    """A place that names another resource, which must be declared or exist."""

    place: FileLine
    target: ResourceKey


@dataclass(frozen=True, slots=True)
class Declared:
    """All that is declared: `sections` is what pruning may touch, by parent and kind; `gone` is removed in any case.

    When a step fails, the rest for the same owner is not tried. With `in_order`, the order is not that of kinds.
    """

    fields: Mapping[ResourceKey, Fields] = field(default_factory=dict)
    places: Mapping[ResourceKey, FileLine] = field(default_factory=dict)
    references: Sequence[Reference] = ()
    sections: frozenset[tuple[str, ResourceKind]] = frozenset()
    owners: Mapping[ResourceKey, str] = field(default_factory=dict)
    gone: Mapping[ResourceKey, Fields] = field(default_factory=dict)
    in_order: bool = False

    @property
    def projects(self) -> list[str]:
        """The names of the declared projects."""
        return [key.name for key in self.fields if key.kind is ResourceKind.PROJECT]

    @property
    def concerns_authn(self) -> bool:
        """True if it needs the certificate service."""
        kinds = {key.kind for key in self.fields} | {kind for _, kind in self.sections}
        return not kinds.isdisjoint(AUTHN_KINDS)


@dataclass(frozen=True, slots=True)
class Existing:
    """Existing resources, as far as they were read; `caller` is the token's user, empty without one."""

    fields: Mapping[ResourceKey, Fields] = field(default_factory=dict)
    caller: str = ""
    uuids: Mapping[str, str] = field(default_factory=dict)

    def of(self, kind: ResourceKind) -> dict[str, Fields]:
        """Return the resources of a kind by name; all must have the same parent."""
        return {key.name: fields for key, fields in self.fields.items() if key.kind is kind}


class StepSign(StrEnum):
    """The sign of a step in a plan."""

    ADD = "+"
    ALTER = "~"
    REMOVE = "-"


@dataclass(frozen=True, slots=True)
class Step:
    """One resource to make, alter or remove, for one owner or several; `fields` are those to set."""

    change: StepSign
    key: ResourceKey
    fields: Fields
    owner: str = ""

    def __str__(self) -> str:
        return f"{self.change} {self.key}"
