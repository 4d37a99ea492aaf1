"""The lines of an export: everything an installation holds, one JSON object a line (docs/reference/export-format.md).

`kind` says what a line is. Fields that may be left out have a default here; names refer to what stands on lines before.
Times are milliseconds since the epoch. An unknown field is an error, so that a misspelt one is not passed over.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec

from ams.core.ack_ids import DEFAULT_ACK_DEADLINE, MAX_ACK_DEADLINE
from ams.core.clock import DAY
from ams.core.errors import InvalidInput
from ams.core.iam import Bindings
from ams.core.messages import Stored
from ams.core.parallel_options import ParallelOptions
from ams.core.push_config import PushConfig
from ams.core.quotas import MAX_LIMIT
from ams.core.rights import Right

FORMAT = 1  # a new kind, or a new field that may be left out, does not change it

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Time = Count
Age = Annotated[int, msgspec.Meta(ge=1, le=365 * DAY)]  # milliseconds; the log keeps nothing longer
Limit = Annotated[int, msgspec.Meta(ge=0, le=MAX_LIMIT)]


class Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"):
    """Any line."""

    def __repr__(self) -> str:
        """Say what it is, not what it holds: that may be a token."""
        return f"<a line of kind {kind(self)}>"


class Header(Line, tag="header"):
    """The first line."""

    format: int
    ams: str = ""  # what wrote the file
    made: str = ""  # UTC
    secrets: bool = True  # whether tokens and the secrets of push and of issuers are in it
    messages: Count | None = None  # about how many will follow, to show how far a reader is


class Log(Line, tag="log"):
    """A topic's messages: those that follow, up to the next line of another kind."""

    project: str
    topic: str
    id: str | None = None  # the topic's identity, a uuid
    first: Count = 0  # offset of its first message that is still there, else of the next one
    bytes: Count = 0  # data bytes published to it in all
    retention: Age | None = None  # age limit of its messages, its own or its project's; milliseconds


class Message(Line, tag="message"):
    """A message of the log above it."""

    offset: Count
    time: Time  # when it was published
    data: str
    attributes: Mapping[str, str] = {}
    ordering_key: str = msgspec.field(name="orderingKey", default="")  # spelled as in the log


class Lost(Line, tag="lost"):
    """Messages that retention took before they were acknowledged, of subscriptions that are gone."""

    messages: Count


class Person(Line):
    """A person who is a user, or applied to become one."""

    name: str
    id: str | None = None
    email: str = ""
    first_name: str = ""
    last_name: str = ""
    organization: str = ""
    description: str = ""


class User(Person, tag="user"):
    """A user; without a token a new one is made."""

    service_roles: tuple[str, ...] = ()
    token: str = ""
    created_on: Time | None = None  # absent: when it is imported, as for all that follows
    modified_on: Time | None = None
    created_by: str | None = None


class Day(NamedTuple):
    """Messages published on one day."""

    day: str  # `YYYY-MM-DD`, UTC
    messages: Count
    bytes: Count


class Tally(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Counts of a topic (published) or a subscription (handed out), and their last times."""

    messages: Count = 0
    bytes: Count = 0
    last_messages: Count = 0  # of the last request
    last: Time | None = None
    before: Time | None = None  # when the request before that was


class Project(Line, tag="project"):
    """A project; its days are those of topics that are gone too."""

    name: str
    id: str | None = None
    description: str = ""
    created_on: Time | None = None
    modified_on: Time | None = None
    created_by: str | None = None
    retention: Age | None = None
    days: tuple[Day, ...] = ()
    quotas: Mapping[str, Limit] = {}
    strict_data: bool | None = None  # its own; the others are those of the service


class Membership(Line, tag="membership"):
    """A user's place in a project."""

    user: str
    project: str
    roles: tuple[str, ...] = ()


Number = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]  # of a revision


