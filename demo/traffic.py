"""The programs of the main job, with the official library: an administrator, and a publisher and a consumer a topic.

The administrator makes the project, topics, subscriptions, and a user for each program. Names of the last run are used
again; its leftovers are stepped over by moving the subscriptions to the end of their topics.

The library opens a new TLS connection for every call, as its users know, so both ends work in bulks: a hundred results
in one publish, hundreds in one pull, and one acknowledgement for all of them.
"""

import uuid
from collections.abc import Callable, Iterator
from itertools import islice
from threading import Event
from time import monotonic
from typing import NamedTuple

from argo_ams_library import AmsMessage, AmsServiceException, ArgoMessagingService

from demo.ledger import Ledger, Message

PROJECT = "demo"
ALREADY_EXISTS = 409
ACK_DEADLINE = 60
"""Seconds a consumer has between a pull and its acknowledgement; a slow machine should not fail the job."""


class Line(NamedTuple):
    """One topic with one subscription, and the two users allowed at its ends."""

    topic: str
    subscription: str
    publisher: str
    consumer: str


ACCOUNTING = Line("gLite-APEL", "apel_loader", "gLite-APEL---ce01-site-a-example---SITE-A", "apel_repository")
MONITORING = Line("metric_data", "archive_metric", "ams_demo_publisher", "ams_demo_archiver")


class Ends(NamedTuple):
    """The library, set up for the two users of a line."""

    publisher: ArgoMessagingService
    consumer: ArgoMessagingService


def prepare(endpoint: str, admin_token: str, line: Line) -> Ends:
    """Make everything a line needs, or take what is there; return both users' clients.

    `endpoint` is `host:port`: the library puts https:// before it.
    """
    admin = ArgoMessagingService(endpoint=endpoint, token=admin_token, project=PROJECT)
    unless_there(lambda: admin.create_project(PROJECT, "The project of the demo"))
    publisher = _member(admin, line.publisher, "publisher")
    consumer = _member(admin, line.consumer, "consumer")
    unless_there(lambda: admin.create_topic(line.topic))
    admin.modifyacl_topic(line.topic, [line.publisher])
    unless_there(lambda: admin.create_sub(line.subscription, line.topic, ackdeadline=ACK_DEADLINE))
    admin.modifyacl_sub(line.subscription, [line.consumer])
    _skip_to_end(admin, line.subscription)
    return Ends(
        ArgoMessagingService(endpoint=endpoint, token=publisher, project=PROJECT),
        ArgoMessagingService(endpoint=endpoint, token=consumer, project=PROJECT),
    )


def _member(admin: ArgoMessagingService, name: str, role: str) -> str:
    """Make a user with this role in the project, or find the one of the last run; return the token."""
    unless_there(lambda: admin.create_project_member(name, roles=[role]))
    token: str = admin.get_user(name).token
    return token


def _skip_to_end(admin: ArgoMessagingService, subscription: str) -> None:
    offsets = admin.getoffsets_sub(subscription)
    if offsets["current"] < offsets["max"]:
        admin.modifyoffset_sub(subscription, offsets["max"])


def unless_there(create: Callable[[], object]) -> None:
    """Make something with the library, unless it is there from the last run."""
    try:
        create()
    except AmsServiceException as error:
        if error.code != ALREADY_EXISTS:
            raise


PULL = 250
"""Messages asked for in one pull."""
PATIENCE = 15.0
CALL_TIMEOUT = 30
"""Seconds for one call; the library itself has no timeout."""

RETRY_SLEEP = 1
"""Seconds between two tries of a call; the library's own default is a minute."""

Wire = Callable[[str, int, Message], Message]
"""Changes message number N of a topic before it is published; only the demo's own test does."""


def untouched(_topic: str, _number: int, message: Message) -> Message:
    """Let a message pass as it is."""
    return message


class Flow(NamedTuple):
    """Messages of one line, and their ledger."""

    line: Line
    messages: Iterator[Message]
    expected: int
    bulk: int
    """Messages in one publish."""
    ledger: Ledger
    retries: int = 0
    """Retries of a failed call by the library."""
    patience: float = PATIENCE
    """Seconds without a message after which a consumer stops waiting: what is missing then is lost."""

    @property
    def tries(self) -> dict[str, int]:
        """Return the arguments by which the library retries."""
        return {"retry": self.retries, "retrysleep": RETRY_SLEEP}


def publish(ams: ArgoMessagingService, flow: Flow, stop: Event, wire: Wire = untouched) -> None:
    """Publish all messages, a bulk at a time, and note the id each was answered with."""
    ledger = flow.ledger
    while (bulk := list(islice(flow.messages, flow.bulk))) and not stop.is_set():
        handed_over = [wire(ledger.topic, *numbered) for numbered in enumerate(bulk, ledger.published)]
        body = [AmsMessage(attributes=message.attributes, data=message.data) for message in handed_over]
        # Under a key the service stores a publish once, however often it is tried.
        once = {"Idempotency-Key": str(uuid.uuid4())} if flow.retries else {}
        answer = ams.publish(flow.line.topic, body, timeout=CALL_TIMEOUT, headers=once, **flow.tries)
        ledger.sent(answer["messageIds"], bulk)


def consume(ams: ArgoMessagingService, flow: Flow, stop: Event) -> None:
    """Pull and acknowledge until all came out, or nothing came for a long time; then look once more."""
    last_arrival = monotonic()
    while flow.ledger.received < flow.expected and monotonic() - last_arrival < flow.patience:
        if stop.is_set():
            return
        if _pull_and_acknowledge(ams, flow):
            last_arrival = monotonic()
    # What was acknowledged must not come again.
    _pull_and_acknowledge(ams, flow, wait=False)


def _pull_and_acknowledge(ams: ArgoMessagingService, flow: Flow, *, wait: bool = True) -> bool:
    """Take what is there, or wait for it; return whether anything came."""
    subscription = flow.line.subscription
    pulled = ams.pull_sub(subscription, PULL, return_immediately=not wait, timeout=CALL_TIMEOUT, **flow.tries)
    if not pulled:
        return False
    for _, message in pulled:
        flow.ledger.came_out(message.get_msgid(), Message(message.get_attr(), message.get_data()))
    ams.ack_sub(subscription, [pulled[-1][0]], timeout=CALL_TIMEOUT, **flow.tries)  # the last id stands for all
    flow.ledger.acknowledged += len(pulled)
    return True
