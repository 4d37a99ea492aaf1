"""From rows to requests: which messages go to a topic together, and in which order.

Where a request ends depends on nothing but the rows and their order. So whoever brings the same rows in the same order
again makes the same requests again, with the same numbers, and the service knows them by their idempotency keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_MESSAGES = 1000
"""Messages of a request, unless it is said otherwise."""
MAX_BYTES = 4 * 1024 * 1024
"""Bytes of a request's body, unless it is said otherwise: well below the 16 MiB a service takes as it comes."""
MAX_OPEN_BYTES = 32 * 1024 * 1024
"""Bytes of all requests that are not full yet; beyond them all are closed, lest many topics fill the memory."""

_HEAD, _TAIL = b'{"messages":[', b"]}"
_EMPTY = len(_HEAD) + len(_TAIL)


class Lane(NamedTuple):
    """Rows of a topic that keep their order; requests are numbered in each lane by itself."""

    topic: str
    place: str


class Encoded(NamedTuple):
    """A message as it travels, and where it comes from."""

    body: bytes
    """A JSON object."""
    where: str
    """Tells a person which row it is; quotes nothing of its data."""


@dataclass(slots=True)
class Chunk:
    """Messages of one request."""

    lane: Lane
    number: int
    """From 0 in its lane."""
    messages: list[Encoded] = field(default_factory=list)
    size: int = _EMPTY
    """Bytes of the body."""

    def body(self) -> bytes:
        """Return the body of the request."""
        return _HEAD + b",".join(each.body for each in self.messages) + _TAIL

    def largest(self) -> Encoded:
        """Return the message that takes most bytes."""
        return max(self.messages, key=lambda each: len(each.body))


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a request may be; a message that is larger travels alone."""

    messages: int = MAX_MESSAGES
    bytes: int = MAX_BYTES
    open_bytes: int = MAX_OPEN_BYTES


class Chunker:
    """Puts messages into requests, those of a lane in the order in which they come."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[Lane, Chunk] = {}
        self._numbers: dict[Lane, int] = {}
        self._bytes = 0

    def add(self, lane: Lane, message: Encoded) -> Iterator[Chunk]:
        """Take a message and yield the requests that are complete because of it."""
        size = len(message.body) + 1
        chunk = self._open.get(lane)
        if chunk is not None and chunk.size + size > self._limits.bytes:
            yield self._close(chunk)
            chunk = None
        if chunk is None:
            chunk = self._begin(lane)
        chunk.messages.append(message)
        chunk.size += size
        self._bytes += size
        if len(chunk.messages) >= self._limits.messages:
            yield self._close(chunk)
        if self._bytes > self._limits.open_bytes:
            yield from self.rest()

    def rest(self) -> Iterator[Chunk]:
        """Yield the requests that were begun, in the order of their first messages."""
        for chunk in list(self._open.values()):
            yield self._close(chunk)

    def _begin(self, lane: Lane) -> Chunk:
        number = self._numbers.get(lane, 0)
        self._numbers[lane] = number + 1
        chunk = self._open[lane] = Chunk(lane, number)
        return chunk

    def _close(self, chunk: Chunk) -> Chunk:
        del self._open[chunk.lane]
        self._bytes -= chunk.size - _EMPTY
        return chunk