class Revision(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A schema as it was at one time; payload and attributes are texts that hold JSON."""

    revision: Number
    type: Literal["json", "avro", "protobuf"]
    payload: str | None = None
    attributes: str | None = None
    created_on: Time | None = None


class Schema(Line, tag="schema"):
    """A schema with its revisions, oldest first; the last one counts."""

    project: str
    name: str
    revisions: Annotated[tuple[Revision, ...], msgspec.Meta(min_length=1)]
    id: str | None = None
    created_on: Time | None = None
    last_revision: Number | None = None  # the highest ever, where that was deleted: it is not given again
    iam: Bindings = ()  # bindings of its IAM policy that have no effect


class Topic(Line, tag="topic"):
    """A topic; its messages are on lines before, if it has any."""

    project: str
    name: str
    id: str | None = None  # if its log has one it is that
    retention: Age | None = None  # its own
    created_on: Time | None = None
    schema: str | None = None
    schema_encoding: Literal["", "JSON", "BINARY"] = ""  # of messages that keep the schema; empty: not said
    first_revision: Number | None = None  # the oldest revision of it that messages may keep; None: any
    last_revision: Number | None = None  # the newest one
    authorized: tuple[str, ...] = ()
    tally: Tally | None = None
    days: tuple[Day, ...] = ()
    labels: Mapping[str, str] = {}
    iam: Bindings = ()  # bindings of its IAM policy that have no effect
    deleted_schema: Literal["", "JSON", "BINARY"] = ""  # the encoding of its schema, which was deleted since


class PushSecret(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A secret that signs deliveries."""

    secret: str
    until: Time | None = None  # when it ends; None: when another takes its place

    def __repr__(self) -> str:
        """Say what it is, not what it holds."""
        return "<a push secret>"


class Subscription(Line, tag="subscription"):
    """A subscription and its cursor."""

    project: str
    name: str
    topic: str  # a name: the topic may be gone
    ack_deadline_seconds: Annotated[int, msgspec.Meta(ge=0, le=MAX_ACK_DEADLINE)] = DEFAULT_ACK_DEADLINE
    id: str | None = None
    created_on: Time | None = None
    push: PushConfig | None = None
    push_secrets: tuple[PushSecret, ...] = ()  # oldest first
    authorized: tuple[str, ...] = ()
    offset: Count = 0  # the next message to deliver
    lost: Count = 0  # messages that retention took before they were acknowledged
    done: tuple[tuple[Count, Count], ...] = ()  # ranges above `offset`: first, and behind the last
    tally: Tally | None = None
    parallel: ParallelOptions | None = None  # of a parallel subscription; None: an ordered one
    labels: Mapping[str, str] = {}
    iam: Bindings = ()  # bindings of its IAM policy that have no effect


class Snapshot(Line, tag="snapshot"):
    """Where a parallel subscription stood."""

    project: str
    name: str
    topic: str
    created_on: Time
    expires_on: Time
    floor: Count = 0  # all messages before it were done
    done: tuple[tuple[Count, Count], ...] = ()  # above the floor, likewise
    labels: Mapping[str, str] = {}
    iam: Bindings = ()  # bindings of its IAM policy that have no effect


class Registration(Person, tag="registration"):
    """A person's registration for a user account."""

    status: Literal["pending", "accepted", "declined"] = "pending"
    activation_token: str = ""
    decline_comment: str = ""
    registered_at: Time | None = None
    modified_at: Time | None = None
    modified_by: str | None = None


class NamedToken(Line, tag="named_token"):
    """A token of a user besides its own."""

    user: str
    name: str
    hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]  # SHA-256, in hex digits
    id: str | None = None
    rights: tuple[Right, ...] | None = None  # None: all the user's
    public_key: str | None = None  # PEM; with it the token has no text, and its hash is that of one nobody has
    created_on: Time | None = None
    created_by: str | None = None
    expires_on: Time | None = None  # None: never
    last_used: Time | None = None  # None: never


class Binding(Line, tag="binding"):
    """By which identity at an issuer a user logs in."""

    user: str
    name: str
    issuer: str  # its URL; it may be an issuer of no line
    subject: str
    by_login: bool = False  # whether user and binding were made at the first login
    created_on: Time | None = None
    created_by: str | None = None


class RoleRule(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Roles in a project for an entitlement."""

    entitlement: str
    project: str  # a name: the project may be gone
    roles: tuple[str, ...]


class Issuer(Line, tag="issuer"):
    """An issuer whose tokens are accepted, as `ams.core.issuer` has it."""

    name: str
    url: str
    id: str | None = None
    audiences: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    jwks_url: str = ""
    introspect: Literal["never", "opaque", "always"] = "never"
    introspection_url: str = ""
    client_id: str = ""
    client_secret: str = ""
    create_users: bool = False
    entitlement_claims: tuple[str, ...] = ("entitlements", "eduperson_entitlement")
    roles: tuple[RoleRule, ...] = ()
    created_on: Time | None = None
    modified_on: Time | None = None
    created_by: str | None = None


class End(Line, tag="end"):
    """The last line: how many lines of each kind stand before it, but for the header."""

    counts: Mapping[str, int]


AnyLine = (
    Header | Log | Message | Lost | User | Project | Membership | Schema | Topic | Subscription | Snapshot
    | Registration | NamedToken | Binding | Issuer | End
)  # fmt: skip

_decoder: msgspec.json.Decoder[AnyLine] = msgspec.json.Decoder(AnyLine)
_encode = msgspec.json.Encoder().encode


def kind(line: Line) -> str:
    """Return what a line is."""
    return str(line.__struct_config__.tag)


def encoded(line: Line) -> bytes:
    """Write a line, its end included."""
    return _encode(line) + b"\n"


def encoded_message(stored: Stored) -> bytes:
    """Write the line of a message as it is in the log: what `encoded` would, without reading the message."""
    return b'{"kind":"message","offset":%d,"time":%d,%b}\n' % stored


def decoded(data: bytes) -> AnyLine:
    """Read a line; raise `InvalidInput` that says what is wrong with it, without what it holds."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"no JSON object: {error}") from None
