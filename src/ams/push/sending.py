"""Sending: one request to an endpoint, and what came of it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

Headers = Sequence[tuple[str, str]]


class Answer(NamedTuple):
    """What an endpoint answered."""

    status: int
    text: str
    """The beginning of its body, at most 2 KiB, on one line; read only when the status is not one of success."""
    retry_after: float | None = None
    """Seconds, from `Retry-After`; None: it did not say, or not so that it can be understood."""


class SendFailed(Exception):
    """There was no whole answer; the text says why, on one line."""


class CircuitOpen(SendFailed):
    """The endpoint was not asked: it has not answered for a while. Costs nobody anything."""

    def __init__(self, seconds: float) -> None:
        super().__init__("The endpoint does not answer; it is left alone for a while")
        self.seconds = seconds
        """Until it may be asked again."""


class Sender(Protocol):
    """Sends requests to endpoints, each on its own: one that does not answer costs the others nothing."""

    async def send(self, url: str, headers: Headers, body: bytes, *, seconds: float) -> Answer:
        """POST a body; return the answer, whatever its status.

        `seconds` is for everything: waiting for a place, finding the address, connecting, sending, the whole answer.
        Raises `SendFailed`.
        """
        ...

    def circuit(self, url: str) -> str:
        """Return how the circuit of an endpoint stands: `closed`, `open` or `half-open`."""
        ...
