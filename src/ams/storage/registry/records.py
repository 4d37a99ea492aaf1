"""Records of the registry, as frozen values; times are milliseconds since the epoch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from pyroaring import BitMap64

from ams.core import names
from ams.core.clock import Milliseconds
from ams.core.parallel_options import ParallelOptions
from ams.core.public_keys import PublicKey
from ams.core.push_config import PushConfig
from ams.core.quotas import NO_LIMITS, Limits
from ams.core.rights import Rights

NO_USERS: frozenset[names.UserId] = frozenset()
NO_LABELS: Mapping[str, str] = {}
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Request for a page (contract 4): size 0 or less means everything, an empty token the first page."""

    size: int = 0
    token: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list."""

    items: Sequence[T]
    next_token: str  # page token of the next page; empty on the last page
    total: int  # items of the whole list

    def map(self, change: Callable[[T], U]) -> "Page[U]":
        """Return the page with `change` applied to each item."""
        return Page(tuple(change(item) for item in self.items), self.next_token, self.total)


@dataclass(frozen=True, slots=True)
class Project:
    """A tenant: owner of topics, subscriptions and memberships."""

    id: names.ProjectId  # survives renames; never shown
    name: names.ProjectName
    description: str
    created_on: Milliseconds
    modified_on: Milliseconds
    created_by: names.UserName | None  # None: by the service token, or by a deleted user
    retention: Milliseconds | None = None  # default of its topics; None: the log's default
    quotas: Limits = field(default_factory=lambda: NO_LIMITS)  # own values; others have the default
    strict_data: bool | None = None  # refuse data that is not base64; None: as the setting


@dataclass(frozen=True, slots=True)
class Membership:
    """A user's membership in a project, and the resources (short names) with the user on their access lists."""

    project: names.ProjectName
    roles: tuple[str, ...]
    topics: tuple[names.TopicName, ...] = ()
    subscriptions: tuple[names.SubscriptionName, ...] = ()


@dataclass(frozen=True, slots=True)
class User:
    """A user (contract 5.1)."""

    id: names.UserId
    name: names.UserName
    email: str
    first_name: str
    last_name: str
    organization: str
    description: str
    service_roles: tuple[str, ...]
    memberships: tuple[Membership, ...]  # oldest first; empty in lists without details
    created_on: Milliseconds
    modified_on: Milliseconds
    created_by: names.UserName | None
    token: str | None = field(repr=False)  # None: the caller may not see it, or it is damaged


@dataclass(frozen=True, slots=True)
class Login:
    """Login with a named token or an issuer's token."""

    name: str  # of the named token, or of the issuer
    token: names.TokenId | None = None  # the named token; None: an issuer's
    expires_on: Milliseconds | None = None
    rights: Rights | None = None  # of the token; None: all of the user's


@dataclass(frozen=True, slots=True)
class Principal:
    """The user of a token, with the fields that authorisation needs."""

    id: names.UserId
    name: names.UserName
    service_roles: frozenset[str]
    project_roles: Mapping[names.ProjectId, frozenset[str]]  # memberships, also those without roles
    login: Login | None = None  # None: the user's own token


