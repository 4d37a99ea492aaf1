"""`ams tail`: follows a topic through a subscription of its own."""

import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated

import msgspec
import typer

from ams.cli.arguments import TopicName
from ams.cli.command import Session, with_session
from ams.cli.output import emit, json_line, note, printable
from ams.cli.pull import row
from ams.client import ReceivedMessage, wire
from ams.client.errors import ClientError
from ams.client.messages import outgoing
from ams.core.clock import Milliseconds, publish_time


@with_session
def tail(
    session: Session,
    topic: TopicName,
    oldest: Annotated[bool, typer.Option("--oldest", help="Begin with the oldest message kept.")] = False,
    max_messages: Annotated[int | None, typer.Option("--max", min=1, help="End after so many messages.")] = None,
) -> None:
    """Follow a topic until Ctrl-C, through a subscription that is deleted at the end."""
    _stop_like_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    with _temporary_subscription(session, topic) as subscription:
        if oldest:
            start = session.call(wire.get_offsets(session.project, subscription)).min
            session.call(wire.modify_offset(session.project, subscription, start))
        received = session.patient.project(session.project).subscription(subscription).messages()
        for message in map(_as_pulled, islice(received, max_messages)):
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


def _as_pulled(message: ReceivedMessage) -> wire.Message:
    """Spell a message as the API does."""
    moment = publish_time(Milliseconds(round(message.publish_time.timestamp() * 1000)))
    return msgspec.structs.replace(outgoing(message), message_id=message.id, publish_time=moment)


def _stop_like_ctrl_c(*signals: signal.Signals) -> None:
    """Let these signals interrupt the work too, so that what is temporary is deleted."""
    for each in signals:
        signal.signal(each, signal.default_int_handler)
