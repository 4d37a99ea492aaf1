"""How long calls take, and what that was for half and for nearly all of them."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Stopwatch:
    """Durations of calls by name, in seconds. Threads may share one: adding to a list is atomic."""

    def __init__(self) -> None:
        self._durations: defaultdict[str, list[float]] = defaultdict(list)

    @contextmanager
    def measure(self, call: str) -> Iterator[None]:
        """Measure the block; a block that raises is not counted."""
        start = perf_counter()
        yield
        self._durations[call].append(perf_counter() - start)

    def count(self, call: str) -> int:
        """Return how many calls of this name were measured."""
        return len(self._durations[call])

    def percentile(self, call: str, percent: int) -> float:
        """Return the duration that `percent` of the calls did not exceed, in seconds."""
        ordered = sorted(self._durations[call])
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
