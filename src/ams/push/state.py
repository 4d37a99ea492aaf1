"""How a delivery goes: what its worker tells of itself. Values that are written as JSON and read by other nodes.

Times are milliseconds since the epoch. Nothing of a message is in here, and no secret.
"""

from datetime import UTC, datetime

from ams.wire.push import WorkerState

ATTEMPTS = 100
"""Newest attempts that are remembered."""

CONSUME, SEND, ACKNOWLEDGE = "consume", "send", "acknowledge"
"""What can fail, in the words of `pushStatus` (push contract 8.4)."""

ACTIVE, RETRYING, STOPPED = "active", "retrying", "stopped"
"""Phases: all is well; the last cycle failed and there will be another; the endpoint said that it is gone (410)."""


def text(path: str, state: WorkerState) -> str:
    """Return the status text of a worker (push contract 8.4); `path` is the resource name of its subscription."""
    failure = state.failure
    if failure is None:
        return f"Subscription {path} is currently active"
    moment = datetime.fromtimestamp(failure.time // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S} - Could not {failure.what} message, {failure.detail}"
