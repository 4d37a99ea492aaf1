"""What receivers remember of requests."""

from collections import Counter, deque
from dataclasses import dataclass, field

import msgspec

REMEMBERED = 100_000
"""Newest requests."""


class Received(msgspec.Struct, frozen=True):
    """A request that came."""

    method: str
    target: str
    """Path and query, as they came."""
    headers: dict[str, str]
    """Names in lower case."""
    body: str
    time: float
    """When it had come whole, seconds since the epoch."""
    connection: int
    """Which connection it came on, counted from 1."""
    port: int

    @property
    def path(self) -> str:
        """Path without the query."""
        return self.target.partition("?")[0]


class Numbers(msgspec.Struct, frozen=True):
    """What was counted since the start, or since all was forgotten."""

    requests: int
    connections: int
    open: int
    """Connections that are open now."""
    by_path: dict[str, int]
    most_at_once: int = 0
    """Most of those that take their time that were answered at the same time."""


@dataclass
class Memory:
    """All that a receiver remembers."""

    requests: deque[Received] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    by_path: Counter[str] = field(default_factory=Counter)
    total: int = 0
    connections: int = 0
    open: int = 0
    at_once: int = 0
    most_at_once: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """By target, of those that fail a few times."""
    hashes: dict[int, str] = field(default_factory=dict)
    """What each port shows as verification hash; 0: all others."""

    def note(self, request: Received, *, whole: bool) -> None:
        """Count a request; remember it when `whole`."""
        self.total += 1
        self.by_path[request.path] += 1
        if whole:
            self.requests.append(request)

    def numbers(self) -> Numbers:
        """Return what was counted."""
        return Numbers(self.total, self.connections, self.open, dict(self.by_path), self.most_at_once)

    def forget(self) -> None:
        """Forget requests and failures; connections stay counted while they are open."""
        self.requests.clear()
        self.by_path.clear()
        self.failures.clear()
        self.total = 0
        self.most_at_once = self.at_once
        self.connections = self.open
