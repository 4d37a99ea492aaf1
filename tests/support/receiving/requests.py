"""Requests recorded by receivers."""

from collections import Counter, deque
from dataclasses import dataclass, field

import msgspec

REMEMBERED = 100_000  # newest requests


class Received(msgspec.Struct, frozen=True):
    method: str
    target: str  # path and query, as they came
    headers: dict[str, str]  # names in lower case
    body: str
    time: float  # when it had come whole, seconds since the epoch
    connection: int  # which connection it came on, counted from 1
    port: int

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class Numbers(msgspec.Struct, frozen=True):
    requests: int
    by_path: dict[str, int]


@dataclass
class Memory:
    requests: deque[Received] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    by_path: Counter[str] = field(default_factory=Counter)
    total: int = 0
    connections: int = 0
    failures: Counter[str] = field(default_factory=Counter)  # by target, of those that fail a few times
    hashes: dict[int, str] = field(default_factory=dict)  # what each port shows as verification hash; 0: all others

    def note(self, request: Received, *, whole: bool) -> None:
        """Count a request; record it when `whole`."""
        self.total += 1
        self.by_path[request.path] += 1
        if whole:
            self.requests.append(request)

    def numbers(self) -> Numbers:
        return Numbers(self.total, dict(self.by_path))

    def forget(self) -> None:
        self.requests.clear()
        self.by_path.clear()
        self.failures.clear()
        self.total = 0
