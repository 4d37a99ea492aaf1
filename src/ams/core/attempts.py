"""Failed logins by address: counted, and beyond a limit refused before anything is looked at."""

import ipaddress
import math

from ams.core.cache import LruCache
from ams.core.clock import Clock
from ams.core.errors import RateLimited

MINUTE = 60_000  # milliseconds
REMEMBERED = 100_000  # most addresses that are remembered; those that failed longest ago are forgotten first
_OF_ONE = 64  # bits of the IPv6 prefix that counts as one client: the smallest network of a provider


class Attempts:
    """Counts failures by address, and allows so many a minute; 0 allows all.

    A token bucket: full at first, a failure takes one, a minute fills it. Addresses of an IPv6 network (/64) share one.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._limit = per_minute
        self._clock = clock
        self._left: LruCache[str, tuple[float, float]] = LruCache(REMEMBERED)  # allowance, and when it was so
        self.failures = 0

    def check(self, address: str) -> None:
        """Raise `RateLimited` for an address that has failed too often."""
        if self._limit and self._allowance(_holder(address)) < 1:
            raise RateLimited("Too many failed logins")

    def failed(self, address: str) -> None:
        """Count a failure of an address."""
        self.failures += 1
        if not self._limit:
            return
        holder = _holder(address)
        self._left.put(holder, (max(self._allowance(holder) - 1, 0.0), self._clock.monotonic()))

    def _allowance(self, holder: str) -> float:
        left, since = self._left.peek(holder) or (math.inf, 0.0)
        return min(float(self._limit), left + (self._clock.monotonic() - since) * self._limit / MINUTE)


def _holder(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address, _OF_ONE), strict=False))
    except ValueError:
        return address
