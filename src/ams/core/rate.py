"""Rates: how many are allowed in a time; the generic cell rate algorithm, which needs one number a key.

`Attempts` counts failed logins by address, which are refused beyond a limit before anything is looked at.
"""

import ipaddress
import math

from ams.core.clock import Clock
from ams.core.errors import RateLimited

SECOND = 1000  # milliseconds
_FEWEST = 1024  # keys that are kept without looking for those that can be forgotten


class Rate:
    """A number in a period for each key: so many at once, and then as many as time earns."""

    def __init__(self, number: int, clock: Clock, period_ms: int = SECOND, max_keys: float = math.inf) -> None:
        """`number` is at least 1. Of more than `max_keys` the one is forgotten that took something longest ago."""
        self._number, self._clock, self._max_keys = number, clock, max_keys
        # As much is earned in a millisecond as is allowed in a period, so all numbers are whole.
        self._cost = period_ms
        self._free_at: dict[str, int] = {}
        """When everything taken so far would be earned at exactly this rate; absent: it is already."""
        self._most = _FEWEST

    def allows(self, key: str, count: int = 1) -> bool:
        """Return whether so many are left for `key`; takes nothing.

        Of a key that took nothing lately, any count is. A count of 0 is left until more than one period is overdrawn.
        """
        patience = max((self._number - count) * self._cost, 0)
        return self._free_at.get(key, 0) - self._now() <= patience

    def leaves(self, key: str, reserve: int) -> bool:
        """Return whether so many are left for `key` beside one; takes nothing."""
        return self._free_at.get(key, 0) - self._now() <= (self._number - 1 - reserve) * self._cost

    def take(self, key: str, count: int = 1) -> None:
        """Count so many of `key`, which was allowed some."""
        now = self._now()
        self._free_at[key] = max(self._free_at.pop(key, 0), now) + count * self._cost
        if len(self._free_at) > self._most:
            self._free_at = {each: free for each, free in self._free_at.items() if free > now}
            self._most = max(2 * len(self._free_at), _FEWEST)
        if len(self._free_at) > self._max_keys:
            del self._free_at[next(iter(self._free_at))]

    def _now(self) -> int:
        return self._clock.monotonic() * self._number


MINUTE = 60_000  # milliseconds
REMEMBERED = 100_000  # most addresses that are remembered; those that failed longest ago are forgotten first
_OF_ONE = 64  # bits of the IPv6 prefix that counts as one client: the smallest network of a provider


class Attempts:
    """Counts failures by address (IPv6: by /64), and allows so many a minute, 0: all; a minute earns all of them."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._rate = Rate(per_minute, clock, MINUTE, REMEMBERED) if per_minute else None
        self.failures = 0

    def check(self, address: str) -> None:
        """Raise `RateLimited` for an address that has failed too often."""
        if self._rate is not None and not self._rate.allows(_holder(address)):
            raise RateLimited("Too many failed logins")

    def failed(self, address: str) -> None:
        """Count a failure of an address."""
        self.failures += 1
        # Of those that failed at the same time, as many count as were allowed.
        if self._rate is not None and self._rate.allows(holder := _holder(address)):
            self._rate.take(holder)


def _holder(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address, _OF_ONE), strict=False))
    except ValueError:
        return address
