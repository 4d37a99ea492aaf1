"""`ams subs push-secret`: another secret to sign deliveries with, shown this once."""

import contextlib
from typing import Annotated

import typer

from ams.cli.arguments import SubscriptionName
from ams.cli.command import Session, with_session
from ams.cli.exits import Usage
from ams.cli.output import fields
from ams.client import wire
from ams.core.settings import duration_seconds

MAX_KEEP_SECONDS = 30 * 86_400


@with_session
def push_secret(
    session: Session,
    subscription: SubscriptionName,
    keep: Annotated[str, typer.Option(help="How long the one before stays valid, such as 12h; at most 30d.")] = "24h",
) -> None:
    """Make a new secret that deliveries are signed with; it is shown this once."""
    seconds = _seconds(keep)
    made = session.call(wire.rotate_push_secret(session.project, subscription, keep_seconds=seconds))
    session.show(made, fields({"secret": made.secret, "the one before ends": made.previous_valid_until}))


def _seconds(text: str) -> int:
    with contextlib.suppress(ValueError, KeyError):
        read = duration_seconds(text)
        if 0 <= read <= MAX_KEEP_SECONDS and read % 1 == 0:
            return int(read)
    raise Usage(f"{text!r} is no duration of whole seconds from 0s to 30d")
