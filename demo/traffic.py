"""The programs at the two ends of a topic: one publishes in bulks, one pulls, acknowledges and notes.

The library opens a new TLS connection for every call, as its users know, so both ends work in bulks: a hundred results
in one publish, hundreds in one pull, and one acknowledgement for all of them.
"""

import uuid
from collections.abc import Callable, Iterator
from itertools import islice
from threading import Event
from time import monotonic
from typing import NamedTuple

from argo_ams_library import AmsMessage, ArgoMessagingService

from demo.ledger import Ledger, Message
from demo.stopwatch import Stopwatch
from demo.tenancy import Line

PULL = 250
"""Messages asked for in one pull."""
PATIENCE = 15.0
CALL_TIMEOUT = 30
"""Seconds for one call; the library itself has no timeout."""

RETRY_SLEEP = 1
"""Seconds between two tries of a call; the library's own default is a minute."""

Wire = Callable[[str, int, Message], Message]
"""What happens to message number N of a topic on its way into the service: nothing, except in the demo's own test."""


def untouched(_topic: str, _number: int, message: Message) -> Message:
    """Let a message pass as it is."""
    return message


class Flow(NamedTuple):
    """What goes through one line, and the book kept about it."""

    line: Line
    messages: Iterator[Message]
    expected: int
    bulk: int
    """Messages in one publish."""
    ledger: Ledger
    retries: int = 0
    """How often the library tries a call again that failed on its way."""
    patience: float = PATIENCE
    """Seconds without a message after which a consumer stops waiting: what is missing then is lost."""

    @property
    def tries(self) -> dict[str, int]:
        """Return the arguments by which the library retries."""
        return {"retry": self.retries, "retrysleep": RETRY_SLEEP}


def publish(ams: ArgoMessagingService, flow: Flow, stopwatch: Stopwatch, stop: Event, wire: Wire = untouched) -> None:
    """Publish all messages, a bulk at a time, and note the id each was answered with."""
    ledger = flow.ledger
    while (bulk := list(islice(flow.messages, flow.bulk))) and not stop.is_set():
        handed_over = [wire(ledger.topic, *numbered) for numbered in enumerate(bulk, ledger.published)]
        body = [AmsMessage(attributes=message.attributes, data=message.data) for message in handed_over]
        # Under a key the service stores a publish once, however often it is tried.
        once = {"Idempotency-Key": str(uuid.uuid4())} if flow.retries else {}
        with stopwatch.measure("publish"):
            answer = ams.publish(flow.line.topic, body, timeout=CALL_TIMEOUT, headers=once, **flow.tries)
        ledger.sent(answer["messageIds"], bulk)


def consume(ams: ArgoMessagingService, flow: Flow, stopwatch: Stopwatch, stop: Event) -> None:
    """Pull and acknowledge until all came out, or nothing came for a long time; then look once more."""
    last_arrival = monotonic()
    while flow.ledger.received < flow.expected and monotonic() - last_arrival < flow.patience:
        if stop.is_set():
            return
        if _pull_and_acknowledge(ams, flow, stopwatch):
            last_arrival = monotonic()
    # What was acknowledged must not come again.
    _pull_and_acknowledge(ams, flow, stopwatch, wait=False)


def _pull_and_acknowledge(ams: ArgoMessagingService, flow: Flow, stopwatch: Stopwatch, *, wait: bool = True) -> bool:
    """Take what is there, or wait for it; return whether anything came."""
    subscription = flow.line.subscription
    with stopwatch.measure("pull"):
        pulled = ams.pull_sub(subscription, PULL, return_immediately=not wait, timeout=CALL_TIMEOUT, **flow.tries)
    if not pulled:
        return False
    for _, message in pulled:
        flow.ledger.came_out(message.get_msgid(), Message(message.get_attr(), message.get_data()))
    with stopwatch.measure("acknowledge"):
        ams.ack_sub(subscription, [pulled[-1][0]], timeout=CALL_TIMEOUT, **flow.tries)  # the last id stands for all
    flow.ledger.acknowledged += len(pulled)
    return True
