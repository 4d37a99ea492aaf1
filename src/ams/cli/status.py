"""`ams status`, `version`, `doctor` and `metrics`: how the service is, why nothing arrives, counters and usage."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ams import __version__
from ams.cli.arguments import SUBSCRIPTION, TOPIC, Texts, argument, option, project_names, subscription_names
from ams.cli.command import CommandGroup, Session, with_options
from ams.cli.output import columns, fields, json_line, printable, short_name
from ams.client import wire
from ams.client.errors import NotAllowed, NotAuthenticated, NotFound
from ams.client.wire import Call
from ams.core.clock import Milliseconds, span_text
from ams.core.settings import duration_text

metrics = CommandGroup(of_project=True)

Details = Annotated[bool, option("Everything; for admins and viewers.", "--details")]
Start = Annotated[str, option("First day, YYYY-MM-DD; default 1970-01-01.", "--from", metavar="DAY")]
End = Annotated[str, option("Last day, YYYY-MM-DD, included; default today.", "--to", metavar="DAY")]
Only = Annotated[Texts, option("Only this project; repeatable.", metavar="PROJECT", complete=project_names)]
Subscription = Annotated[str | None, argument("[SUB]", "Name of the subscription.", subscription_names)]


@with_options
def status(session: Session, details: Details = False) -> None:
    """Show how the service is."""
    found = session.call(wire.get_status(details=details))
    session.show(found, _texts(found))


@with_options
def version(session: Session) -> None:
    """Show the versions of this program and of the service."""
    found = session.call(wire.get_version())
    session.show({"client": __version__, "service": found}, {"client": __version__} | _texts(found))


def _texts(found: dict[str, Any]) -> dict[str, str]:
    return {name.replace("_", " "): each if isinstance(each, str) else json_line(each) for name, each in found.items()}


@with_options
def doctor(session: Session, subscription: Subscription = None) -> None:
    """Say why nothing arrives at a subscription; without one, check endpoint, token and project, then the service.

    What is wrong with the service is for service_admin and admin_viewer only; others see the connection only. Ends
    with 1 when something is wrong.
    """
    found: wire.Diagnosis | wire.ServiceDiagnosis | None
    if subscription is not None:
        found = session.call(wire.diagnose(session.project, subscription))
        session.show(found, _text(found))
    else:
        works, found = _connection(session), _service(session)
        if found is None:
            session.show(works, works)
        else:
            session.show(works | {"service": found}, f"{fields(works)}\n\n{_findings(found.findings)}")
    if found is not None and not found.healthy:
        raise typer.Exit(1)


def _text(found: wire.Diagnosis) -> str:
    facts: dict[str, object] = {"subscription": short_name(found.subscription), "topic": short_name(found.topic)}
    facts["deadline"] = f"{found.ack_deadline_seconds}s"
    standing = found.standing
    if standing is not None:
        facts |= {
            "oldest": standing.min,
            "next": standing.current,
            "end": standing.max,
            "backlog": standing.backlog,
            "handed out": standing.handed_out,
            "lost": standing.lost,
            "retention": duration_text(standing.retention_seconds),
            "last pull": _ago(standing.last_pull_seconds_ago),
            "last ack": _ago(standing.last_acknowledgement_seconds_ago),
            "last publish": _ago(standing.last_publish_seconds_ago),
            "oldest waiting": _ago(standing.oldest_waiting_seconds),
        }
    return f"{fields(facts)}\n\n{_findings(found.findings)}"


def _findings(findings: Sequence[wire.Finding]) -> str:
    lines = [f"{'WRONG' if each.wrong else 'note '}  {printable(each.text)}" for each in findings]
    return "\n".join(lines or ["All is well."])


def _ago(seconds: float | None) -> str:
    return "-" if seconds is None else f"{span_text(Milliseconds(round(seconds * 1000)))} ago"


def _service(session: Session) -> wire.ServiceDiagnosis | None:
    """Return the service's diagnosis; None without the right, or for a service without this route."""
    try:
        return session.call(wire.diagnose_service())
    except (NotAllowed, NotAuthenticated, NotFound):
        return None


def _connection(session: Session) -> dict[str, str]:
    """Return the checks that passed; the first failure is raised."""
    session.call(wire.get_status())
    try:
        user = session.call(wire.get_profile()).name
    except NotAuthenticated:  # the service token belongs to no user, but is valid
        if _service(session) is None:
            raise
        user = "(service token)"
    works = {"endpoint": session.client.endpoint, "user": user}
    if session.at.project:
        works["project"] = session.project
        try:  # has the user a role in the project, publisher or consumer?
            session.call(wire.list_topics(session.project, page_size=1))
        except NotAllowed:
            session.call(wire.list_subscriptions(session.project, page_size=1))
    return works


def _metrics(found: wire.Metrics) -> str:
    rows = [
        (each.metric, each.resource_name, point.timestamp, _number(point.value))
        for each in found.metrics
        for point in each.timeseries
    ]
    return columns(("METRIC", "OF", "TIME", "VALUE"), rows)


def _usage(found: wire.VaMetrics) -> str:
    of_projects = found.projects_metrics
    names = ("project", "message_count", "average_daily_messages", "topics_count", "subscriptions_count", "users_count")
    rows = [tuple(getattr(each, name) for name in names) for each in of_projects.projects]
    rows.append((
        "(all)", of_projects.total_message_count, of_projects.average_daily_messages, found.total_topics_count,
        found.total_subscriptions_count, found.total_users_count,
    ))  # fmt: skip
    headers = ("PROJECT", "MESSAGES", "PER DAY", "TOPICS", "SUBSCRIPTIONS", "USERS")
    return columns(headers, [(name, *map(_number, counts)) for name, *counts in rows])


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"


@metrics.shows(_metrics)
def service(session: Session) -> Call[wire.Metrics]:
    """Show what the service takes of its machine."""
    return wire.get_service_metrics()


metrics.sends("project", wire.get_project_metrics, _metrics, "Show the metrics of the project.")
metrics.sends("topic", wire.get_topic_metrics, _metrics, "Show the metrics of a topic.", TOPIC)
metrics.sends("subscription", wire.get_subscription_metrics, _metrics,
    "Show the metrics of a subscription.", SUBSCRIPTION)  # fmt: skip


@metrics.shows(_usage)
def va(session: Session, start: Start = "", end: End = "", only: Only = None) -> Call[wire.VaMetrics]:
    """Show what was published and created in a window of days, by project; for admins and viewers."""
    return wire.get_va_metrics(start=start, end=end, projects=only or ())


@metrics.shows(lambda found: _usage(found.va_metrics))
def usage(session: Session, start: Start = "", end: End = "", only: Only = None) -> Call[wire.UsageReport]:
    """Show the same of the projects you administer."""
    return wire.get_usage_report(start=start, end=end, projects=only or ())
