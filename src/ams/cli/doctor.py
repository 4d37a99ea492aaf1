"""`ams doctor`: why nothing arrives, or whether this place can reach its service at all."""

from typing import Annotated

import typer

from ams.cli.command import Session, with_session
from ams.cli.completing import subscription_names
from ams.cli.output import fields, printable, short_name
from ams.client import wire
from ams.client.errors import NotAllowed
from ams.clock import Milliseconds, span_text
from ams.settings import duration_text

Subscription = Annotated[
    str | None,
    typer.Argument(
        metavar="[SUB]", help="Name of the subscription.", show_default=False, autocompletion=subscription_names
    ),
]


@with_session
def doctor(session: Session, subscription: Subscription = None) -> None:
    """Say why nothing arrives at a subscription; without one, check endpoint, token and project.

    Ends with 1 when something is wrong.
    """
    if subscription is None:
        _check_connection(session)
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
    findings = [f"{'WRONG' if each.wrong else 'note '}  {printable(each.text)}" for each in found.findings]
    return "\n".join([fields(facts), "", *(findings or ["All is well."])])


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


def _check_connection(session: Session) -> None:
    """Say what works; the first thing that does not ends the command with its error."""
    session.call(wire.get_status())
    works = {"endpoint": session.client.endpoint, "user": session.call(wire.get_profile()).name}
    if session.chosen_project:
        _enter(session)
        works["project"] = session.project
    session.show(works, fields(works))


def _enter(session: Session) -> None:
    """Find out whether the user has a role in the project: what publishers may, or what consumers may."""
    try:
        session.call(wire.list_topics(session.project, page_size=1))
    except NotAllowed:
        session.call(wire.list_subscriptions(session.project, page_size=1))