@dataclass(frozen=True, slots=True)
class SchemaContent:
    """One revision of a schema."""

    type: str  # `json`, `avro` or `protobuf`
    payload: str | None  # schema of the data, as JSON; None: data is not checked
    attributes: str | None  # rules for attributes, as JSON; None: not checked

    @property
    def bytes(self) -> int:
        """Size of its texts."""
        return len((self.payload or "").encode()) + len((self.attributes or "").encode())


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema at one of its revisions."""

    id: names.SchemaId
    project_id: names.ProjectId
    name: names.SchemaName
    revision: int  # from 1
    content: SchemaContent
    created_on: Milliseconds  # of this revision


class SchemaUse(NamedTuple):
    """Use of a schema by a topic; fields as in `AttachedSchema`."""

    encoding: str = ""
    first_revision: int | None = None
    last_revision: int | None = None


ANY_USE = SchemaUse()


@dataclass(frozen=True, slots=True)
class AttachedSchema:
    """Schema revision that the messages of a topic must match."""

    id: names.SchemaId
    name: names.SchemaName
    revision: int
    encoding: str = ""  # of data: `JSON` or `BINARY`; empty: not given
    first_revision: int | None = None  # oldest revision that messages may use, perhaps deleted; None: any
    last_revision: int | None = None  # newest one, likewise


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; `id` is the key of its log."""

    id: names.TopicId
    project_id: names.ProjectId
    name: names.TopicName
    schema: AttachedSchema | None  # current state of the attached schema
    retention: Milliseconds | None  # age limit of its messages; None: the project's, then the log's default
    created_on: Milliseconds
    authorized: frozenset[names.UserId] = NO_USERS  # access list; only `find` fills it
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    deleted_schema: str = ""  # encoding of its deleted schema


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription; `id` is the key of its cursor. Its topic may be deleted (contract 8)."""

    id: names.SubscriptionId
    project_id: names.ProjectId
    name: names.SubscriptionName
    topic: names.TopicName
    ack_deadline_seconds: int  # 0 to 600
    push: PushConfig | None  # None: a pull subscription
    created_on: Milliseconds
    authorized: frozenset[names.UserId] = NO_USERS  # access list; only `find` fills it
    parallel: ParallelOptions | None = None  # None: an ordered subscription
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_detached(self) -> bool:
        """Return whether it gets no more messages, permanently."""
        return self.parallel is not None and self.parallel.detached


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a parallel subscription when the snapshot was created."""

    project_id: names.ProjectId
    name: names.SnapshotName
    topic_id: names.TopicId
    topic: names.TopicName
    floor: names.Offset  # all messages before it were acknowledged
    created_on: Milliseconds
    expires_on: Milliseconds
    done: BitMap64 = field(default_factory=BitMap64, repr=False)  # acknowledged above the floor; empty in lists
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Grant:
    """Membership requested in a body; names are not yet validated."""

    project: str
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Applicant:
    """A person who applies to become a user (contract 6)."""

    name: str  # of the future user
    email: str = ""
    first_name: str = ""
    last_name: str = ""
    organization: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class UserDetails(Applicant):
    """Body of a request about a user (contract 5.3). Empty text and None: not given."""

    name: str = ""  # new name; ignored at creation, where the path has it
    grants: tuple[Grant, ...] | None = None  # all memberships of the user
    service_roles: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Registration:
    """An applicant and the decision (contract 6)."""

    id: names.RegistrationId
    applicant: Applicant
    status: str  # pending, accepted or declined
    activation_token: str = field(repr=False)  # empty once decided; no route uses it
    decline_comment: str
    registered_at: Milliseconds
    modified_at: Milliseconds | None  # time of the decision; None while pending
    modified_by: names.UserName | None  # None: pending, by the service token, or by a deleted user


@dataclass(frozen=True, slots=True)
class NamedToken:
    """A named token of a user. Its text was shown once and is not stored; with a public key it has no text."""

    id: names.TokenId
    user: names.UserName
    name: names.TokenName
    created_on: Milliseconds
    created_by: names.UserName | None
    expires_on: Milliseconds | None  # None: never
    last_used: Milliseconds | None  # accurate to about a minute; None: never
    rights: Rights | None  # None: all of the user's
    key_id: str | None = None  # of its public key; None: none


class KeyHolder(NamedTuple):
    """Owner of a public key of a program."""

    principal: Principal  # with the named token as `login`
    key: PublicKey


@dataclass(frozen=True, slots=True)
class Binding:
    """Identity at an issuer that logs in as a user (docs/reference/openid-connect.md)."""

    user: names.UserName
    name: names.BindingName
    issuer: str  # the issuer's URL, as tokens say it in `iss`
    subject: str  # as tokens say it in `sub`
    created_on: Milliseconds
    created_by: names.UserName | None
    by_login: bool  # created with its user at the first login; then entitlements determine the roles
