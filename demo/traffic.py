"""The programs of the main job, with the official library, and the comparison of what went in with what came out.

The administrator makes the project, topics, subscriptions, and a user for each program. Names of the last run are used
again; its leftovers are stepped over by moving the subscriptions to the end of their topics.

The library opens a new TLS connection for every call, as its users know, so both ends work in bulks: a hundred results
in one publish, hundreds in one pull, and one acknowledgement for all of them.

A message is known by the id its publisher was answered. The promise of the service is that consumers see it under
this very id, exactly once, with the same bytes; each violation of that is one sentence. One publisher and one consumer
write to a ledger, each its own dictionary, so no lock is needed.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from threading import Event
from time import monotonic
from typing import NamedTuple

from argo_ams_library import AmsMessage, AmsServiceException, ArgoMessagingService


class Message(NamedTuple):
    """Attributes and payload, as one application gives them to another."""

    attributes: dict[str, str]
    data: bytes


class Ledger:
    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.bytes = 0
        self.acknowledged = 0
        self.duplicated = 0
        self._sent: dict[str, Message] = {}
        self._received: dict[str, Message] = {}
        self._findings: list[str] = []

    @property
    def published(self) -> int:
        return len(self._sent)

    @property
    def received(self) -> int:
        return len(self._received)

    @property
    def messages(self) -> Mapping[str, Message]:
        return self._sent

    def sent(self, ids: Sequence[str], messages: Sequence[Message]) -> None:
        if len(ids) != len(messages):
            self._findings.append(f"{self.topic}: {len(messages)} messages were answered with {len(ids)} ids")
        for message_id, message in zip(ids, messages, strict=False):
            if message_id in self._sent:
                self._findings.append(f"{self.topic} message {message_id}: this id was given twice")
            self._sent[message_id] = message
            self.bytes += len(message.data)

    def came_out(self, message_id: str, message: Message) -> None:
        if message_id in self._received:
            self.duplicated += 1
            self._findings.append(f"{self.topic} message {message_id}: delivered more than once")
        self._received[message_id] = message

    def lost(self) -> list[str]:
        return [message_id for message_id in self._sent if message_id not in self._received]

    def findings(self) -> list[str]:
        """Return one sentence for each broken promise; empty when all is well. Call it when the traffic has ended."""
        lost = [f"{self.topic} message {message_id}: lost" for message_id in self.lost()]
        return [*self._findings, *lost, *self._differences()]

    def _differences(self) -> Iterator[str]:
        for message_id, came in self._received.items():
            went = self._sent.get(message_id)
            if went is None:
                yield f"{self.topic} message {message_id}: came out, but was never published"
            elif went.attributes != came.attributes:
                yield f"{self.topic} message {message_id}: altered, its attributes are not those published"
            elif went.data != came.data:
                yield f"{self.topic} message {message_id}: altered, {_first_difference(went.data, came.data)}"


def _first_difference(went: bytes, came: bytes) -> str:
    for place, (before, after) in enumerate(zip(went, came, strict=False)):
        if before != after:
            return f"byte {place} was {before:#04x} and came out as {after:#04x}"
    return f"{len(went)} bytes went in and {len(came)} came out"


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
    publisher: ArgoMessagingService
    consumer: ArgoMessagingService


def prepare(endpoint: str, admin_token: str, line: Line) -> Ends:
    """Make what a line needs, or take what is there; return both users' clients. `endpoint` is `host:port`."""
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
    unless_there(lambda: admin.create_project_member(name, roles=[role]))
    token: str = admin.get_user(name).token
    return token


def _skip_to_end(admin: ArgoMessagingService, subscription: str) -> None:
    offsets = admin.getoffsets_sub(subscription)
    if offsets["current"] < offsets["max"]:
        admin.modifyoffset_sub(subscription, offsets["max"])


def unless_there(create: Callable[[], object]) -> None:
    try:
        create()
    except AmsServiceException as error:
        if error.code != ALREADY_EXISTS:
            raise


PULL = 250
PATIENCE = 15.0
CALL_TIMEOUT = 30  # seconds for one call; the library itself has no timeout

RETRY_SLEEP = 1  # seconds between two tries of a call; the library's own default is a minute

Wire = Callable[[str, int, Message], Message]
"""Changes message number N of a topic before it is published; only the demo's own test does."""


def untouched(_topic: str, _number: int, message: Message) -> Message:
    return message


class Flow(NamedTuple):
    line: Line
    messages: Iterator[Message]
    expected: int
    bulk: int
    ledger: Ledger
    retries: int = 0
    patience: float = PATIENCE
    """Seconds without a message after which a consumer stops waiting: what is missing then is lost."""

    @property
    def tries(self) -> dict[str, int]:
        return {"retry": self.retries, "retrysleep": RETRY_SLEEP}


def publish(ams: ArgoMessagingService, flow: Flow, stop: Event, wire: Wire = untouched) -> None:
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
    # Acknowledged messages must not come again.
    _pull_and_acknowledge(ams, flow, wait=False)


def _pull_and_acknowledge(ams: ArgoMessagingService, flow: Flow, *, wait: bool = True) -> bool:
    """Pull once, possibly waiting; return whether anything came."""
    subscription = flow.line.subscription
    pulled = ams.pull_sub(subscription, PULL, return_immediately=not wait, timeout=CALL_TIMEOUT, **flow.tries)
    if not pulled:
        return False
    for _, message in pulled:
        flow.ledger.came_out(message.get_msgid(), Message(message.get_attr(), message.get_data()))
    ams.ack_sub(subscription, [pulled[-1][0]], timeout=CALL_TIMEOUT, **flow.tries)  # the last id stands for all
    flow.ledger.acknowledged += len(pulled)
    return True
