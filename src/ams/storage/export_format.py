"""Lines of an export of an installation: one JSON object per line (docs/reference/export-format.md).

`kind` is the type of a line. Optional fields have a default here. Names refer to earlier lines. Times are milliseconds
since the epoch. Unknown fields are errors, so that misspelt ones are noticed.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec

from ams.core.ack_ids import DEFAULT_ACK_DEADLINE, MAX_ACK_DEADLINE
from ams.core.clock import DAY
from ams.core.errors import InvalidInput
from ams.core.iam import Bindings
from ams.core.messages import Stored
from ams.core.names import Offset
from ams.core.parallel_options import ParallelOptions
from ams.core.push_config import PushConfig
from ams.core.quotas import MAX_LIMIT
from ams.core.rights import Right

FORMAT = 1  # unchanged by new kinds and new optional fields

_NUMBER = msgspec.Meta(ge=0, le=2**63 - 1)
Count = Annotated[int, _NUMBER]
Place = Annotated[Offset, _NUMBER]
Time = Count
Age = Annotated[int, msgspec.Meta(ge=1, le=365 * DAY)]  # milliseconds; the log keeps nothing longer
Limit = Annotated[int, msgspec.Meta(ge=0, le=MAX_LIMIT)]


class Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"):
    """Any line."""

    def __repr__(self) -> str:
        """Omit the fields, which may hold a token."""
        return f"<a line of kind {kind(self)}>"


class Header(Line, tag="header"):
    """The first line."""

    format: int
    ams: str = ""  # version that wrote the file
    made: str = ""  # UTC
    secrets: bool = True  # the file has tokens and secrets of push and issuers
    messages: Count | None = None  # approximate number, for progress


class Log(Line, tag="log"):
    """The topic of the following messages, up to the next line of another kind."""

    project: str
    topic: str
    id: str | None = None  # the topic's identity, a uuid
    first: Count = 0  # offset of its oldest message, or of the next one
    bytes: Count = 0  # data bytes published in total
    retention: Age | None = None  # age limit of its messages, its own or its project's; milliseconds


class Message(Line, tag="message"):
    """A message of the log above it."""

    offset: Count
    time: Time  # publish time
    data: str
    attributes: Mapping[str, str] = {}
    ordering_key: str = msgspec.field(name="orderingKey", default="")  # spelled as in the log


class Lost(Line, tag="lost"):
    """Messages of deleted subscriptions that retention deleted before they were acknowledged."""

    messages: Count


class Person(Line):
    """A user or an applicant."""

    name: str
    id: str | None = None
    email: str = ""
    first_name: str = ""
    last_name: str = ""
    organization: str = ""
    description: str = ""


class User(Person, tag="user"):
    """A user; without a token the import makes a new one."""

    service_roles: tuple[str, ...] = ()
    token: str = ""
    created_on: Time | None = None  # absent: the time of the import, also in the other kinds
    modified_on: Time | None = None
    created_by: str | None = None


class Day(NamedTuple):
    """Messages published on one day."""

    day: str  # `YYYY-MM-DD`, UTC
    messages: Count
    bytes: Count


class Tally(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Counts and last times of a topic (published) or a subscription (delivered)."""

    messages: Count = 0
    bytes: Count = 0
    last_messages: Count = 0  # of the last request
    last: Time | None = None
    before: Time | None = None  # time of the request before the last one


class Project(Line, tag="project"):
    """A project; its days include deleted topics."""

    name: str
    id: str | None = None
    description: str = ""
    created_on: Time | None = None
    modified_on: Time | None = None
    created_by: str | None = None
    retention: Age | None = None
    days: tuple[Day, ...] = ()
    quotas: Mapping[str, Limit] = {}
    strict_data: bool | None = None  # None: as the service


class Membership(Line, tag="membership"):
    """A user's membership in a project."""

    user: str
    project: str
    roles: tuple[str, ...] = ()


Number = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]  # of a revision


