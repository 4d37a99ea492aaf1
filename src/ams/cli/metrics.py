"""`ams metrics`: counters of projects, topics and subscriptions, and what projects were used for."""

from typing import Annotated

import typer

from ams.cli.arguments import SubscriptionName, TopicName
from ams.cli.command import Session, with_session
from ams.cli.completing import project_names
from ams.cli.output import columns
from ams.client import wire

app = typer.Typer(help="Counters of projects, topics and subscriptions, and usage.", no_args_is_help=True)

Start = Annotated[str, typer.Option("--from", metavar="DAY", help="First day, YYYY-MM-DD; default 1970-01-01.")]
End = Annotated[str, typer.Option("--to", metavar="DAY", help="Last day, YYYY-MM-DD, included; default today.")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="PROJECT", help="Only this project; repeatable.", autocompletion=project_names),
]


@app.command()
@with_session
def service(session: Session) -> None:
    """Show what the service takes of its machine."""
    _show(session, session.call(wire.get_service_metrics()))


@app.command()
@with_session
def project(session: Session) -> None:
    """Show the metrics of the project."""
    _show(session, session.call(wire.get_project_metrics(session.project)))


@app.command()
@with_session
def topic(session: Session, topic: TopicName) -> None:
    """Show the metrics of a topic."""
    _show(session, session.call(wire.get_topic_metrics(session.project, topic)))


@app.command()
@with_session
def subscription(session: Session, subscription: SubscriptionName) -> None:
    """Show the metrics of a subscription."""
    _show(session, session.call(wire.get_subscription_metrics(session.project, subscription)))


@app.command()
@with_session
def va(session: Session, start: Start = "", end: End = "", only: Only = None) -> None:
    """Show what was published and created in a window of days, by project; for admins and viewers."""
    found = session.call(wire.get_va_metrics(start=start, end=end, projects=only or ()))
    session.show(found, _usage(found))


@app.command()
@with_session
def usage(session: Session, start: Start = "", end: End = "", only: Only = None) -> None:
    """Show the same of the projects you administer."""
    found = session.call(wire.get_usage_report(start=start, end=end, projects=only or ()))
    session.show(found, _usage(found.va_metrics))


def _show(session: Session, found: wire.Metrics) -> None:
    rows = [
        (each.metric, each.resource_name, point.timestamp, _number(point.value))
        for each in found.metrics
        for point in each.timeseries
    ]
    session.show(found, columns(("METRIC", "OF", "TIME", "VALUE"), rows))


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


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"
