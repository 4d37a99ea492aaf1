"""`ams metrics`: counters of projects, topics and subscriptions, and what projects were used for."""

from typing import Annotated

from ams.cli.arguments import SubscriptionName, TopicName, option
from ams.cli.command import Group, Session
from ams.cli.completing import project_names
from ams.cli.output import columns
from ams.client import wire
from ams.client.wire import Call

app = Group()

Start = Annotated[str, option("First day, YYYY-MM-DD; default 1970-01-01.", "--from", metavar="DAY")]
End = Annotated[str, option("Last day, YYYY-MM-DD, included; default today.", "--to", metavar="DAY")]
Only = Annotated[
    list[str] | None, option("Only this project; repeatable.", "--only", metavar="PROJECT", complete=project_names)
]


def _table(found: wire.Metrics) -> str:
    rows = [
        (each.metric, each.resource_name, point.timestamp, _number(point.value))
        for each in found.metrics
        for point in each.timeseries
    ]
    return columns(("METRIC", "OF", "TIME", "VALUE"), rows)


def _usage(found: wire.VaMetrics) -> str:
    of_projects = found.projects_metrics
    rows = [
        (
            each.project,
            str(each.message_count),
            _number(each.average_daily_messages),
            str(each.topics_count),
            str(each.subscriptions_count),
            str(each.users_count),
        )
        for each in of_projects.projects
    ]
    total = (
        "(all)",
        str(of_projects.total_message_count),
        _number(of_projects.average_daily_messages),
        str(found.total_topics_count),
        str(found.total_subscriptions_count),
        str(found.total_users_count),
    )
    return columns(("PROJECT", "MESSAGES", "PER DAY", "TOPICS", "SUBSCRIPTIONS", "USERS"), [*rows, total])


def _report(found: wire.UsageReport) -> str:
    return _usage(found.va_metrics)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"


@app.shows(_table)
def service(session: Session) -> Call[wire.Metrics]:
    """Show what the service takes of its machine."""
    return wire.get_service_metrics()


@app.shows(_table)
def project(session: Session) -> Call[wire.Metrics]:
    """Show the metrics of the project."""
    return wire.get_project_metrics(session.project)


@app.shows(_table)
def topic(session: Session, topic: TopicName) -> Call[wire.Metrics]:
    """Show the metrics of a topic."""
    return wire.get_topic_metrics(session.project, topic)


@app.shows(_table)
def subscription(session: Session, subscription: SubscriptionName) -> Call[wire.Metrics]:
    """Show the metrics of a subscription."""
    return wire.get_subscription_metrics(session.project, subscription)


@app.shows(_usage)
def va(session: Session, start: Start = "", end: End = "", only: Only = None) -> Call[wire.VaMetrics]:
    """Show what was published and created in a window of days, by project; for admins and viewers."""
    return wire.get_va_metrics(start=start, end=end, projects=only or ())


@app.shows(_report)
def usage(session: Session, start: Start = "", end: End = "", only: Only = None) -> Call[wire.UsageReport]:
    """Show the same of the projects you administer."""
    return wire.get_usage_report(start=start, end=end, projects=only or ())
