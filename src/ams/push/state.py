"""How a delivery goes: what its worker tells of itself. Values that are written as JSON and read by other nodes.

Times are milliseconds since the epoch. Nothing of a message is in here, and no secret.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

ATTEMPTS = 100
"""Newest attempts that are remembered."""

CONSUME, SEND, ACKNOWLEDGE = "consume", "send", "acknowledge"
"""What can fail, in the words of `pushStatus` (push contract 8.4)."""

ACTIVE, RETRYING, STOPPED = "active", "retrying", "stopped"
"""Phases: all is well; the last cycle failed and there will be another; the endpoint said that it is gone (410)."""


class Attempt(msgspec.Struct, frozen=True):
    """One request to the endpoint."""

    time: int
    """When it began."""
    messages: int
    status: int
    """Of the answer; 0: there was none."""
    milliseconds: int
    """How long it took."""
    bytes: int
    """Size of the body that was sent."""
    error: str = ""
    """Why it failed, on one short line: `HTTP` with the status and what the endpoint said; empty: it succeeded."""


class Failure(msgspec.Struct, frozen=True):
    """Something that went wrong."""

    time: int
    what: str
    """`consume`, `send` or `acknowledge`."""
    detail: str
    """For people, at most 300 bytes: the endpoint's or the service's own words, or what happened to the connection."""
    status: int = 0
    """Of the endpoint's answer; 0: there was none."""


class WorkerState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the delivery of one subscription goes."""

    phase: str = ACTIVE
    failure: Failure | None = None
    """What is wrong now; None: nothing. An empty pull and a delivery clear it (push contract 15, P5)."""
    last_failure: Failure | None = None
    """What was wrong last, also when it is over."""
    last_success: int | None = None
    """When a delivery was last acknowledged; None: never since this worker began."""
    next_attempt: int | None = None
    """When it is tried again; None: as soon as there is something to deliver, or never (`stopped`)."""
    circuit: str = "closed"
    """`closed`, `open` or `half-open` (`ams.push.circuit`)."""
    batch: int = 1
    """Most messages that one delivery has now (`ams.push.flow`)."""
    delivered: int = 0
    """Messages acknowledged, since this worker began; the next ones likewise."""
    deliveries: int = 0
    """Requests that succeeded."""
    failed: int = 0
    """Requests that failed."""
    dead: int = 0
    """Messages put aside as dead letters."""
    undecodable: int = 0
    """Messages whose data was delivered as base64 although decoding was asked for, as it is no text (P13)."""
    late: int = 0
    """Deliveries whose acknowledgement came too late, so that they are repeated (P15)."""
    attempts: Sequence[Attempt] = ()
    """The newest, oldest of them first."""


def text(path: str, state: WorkerState) -> str:
    """Return the status text of a worker (push contract 8.4); `path` is the resource name of its subscription."""
    failure = state.failure
    if failure is None:
        return f"Subscription {path} is currently active"
    moment = datetime.fromtimestamp(failure.time // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S} - Could not {failure.what} message, {failure.detail}"
