"""Projects, topics, who may use what (contract 7 and 8), schemas (contract 15), and dry runs of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ams.wire.base import CamelObject, CamelRequest, ListPage, Object, Request, Text


class NewProject(Request, frozen=True):
    """What may be said of a new project; the path names it."""

    description: str | None = None


class ProjectChange(Request, frozen=True):
    """Changes of a project; what is empty or absent stays."""

    name: str | None = None
    description: str | None = None
    strict_data: bool | None = msgspec.field(name="strictData", default=None)  # refuse data that is not base64


class NewRetention(CamelRequest, frozen=True):
    """How long messages are kept; absent or 0: as the project or the setting says."""

    retention_seconds: int | None = None


class NewAccessList(Request, frozen=True):
    """The names of an access list; the list is required."""

    authorized_users: list[str] | None = None


class AccessListChange(Request, frozen=True):
    """Users to add to an access list, and users to remove from it; one of the lists is required."""

    add: list[str] | None = None
    remove: list[str] | None = None


class SchemaReference(Request, frozen=True):
    """A schema by its resource name `projects/P/schemas/X`; read as a map of texts (contract 1.2)."""

    schema: str | None = None


class Project(Object, frozen=True):
    """A project (contract 7); its identity is not shown."""

    name: Text = ""
    created_on: Text = ""
    modified_on: Text = ""
    created_by: str = ""
    description: str = ""
    retention_seconds: int = msgspec.field(name="retentionSeconds", default=0)
    """How long messages are kept in topics without a time of their own; 0: as the service says."""
    quotas: Mapping[str, int] = {}  # its own quotas; absent: it has the defaults
    strict_data: bool | None = msgspec.field(name="strictData", default=None)
    """True if data that is not base64 is refused; absent: as the service says."""


class Quota(Object, frozen=True):
    """A quota of a project."""

    name: str
    limit: int  # 0: no limit
    default: int  # the limit where a project has no value of its own
    used: int | None = None
    share: int | None = None  # how much it may have now where no limit is set, if it has a fair share


class ProjectQuotas(Object, frozen=True):
    """All quotas of a project."""

    quotas: Sequence[Quota]


class QuotaChanges(Request, frozen=True):
    """Quotas to be changed; null: the default again. What is not named stays."""

    quotas: dict[str, int | None] | None = None


class Projects(Object, frozen=True):
    """All projects, oldest first (contract 7)."""

    projects: Sequence[Project]


class Topic(Object, frozen=True):
    """A topic (contract 8)."""

    name: str  # its resource name, `/projects/P/topics/T`
    created_on: str
    schema: str = ""
    retention_seconds: int = msgspec.field(name="retentionSeconds", default=0)  # 0: as the project says


class Topics(ListPage, frozen=True):
    """A page of topics (contract 8)."""

    topics: Sequence[Topic]


class SubscriptionNames(Object, frozen=True):
    """Resource names of a topic's subscriptions, oldest first (contract 8)."""

    subscriptions: Sequence[str]


class Acl(Object, frozen=True):
    """Names of users, in stored order (contract 8 and 9.2)."""

    authorized_users: Sequence[str]
    without_effect: Sequence[str] = ()
    """`ROLE: MEMBER` for each whom an IAM policy of Google's clients binds in vain; told by GET only."""


class TopicOffsets(Object, frozen=True):
    """The oldest kept offset of a topic, and the next one to be given."""

    min: int
    max: int


DEFINITION, DESCRIPTOR = "definition", "descriptor"
"""Members of `schema` with the type protobuf: the definition, and what the service made of it, as base64."""


class SchemaBody(Request, frozen=True):
    """What is said of a schema; `name`, in an update only, is the new one as a reference."""

    name: str | None = None
    type: str | None = None
    schema: dict[str, Any] | None = None
    attributes: dict[str, Any] | None = None


class DryRunBody(Request, frozen=True):
    """Which topic's newest messages to try, and how many."""

    topic: str | None = None
    messages: int | None = None


class CandidateBody(Request, frozen=True):
    """What a schema is asked about: a message, base64 `data` alone (avro, protobuf), or any JSON document (json)."""

    data: str | None = None
    attributes: dict[str, str] | None = None


class Schema(Object, frozen=True):
    """A schema (contract 15)."""

    uuid: str
    name: str  # its resource name, `projects/P/schemas/X`
    type: str  # `json`, `avro` or `protobuf`
    schema: dict[str, Any]  # what payloads must be; empty in a schema of attributes alone
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)  # what attributes must be; empty: anything


class Schemas(Object, frozen=True):
    """All schemas of a project, oldest first."""

    schemas: list[Schema]


class Revision(Object, frozen=True):
    """What a schema said from some moment on."""

    revision: str  # its id, 8 hex digits: the one after `@` that Google's clients see
    created_on: str
    type: str
    schema: dict[str, Any]
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)


class Revisions(Object, frozen=True):
    """All revisions of a schema, the newest first."""

    revisions: list[Revision]


class Validated(Object, frozen=True):
    """That a message is what its schema says."""

    message: str


class RefusedMessage(CamelObject, frozen=True):
    """A stored message that the schema would not allow."""

    message_id: str
    reason: str


class DryRun(Object, frozen=True):
    """What a schema says of messages that are there already."""

    checked: int
    refused: int
    reasons: list[RefusedMessage]  # of the oldest it would refuse
