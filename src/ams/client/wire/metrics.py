"""Calls about metrics and usage (contract 14.1 to 14.4)."""

from collections.abc import Sequence

from ams.client.wire.call import Call, projects_path, reader, subscriptions_path, topics_path
from ams.client.wire.reports import Metrics, UsageReport, VaMetrics

_metrics = reader(Metrics)
_va_metrics = reader(VaMetrics)
_usage_report = reader(UsageReport)


def get_service_metrics() -> Call[Metrics]:
    """Ask what the service takes of its machine."""
    return Call("GET", "/v1/metrics", _metrics)


def get_project_metrics(project: str) -> Call[Metrics]:
    """Ask for the metrics of a project."""
    return Call("GET", projects_path(project, "metrics"), _metrics)


def get_topic_metrics(project: str, topic: str) -> Call[Metrics]:
    """Ask for the metrics of a topic."""
    return Call("GET", topics_path(project, topic, "metrics"), _metrics)


def get_subscription_metrics(project: str, subscription: str) -> Call[Metrics]:
    """Ask for the metrics of a subscription."""
    return Call("GET", subscriptions_path(project, subscription, "metrics"), _metrics)


def get_va_metrics(*, start: str = "", end: str = "", projects: Sequence[str] = ()) -> Call[VaMetrics]:
    """Ask what was published and created from day `start` to `end` (`YYYY-MM-DD`, both included) in projects.

    What is left out is 1970-01-01, today, all projects.
    """
    return Call("GET", "/v1/metrics/va_metrics", _va_metrics, query=_window(start, end, projects))


def get_usage_report(*, start: str = "", end: str = "", projects: Sequence[str] = ()) -> Call[UsageReport]:
    """Ask for the same of the projects the caller administers."""
    return Call("GET", "/v1/users/usageReport", _usage_report, query=_window(start, end, projects))


def _window(start: str, end: str, projects: Sequence[str]) -> dict[str, str]:
    asked = {"start_date": start, "end_date": end, "projects": ",".join(projects)}
    return {name: value for name, value in asked.items() if value}
