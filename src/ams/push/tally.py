"""The tally: what all deliveries of a process came to since it started, for its metrics (push contract 15, P25)."""

from dataclasses import dataclass, field

from ams.wire.push import Attempt


@dataclass(slots=True)
class Sums:
    """What only grows."""

    messages: int = 0
    """Delivered and acknowledged."""
    succeeded: int = 0
    """Requests to endpoints; the next ones likewise."""
    failed: int = 0
    seconds: float = 0.0
    """That requests took, together."""
    dead: int = 0
    """Messages put aside as dead letters."""
    late: int = 0
    """Deliveries whose acknowledgement came too late."""


@dataclass(slots=True)
class Tally:
    """Takes note of what workers do (`ams.push.report.Observer`)."""

    by_path: bool = False
    """Whether subscriptions are told apart."""
    total: Sums = field(default_factory=Sums)
    each: dict[str, Sums] = field(default_factory=dict)
    """Of each subscription that was delivered here, by its resource name, if they are told apart."""

    def attempted(self, path: str, attempt: Attempt) -> None:
        """Take note of one request to an endpoint."""
        for sums in self._of(path):
            sums.seconds += attempt.milliseconds / 1000
            if attempt.error:
                sums.failed += 1
            else:
                sums.succeeded += 1

    def delivered(self, path: str, messages: int) -> None:
        """Take note of messages that were acknowledged."""
        for sums in self._of(path):
            sums.messages += messages

    def dead_lettered(self, path: str) -> None:
        """Take note of a message that was put aside as a dead letter."""
        for sums in self._of(path):
            sums.dead += 1

    def late(self, path: str) -> None:
        """Take note of an acknowledgement that came too late."""
        for sums in self._of(path):
            sums.late += 1

    def _of(self, path: str) -> tuple[Sums, ...]:
        if not self.by_path:
            return (self.total,)
        return self.total, self.each.setdefault(path, Sums())
