"""Numbers out of measurements."""

from collections.abc import Sequence
from statistics import median

__all__ = ["median", "percentile"]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the value that `percent` of the sorted values do not exceed; 0 when there are none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
