"""`ams tail`: follows a topic through a subscription of its own."""

import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, TypeVar

import typer

from ams.cli.command import Session, with_session
from ams.cli.output import emit, json_line, note, printable
from ams.cli.pull import row
from ams.client import wire
from ams.client.errors import AckTimeout, ClientError, InvalidInput

T = TypeVar("T")

BATCH = 100
PATIENCE = 30.0
"""Seconds a service that went away, perhaps to be restarted, is waited for."""
PAUSE = 0.5
"""Seconds between two questions when the service does not wait itself."""


@with_session
def tail(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)],
    oldest: Annotated[bool, typer.Option("--oldest", help="Begin with the oldest message kept.")] = False,
    max_messages: Annotated[int | None, typer.Option("--max", min=1, help="End after so many messages.")] = None,
) -> None:
    """Follow a topic until Ctrl-C, through a subscription that is deleted at the end."""
    _stop_like_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    with _temporary_subscription(session, topic) as subscription:
        if oldest:
            start = session.call(wire.get_offsets(session.project, subscription)).min
            session.call(wire.modify_offset(session.project, subscription, start))
        for message in islice(_follow(session, subscription), max_messages):
            emit(json_line(message) if session.for_programs else "  ".join(map(printable, row(message))))


@contextmanager
def _temporary_subscription(session: Session, topic: str) -> Iterator[str]:
    name = f"tail-{secrets.token_hex(8)}"
    session.call(wire.create_subscription(session.project, name, topic))
    try:
        note(f"following {topic} as subscription {name}; Ctrl-C ends")
        yield name
    finally:
        try:
            session.call(wire.delete_subscription(session.project, name))
        except ClientError as error:
            note(f"subscription {name} is left behind: {error.message}")


def _follow(session: Session, subscription: str) -> Iterator[wire.Message]:
    """Yield messages, acknowledging each batch once it was taken; a batch that comes again is not yielded again."""
    unacknowledged = -1
    while True:
        received = patiently(lambda: _pull(session, subscription))
        for message in (each.message for each in received):
            if int(message.message_id) > unacknowledged:
                yield message
                unacknowledged = int(message.message_id)
        if received and _acknowledged(session, subscription, received[-1].ack_id):
            unacknowledged = -1


def _pull(session: Session, subscription: str) -> list[wire.ReceivedMessage]:
    asked = time.monotonic()
    received = session.call(wire.pull(session.project, subscription, max_messages=BATCH)).received_messages
    if not received and time.monotonic() - asked < PAUSE:
        time.sleep(PAUSE)
    return received


def _acknowledged(session: Session, subscription: str, ack_id: str) -> bool:
    """Acknowledge; False when the service no longer takes it (a slow reader, a cut topic) and delivers again."""
    try:
        patiently(lambda: session.call(wire.acknowledge(session.project, subscription, [ack_id])))
    except (AckTimeout, InvalidInput):
        return False
    return True


def patiently(ask: Callable[[], T]) -> T:
    """Ask again while the service is away, for `PATIENCE` seconds at most."""
    give_up: float | None = None
    while True:
        try:
            return ask()
        except ClientError as error:
            now = time.monotonic()
            if not error.retriable or now > (give_up or now):
                raise
            if give_up is None:
                give_up = now + PATIENCE
                note(f"{error.message}; trying again for {PATIENCE:.0f} seconds")
        time.sleep(PAUSE)


def _stop_like_ctrl_c(*signals: signal.Signals) -> None:
    """Let these signals interrupt the work too, so that what is temporary is deleted."""
    for each in signals:
        signal.signal(each, signal.default_int_handler)
