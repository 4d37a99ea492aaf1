"""Calls about the service: status, version, metrics and usage (contract 14), and ours: the doctor and the audit log."""

from collections.abc import Sequence

from ams.client.wire.call import Call, Json, page, projects_path, reader, subscriptions_path, topics_path
from ams.wire.service import Lines, Metrics, ServiceDiagnosis, UsageReport, VaMetrics


def get_status(*, details: bool = False) -> Call[Json]:
    """Ask how the service is; `details` needs a service_admin's or admin_viewer's token."""
    return Call("GET", "/v1/status", reader(Json), query={"details": "true"} if details else {})


def get_console() -> Call[Json]:
    """Ask how the console of the service is set up; `NotFound` where it has none."""
    return Call("GET", "/console/config.json", reader(Json))


def get_version() -> Call[Json]:
    """Ask what the service runs on; the release is shown to service_admin and admin_viewer only."""
    return Call("GET", "/v1/version", reader(Json))


def diagnose_service() -> Call[ServiceDiagnosis]:
    """Ask what is wrong with the service; answered to service_admin and admin_viewer only."""
    return Call("GET", "/v1/doctor", reader(ServiceDiagnosis))


def get_service_metrics() -> Call[Metrics]:
    """Ask what the service takes of its machine."""
    return Call("GET", "/v1/metrics", reader(Metrics))


def get_project_metrics(project: str) -> Call[Metrics]:
    """Ask for the metrics of a project."""
    return Call("GET", projects_path(project, "metrics"), reader(Metrics))


def get_topic_metrics(project: str, topic: str) -> Call[Metrics]:
    """Ask for the metrics of a topic."""
    return Call("GET", topics_path(project, topic, "metrics"), reader(Metrics))


def get_subscription_metrics(project: str, subscription: str) -> Call[Metrics]:
    """Ask for the metrics of a subscription."""
    return Call("GET", subscriptions_path(project, subscription, "metrics"), reader(Metrics))


def get_va_metrics(*, start: str = "", end: str = "", projects: Sequence[str] = ()) -> Call[VaMetrics]:
    """Ask what was published and created from day `start` to `end` (`YYYY-MM-DD`, both included) in projects.

    What is left out is 1970-01-01, today, all projects.
    """
    return Call("GET", "/v1/metrics/va_metrics", reader(VaMetrics), query=_window(start, end, projects))


def get_usage_report(*, start: str = "", end: str = "", projects: Sequence[str] = ()) -> Call[UsageReport]:
    """Ask for the same of the projects the caller administers."""
    return Call("GET", "/v1/users/usageReport", reader(UsageReport), query=_window(start, end, projects))


def _window(start: str, end: str, projects: Sequence[str]) -> dict[str, str]:
    asked = {"start_date": start, "end_date": end, "projects": ",".join(projects)}
    return {name: value for name, value in asked.items() if value}


def list_events(
    *,
    since: str = "",
    until: str = "",
    actor: str = "",
    action: str = "",
    address: str = "",
    result: str = "",
    page_size: int = 0,
    page_token: str = "",
) -> Call[Lines]:
    """Ask for events, newest first: those that have all that is given; `action` is what theirs begins with.

    A page has at most 1000 of them, and 100 without a size.
    """
    filters = {"since": since, "until": until, "actor": actor, "action": action, "address": address, "result": result}
    query = {name: value for name, value in filters.items() if value}
    return Call("GET", "/v1/audit", reader(Lines), query=query | page(page_size, page_token))
