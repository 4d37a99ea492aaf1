"""The table of actions of the HTTP API: each has one row, and whatever speaks of an action is made from it.

The routes (`ams.http.routing.bind_handlers`), the permissions (`ams.access.permissions`), the calls of the client
(`ams.client.wire`) and the description of the API (`ams.http.openapi`) read this table.
"""

from typing import NamedTuple

import msgspec

from ams.wire.base import Nothing, Request
from ams.wire.messages import *
from ams.wire.projects import *
from ams.wire.push import *
from ams.wire.service import *
from ams.wire.subscriptions import *
from ams.wire.users import *

OPENID_CONFIGURATION = "/.well-known/openid-configuration"
OPENID_KEYS = "/.well-known/jwks.json"

LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"

SMALL_BODY = 2**20  # bytes a body may have that holds neither messages nor ack ids
OPEN = "open"


class Action(NamedTuple):
    """What a request does, who may send it, and what goes over the wire."""

    name: str  # `RESOURCE:VERB`, as permissions, rights of tokens and events of the audit log name it
    method: str
    path: str  # below `/v1`; routes are tried in the order of the table: verbs before the plain name (contract 1.3)
    roles: str
    """Roles that may do it, as the tables in `docs/reference` write them. `OPEN`: its use case looks at the token."""
    text: str
    request: type[Request] | None = None  # what the body is; None: it is not read
    answer: type[msgspec.Struct] | None = None  # what the body of a 200 is; None: it is empty
    parameters: tuple[str, ...] = ()  # query parameters and, with a capital letter, headers
    forms: tuple[str, ...] = ("application/json",)  # media types of a 200; `answer` is the body, or a line of it
    counted: bool = False  # an open action counts for the rate of the token's user; all others do
    most: int | None = SMALL_BODY  # bytes a body may have; None: as many as a publish
    at_root: bool = False  # its path is where others look for it, and not below `/v1`
    versioned: bool = False
    """Of a GET: whether the answer has an `ETag`; of all others: whether `If-Match` names the versions they are for."""

    @property
    def is_open(self) -> bool:
        """True if no role is needed."""
        return self.roles == OPEN

    @property
    def whole_path(self) -> str:
        """The path of its URL."""
        return self.path if self.at_root else f"/v1{self.path}"


_PAGE = ("pageSize", "pageToken")  # of lists that come in pages (contract 4)
_WINDOW = ("start_date", "end_date", "projects")  # days, both included, and names joined by commas
_PROJECT = "/projects/{project}"
_MEMBERS, _MEMBER = _PROJECT + "/members", _PROJECT + "/members/{user}"
_TOPICS, _TOPIC = _PROJECT + "/topics", _PROJECT + "/topics/{topic}"
_SUBSCRIPTIONS, _SUBSCRIPTION = _PROJECT + "/subscriptions", _PROJECT + "/subscriptions/{subscription}"
_SCHEMAS, _SCHEMA = _PROJECT + "/schemas", _PROJECT + "/schemas/{schema}"
_SNAPSHOTS, _SNAPSHOT = _PROJECT + "/snapshots", _PROJECT + "/snapshots/{snapshot}"
_USER, _ISSUER, _REGISTRATION = "/users/{user}", "/issuers/{issuer}", "/registrations/{uuid}"
_TOKENS, _TOKEN = _USER + "/tokens", _USER + "/tokens/{token}"
_BINDINGS, _BINDING = _USER + "/bindings", _USER + "/bindings/{binding}"

