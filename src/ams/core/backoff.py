"""Retry backoff: pauses between retries."""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses: `first` after the first failure, `factor` times as long after each further one, at most `most`.

    Each is drawn between the two shares of it that `jitter` names, but is no shorter than `least`.
    """

    first: float
    most: float
    factor: float = 2.0
    jitter: tuple[float, float] = (1.0, 1.0)
    least: float = 0.0

    def nominal(self, failures: int) -> float:
        """Return the pause after so many failures before the last one, without jitter."""
        exponent = min(failures, 64)  # keeps the power finite after months of failures
        return min(self.first * self.factor**exponent, self.most)

    def pause(self, failures: int, chance: float) -> float:
        """Return the pause after so many failures before the last one; `chance` is drawn from 0 to 1."""
        nominal = self.nominal(failures)
        low, high = self.jitter
        shortest = max(low * nominal, min(self.least, nominal))
        return shortest + (high * nominal - shortest) * chance


class Pauses:
    """Pauses of one retry loop: call `next` after each failure, `reset` after a success."""

    __slots__ = ("_backoff", "_chance", "_failures")

    def __init__(self, backoff: Backoff, chance: Callable[[], float] = random.random) -> None:
        self._backoff, self._chance = backoff, chance
        self._failures = 0

    def next(self) -> float:
        """Return how long to wait now."""
        pause = self._backoff.pause(self._failures, self._chance())
        self._failures += 1
        return pause

    def reset(self) -> None:
        """Note a success: the next pause is the first again."""
        self._failures = 0
