"""Metrics over HTTP (contract 14.1 to 14.4)."""

from collections.abc import Sequence

import msgspec

from ams.http.routes import answers
from ams.http.routing import Call, Row
from ams.service import metrics

WINDOW = ("start_date", "end_date", "projects")
"""Query parameters of reports: days `YYYY-MM-DD`, both included, and project names separated by commas."""


class Point(msgspec.Struct):
    """A value of a metric, and the moment or day it is of."""

    timestamp: str
    value: int | float


class Metric(msgspec.Struct):
    """A metric of one resource (contract 14)."""

    metric: str
    metric_type: str
    value_type: str
    resource_type: str
    resource_name: str
    timeseries: Sequence[Point]
    description: str


class Metrics(msgspec.Struct):
    """Metrics, in the order of the contract."""

    metrics: Sequence[Metric]


class ProjectUsage(msgspec.Struct):
    """What was published and created in one project in the window (contract 14.4)."""

    project: str
    message_count: int
    average_daily_messages: float
    topics_count: int
    subscriptions_count: int
    users_count: int


class ProjectsUsage(msgspec.Struct):
    """What was published in the window, project by project; the average is the sum of theirs."""

    projects: Sequence[ProjectUsage]
    total_message_count: int
    average_daily_messages: float


class VaMetrics(msgspec.Struct):
    """What was published and created in the window (contract 14.4)."""

    projects_metrics: ProjectsUsage
    total_users_count: int
    total_topics_count: int
    total_subscriptions_count: int


class UsageReport(msgspec.Struct):
    """The usage of the projects the caller administers, and how the node is (contract 14.4)."""

    va_metrics: VaMetrics
    operational_metrics: Metrics


class MetricsRoutes:
    """The routes of metrics."""

    def __init__(self, told: metrics.Metrics, usage: metrics.Usage) -> None:
        self._metrics = told
        self._usage = usage

    def rows(self) -> list[Row]:
        """Return the rows of the route table; `/users/usageReport` comes before `/users/{user}` (contract 1.3)."""
        project = "/projects/{project}"
        subscription = project + "/subscriptions/{subscription}:metrics"
        return [
            Row("GET", "/metrics", "ams:metrics", self.node, answers=Metrics),
            Row("GET", "/metrics/va_metrics", "ams:vaMetrics", self.va_metrics, None, VaMetrics, WINDOW),
            Row("GET", "/users/usageReport", None, self.usage_report, None, UsageReport, WINDOW, counted=True),
            Row("GET", project + "/topics/{topic}:metrics", "topics:metrics", self.topic, answers=Metrics),
            Row("GET", subscription, "subscriptions:metrics", self.subscription, answers=Metrics),
            Row("GET", project + ":metrics", "projects:metrics", self.project, answers=Metrics),
        ]

    async def node(self, _call: Call) -> bytes:
        """Answer what the service takes of its machine."""
        return answers.encode(_metrics(await self._metrics.node()))

    async def project(self, call: Call) -> bytes:
        """Answer the metrics of a project."""
        return answers.encode(_metrics(await self._metrics.project(call.caller)))

    async def topic(self, call: Call) -> bytes:
        """Answer the metrics of a topic."""
        return answers.encode(_metrics(await self._metrics.topic(call.caller, call.topic)))

    async def subscription(self, call: Call) -> bytes:
        """Answer the metrics of a subscription."""
        return answers.encode(_metrics(await self._metrics.subscription(call.caller, call.subscription)))

    async def va_metrics(self, call: Call) -> bytes:
        """Answer what was published and created in a window of days, by project."""
        return answers.encode(_va_metrics(await self._usage.va_metrics(*_window(call))))

    async def usage_report(self, call: Call) -> bytes:
        """Answer the same of the projects the caller administers."""
        report = await self._usage.report(call.token, *_window(call))
        return answers.encode(UsageReport(_va_metrics(report.projects), _metrics(report.operational)))


def _window(call: Call) -> tuple[str, str, str]:
    start, end, projects = (call.parameter(name) or "" for name in WINDOW)
    return start, end, projects


def _metrics(found: Sequence[metrics.Metric]) -> Metrics:
    return Metrics([_metric(each) for each in found])


def _metric(metric: metrics.Metric) -> Metric:
    return Metric(
        metric=f"{metric.resource}.{metric.name}",
        metric_type=metric.kind,
        value_type="int64" if metric.kind == metrics.COUNTER else "float64",
        resource_type=metric.resource,
        resource_name=metric.resource_name,
        timeseries=[Point(*point) for point in metric.points],
        description=metric.description,
    )


def _va_metrics(found: Sequence[metrics.ProjectUsage]) -> VaMetrics:
    return VaMetrics(
        ProjectsUsage(
            [_usage(each) for each in found],
            sum(each.activity.messages for each in found),
            metrics.total_average(found),
        ),
        total_users_count=sum(each.activity.users for each in found),
        total_topics_count=sum(each.activity.topics for each in found),
        total_subscriptions_count=sum(each.activity.subscriptions for each in found),
    )


def _usage(used: metrics.ProjectUsage) -> ProjectUsage:
    return ProjectUsage(
        project=used.project,
        message_count=used.activity.messages,
        average_daily_messages=used.average,
        topics_count=used.activity.topics,
        subscriptions_count=used.activity.subscriptions,
        users_count=used.activity.users,
    )
