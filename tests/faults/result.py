"""What came of a campaign, as one JSON line."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.faults.attempts import Attempt
from tests.faults.http_client import Kind, Traffic

AIMS = (Kind.BULK, Kind.ACK, Kind.SETTLE, Kind.GOOGLE, Kind.OTHER)
"""What kills are aimed at, in turn; `OTHER` is any moment."""


@dataclass
class Result:
    """What a campaign was and what it found."""

    seed: int
    kills: int
    aimed: Counter[Kind] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    attempts: Sequence[Attempt] = ()
    messages: int = 0
    """Found in the topics at the end."""
    letters: int = 0
    """Dead letters."""
    streamed: int = 0
    """Messages that clients of Google have acknowledged for sure."""
    reused: int = 0
    """Segments that were written over the records of others."""
    ahead: int = 0
    """Steps of pages that were written ahead."""
    starts: Sequence[float] = ()
    seconds: float = 0.0

    def hit(self, kind: Kind) -> int:
        """Return how many kills left a request of this kind without an answer."""
        return sum(each is kind for _, each in self.traffic.hits)

    def line(self) -> str:
        """Write it as one JSON line."""
        return json.dumps(
            {
                "kills": self.kills,
                "seed": self.seed,
                "aimed_at": {kind.value: self.aimed[kind] for kind in AIMS[:-1]} | {"any moment": self.aimed[AIMS[-1]]},
                "hit": {kind.value: self.hit(kind) for kind in Kind},
                "attempts": self._attempts(),
                "messages": self.messages,
                "dead_letters": self.letters,
                "streamed": self.streamed,
                "segments_reused": self.reused,
                "steps_ahead": self.ahead,
                "refused": dict(self.traffic.refusals),
                "without_retry_after": self.traffic.without_retry_after,
                "dropped": self.traffic.dropped,
                "slowest_start_s": round(max(self.starts, default=0.0), 3),
                "violations": len(self.violations),
                "seconds": round(self.seconds, 1),
            }
        )

    def _attempts(self) -> dict[str, dict[str, int]]:
        counts: dict[str, dict[str, int]] = {}
        for attempt in self.attempts:
            kind = counts.setdefault(type(attempt).__name__.lower(), {})
            kind[attempt.outcome.value] = kind.get(attempt.outcome.value, 0) + 1
        return counts
