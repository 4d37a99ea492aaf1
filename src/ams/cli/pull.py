"""`ams pull` and `ams ack`: messages of a subscription, and how messages look to people."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ams.cli.arguments import SubscriptionName
from ams.cli.command import Session, with_session
from ams.cli.output import columns, note
from ams.client import wire


@with_session
def pull(
    session: Session,
    subscription: SubscriptionName,
    max_messages: Annotated[int, typer.Option("--max", min=1, help="Most messages to get.")] = 1,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge them once they are printed.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait a few seconds for a first message.")] = True,
) -> None:
    """Get the next messages; without --ack they are delivered again."""
    answer = session.call(wire.pull(session.project, subscription, max_messages=max_messages, wait=wait))
    received = answer.received_messages
    if received or session.for_programs:
        session.show(
            answer, columns(("ID", "PUBLISHED", "ATTRIBUTES", "DATA"), [row(each.message) for each in received])
        )
    else:
        note("no messages")
    if ack and received:
        session.call(wire.acknowledge(session.project, subscription, [received[-1].ack_id]))


@with_session
def ack(
    session: Session,
    subscription: SubscriptionName,
    ack_id: Annotated[str, typer.Argument(metavar="ACKID", help="Ack id or message id.", show_default=False)],
) -> None:
    """Acknowledge a pulled message and all before it."""
    whole = wire.ack_id(session.project, subscription, int(ack_id)) if ack_id.isdecimal() else ack_id
    session.call(wire.acknowledge(session.project, subscription, [whole]))
    session.done(f"acknowledged up to {whole.rpartition(':')[2]}")


def row(message: wire.Message) -> Sequence[str]:
    """Return id, time, attributes and data of a message as texts."""
    attributes = " ".join(f"{name}={value}" for name, value in message.attributes.items())
    return message.message_id, message.publish_time, attributes, data_text(message)


def data_text(message: wire.Message) -> str:
    """Return the data as text, or marked as base64 when it is none."""
    try:
        payload = message.payload()
    except ValueError:
        # A lenient service stores data that is not base64 as it came.
        return message.data
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError:
        return f"base64:{message.data}"
