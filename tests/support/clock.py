"""A clock that tests move."""

from dataclasses import dataclass

from ams.core.clock import Milliseconds


@dataclass(slots=True)
class ManualClock:
    """A clock that stands still until it is advanced."""

    now: int = 1_700_000_000_000
    ticks: int = 0

    def wall(self) -> Milliseconds:
        return Milliseconds(self.now)

    def monotonic(self) -> Milliseconds:
        """Return how far it was advanced; stepping the wall does not move it."""
        return Milliseconds(self.ticks)

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.ticks += milliseconds

    def step(self, milliseconds: int) -> None:
        """Step the wall clock, as an operator or NTP would. The monotonic clock does not move."""
        self.now += milliseconds
