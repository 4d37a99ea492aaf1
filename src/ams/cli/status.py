"""`ams status`, `ams version` and `ams doctor`: how the service is, and why nothing arrives."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ams import __version__
from ams.cli.arguments import argument, option
from ams.cli.command import Session, with_options
from ams.cli.completing import subscription_names
from ams.cli.output import fields, json_line, printable, short_name
from ams.client import wire
from ams.client.errors import NotAllowed, NotAuthenticated, NotFound
from ams.core.clock import Milliseconds, span_text
from ams.core.settings import duration_text

Subscription = Annotated[str | None, argument("[SUB]", "Name of the subscription.", subscription_names)]


@with_options
def status(
    session: Session,
    details: Annotated[bool, option("Everything; for admins and viewers.", "--details")] = False,
) -> None:
    """Show how the service is."""
    found = session.call(wire.get_status(details=details))
    session.show(found, _texts(found))


@with_options
def version(session: Session) -> None:
    """Show the versions of this program and of the service."""
    found = session.call(wire.get_version())
    session.show({"client": __version__, "service": found}, {"client": __version__} | _texts(found))


def _texts(found: dict[str, Any]) -> dict[str, str]:
    return {
        name.replace("_", " "): value if isinstance(value, str) else json_line(value) for name, value in found.items()
    }


@with_options
def doctor(session: Session, subscription: Subscription = None) -> None:
    """Say why nothing arrives at a subscription; without one, check endpoint, token and project, then the service.

    What is wrong with the service is for service_admin and admin_viewer only; others see the connection only. Ends
    with 1 when something is wrong.
    """
    if subscription is None:
        _check(session)
        return
    found = session.call(wire.diagnose(session.project, subscription))
    session.show(found, _text(found))
    if not found.healthy:
        raise typer.Exit(1)


def _text(found: wire.Diagnosis) -> str:
    facts = {"subscription": short_name(found.subscription), "topic": short_name(found.topic)}
    facts["deadline"] = f"{found.ack_deadline_seconds}s"
    if found.standing is not None:
        facts |= _standing(found.standing)
    return f"{fields(facts)}\n\n{_findings(found.findings)}"


def _findings(findings: Sequence[wire.Finding]) -> str:
    lines = [f"{'WRONG' if each.wrong else 'note '}  {printable(each.text)}" for each in findings]
    return "\n".join(lines or ["All is well."])


def _standing(standing: wire.Standing) -> dict[str, str]:
    return {
        "oldest": str(standing.min),
        "next": str(standing.current),
        "end": str(standing.max),
        "backlog": str(standing.backlog),
        "handed out": str(standing.handed_out),
        "lost": str(standing.lost),
        "retention": duration_text(standing.retention_seconds),
        "last pull": _ago(standing.last_pull_seconds_ago),
        "last ack": _ago(standing.last_acknowledgement_seconds_ago),
        "last publish": _ago(standing.last_publish_seconds_ago),
        "oldest waiting": _ago(standing.oldest_waiting_seconds),
    }


def _ago(seconds: float | None) -> str:
    return "-" if seconds is None else f"{span_text(Milliseconds(round(seconds * 1000)))} ago"


def _check(session: Session) -> None:
    """Say what works, and what the service says of itself if the user may know."""
    works, service = _connection(session), _service(session)
    if service is None:
        session.show(works, works)
        return
    session.show(works | {"service": service}, f"{fields(works)}\n\n{_findings(service.findings)}")
    if not service.healthy:
        raise typer.Exit(1)


def _service(session: Session) -> wire.ServiceDiagnosis | None:
    """Return the diagnosis of the service; None for users who may not read it, and for a service without this route."""
    try:
        return session.call(wire.diagnose_service())
    except (NotAllowed, NotAuthenticated, NotFound):
        return None


def _connection(session: Session) -> dict[str, str]:
    """Return what works; the first thing that does not ends the command with its error."""
    session.call(wire.get_status())
    works = {"endpoint": session.client.endpoint, "user": _user(session)}
    if session.chosen_project:
        _enter(session)
        works["project"] = session.project
    return works


def _user(session: Session) -> str:
    """Return the user of the token; that of the service belongs to no user, but is accepted."""
    try:
        return session.call(wire.get_profile()).name
    except NotAuthenticated:
        if _service(session) is None:
            raise
        return "(service token)"


def _enter(session: Session) -> None:
    """Find out whether the user has a role in the project: what publishers may, or what consumers may."""
    try:
        session.call(wire.list_topics(session.project, page_size=1))
    except NotAllowed:
        session.call(wire.list_subscriptions(session.project, page_size=1))
