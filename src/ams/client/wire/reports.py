"""What the service tells about itself and what it carries: diagnoses, metrics and usage, as values."""

from ams.client.wire.values import CamelObject, Object


class Finding(Object, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that explains the state of a subscription; `wrong` when somebody should do something about it."""

    wrong: bool
    text: str


class Standing(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """Where a subscription stands; spans in seconds, None for what the service does not know."""

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


class Diagnosis(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """What the service knows of a subscription, and what it means; no `standing` without the topic."""

    subscription: str
    topic: str
    ack_deadline_seconds: int
    push: bool
    push_verified: bool
    healthy: bool
    findings: list[Finding]
    standing: Standing | None = None


class ServiceDiagnosis(Object, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong with the service as a whole, if anything."""

    healthy: bool
    findings: list[Finding]


class Point(Object, frozen=True, kw_only=True, omit_defaults=True):
    """A value of a metric, and the moment (UTC) or day it is of."""

    timestamp: str
    value: int | float


class Metric(Object, frozen=True, kw_only=True, omit_defaults=True):
    """A metric of one resource (contract 14)."""

    metric: str
    metric_type: str
    """`counter`, `rate` or `percentage`."""
    value_type: str
    resource_type: str
    resource_name: str
    timeseries: list[Point]
    description: str = ""


class Metrics(Object, frozen=True, kw_only=True, omit_defaults=True):
    """Metrics, in the order of the contract."""

    metrics: list[Metric]


class ProjectUsage(Object, frozen=True, kw_only=True, omit_defaults=True):
    """What was published and created in one project in a window of days (contract 14.4)."""

    project: str
    message_count: int
    average_daily_messages: float
    topics_count: int
    subscriptions_count: int
    users_count: int


class ProjectsUsage(Object, frozen=True, kw_only=True, omit_defaults=True):
    """What was published in a window, project by project."""

    projects: list[ProjectUsage]
    total_message_count: int
    average_daily_messages: float


class VaMetrics(Object, frozen=True, kw_only=True, omit_defaults=True):
    """What was published and created in a window (contract 14.4)."""

    projects_metrics: ProjectsUsage
    total_users_count: int
    total_topics_count: int
    total_subscriptions_count: int


class UsageReport(Object, frozen=True, kw_only=True, omit_defaults=True):
    """The usage of the projects a user administers, and how the node is (contract 14.4)."""

    va_metrics: VaMetrics
    operational_metrics: Metrics
