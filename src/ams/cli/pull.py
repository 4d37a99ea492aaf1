"""`ams pull` and `ams ack`: messages of a subscription, and how messages look to people."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from ams.cli.arguments import SubscriptionName
from ams.cli.command import Session, with_session
from ams.cli.output import columns, note
from ams.client import wire
from ams.client.errors import ClientError, NotAllowed


@with_session
def pull(
    session: Session,
    subscription: SubscriptionName,
    max_messages: Annotated[int, typer.Option("--max", min=1, help="Most messages to get.")] = 1,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge them once they are printed.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait a few seconds for a first message.")] = True,
) -> None:
    """Get the next messages; without --ack they are delivered again."""
    with _saying_of_push(session, subscription):
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
    with _saying_of_push(session, subscription):
        session.call(wire.acknowledge(session.project, subscription, [whole]))
    session.done(f"acknowledged up to {whole.rpartition(':')[2]}")


@contextmanager
def _saying_of_push(session: Session, subscription: str) -> Iterator[None]:
    """Say of a subscription that may not be pulled from when that is because it is delivered by push.

    The service answers what the contract has for it (10.3), which is the same for any that is not allowed.
    """
    try:
        yield
    except NotAllowed as error:
        if not _is_pushed(session, subscription):
            raise
        said = (
            f"{error.message}: {subscription} is a push subscription, whose messages go to its endpoint"
            f" (ams subs push-status {subscription}); to pull from it: ams subs push-config {subscription} --none"
        )
        raise NotAllowed(said, error.code, error.status) from error


def _is_pushed(session: Session, subscription: str) -> bool:
    try:
        return bool(session.call(wire.get_subscription(session.project, subscription)).push_config.get("type"))
    except ClientError:  # who may not look is told what the service said
        return False


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
