"""Records of the registry, as frozen values; times are milliseconds since the epoch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.names import (
    BindingName,
    Offset,
    ProjectId,
    ProjectName,
    RegistrationId,
    SchemaId,
    SchemaName,
    SnapshotName,
    SubscriptionId,
    SubscriptionName,
    TokenId,
    TokenName,
    TopicId,
    TopicName,
    UserId,
    UserName,
)
from ams.core.parallel_options import ParallelOptions
from ams.core.public_keys import PublicKey
from ams.core.push_config import PushConfig
from ams.core.quotas import NO_LIMITS, Limits
from ams.core.rights import Rights

NO_USERS: frozenset[UserId] = frozenset()
NO_LABELS: Mapping[str, str] = {}
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page of a list (contract 4): size 0 or less is everything, an empty token the first page."""

    size: int = 0
    token: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list."""

    items: Sequence[T]
    next_token: str  # the page token of the next page; empty on the last one
    total: int  # items of the whole list, not of the page

    def map(self, change: Callable[[T], U]) -> "Page[U]":
        """Return the page with each item changed."""
        return Page(tuple(change(item) for item in self.items), self.next_token, self.total)


@dataclass(frozen=True, slots=True)
class Project:
    """A tenant: the owner of topics, subscriptions and memberships."""

    id: ProjectId  # stays when the project is renamed; never shown
    name: ProjectName
    description: str
    created_on: Milliseconds
    modified_on: Milliseconds
    created_by: UserName | None  # None when made by the service token, or when its maker is gone
    retention: Milliseconds | None = None  # of messages in topics without their own; None: the log's default
    quotas: Limits = field(default_factory=lambda: NO_LIMITS)  # the others are the defaults
    strict_data: bool | None = None  # whether data that is not base64 is refused; None: as the setting says


@dataclass(frozen=True, slots=True)
class Membership:
    """A user's place in one project, and the resources there whose access lists hold the user (short names)."""

    project: ProjectName
    roles: tuple[str, ...]
    topics: tuple[TopicName, ...] = ()
    subscriptions: tuple[SubscriptionName, ...] = ()


@dataclass(frozen=True, slots=True)
class User:
    """A user as the contract shows one (5.1)."""

    id: UserId
    name: UserName
    email: str
    first_name: str
    last_name: str
    organization: str
    description: str
    service_roles: tuple[str, ...]
    memberships: tuple[Membership, ...]  # oldest first; empty in lists without details
    created_on: Milliseconds
    modified_on: Milliseconds
    created_by: UserName | None
    token: str | None = field(repr=False)  # None where the asker may not see it, or it is damaged


@dataclass(frozen=True, slots=True)
class Login:
    """How a client logged in without the user's own token."""

    name: str  # of the named token, or of the issuer
    token: TokenId | None = None  # the named token; None: an issuer's
    expires_on: Milliseconds | None = None
    rights: Rights | None = None  # what it is good for, of what its user may do; None: all of it


@dataclass(frozen=True, slots=True)
class Principal:
    """The user of a token, as much as deciding a request needs."""

    id: UserId
    name: UserName
    service_roles: frozenset[str]
    project_roles: Mapping[ProjectId, frozenset[str]]  # also without roles
    login: Login | None = None  # None: with the user's own token