class Revision(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A revision of a schema; payload and attributes are JSON as text."""

    revision: Number
    type: Literal["json", "avro", "protobuf"]
    payload: str | None = None
    attributes: str | None = None
    created_on: Time | None = None


class Schema(Line, tag="schema"):
    """A schema with its revisions, oldest first; the last one is current."""

    project: str
    name: str
    revisions: Annotated[tuple[Revision, ...], msgspec.Meta(min_length=1)]
    id: str | None = None
    created_on: Time | None = None
    last_revision: Number | None = None  # highest number ever used, if that revision was deleted
    iam: Bindings = ()  # bindings of its IAM policy that have no effect


class Topic(Line, tag="topic"):
    """A topic; its messages are on earlier lines."""

    project: str
    name: str
    id: str | None = None  # equal to that of its log, if that has one
    retention: Age | None = None  # its own
    created_on: Time | None = None
    schema: str | None = None
    schema_encoding: Literal["", "JSON", "BINARY"] = ""  # of messages with the schema; empty: not given
    first_revision: Number | None = None  # oldest revision that messages may use; None: any
    last_revision: Number | None = None  # newest one
    authorized: tuple[str, ...] = ()
    tally: Tally | None = None
    days: tuple[Day, ...] = ()
    labels: Mapping[str, str] = {}
    iam: Bindings = ()  # bindings of its IAM policy that have no effect
    deleted_schema: Literal["", "JSON", "BINARY"] = ""  # encoding of its deleted schema


class PushSecret(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A secret for signing deliveries."""

    secret: str
    until: Time | None = None  # end of its validity; None: until it is rotated

    def __repr__(self) -> str:
        """Omit the secret."""
        return "<a push secret>"


class Subscription(Line, tag="subscription"):
    """A subscription and its cursor."""

    project: str
    name: str
    topic: str  # a name; the topic may be deleted
    ack_deadline_seconds: Annotated[int, msgspec.Meta(ge=0, le=MAX_ACK_DEADLINE)] = DEFAULT_ACK_DEADLINE
    id: str | None = None
    created_on: Time | None = None
    push: PushConfig | None = None
    push_secrets: tuple[PushSecret, ...] = ()  # oldest first
    authorized: tuple[str, ...] = ()
    offset: Count = 0  # the next message to deliver
    lost: Count = 0  # messages that retention deleted before they were acknowledged
    done: tuple[tuple[Place, Place], ...] = ()  # acknowledged ranges above `offset`, [first, end)
    tally: Tally | None = None
    parallel: ParallelOptions | None = None  # of a parallel subscription; None: an ordered one
    labels: Mapping[str, str] = {}
    iam: Bindings = ()  # bindings of its IAM policy that have no effect


class Snapshot(Line, tag="snapshot"):
    """State of a parallel subscription at one time."""

    project: str
    name: str
    topic: str
    created_on: Time
    expires_on: Time
    floor: Count = 0  # all messages before it were acknowledged
    done: tuple[tuple[Place, Place], ...] = ()  # acknowledged ranges above it, [first, end)
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
    """A named token of a user."""

    user: str
    name: str
    hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]  # SHA-256, in hex digits
    id: str | None = None
    rights: tuple[Right, ...] | None = None  # None: all of the user's
    public_key: str | None = None  # PEM; such a token has no text, and its hash matches no token
    created_on: Time | None = None
    created_by: str | None = None
    expires_on: Time | None = None  # None: never
    last_used: Time | None = None  # None: never


class Binding(Line, tag="binding"):
    """Identity at an issuer that logs in as a user."""

    user: str
    name: str
    issuer: str  # its URL; it need not be on a line
    subject: str
    by_login: bool = False  # user and binding were created at the first login
    created_on: Time | None = None
    created_by: str | None = None


class RoleRule(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Roles in a project for holders of an entitlement."""

    entitlement: str
    project: str  # a name; the project may be deleted
    roles: tuple[str, ...]


class Issuer(Line, tag="issuer"):
    """An issuer, with the fields of `ams.core.issuer`."""

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
    """The last line: number of lines of each kind, without the header."""

    counts: Mapping[str, int]


AnyLine = (
    Header | Log | Message | Lost | User | Project | Membership | Schema | Topic | Subscription | Snapshot
    | Registration | NamedToken | Binding | Issuer | End
)  # fmt: skip

_decoder: msgspec.json.Decoder[AnyLine] = msgspec.json.Decoder(AnyLine)
_encode = msgspec.json.Encoder().encode


def kind(line: Line) -> str:
    """Return the kind of a line."""
    return str(line.__struct_config__.tag)


def encode_line(line: Line) -> bytes:
    """Encode a line, with its newline."""
    return _encode(line) + b"\n"


def encoded_message(stored: Stored) -> bytes:
    """Encode the line of a stored message; equal to `encode_line`, but without parsing the message."""
    return b'{"kind":"message","offset":%d,"time":%d,%b}\n' % stored


def decode_line(data: bytes) -> AnyLine:
    """Parse a line. Raises `InvalidInput`; its text holds no values of the line."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"no JSON object: {error}") from None
