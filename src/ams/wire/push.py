"""Push delivery: its configuration (contract 13.1), its state, and the leases of processes that deliver."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from ams.wire.base import ALWAYS, CamelObject, CamelRequest, Object, Request

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # what known clients can read
MAX_STATES = 100  # states of workers (several KiB each) in one heartbeat; others wait for the next one


class AuthorizationHeaderBody(Request, frozen=True):
    """`authorizationHeader` in a body; the value is ignored."""

    type: str | None = ""  # autogen or disabled
    value: str | None = ""


class RetryPolicyBody(Request, frozen=True):
    """`retryPolicy` in a body; the period in milliseconds."""

    type: str | None = ""  # linear, slowstart or exponential
    period: Integer | None = 0


class PushConfigBody(CamelRequest, frozen=True):
    """`pushConfig` in a body (HTTP contract 13.1); the hash and `verified` are ignored, but they are not nothing."""

    type: str | None = ""  # http_endpoint or mattermost
    push_endpoint: str | None = ""
    max_messages: Integer | None = 0
    authorization_header: AuthorizationHeaderBody | None = None
    retry_policy: RetryPolicyBody | None = None
    verification_hash: str | None = ""
    verified: bool | None = None
    mattermost_url: str | None = ""
    mattermost_username: str | None = ""
    mattermost_channel: str | None = ""
    base64_decode: bool | None = None
    dead_letter_topic: str | None = ""  # a topic of the project; empty: refused messages are tried without limit
    max_delivery_attempts: Integer | None = 0  # how often; 0: 5, where there is a topic for them
    max_outstanding: Integer | None = 0  # of a parallel subscription: deliveries that may be under way at a time; 0: 10


class NewPushConfig(CamelRequest, frozen=True):
    """The body of modifyPushConfig."""

    push_config: PushConfigBody | None = None


class SecretRotation(CamelRequest, frozen=True):
    """How long the secret before stays valid, 0 to 30 days; absent is one day."""

    keep_seconds: Integer | None = None


class DeadLetter(CamelRequest, frozen=True):
    """The next message of the subscription, of a parallel one any, by the id that acknowledges it, and why it could not
    be delivered.
    """

    ack_id: str | None = None
    reason: str | None = None
    attempts: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    status: Annotated[int, msgspec.Meta(ge=0, le=999)] | None = None
    wait: Annotated[int, msgspec.Meta(ge=0, le=600_000)] | None = None  # milliseconds, where there is no retry policy


class Attempt(msgspec.Struct, frozen=True):
    """One request to the endpoint."""

    time: int  # when it began
    messages: int
    status: int  # of the answer; 0: there was none
    milliseconds: int  # how long it took
    bytes: int  # size of the body that was sent
    error: str = ""  # why it failed, on one line: `HTTP`, status and the endpoint's words; empty: it succeeded


class Failure(msgspec.Struct, frozen=True):
    """Something that went wrong."""

    time: int
    what: str  # `consume`, `send` or `acknowledge`
    detail: str  # for people, at most 300 bytes: words of the endpoint or service, or a connection's end
    status: int = 0  # of the endpoint's answer; 0: there was none


class WorkerState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the delivery of one subscription goes."""

    phase: str = "active"  # `active`, `retrying` after a failed cycle, `stopped` when the endpoint is gone (410)
    failure: Failure | None = None  # what is wrong now; an empty pull or a delivery clears it (push contract P5)
    last_failure: Failure | None = None  # what was wrong last, also when it is over
    last_success: int | None = None  # when a delivery was last acknowledged; None: never since this worker began
    next_attempt: int | None = None  # None: as soon as there is something to deliver, or never (`stopped`)
    circuit: str = "closed"  # `closed`, `open` or `half-open` (`ams.push.circuit`)
    batch: int = 1  # most messages that one delivery has now (`ams.push.retry`)
    delivered: int = 0  # messages acknowledged, since this worker began; the next ones likewise
    deliveries: int = 0  # requests that succeeded
    failed: int = 0  # requests that failed
    dead: int = 0  # messages put aside as dead letters
    undecodable: int = 0  # messages delivered as base64 although decoding was asked for: they are no text (P13)
    late: int = 0  # deliveries whose acknowledgement came too late, so that they are repeated (P15)
    outstanding: int | None = None  # deliveries of a parallel subscription that are under way; None: it is ordered
    attempts: Sequence[Attempt] = ()  # the newest, oldest of them first


class BeatBody(CamelRequest, frozen=True):
    """The heartbeat of a process that delivers; `version` is that of the targets in the last lease it got."""

    holder: str | None = None
    held: list[str] | None = None
    states: dict[str, WorkerState] | None = None
    leaving: bool | None = None
    version: str | None = None


class WaitBody(Request, frozen=True):
    """Subscriptions by their ids, and how long to wait for a message of one of them; absent is not at all."""

    subscriptions: list[str] | None = None
    seconds: int | None = None