# fmt: off
_ROWS = (
    Action("topics:publish", "POST", _TOPIC + ":publish", "SA PA PU",
        "Store messages at the end of a topic, all or none", PublishBody, Published, ("Idempotency-Key",)),
    Action("subscriptions:pull", "POST", _SUBSCRIPTION + ":pull", "SA PA CO PW",
        "Hand out messages from where the subscription stands", PullBody, Received),
    Action("subscriptions:acknowledge", "POST", _SUBSCRIPTION + ":acknowledge", "SA PA CO PW",
        "Acknowledge everything up to the largest id; of a parallel subscription, each id", AckBody, Nothing),
    Action("ams:healthStatus", "GET", "/status", "open", "Whether all is well", None, Status, ("details",)),
    Action("version:list", "GET", "/version", "open", "What runs here", None, Version),
    Action("ams:metrics", "GET", "/metrics", "SA MV AV", "Answer what the service takes of its machine", None, Metrics),
    Action("ams:vaMetrics", "GET", "/metrics/va_metrics", "SA MV AV",
        "Answer what was published and created in a window of days, by project", None, VaMetrics, _WINDOW),
    Action("users:usageReport", "GET", "/users/usageReport", "open",
        "Answer the same of the projects the caller administers", None, UsageReport, _WINDOW, counted=True),
    Action("topics:metrics", "GET", _TOPIC + ":metrics", "SA PA PU", "Answer the metrics of a topic", None, Metrics),
    Action("subscriptions:metrics", "GET", _SUBSCRIPTION + ":metrics", "SA PA CO",
        "Answer the metrics of a subscription", None, Metrics),
    Action("projects:metrics", "GET", _PROJECT + ":metrics", "SA PA", "Answer the metrics of a project", None, Metrics),
    Action("users:byToken", "GET", "/users:byToken/{token}", "SA PW", "Answer the owner of a token", None, User),
    Action("users:byUUID", "GET", "/users:byUUID/{uuid}", "SA AA", "Answer a user by identity", None, User),
    Action("users:list", "GET", "/users", "SA",
        "Answer a page of users; the project filter is checked before the page parameters", None, Users,
        (*_PAGE, "project", "details")),
    Action("users:profile", "GET", "/users/profile", "open", "Answer the caller's own user", None, User, counted=True),
    Action("users:refreshToken", "POST", _USER + ":refreshToken", "SA",
        "Give a user a new token; what the body says does not matter", None, User),
    Action("users:show", "GET", _USER, "SA", "Answer a user by name", None, User, versioned=True),
    Action("users:create", "POST", _USER, "SA", "Make a user; a name in the body is ignored, the path decides",
        UserBody, User),
    Action("users:update", "PUT", _USER, "SA", "Change what the body says about a user", UserBody, User,
        versioned=True),
    Action("users:delete", "DELETE", _USER, "SA", "Delete a user", versioned=True),
    Action("tokens:list", "GET", _TOKENS, "SA itself", "Answer the named tokens of a user, without their texts", None,
        NamedTokens),
    Action("tokens:show", "GET", _TOKEN, "SA itself", "Answer a named token, without its text", None, Token),
    Action("tokens:create", "POST", _TOKEN, "SA itself",
        "Make a named token; its text is in this answer and nowhere else, if it has one", NewToken, Token),
    Action("tokens:revoke", "DELETE", _TOKEN, "SA itself", "Remove a named token: it is dead at once"),
    Action("bindings:list", "GET", _BINDINGS, "SA itself", "Answer the bindings of a user", None, Bindings),
    Action("bindings:create", "POST", _BINDING, "SA", "Let an identity at an issuer log in as a user", BindingBody,
        Binding),
    Action("bindings:delete", "DELETE", _BINDING, "SA", "Let an identity log in no more"),
    Action("issuers:list", "GET", "/issuers", "SA", "Answer all issuers", None, Issuers),
    Action("issuers:show", "GET", _ISSUER, "SA", "Answer an issuer", None, Issuer, versioned=True),
    Action("issuers:create", "POST", _ISSUER, "SA", "Accept the tokens of another issuer", IssuerBody, Issuer),
    Action("issuers:update", "PUT", _ISSUER, "SA", "Replace what is set of an issuer", IssuerBody, Issuer,
        versioned=True),
    Action("issuers:delete", "DELETE", _ISSUER, "SA", "Refuse the tokens of an issuer from now on", versioned=True),
    Action("registrations:newUser", "POST", "/registrations", "SA RA",
        "Register an applicant who wants to become a user", ApplicantBody, Registration),
    Action("registrations:list", "GET", "/registrations", "SA", "Answer registrations, oldest first", None,
        Registrations, REGISTRATION_FILTERS),
    Action("registrations:acceptNewUser", "POST", _REGISTRATION + ":accept", "SA",
        "Make the user a registration asks for; what the body says does not matter", None, User),
    Action("registrations:declineNewUser", "POST", _REGISTRATION + ":decline", "SA",
        "Refuse a registration. It is looked for before the body is read, and only the first value of that counts",
        DeclineBody, Nothing),
    Action("registrations:show", "GET", _REGISTRATION, "SA", "Answer a registration", None, Registration),
    Action("registrations:delete", "DELETE", _REGISTRATION, "SA", "Forget a registration"),
    Action("projects:listUsers", "GET", _MEMBERS, "SA PA",
        "Answer a page of members, with their memberships if `details=true`", None, Users, (*_PAGE, "details")),
    Action("projects:addUser", "POST", _MEMBER + ":add", "SA PA",
        "Make an existing user a member. The user is looked for before the body is read", MemberRoles, User),
    Action("projects:removeUser", "POST", _MEMBER + ":remove", "SA PA",
        "End a membership; what the body says does not matter", None, Nothing, versioned=True),
    Action("projects:refreshUserToken", "POST", _MEMBER + ":refreshToken", "SA PA",
        "Give a member who is nowhere else a new token; what the body says does not matter", None, User),
    Action("projects:showUser", "GET", _MEMBER, "SA PA", "Answer a member", None, User, versioned=True),
    Action("projects:createUser", "POST", _MEMBER, "SA PA", "Make a user who is a member here", MemberBody, User),
    Action("projects:updateUser", "PUT", _MEMBER, "SA PA", "Replace a member's roles", MemberBody, User,
        versioned=True),
    Action("subscriptions:offsets", "GET", _SUBSCRIPTION + ":offsets", "SA PA CO",
        "Answer the topic's bounds and where the subscription stands between them", None, Offsets),
    Action("subscriptions:timeToOffset", "GET", _SUBSCRIPTION + ":timeToOffset", "SA PA CO",
        "Answer the first message published at `time` or later; subscription and access list come before `time`", None,
        OffsetAt, ("time",)),
    Action("subscriptions:modifyOffset", "POST", _SUBSCRIPTION + ":modifyOffset", "SA PA CO",
        "Move the subscription; an absent offset is 0", NewOffset),
    Action("subscriptions:seek", "POST", _SUBSCRIPTION + ":seek", "SA PA CO",
        "Move the subscription to a time, an offset or a snapshot, in one step; answer where it stands", Seek, Offsets),
    Action("subscriptions:doctor", "GET", _SUBSCRIPTION + ":doctor", "SA PA CO", "Answer why nothing arrives", None,
        Diagnosis),
    Action("service:doctor", "GET", "/doctor", "SA AV", "Answer what is wrong with the service", None,
        ServiceDiagnosis),
    Action("subscriptions:modifyPushConfig", "POST", _SUBSCRIPTION + ":modifyPushConfig", "SA PA",
        "Replace a push configuration; an empty one makes it a pull subscription", NewPushConfig, versioned=True),
    Action("subscriptions:verifyPushEndpoint", "POST", _SUBSCRIPTION + ":verifyPushEndpoint", "SA PA",
        "Ask the endpoint whether it wants the messages; what the body says does not matter", versioned=True),
    Action("subscriptions:rotatePushSecret", "POST", _SUBSCRIPTION + ":rotatePushSecret", "SA PA",
        "Sign deliveries with a new secret from now on; nothing else ever shows it", SecretRotation, NewSecret),
    Action("subscriptions:pushStatus", "GET", _SUBSCRIPTION + ":pushStatus", "SA PA CO PW",
        "Answer how the delivery of a subscription goes", None, PushReport),
    Action("push:configuration", "GET", OPENID_CONFIGURATION, "open",
        "Who signs the tokens of deliveries in Google's form, and where the keys are", None, OpenIdConfiguration,
        at_root=True),
    Action("push:keys", "GET", OPENID_KEYS, "open",
        "The public keys that tokens of deliveries in Google's form are checked with", None, Jwks, at_root=True),
    Action("push:lease", "POST", "/push:lease", "PW", "Answer what a process that delivers shall deliver from now on",
        BeatBody, Lease, most=8 * 2**20),
    Action("push:wait", "POST", "/push:wait", "PW", "Answer as soon as one of many subscriptions has something to pull",
        WaitBody, Ready, most=64 * 2**10),
    Action("subscriptions:deadLetter", "POST", _SUBSCRIPTION + ":deadLetter", "PW",
        "Put the next message aside into the dead letter topic, once however often asked, and acknowledge it",
        DeadLetter),
    Action("subscriptions:list", "GET", _SUBSCRIPTIONS, "SA PA CO", "Answer a page of subscriptions", None,
        Subscriptions, _PAGE),
    Action("subscriptions:acl", "GET", _SUBSCRIPTION + ":acl", "SA PA", "Answer who is on a subscription's access list",
        None, Acl, versioned=True),
    Action("subscriptions:modifyAcl", "POST", _SUBSCRIPTION + ":modifyAcl", "SA PA",
        "Replace a subscription's access list", NewAccessList, versioned=True),
    Action("subscriptions:changeAcl", "POST", _SUBSCRIPTION + ":changeAcl", "SA PA",
        "Add users to a subscription's access list and remove others; answer the list", AccessListChange, Acl,
        versioned=True),
    Action("subscriptions:modifyAckDeadline", "POST", _SUBSCRIPTION + ":modifyAckDeadline", "SA PA CO",
        "Change the acknowledgement deadline; an absent one is 0. With ids: the end of their leases", AckDeadline,
        most=None, versioned=True),
    Action("subscriptions:update", "POST", _SUBSCRIPTION + ":update", "SA PA",
        "Change options of a parallel subscription; answer it as it is then", SubscriptionChanges, Subscription,
        versioned=True),
    Action("subscriptions:detach", "POST", _SUBSCRIPTION + ":detach", "SA PA",
        "Let a parallel subscription get nothing any more, for good", versioned=True),
    Action("subscriptions:nack", "POST", _SUBSCRIPTION + ":nack", "SA PA CO PW",
        "Give messages of a parallel subscription back", Nack, most=None),
    Action("subscriptions:extendLeases", "POST", _SUBSCRIPTION + ":extendLeases", "PW",
        "Let leases of a parallel subscription go on, for a worker that delivers", AckDeadline, most=None),
    Action("subscriptions:show", "GET", _SUBSCRIPTION, "SA PA CO PW",
        "Answer a subscription; here alone with the state of its delivery, which its version is not of", None,
        Subscription, versioned=True),
    Action("subscriptions:create", "PUT", _SUBSCRIPTION, "SA PA", "Make a subscription at the present end of its topic",
        NewSubscription, Subscription),
    Action("subscriptions:delete", "DELETE", _SUBSCRIPTION, "SA PA",
        "Delete a subscription; one that was delivered answers what becomes of that", versioned=True),
    Action("snapshots:list", "GET", _SNAPSHOTS, "SA PA CO", "Answer a page of snapshots", None, Snapshots, _PAGE),
    Action("snapshots:show", "GET", _SNAPSHOT, "SA PA CO",
        "Answer a snapshot; here alone with what retention has taken of it", None, Snapshot),
    Action("snapshots:create", "PUT", _SNAPSHOT, "SA PA", "Remember where a parallel subscription stands", NewSnapshot,
        Snapshot),
    Action("snapshots:delete", "DELETE", _SNAPSHOT, "SA PA", "Delete a snapshot"),
    Action("topics:offsets", "GET", _TOPIC + ":offsets", "SA PA CO", "Answer the bounds of a topic", None, TopicOffsets,
        ("subscription",)),
    Action("topics:timeToOffset", "GET", _TOPIC + ":timeToOffset", "SA PA CO",
        "Answer where a read of what was published at `time` or later begins", None, OffsetAt,
        ("time", "subscription")),
    Action("topics:read", "GET", _TOPIC + ":read", "SA PA CO", "Answer the messages of a range, a piece at a time",
        None, ReadMessage, ("from", "to", "max", "subscription"), forms=(LINES, ARROW)),
    Action("projects:watch", "GET", _PROJECT + ":watch", "SA PA PU CO",
        "Answer counts of topics and subscriptions as they change, and messages as they are published, as events", None,
        Counts, ("topics", "subscriptions", "tail", "filter"), forms=(EVENTS,)),
    Action("projects:history", "GET", _PROJECT + ":history", "SA PA PU CO",
        "Answer what was published, delivered and waiting in the last hour or day, by interval", None, History,
        ("topics", "subscriptions", "span")),
    Action("topics:modifyRetention", "POST", _TOPIC + ":modifyRetention", "SA PA",
        "Change how long a topic's messages are kept; answer the topic", NewRetention, Topic, versioned=True),
    Action("projects:modifyRetention", "POST", _PROJECT + ":modifyRetention", "SA PA",
        "Change how long messages are kept in topics without a time of their own; answer the project", NewRetention,
        Project, versioned=True),
    Action("schemas:validateMessage", "POST", _SCHEMA + ":validate", "SA PA",
        "Ask whether one message would be allowed", CandidateBody, Validated, most=None),
    Action("schemas:dryRun", "POST", _SCHEMA + ":dryRun", "SA PA",
        "Ask which messages of a topic would not have been allowed", DryRunBody, DryRun),
    Action("schemas:revisions", "GET", _SCHEMA + ":revisions", "SA PA",
        "Answer all that a schema has said, the newest first", None, Revisions),
    Action("schemas:create", "POST", _SCHEMA, "SA PA", "Make a schema", SchemaBody, Schema),
    Action("schemas:show", "GET", _SCHEMA, "SA PA", "Answer a schema", None, Schema, versioned=True),
    Action("schemas:list", "GET", _SCHEMAS, "SA PA", "Answer all schemas, oldest first", None, Schemas),
    Action("schemas:update", "PUT", _SCHEMA, "SA PA", "Rename or change a schema", SchemaBody, Schema, versioned=True),
    Action("schemas:delete", "DELETE", _SCHEMA, "SA PA", "Delete a schema and detach it from its topics",
        versioned=True),
    Action("topics:list", "GET", _TOPICS, "SA PA PU", "Answer a page of topics", None, Topics, _PAGE),
    Action("subscriptions:listByTopic", "GET", _TOPIC + "/subscriptions", "SA PA",
        "Answer the resource names of a topic's subscriptions, oldest first", None, SubscriptionNames),
    Action("topics:acl", "GET", _TOPIC + ":acl", "SA PA", "Answer who is on a topic's access list", None, Acl,
        versioned=True),
    Action("topics:modifyAcl", "POST", _TOPIC + ":modifyAcl", "SA PA", "Replace a topic's access list", NewAccessList,
        versioned=True),
    Action("topics:changeAcl", "POST", _TOPIC + ":changeAcl", "SA PA",
        "Add users to a topic's access list and remove others; answer the list", AccessListChange, Acl, versioned=True),
    Action("topics:attachSchema", "POST", _TOPIC + ":attachSchema", "SA PA",
        "Attach a schema; a body that names none detaches", SchemaReference, versioned=True),
    Action("topics:detachSchema", "POST", _TOPIC + ":detachSchema", "SA PA", "Detach the schema; the body is not read",
        versioned=True),
    Action("topics:show", "GET", _TOPIC, "SA PA PU", "Answer a topic", None, Topic, versioned=True),
    Action("topics:create", "PUT", _TOPIC, "SA PA", "Make a topic; the body may be empty", SchemaReference, Topic),
    Action("topics:delete", "DELETE", _TOPIC, "SA PA", "Delete a topic and its messages", versioned=True),
    Action("projects:quotas", "GET", _PROJECT + ":quotas", "SA PA", "Answer the quotas of a project, and what it uses",
        None, ProjectQuotas),
    Action("projects:modifyQuotas", "POST", _PROJECT + ":modifyQuotas", "SA", "Change quotas of a project",
        QuotaChanges, ProjectQuotas, versioned=True),
    Action("projects:list", "GET", "/projects", "SA", "Answer all projects, oldest first", None, Projects),
    Action("projects:show", "GET", _PROJECT, "SA PA", "Answer a project", None, Project, versioned=True),
    Action("projects:create", "POST", _PROJECT, "SA", "Make a project; a body is required, `{}` is enough", NewProject,
        Project),
    Action("projects:update", "PUT", _PROJECT, "SA PA", "Rename or describe a project", ProjectChange, Project,
        versioned=True),
    Action("projects:delete", "DELETE", _PROJECT, "SA PA", "Delete a project with all it owns", versioned=True),
    Action("audit:list", "GET", "/audit", "SA", "Answer who did which change, newest first", None, Lines,
        (*EVENT_FILTERS, *_PAGE)),
)
# fmt: on
ACTIONS = {each.name: each for each in _ROWS}
"""All actions by name, in the order of the routes and of the description of the API."""
HOT = ("topics:publish", "subscriptions:pull", "subscriptions:acknowledge")
"""Actions that `ams.http.hot_routes` answers; a method of a class in `ams.http.routes` answers each other one."""
UNRECORDED = frozenset({"schemas:validateMessage", "schemas:dryRun", "push:lease", "push:wait", "subscriptions:nack"})
"""Actions that are asked for by POST and change nothing that people would want to know of.

`Call.leave_unrecorded` of `ams.http` says so of single requests.
"""
RECORDED = frozenset(name for name, each in ACTIONS.items() if each.method != "GET") - UNRECORDED.union(HOT)
"""Actions of which the audit log may have events."""
_RESOURCES = frozenset({"topic", "subscription", "snapshot", "schema"})
_CREATIONS = frozenset({"topics:create", "subscriptions:create", "snapshots:create", "schemas:create"})


def takes_google_names(action: str, variable: str) -> bool:
    """Return whether a name may be one that only Google's clients give: not while it is created (contract 2)."""
    return variable in _RESOURCES and action not in _CREATIONS
