"""Pauses between tries to reach a service that does not answer (push contract 15, P2)."""

import random

FIRST_SECONDS, MOST_SECONDS = 1.0, 60.0


class Pauses:
    """Grow exponentially, with full jitter: a second at least, `most` at most."""

    def __init__(self, random: random.Random, most: float = MOST_SECONDS) -> None:
        self._random = random
        self._most = most
        self._failures = 0

    def next(self) -> float:
        """Return how long to wait now, in seconds."""
        bound = min(FIRST_SECONDS * 2.0 ** min(self._failures, 16), self._most)
        self._failures += 1
        return self._random.uniform(min(FIRST_SECONDS, bound), bound)

    def over(self) -> None:
        """Note that there was an answer."""
        self._failures = 0
