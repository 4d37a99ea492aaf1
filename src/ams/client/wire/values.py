"""What goes over the wire, as values: the contract's objects under Python names.

A field without a default is one the contract promises in every answer; the others are left out when empty, also when
a value is written as JSON again. Dates are the service's text (UTC, `2024-03-05T10:20:30Z`).
"""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec


class Object(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An object whose fields are spelled with underscores on the wire too."""


class CamelObject(Object, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An object whose fields are spelled `likeThis` on the wire."""


class Project(Object, frozen=True, kw_only=True, omit_defaults=True):
    """A project (contract 7)."""

    name: str = ""
    description: str = ""
    created_on: str = ""
    modified_on: str = ""
    created_by: str = ""
    retention_seconds: int = msgspec.field(name="retentionSeconds", default=0)
    """How long messages are kept in topics without a time of their own; 0: as the service says."""


class Projects(Object, frozen=True, kw_only=True, omit_defaults=True):
    """All projects, oldest first."""

    projects: list[Project]


class Grant(Object, frozen=True, kw_only=True, omit_defaults=True):
    """Roles in a project, as a request gives them to a user."""

    project: str
    roles: list[str]


class Membership(Grant, frozen=True, kw_only=True, omit_defaults=True):
    """A user's part in a project; `topics` and `subscriptions` are those whose access list holds the user."""

    topics: list[str]
    subscriptions: list[str]


class User(Object, frozen=True, kw_only=True, omit_defaults=True):
    """A user (contract 5.1); the token is there only for those who may see it."""

    uuid: str
    name: str
    email: str
    service_roles: list[str]
    created_on: str
    modified_on: str
    projects: list[Membership] = []
    first_name: str = ""
    last_name: str = ""
    organization: str = ""
    description: str = ""
    token: str = ""
    created_by: str = ""


class UserDetails(Object, frozen=True, kw_only=True, omit_defaults=True):
    """What may be said about a user when creating or updating one (contract 5.3); None says nothing.

    In an update, `projects` and `service_roles` replace what there was, also with nothing.
    """

    name: str | None = None
    """In an update, the new name."""
    email: str | None = None
    first_name: str | None = None
    last_name: str | None = None
    organization: str | None = None
    description: str | None = None
    projects: list[Grant] | None = None
    service_roles: list[str] | None = None


class Users(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """A page of users, newest first."""

    users: list[User]
    next_page_token: str
    total_size: int


class Registration(Object, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody who asked to become a user, and what was decided (contract 6)."""

    uuid: str
    name: str
    first_name: str
    last_name: str
    organization: str
    description: str
    email: str
    status: str
    """pending, accepted or declined."""
    registered_at: str
    decline_comment: str = ""
    activation_token: str = ""
    modified_by: str = ""
    modified_at: str = ""


class Registrations(Object, frozen=True, kw_only=True, omit_defaults=True):
    """Registrations, oldest first."""

    user_registrations: list[Registration]


class AuditEvent(Object, frozen=True, kw_only=True, omit_defaults=True):
    """Who did what, from where, when, and how it ended."""

    time: str
    id: str
    service: str
    action: str
    resource: str
    actor: str
    address: str
    code: int
    result: str
    reason: str = ""
    request: str = ""
    times: int = 1


class AuditEvents(Object, frozen=True, kw_only=True, omit_defaults=False):
    """A page of events, newest first."""

    events: list[AuditEvent]
    next_page_token: str = msgspec.field(name="nextPageToken", default="")


class Topic(Object, frozen=True, kw_only=True, omit_defaults=True):
    """A topic (contract 8); `name` is its resource name, `/projects/P/topics/T`."""

    name: str
    created_on: str
    schema: str = ""
    retention_seconds: int = msgspec.field(name="retentionSeconds", default=0)
    """How long its messages are kept; 0: as the project says."""


class Topics(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """A page of topics, newest first."""

    topics: list[Topic]
    next_page_token: str
    total_size: int


class AuthorizationHeader(Object, frozen=True, kw_only=True, omit_defaults=True):
    """The kind of `Authorization` a push delivery carries: autogen or disabled."""

    type: str = ""


class RetryPolicy(Object, frozen=True, kw_only=True, omit_defaults=True):
    """When a push delivery is tried again: linear, slowstart or exponential, the period in milliseconds."""

    type: str = ""
    period: int = 0


class PushConfig(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """A push configuration to be set (contract 13.1); what is left out gets the service's default."""

    type: str = ""
    """http_endpoint or mattermost."""
    push_endpoint: str = ""
    max_messages: int = 0
    authorization_header: AuthorizationHeader = AuthorizationHeader()
    retry_policy: RetryPolicy = RetryPolicy()
    mattermost_url: str = ""
    mattermost_username: str = ""
    mattermost_channel: str = ""
    base64_decode: bool | None = None
    dead_letter_topic: str = ""
    """Name of a topic of the project for messages that are refused too often; empty: they are tried for ever."""
    max_delivery_attempts: int = 0
    """How often; 0: 5, where there is a topic for them."""


class PushSecret(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """What deliveries are signed with, shown once; `standardwebhooks` verifies with it."""

    secret: str
    previous_valid_until: str = ""
    """When the one before ends; empty when there is none any more."""


class Schema(Object, frozen=True, kw_only=True, omit_defaults=True):
    """What messages must be (contract 15); `name` is its resource name, `projects/P/schemas/X`."""

    uuid: str
    name: str
    type: str
    """`json` or `avro`."""
    schema: dict[str, Any]
    """What payloads must be; empty in a schema of attributes alone."""
    attributes: dict[str, Any] = {}
    """What attributes must be; empty: anything."""


class Schemas(Object, frozen=True, kw_only=True, omit_defaults=True):
    """All schemas of a project, oldest first."""

    schemas: list[Schema]


class Validated(Object, frozen=True, kw_only=True, omit_defaults=True):
    """That a message is what its schema says."""

    message: str


class RefusedMessage(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """A stored message that a schema would refuse, and why."""

    message_id: str
    reason: str


class DryRun(Object, frozen=True, kw_only=True, omit_defaults=True):
    """What a schema says of messages that are there already; the reasons are those of the oldest it would refuse."""

    checked: int
    refused: int
    reasons: list[RefusedMessage]


class Subscription(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """A subscription (contract 9.1); `name` and `topic` are resource names."""

    name: str
    topic: str
    push_config: dict[str, Any]
    ack_deadline_seconds: int
    created_on: str = ""
    push_status: str = ""


class Subscriptions(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """A page of subscriptions, newest first."""

    subscriptions: list[Subscription]
    next_page_token: str
    total_size: int


class SubscriptionNames(Object, frozen=True, kw_only=True, omit_defaults=True):
    """The resource names of a topic's subscriptions, oldest first."""

    subscriptions: list[str]


class Acl(Object, frozen=True, kw_only=True, omit_defaults=True):
    """The names of the users an access list holds (contract 3.5)."""

    authorized_users: list[str]


class Message(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """A message (contract 12.1); id and time are the service's and empty in one to be published."""

    message_id: str = ""
    attributes: Mapping[str, str] = {}
    data: str = ""
    """base64 text as it travels; from a lenient service perhaps other text."""
    publish_time: str = ""

    def payload(self) -> bytes:
        """Return the data decoded, line breaks within tolerated as the service does; `ValueError` if not base64."""
        try:
            return base64.b64decode(self.data, validate=True)
        except ValueError:
            return base64.b64decode(self.data.replace("\r", "").replace("\n", ""), validate=True)


def message(payload: bytes, attributes: Mapping[str, str] | None = None) -> Message:
    """Make a message to publish."""
    return Message(data=base64.b64encode(payload).decode("ascii"), attributes=attributes or {})


class Published(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """The ids of what was published, in the order of the request."""

    message_ids: list[str]


class ReceivedMessage(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """A pulled message and the id that acknowledges it and all before it."""

    ack_id: str
    message: Message


class Received(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """What a pull returned, in the order of the topic."""

    received_messages: list[ReceivedMessage]


class Offsets(Object, frozen=True, kw_only=True, omit_defaults=True):
    """Where a subscription stands (contract 11.3): `max - current` messages are still to come."""

    max: int
    """The id the next message of the topic will get."""
    min: int
    """The oldest id kept."""
    current: int
    """The first id not acknowledged."""


class TopicOffsets(Object, frozen=True, kw_only=True, omit_defaults=True):
    """The bounds of a topic."""

    min: int
    """The oldest id kept."""
    max: int
    """The id the next message will get."""


class ReadMessage(Message, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A message of a range, with its id as a number."""

    offset: int


class OffsetAt(Object, frozen=True, kw_only=True, omit_defaults=True):
    """An offset alone."""

    offset: int