@dataclass(frozen=True, slots=True)
class SchemaContent:
    """One revision of a schema."""

    type: str  # `json`, `avro` or `protobuf`
    payload: str | None  # the schema of the data, as JSON; None: only attributes are checked
    attributes: str | None  # what attributes must be, as JSON; None: anything

    @property
    def bytes(self) -> int:
        """How large it is."""
        return len((self.payload or "").encode()) + len((self.attributes or "").encode())


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema at one of its revisions."""

    id: SchemaId
    project_id: ProjectId
    name: SchemaName
    revision: int  # from 1; the newest unless another was asked for
    content: SchemaContent
    created_on: Milliseconds  # when this revision was made


class SchemaUse(NamedTuple):
    """How a topic is to use a schema, as `AttachedSchema` says it."""

    encoding: str = ""
    first_revision: int | None = None
    last_revision: int | None = None


ANY_USE = SchemaUse()


@dataclass(frozen=True, slots=True)
class AttachedSchema:
    """The revision of a schema that the messages of a topic must keep."""

    id: SchemaId
    name: SchemaName
    revision: int
    encoding: str = ""  # how data is written: `JSON` or `BINARY`; empty: it was not said
    first_revision: int | None = None  # oldest that messages may keep; None: any. It may be deleted, as the last may
    last_revision: int | None = None  # the newest revision that messages may keep; None: any


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; `id` is the key of its log."""

    id: TopicId
    project_id: ProjectId
    name: TopicName
    schema: AttachedSchema | None  # the attached schema as it is now
    retention: Milliseconds | None  # age limit of its messages; None: the project's, then the log's default
    created_on: Milliseconds
    authorized: frozenset[UserId] = NO_USERS  # its access list; filled by `find` only
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    deleted_schema: str = ""  # encoding of its schema, which was deleted since


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription; `id` is the key of its cursor. It names its topic, which may be gone (contract 8)."""

    id: SubscriptionId
    project_id: ProjectId
    name: SubscriptionName
    topic: TopicName
    ack_deadline_seconds: int  # Seconds, 0 to 600
    push: PushConfig | None  # None: a pull subscription
    created_on: Milliseconds
    authorized: frozenset[UserId] = NO_USERS  # its access list, as in `Topic`
    parallel: ParallelOptions | None = None  # None: an ordered subscription
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_detached(self) -> bool:
        """Return whether it gets nothing any more, for good."""
        return self.parallel is not None and self.parallel.detached


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where a parallel subscription stood when it was made."""

    project_id: ProjectId
    name: SnapshotName
    topic_id: TopicId
    topic: TopicName
    floor: Offset  # all messages before it were done
    created_on: Milliseconds
    expires_on: Milliseconds  # when it is gone by itself
    done: BitMap64 = field(default_factory=BitMap64, repr=False)  # above the floor; lists leave it out
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Grant:
    """Membership asked for in a body: names as they came, not yet checked."""

    project: str
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Applicant:
    """A person who applies to become a user (contract 6)."""

    name: str  # the name the user is to have
    email: str = ""
    first_name: str = ""
    last_name: str = ""
    organization: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class UserDetails(Applicant):
    """A body about a user (contract 5.3). Empty text and None mean: not said."""

    name: str = ""  # a new name; ignored at creation, where the path decides
    grants: tuple[Grant, ...] | None = None  # all memberships that the user will have
    service_roles: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Registration:
    """An applicant, and what was decided (contract 6)."""

    id: RegistrationId
    applicant: Applicant
    status: str  # pending, accepted or declined
    activation_token: str = field(repr=False)  # empty once decided; no route uses it
    decline_comment: str
    registered_at: Milliseconds
    modified_at: Milliseconds | None  # when it was decided; None while pending
    modified_by: UserName | None  # None while pending, for the service token, or a user that is gone


@dataclass(frozen=True, slots=True)
class NamedToken:
    """A token of a user besides its own; its text was shown once and is nowhere. With a public key it has none."""

    id: TokenId
    user: UserName
    name: TokenName
    created_on: Milliseconds
    created_by: UserName | None
    expires_on: Milliseconds | None  # None: never
    last_used: Milliseconds | None  # to about a minute; None: never
    rights: Rights | None  # what it is good for, of what its user may do; None: all of it
    key_id: str | None = None  # of its public key; None: it has none


class KeyHolder(NamedTuple):
    """Whose key it is that a program signs its tokens with."""

    principal: Principal  # with the named token as `login`
    key: PublicKey


@dataclass(frozen=True, slots=True)
class Binding:
    """By which identity at an issuer a user logs in (docs/reference/openid-connect.md)."""

    user: UserName
    name: BindingName
    issuer: str  # the issuer's URL, as tokens say it in `iss`
    subject: str  # as tokens say it in `sub`
    created_on: Milliseconds
    created_by: UserName | None
    by_login: bool  # made with its user at the first login; then entitlements decide the user's roles
