"""`ams subs push-status`: how the delivery of a subscription goes."""

from ams.cli.arguments import SubscriptionName
from ams.cli.command import Session, with_session
from ams.cli.output import columns, fields
from ams.client import wire

SHOWN = 10
"""Attempts that people are shown; `-o json` has all that are known."""


@with_session
def push_status(session: Session, subscription: SubscriptionName) -> None:
    """Show how delivery to the endpoint goes, and the last attempts."""
    found = session.call(wire.get_push_status(session.project, subscription))
    session.show(found, _text(found))


def _text(found: wire.PushStatus) -> str:
    facts = {
        "state": found.state,
        "push status": found.push_status,
        "backlog": _number(found.backlog),
        "circuit": found.circuit,
        "batch": _number(found.batch),
        "next attempt": found.next_attempt,
        "last success": found.last_success,
        "last error": _error(found.last_error),
        "delivered": _number(found.delivered),
        "deliveries": _number(found.deliveries),
        "failed": _number(found.failed),
        "dead letters": _number(found.dead or None),
        "undecodable": _number(found.undecodable or None),
        "late": _number(found.late or None),
    }
    attempts = _attempts(found) if found.attempts else ""
    return f"{fields(facts)}\n\n{attempts}" if attempts else fields(facts)


def _attempts(found: wire.PushStatus) -> str:
    """Write the last attempts, the newest last."""
    rows = [
        (
            each.time,
            _number(each.status or None) or "-",
            f"{each.milliseconds}",
            f"{each.messages}",
            f"{each.bytes}",
            each.error,
        )
        for each in found.attempts[-SHOWN:]
    ]
    return columns(("ATTEMPT", "STATUS", "MS", "MESSAGES", "BYTES", "ERROR"), rows)


def _error(error: wire.PushError | None) -> str:
    if error is None:
        return ""
    said = f"status {error.status}" if error.status else ""
    return " ".join(each for each in (error.time, "could not", error.what, said, error.detail) if each)


def _number(number: int | None) -> str:
    return "" if number is None else str(number)
