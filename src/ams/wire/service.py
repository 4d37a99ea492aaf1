"""What the service says of itself and of what it carries: status, diagnoses, metrics, usage (contract 14), events."""

from collections.abc import Sequence

import msgspec

from ams.wire.base import CamelObject, Object, Text


class PushServer(Object, frozen=True):
    """A push server and how it is: SERVING, NOT_SERVING, UNKNOWN, or what went wrong."""

    endpoint: str
    status: str


class Status(Object, frozen=True):
    """How the service is (contract 14.5)."""

    status: str
    push_servers: list[PushServer] | None = None
    push_functionality: str = ""


class Version(Object, frozen=True):
    """What runs here (contract 14.6); the release only for those who may see it."""

    build_time: str
    golang: str  # the runtime's version, where the reference has that of Go
    compiler: str
    os: str
    architecture: str
    release: str = ""
    distro: str = ""
    hostname: str = ""


class Finding(Object, frozen=True):
    """One line of a diagnosis; `wrong` when an operator has to act."""

    wrong: bool
    text: str


class Standing(CamelObject, frozen=True):
    """Where a subscription stands on its topic. What is left out never happened, or before the service started."""

    min: int
    max: int
    current: int
    backlog: int
    handed_out: int
    lost: int
    retention_seconds: float
    handed_out_seconds_ago: float | None = None
    last_pull_seconds_ago: float | None = None
    last_acknowledgement_seconds_ago: float | None = None
    last_publish_seconds_ago: float | None = None
    oldest_waiting_seconds: float | None = None
    acknowledged: int | None = None  # above `current`, of a parallel subscription
    leased: int | None = None  # of one that is used; what follows likewise
    waiting: int | None = None
    blocked: int | None = None
    failed: int | None = None  # messages that are not acknowledged and failed at least once


class Diagnosis(CamelObject, frozen=True):
    """What is known of a subscription, and what it means. Without its topic there is no `standing`."""

    subscription: str
    topic: str
    ack_deadline_seconds: int
    push: bool
    push_verified: bool
    healthy: bool
    findings: Sequence[Finding]
    standing: Standing | None = None


class ServiceNode(Object, frozen=True):
    """A node of several that share an installation, which said in the last seconds that it lives."""

    url: str = ""  # how other nodes reach it; left out: it does not say
    here: bool = False  # whether it is the one that answers


class ServiceDiagnosis(Object, frozen=True):
    """What is known of the service as a whole; `healthy` when none of the findings is `wrong`."""

    healthy: bool
    findings: Sequence[Finding]
    nodes: Sequence[ServiceNode] = ()  # left out where the service is one process


class Point(Object, frozen=True):
    """A value of a metric, and the moment or day it is of."""

    timestamp: str
    value: int | float


class Metric(Object, frozen=True, kw_only=True, omit_defaults=False):
    """A metric of one resource (contract 14)."""

    metric: str
    metric_type: str  # `counter`, `rate`, `percentage` or `gauge`
    value_type: str
    resource_type: str
    resource_name: str
    timeseries: Sequence[Point]
    description: Text = ""


class Metrics(Object, frozen=True):
    """Metrics, in the order of the contract."""

    metrics: Sequence[Metric]


class ProjectUsage(Object, frozen=True):
    """What was published and created in one project in the window (contract 14.4)."""

    project: str
    message_count: int
    average_daily_messages: float
    topics_count: int
    subscriptions_count: int
    users_count: int


class ProjectsUsage(Object, frozen=True):
    """What was published in the window, project by project; the average is the sum of theirs."""

    projects: Sequence[ProjectUsage]
    total_message_count: int
    average_daily_messages: float


class VaMetrics(Object, frozen=True):
    """What was published and created in the window (contract 14.4)."""

    projects_metrics: ProjectsUsage
    total_users_count: int
    total_topics_count: int
    total_subscriptions_count: int


class UsageReport(Object, frozen=True):
    """The usage of the projects the caller administers, and how the node is (contract 14.4)."""

    va_metrics: VaMetrics
    operational_metrics: Metrics


EVENT_FILTERS = ("since", "until", "actor", "action", "address", "result")
"""Query parameters that say which events of the audit log are wanted."""


class Line(Object, frozen=True, kw_only=True):
    """An event of the audit log, as JSON."""

    time: str  # RFC 3339, UTC
    id: str  # UUID, the same in the file and the table
    service: str  # `ams` or `authn`
    action: str  # of the table of permissions, or of the certificate service (`bindings:update`)
    resource: str  # path below `/v1`, never with a token
    actor: str  # name of user or key, or normal form of a certificate's subject; empty: unknown
    address: str  # of the client, or IP:PORT of a trusted proxy's connection for one client
    code: int  # HTTP status
    result: str
    reason: str = ""  # error text; if done, how the actor logged in, unless with its own token
    request: str = ""
    times: int = 1  # requests that this event stands for: repeated refusals in a minute are aggregated


class Lines(Object, frozen=True, omit_defaults=False):
    """Events, newest first."""

    events: Sequence[Line]
    next_page_token: Text = msgspec.field(name="nextPageToken", default="")


class TopicCounts(CamelObject, frozen=True):
    """All that was published to a topic, ever."""

    messages: int
    bytes: int


class SubscriptionCounts(CamelObject, frozen=True):
    """Where a subscription stands; nothing but 0 without its topic."""

    current: int  # the oldest kept message that is not acknowledged, or the end
    end: int
    lag: int  # messages that are kept and not acknowledged
    oldest_unacked_seconds: int | None = None  # since the oldest of these was published
    outstanding: int | None = None  # on lease, of a parallel subscription that the node works on
    push: str | None = None  # how its delivery goes, as `state` of a push status; of a pull subscription it is left out


class Counts(CamelObject, frozen=True):
    """What a live view shows, by name."""

    time: str
    topics: dict[str, TopicCounts]
    subscriptions: dict[str, SubscriptionCounts]


class ViewSkipped(CamelObject, frozen=True):
    """Messages of a tail that came too fast to be shown."""

    messages: int


class ViewEnd(CamelObject, frozen=True):
    """Why a live view ended, and with which status the same request would be answered now."""

    reason: str
    code: int


class TopicHistory(CamelObject, frozen=True):
    """Of a topic, by interval."""

    published: list[int | None]
    published_bytes: list[int | None]


class ProjectHistory(TopicHistory, frozen=True):
    """Of all topics and subscriptions of a project, by interval; null where nothing was measured."""

    delivered: list[int | None]  # handed out, repeats included
    lag: list[int | None]  # at the end of the interval


class SubscriptionHistory(CamelObject, frozen=True):
    """Of a subscription, by interval; `lag` and the age are those at its end."""

    delivered: list[int | None]
    lag: list[int | None]
    oldest_unacked_seconds: list[int | None]  # null as well where nothing waited


class History(CamelObject, frozen=True):
    """What was measured in the last hour or day, oldest interval first; `project` is for its administrators."""

    interval: int  # seconds
    start: str
    end: str
    topics: dict[str, TopicHistory]
    subscriptions: dict[str, SubscriptionHistory]
    project: ProjectHistory | None = None