class AuthorizationHeader(Object, frozen=True):
    """What a delivery carries in `Authorization` (contract 9.1)."""

    type: str = ""
    value: str = ""


class RetryPolicy(Object, frozen=True):
    """When a failed delivery is tried again; the period in milliseconds (contract 9.1)."""

    type: str = ""
    period: int | None = None


class PushConfig(CamelObject, frozen=True, omit_defaults=False):
    """A push configuration: all fields are always there, empty ones for a pull subscription (contract 9.1).

    What the contract does not know is there only when it is set, for clients that allow nothing else.
    """

    type: str = ""
    push_endpoint: str = ""
    max_messages: int = 0
    authorization_header: AuthorizationHeader = AuthorizationHeader()
    retry_policy: RetryPolicy = RetryPolicy()
    verification_hash: str = ""
    verified: bool = False
    mattermost_url: str = ""
    mattermost_username: str = ""
    mattermost_channel: str = ""
    base64_decode: bool = False
    dead_letter_topic: str | msgspec.UnsetType = msgspec.UNSET
    max_delivery_attempts: int | msgspec.UnsetType = msgspec.UNSET
    max_outstanding: int | msgspec.UnsetType = msgspec.UNSET


class NewSecret(CamelObject, frozen=True):
    """A secret, shown this once, and when the one before ends, if there is one."""

    secret: str  # what deliveries are signed with; `standardwebhooks` verifies with it
    previous_valid_until: str = ""


class PushAttempt(Object, frozen=True):
    """One request to the endpoint; without `status` there was no answer, without `error` it succeeded."""

    time: str
    messages: int
    milliseconds: int
    bytes: int
    status: int = 0
    error: str = ""


class PushError(Object, frozen=True):
    """What went wrong: `consume`, `send` or `acknowledge`; `detail` is for those who may see push secrets."""

    time: str
    what: str
    detail: str = ""
    status: int = 0


class PushReport(CamelObject, frozen=True, kw_only=True):
    """How a delivery goes. Counters are since its worker began; without a worker there is none of that.

    `state` is `active`, `retrying`, `stopped`, `unverified`, `inactive` or `unknown`; `error` is what is wrong now,
    `lastError` what was wrong last.
    """

    push_status: str
    state: str
    backlog: int | None = None
    circuit: str = ""
    batch: int | None = None
    last_success: str = ""
    last_error: PushError | None = None
    error: PushError | None = None
    next_attempt: str = ""
    delivered: int | None = None  # messages; the next three are of requests, and of messages
    deliveries: int | None = None
    failed: int | None = None
    dead: int | None = None
    undecodable: int | None = None
    late: int | None = None
    outstanding: int | None = None  # deliveries under way; of a parallel subscription
    attempts: Sequence[PushAttempt]  # oldest first


class OpenIdConfiguration(Object, frozen=True):
    """Where those who get deliveries find what their tokens are checked with (OpenID Connect Discovery 1.0, 3)."""

    issuer: str
    jwks_uri: str
    response_types_supported: Sequence[str]
    subject_types_supported: Sequence[str]
    id_token_signing_alg_values_supported: Sequence[str]
    claims_supported: Sequence[str]


class Jwk(Object, frozen=True):
    """A public key (RFC 7517, RFC 7518)."""

    kty: str
    use: str
    alg: str
    kid: str
    n: str
    e: str


class Jwks(Object, frozen=True):
    """The public keys that tokens are checked with."""

    keys: Sequence[Jwk]


class GooglePush(CamelObject, frozen=True):
    """How a delivery in the form of Google's Pub/Sub looks; `identityToken` is what it shows, renewed in time."""

    wrapped: bool
    write_metadata: bool
    counts_attempts: bool  # whether it says which attempt it is
    service_account: str  # empty: it shows no token
    identity_token: str


class PushTarget(CamelObject, frozen=True, kw_only=True, omit_defaults=False):
    """A subscription to deliver, with all that its deliveries carry; `secrets` are what they are signed with."""

    id: str
    name: str
    topic: str
    topic_id: str
    revision: Annotated[int, ALWAYS] = 0  # raised by each modification of the configuration
    ack_deadline_seconds: int
    push_config: PushConfig
    parallel: bool | msgspec.UnsetType = msgspec.UNSET  # messages are leased one by one; only there when they are
    google: GooglePush | msgspec.UnsetType = msgspec.UNSET  # only there for deliveries in Google's form
    secrets: Sequence[str]  # the newest first


class Lease(CamelObject, frozen=True):
    """What a process delivers until `leaseSeconds` after its request; without `targets`: those of its last lease."""

    lease_seconds: float
    beat_seconds: float
    version: str
    targets: Sequence[PushTarget] | None = None


class Ready(Object, frozen=True):
    """Which of the subscriptions have something to pull; none: nothing came."""

    ready: Sequence[str]
